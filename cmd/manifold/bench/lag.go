package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

func lagCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "lag", "Measure how far a projection is behind a busy log", lag)
	command.Long = `Measure how far a projection is behind a log that is appended to at a steady rate.

The time is from an append's answer until a read with minPosition gives the document with it: what a user waits who reads
what they have just written.`
	command.Flags().Float64Var(&f.rate, "rate", 5000, "events appended a second, one a request")
	command.Flags().IntVar(&f.clients, "clients", 64, "clients that append")
	command.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure")
	command.Flags().DurationVar(&f.warmUp, "warm-up", 2*time.Second, "how long to run before measuring")
	command.Flags().IntVar(&f.streamLength, "stream-length", 100, "events after which a client begins another stream; 0: never")
	return command
}

// readers read documents with minPosition, one after another: that many waits are under way at most.
const readers = 16

// written is an append that a reader is to find.
type written struct {
	stream   string
	position int64
	at       time.Time
}

func lag(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.clients < 1 || f.rate <= 0 {
		return Result{}, errors.New("--clients must be at least 1, --rate more than 0")
	}
	s, err := startService(ctx, f, progress, nil)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	wires, err := s.connect(f.clients + readers)
	if err != nil {
		return Result{}, err
	}
	defer disconnect(wires)
	status, answer, err := wires[0].do("POST", "/v1/projections", "", fmt.Appendf(nil, orders, defaultDatabase))
	if err := want(status, http.StatusCreated, answer, err); err != nil {
		return Result{}, err
	}
	fmt.Fprintf(progress, "appending %.0f events/s for %s ...\n", f.rate, f.duration)
	tickets := make(chan struct{}, f.clients) // a ticket allows an append
	latest := make(chan written, readers)
	var appended atomic.Int64
	clients := make([]client, f.clients)
	for i := range clients {
		post := appender(wires[i], i, f.streamLength, 1)
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
			appended.Add(1)
			select {
			case latest <- written{stream, at.Position, time.Now()}:
			default: // the readers are busy
			}
			return 1, nil
		}
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var done sync.WaitGroup
	done.Go(func() { giveTickets(running, tickets, f.rate) })
	var mu sync.Mutex
	var lags load
	begin := time.Now().Add(f.warmUp)
	for _, w := range wires[f.clients:] {
		done.Go(func() {
			for {
				select {
				case <-running.Done():
					return
				case wrote := <-latest:
					path := fmt.Sprintf("%s/documents/%s?timeout=30&minPosition=%d", ordersPath, wrote.stream, wrote.position)
					status, answer, err := w.do("GET", path, "", nil)
					if err := want(status, http.StatusOK, answer, err); err != nil {
						stop(err)
						return
					}
					if wrote.at.After(begin) {
						mu.Lock()
						lags.count(1, time.Since(wrote.at))
						mu.Unlock()
					}
				}
			}
		})
	}
	measured, err := drive(running, clients, f.warmUp, f.duration, 0)
	stop(errEnough)
	done.Wait()
	if err != nil {
		return Result{}, err
	}
	if lags.latencies == nil {
		return Result{}, errors.New("nothing was measured: --duration is too short")
	}
	measured.latencies = lags.latencies
	result := Result{Name: fmt.Sprintf("lag --rate %.0f", f.rate), Clients: f.clients, what: "lag"}
	result.take(measured)
	result.GeneratorCPU = generatorShare(measured)
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}

// giveTickets hands out rate tickets a second, and no more later for those that could not be handed out in time.
func giveTickets(ctx context.Context, tickets chan<- struct{}, rate float64) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	last, owed := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			owed = min(owed+now.Sub(last).Seconds()*rate, rate/10)
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
