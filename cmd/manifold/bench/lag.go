package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

func lagCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "lag", "Measure a projection's lag behind a busy log",
		`Measure the lag of a projection behind a log to which events are appended at a steady rate.

The lag is the time from the answer to an append until a read with minPosition returns the document. A user who reads what
they have just written waits that long.`,
		lag, "clients", "rate")
	command.Flags().Float64Var(&f.rate, "rate", 5000, "events appended per second, one per request")
	command.Flags().IntVar(&f.clients, "clients", 64, "clients that append")
	f.durationFlags(command, 10*time.Second, 2*time.Second, "")
	return command
}

func lag(ctx context.Context, r *run) error {
	const readers = 16
	if _, err := r.startService(ctx); err != nil {
		return err
	}
	wires, err := r.connect(r.clients + readers)
	if err != nil {
		return err
	}
	if err := wires[0].createProjection(orders, defaultDatabase); err != nil {
		return err
	}
	r.log("appending %.0f events/s for %s", r.rate, r.duration)
	var lags samples
	load := lagLoad{appenders: wires[:r.clients], readers: wires[r.clients:], rate: r.rate, record: lags.add}
	begin := time.Now().Add(r.warmUp)
	measured, err := load.drive(ctx, r.warmUp, r.duration)
	if err != nil {
		return err
	}
	if measured.latencies = lags.since(begin); measured.latencies == nil {
		return errors.New("nothing was measured: --duration is too short")
	}
	r.Name, r.Clients, r.latencyName = fmt.Sprintf("lag --rate %.0f", r.rate), r.clients, "lag"
	return r.finish(ctx, measured, nil)
}

// lagLoad appends to a tenant's log at a steady rate, one event per request. It reads each document of the projection
// orders as soon as it contains the appended event. The lag is the time from the answer to the append until the read
// with minPosition returns the document.
type lagLoad struct {
	appenders, readers []*wire // each reader has one read at a time, which limits the waits under way
	rate               float64 // appends per second
	run                int     // distinguishes the streams of several loads on one log
	// readAll means that each append is read, and that the time waiting for a reader counts. Otherwise an append is
	// read only if a reader is free.
	readAll bool
	record  func(at time.Time, lag time.Duration) // called with each lag and its start, by several goroutines
}

// drive runs the load for a duration after its warm-up, or until ctx ends with errEnough as its cause. It returns
// what was appended after the warm-up.
func (l *lagLoad) drive(ctx context.Context, warmUp, duration time.Duration) (load, error) {
	type write struct {
		appended
		at time.Time
	}
	room := len(l.readers)
	if l.readAll {
		room = max(room, int(l.rate*(warmUp+min(duration, time.Minute)).Seconds()))
	}
	writes := make(chan write, room)
	clients := make([]client, len(l.appenders))
	for i, w := range l.appenders {
		sender := newSender(w, l.run*1000+i, streamLength, 1)
		clients[i] = func(ctx context.Context) (int, error) {
			appended, err := sender.append()
			if err != nil {
				return 0, err
			}
			written := write{appended, time.Now()}
			if l.readAll {
				select {
				case writes <- written:
				case <-ctx.Done():
				}
				return 1, nil
			}
			select {
			case writes <- written:
			default: // all readers are busy
			}
			return 1, nil
		}
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var reading sync.WaitGroup
	for _, w := range l.readers {
		reading.Go(func() {
			for write := range writes {
				path := fmt.Sprintf("%s/documents/%s?timeout=30&minPosition=%d", ordersPath, write.stream, write.position)
				if _, err := w.do("GET", path, "", nil, http.StatusOK); err != nil {
					stop(err)
					return
				}
				l.record(write.at, time.Since(write.at))
				if !l.readAll && running.Err() != nil {
					return
				}
			}
		})
	}
	written, err := drive(running, paced(clients, l.rate), warmUp, duration, 0)
	stop(errEnough) // without effect if a reader has failed
	close(writes)   // no more appends follow
	reading.Wait()
	if cause := context.Cause(running); err == nil && !errors.Is(cause, errEnough) {
		err = cause
	}
	return written, err
}
