package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// stampedLoad appends events at a steady rate. Each event contains the time when it was sent.
type stampedLoad struct {
	appenders []*wire
	rate      float64 // events per second
	batch     int     // events per request
	last      atomic.Int64
	took      samples // latencies of the appends by send time
}

// sentField is the field in the data of stamped events, in nanoseconds since 1970.
const sentField = `"sent":`

// drive runs the load for a duration after its warm-up, or until ctx ends. It returns what was appended after the
// warm-up.
func (l *stampedLoad) drive(ctx context.Context, warmUp, duration time.Duration) (load, error) {
	tickets := make(chan struct{}, len(l.appenders)) // a ticket permits one append
	clients := make([]client, len(l.appenders))
	for i, w := range l.appenders {
		goods, at := newSales(i), newCursor(os.Getpid(), i, streamLength)
		var body []byte
		clients[i] = func(ctx context.Context) (int, error) {
			select {
			case <-tickets:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			stream, version := at.advance(l.batch)
			now := time.Now()
			body = append(body[:0], '[')
			for i := range l.batch {
				if i > 0 {
					body = append(body, ',')
				}
				body = append(body, `{"type":"`...)
				body = append(body, kind(version+int64(i)+1)...)
				body = append(body, `","id":"`...)
				body = append(body, domain.NewEventID().String()...)
				body = append(body, `","data":{`+sentField...)
				body = strconv.AppendInt(body, now.UnixNano(), 10)
				begin := len(body)
				body = goods.data(body)
				body[begin] = ',' // the rest of the object
				body = append(body, '}')
			}
			body = append(body, ']')
			status, answer, err := w.do("POST", "/v1/streams/"+stream+"/events", "Expected-Version: "+strconv.FormatInt(version, 10)+"\r\n", body)
			if err := want(status, http.StatusCreated, answer, err); err != nil {
				return 0, err
			}
			l.took.add(now, time.Since(now))
			var appended struct{ Position int64 }
			if err := json.Unmarshal(answer, &appended); err != nil {
				return 0, err
			}
			for last := l.last.Load(); last < appended.Position && !l.last.CompareAndSwap(last, appended.Position); {
				last = l.last.Load()
			}
			return l.batch, nil
		}
	}
	ctx, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { giveTickets(ctx, tickets, l.rate/float64(l.batch)) })
	defer done.Wait()
	defer stop()
	return drive(ctx, clients, warmUp, duration, 0)
}

// sentAt returns when stampedLoad sent an event.
func sentAt(frame []byte) (time.Time, error) {
	nanoseconds, ok := numberIn(frame, sentField)
	if !ok {
		return time.Time{}, fmt.Errorf("an event does not say when it was sent: %.400q", frame)
	}
	return time.Unix(0, nanoseconds), nil
}

// patience is how long subscribers may take for the remaining events after the last append.
const patience = 30 * time.Second

// errLate is the error of a run whose subscribers do not receive all events in time.
var errLate = errors.New("some subscribers have not had all events " + patience.String() + " behind the last append")

// awaitLast waits until reached reports that all subscribers have received the last position.
func (l *stampedLoad) awaitLast(ctx context.Context, reached func(position int64) bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	over := time.After(patience)
	for !reached(l.last.Load()) {
		select {
		case <-tick.C:
		case <-over:
			return errLate
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
