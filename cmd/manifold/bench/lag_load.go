package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// lagLoad appends to a tenant's log at a steady rate, one event per request. It reads each document as soon as it
// contains the appended event. The lag is the time from the answer to the append until the read with minPosition
// returns the document.
type lagLoad struct {
	appenders, readers []*wire // each reader has one read at a time, which limits the waits under way
	path               string  // of the projection, whose documents are named after streams
	rate               float64 // appends per second
	run                int     // distinguishes the streams of several loads on one log
	// every means that each append is read, and that the time waiting for a reader counts. Otherwise an append is
	// read only if a reader is free.
	every  bool
	record func(at time.Time, lag time.Duration) // called with each lag and its start, by several goroutines
}

// written is an append that a reader must find.
type written struct {
	stream   string
	position int64
	at       time.Time
}

// drive runs the load for a duration after its warm-up, or until ctx ends with errEnough as its cause. It returns
// what was appended after the warm-up.
func (l *lagLoad) drive(ctx context.Context, warmUp, duration time.Duration) (appended load, err error) {
	tickets := make(chan struct{}, len(l.appenders)) // a ticket permits one append
	room := len(l.readers)
	if l.every {
		room = max(room, int(l.rate*(warmUp+min(duration, time.Minute)).Seconds()))
	}
	latest := make(chan written, room)
	clients := make([]client, len(l.appenders))
	for i := range clients {
		post := appender(l.appenders[i], l.run*1000+i, streamLength, 1)
		clients[i] = func(ctx context.Context) (int, error) {
			select {
			case <-tickets:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			stream, answer, err := post()
			if err != nil {
				return 0, err
			}
			var at struct{ Position int64 }
			if err := json.Unmarshal(answer, &at); err != nil {
				return 0, err
			}
			wrote := written{stream, at.Position, time.Now()}
			select {
			case latest <- wrote:
				return 1, nil
			default: // all readers are busy
			}
			if l.every {
				select {
				case latest <- wrote:
				case <-ctx.Done():
				}
			}
			return 1, nil
		}
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var done sync.WaitGroup
	done.Go(func() { giveTickets(running, tickets, l.rate) })
	read := func(w *wire, wrote written) error {
		path := fmt.Sprintf("%s/documents/%s?timeout=30&minPosition=%d", l.path, wrote.stream, wrote.position)
		status, answer, err := w.do("GET", path, "", nil)
		if err := want(status, http.StatusOK, answer, err); err != nil {
			return err
		}
		l.record(wrote.at, time.Since(wrote.at))
		return nil
	}
	for _, w := range l.readers {
		done.Go(func() {
			for wrote := range latest {
				if err := read(w, wrote); err != nil {
					stop(err)
					return
				}
				if !l.every && running.Err() != nil {
					return
				}
			}
		})
	}
	appended, err = drive(running, clients, warmUp, duration, 0)
	stop(errEnough) // unless a reader has failed
	close(latest)   // no more appends follow
	done.Wait()
	if cause := context.Cause(running); err == nil && !errors.Is(cause, errEnough) {
		err = cause
	}
	return appended, err
}

// giveTickets issues rate tickets per second. It does not make up for tickets that it could not issue in time.
func giveTickets(ctx context.Context, tickets chan<- struct{}, rate float64) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	last, owed := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			owed = min(owed+now.Sub(last).Seconds()*rate, max(1, rate/10))
			last = now
		}
	give:
		for owed >= 1 {
			select {
			case tickets <- struct{}{}:
				owed--
			default:
				break give
			}
		}
	}
}
