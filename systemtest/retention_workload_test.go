package systemtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/domain"
)

// retained names an event by its place, which nobody else ever has.
type retained struct {
	stream  string
	version int64
}

type retentionWorkload struct {
	t        *testing.T
	user     user
	seed     atomic.Uint64
	appended atomic.Int64
	good     atomic.Bool // the group's consumers acknowledge everything

	mu        sync.Mutex
	events    map[retained]int64 // what was appended: the number in it
	positions map[int64]retained // as answers, deliveries and frames have said
	delivered map[retained]bool  // by the group
	head      int64
}

// retainedFollower follows the whole log. Its fields are under the workload's lock.
type retainedFollower struct {
	seen    map[int64]bool
	covered map[int64]bool // by the gaps that it received
	next    int64          // where it continues
}

func newRetainedFollower() *retainedFollower {
	return &retainedFollower{seen: map[int64]bool{}, covered: map[int64]bool{}, next: 1}
}

func newRetentionWorkload(t *testing.T, at site, r *rand.Rand) *retentionWorkload {
	_, u := newTenant(t, newUser(t, at, operatorKey), "acme")
	w := &retentionWorkload{
		t: t, user: u, events: map[retained]int64{}, positions: map[int64]retained{}, delivered: map[retained]bool{},
	}
	w.seed.Store(r.Uint64())
	for _, name := range []string{"followed", "rebuilt"} {
		u.must(t, 201, nil, "PUT", "/v1/projections/"+name, retainedDefinition(1))
	}
	u.must(t, 201, nil, "PUT", "/v1/subscriptions/lagging", map[string]any{
		"ordering": "stream", "maxInFlight": 300, "ackTimeout": 1, "maxAttempts": 3, "backoff": map[string]any{"min": 0.02, "max": 0.1},
	})
	return w
}

// retainedDefinition counts and adds up by stream.
func retainedDefinition(edition int) map[string]any {
	return map[string]any{"on": map[string]string{"*": fmt.Sprintf(
		`{"edition": %d, "n": doc.?n.orValue(0) + 1, "sum": doc.?sum.orValue(0) + event.data.n, "version": event.version}`, edition)}}
}

func (w *retentionWorkload) chance() *rand.Rand { return rand.New(rand.NewPCG(w.seed.Add(1), 0)) }

// at notes where an event is; two at one place, or one at two, are an error.
func (w *retentionWorkload) at(position int64, e retained) error {
	if other, ok := w.positions[position]; ok && other != e {
		return fmt.Errorf("position %d was that of %v, and is that of %v", position, other, e)
	}
	w.positions[position] = e
	w.head = max(w.head, position)
	return nil
}

// append is one client with separate streams. When it repeats a request, the event and its id may already be removed.
// Then the stream's version shows that it was appended.
func (w *retentionWorkload) append(ctx, quit context.Context, n int) error {
	r := w.chance()
	versions := make(map[string]int64)
	for i := int64(0); quit.Err() == nil; i++ {
		stream := fmt.Sprintf("%s-%d-%d", []string{countedCategory, compactCategory, keptCategory}[r.IntN(3)], n, r.IntN(retainedStreams))
		from := versions[stream]
		body := client.StreamAppend{Stream: stream, ExpectedVersion: version(from)}
		w.mu.Lock()
		for k := range int64(1 + r.IntN(3)) {
			number := i*10 + k
			w.events[retained{stream, from + k + 1}] = number
			body.Events = append(body.Events, client.NewEvent{Id: eventID(stream, from+k+1), Type: "Counted", Data: fmt.Appendf(nil, `{"n":%d}`, number)})
		}
		w.mu.Unlock()
		a, err := w.user.call(ctx, n, "POST", "/v1/append", client.AppendRequest{Streams: []client.StreamAppend{body}})
		if err != nil {
			return err
		}
		versions[stream] += int64(len(body.Events))
		var problem client.Problem
		switch {
		case a.status == http.StatusConflict && json.Unmarshal(a.body, &problem) == nil && problem.Code == string(domain.CodeVersionConflict) &&
			problem.CurrentVersion != nil && *problem.CurrentVersion == versions[stream]:
		case a.status/100 != 2:
			return fmt.Errorf("append to %s behind version %d: %s", stream, from, a)
		default:
			var appended client.Appended
			if err := json.Unmarshal(a.body, &appended); err != nil {
				return err
			}
			w.mu.Lock()
			for _, e := range appended.Streams[0].Events {
				if err := w.at(e.Position, retained{stream, e.Version}); err != nil {
					w.mu.Unlock()
					return err
				}
			}
			w.mu.Unlock()
		}
		w.appended.Add(int64(len(body.Events)))
		rest(quit, time.Duration(r.IntN(40))*time.Millisecond)
	}
	return nil
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// consume is one of the group's consumers: slow, and at times it fails.
func (w *retentionWorkload) consume(ctx context.Context, n int) error {
	r := w.chance()
	for ctx.Err() == nil {
		batch := 1 + r.IntN(20)
		if w.good.Load() {
			batch = 200
		}
		a, err := w.user.once(ctx, n+r.IntN(2), "POST", "/v1/subscriptions/lagging/receive", map[string]any{"batch": batch, "wait": 0.5})
		if err != nil || a.status == http.StatusServiceUnavailable {
			continue
		}
		var received client.Deliveries
		if err := a.decode(http.StatusOK, &received); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		answers := map[string][]client.Attempt{}
		w.mu.Lock()
		for _, d := range received.Deliveries {
			e := retained{d.Event.Stream, d.Event.Version}
			err := w.at(d.Event.Position, e)
			if err == nil && d.Gap != nil {
				err = fmt.Errorf("event %d reports the gap %+v: retention removed events that the group had to read", d.Event.Position, *d.Gap)
			}
			if err == nil {
				err = w.mustBe(d.Event)
			}
			if err != nil {
				w.mu.Unlock()
				return err
			}
			w.delivered[e] = true
			how := "ack"
			if !w.good.Load() {
				how = []string{"ack", "ack", "ack", "ack", "ack", "ack", "ack", "retry", "park", "never"}[r.IntN(10)]
			}
			answers[how] = append(answers[how], client.Attempt{Id: d.Event.Id, Attempt: d.Attempt})
		}
		w.mu.Unlock()
		for how, attempts := range answers {
			path, body := "/nack", map[string]any{"ids": attempts, "action": how}
			switch how {
			case "never":
				continue
			case "ack":
				path, body = "/ack", map[string]any{"ids": attempts}
			}
			// An event whose answer is lost is redelivered.
			if a, err := w.user.once(ctx, n, "POST", "/v1/subscriptions/lagging"+path, body); err == nil && a.status/100 == 4 {
				return fmt.Errorf("%s: %s", how, a)
			}
		}
		if !w.good.Load() {
			rest(ctx, time.Duration(20+r.IntN(40))*time.Millisecond)
		}
	}
	return nil
}

// mustBe compares an event with what was appended. The caller must hold w.mu.
func (w *retentionWorkload) mustBe(e client.Event) error {
	number, ok := w.events[retained{e.Stream, e.Version}]
	if !ok {
		return fmt.Errorf("version %d of %s was never appended", e.Version, e.Stream)
	}
	var data struct{ N int64 }
	if err := json.Unmarshal(e.Data, &data); err != nil || data.N != number {
		return fmt.Errorf("version %d of %s is %s; it was %d", e.Version, e.Stream, e.Data, number)
	}
	return nil
}

// follow follows the whole log, and continues where it was when something breaks, or when it was away for a while.
func (w *retentionWorkload) follow(ctx context.Context, f *retainedFollower) error {
	r := w.chance()
	for n := 0; ctx.Err() == nil; n++ {
		if err := w.followOnce(ctx, f, n, 1+r.IntN(300)); err != nil && ctx.Err() == nil {
			return err
		}
		rest(ctx, time.Duration(r.IntN(500))*time.Millisecond)
	}
	return nil
}

// followOnce follows until the connection breaks, or until it has received that many frames. It returns an error only
// for a violation.
func (w *retentionWorkload) followOnce(ctx context.Context, f *retainedFollower, n, frames int) error {
	address, err := w.user.site.address(ctx, n)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://%s/v1/subscribe/$all?from=%d", address, f.next), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+w.user.key)
	response, err := w.user.http.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil
	}
	in := bufio.NewReader(response.Body)
	for range frames {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil
		}
		var frame struct {
			Event                *client.Event
			CaughtUp, Checkpoint *struct{ Position int64 }
			Gap                  *client.Gap
		}
		if err := json.Unmarshal(line, &frame); err != nil {
			return fmt.Errorf("a frame is %q: %w", line, err)
		}
		w.mu.Lock()
		switch {
		case frame.Gap != nil:
			for p := frame.Gap.From; p <= frame.Gap.To; p++ {
				f.covered[p] = true
			}
		case frame.Event != nil:
			if err = w.mustBe(*frame.Event); err == nil {
				err = w.at(frame.Event.Position, retained{frame.Event.Stream, frame.Event.Version})
			}
			for p := f.next; err == nil && p < frame.Event.Position; p++ {
				if !f.seen[p] && !f.covered[p] {
					err = fmt.Errorf("behind position %d a follower is given %d, and was not told that %d is gone", f.next-1, frame.Event.Position, p)
				}
			}
			f.seen[frame.Event.Position] = true
			f.next = frame.Event.Position + 1
		case frame.CaughtUp != nil:
			f.next = max(f.next, frame.CaughtUp.Position+1)
		case frame.Checkpoint != nil:
			f.next = max(f.next, frame.Checkpoint.Position+1)
		}
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
