package systemtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// These tests run retention together with every kind of reader. Clients append to three categories: one keeps its
// newest events, one keeps the newest event of each stream, and one keeps all. A projection follows, another one is
// rebuilt, a group lags behind and its consumers fail, and a follower reads the log.
//
// Retention must not remove an event that one of them still has to read. Documents must equal those of all events
// ever appended. Readers for which retention does not wait, or no longer waits by force, must be notified of what is
// gone.

const (
	countedCategory, compactCategory, keptCategory = "counted", "compact", "kept"
	countKept                                      = 25
	retainedStreams                                = 5 // of each category and appender
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

func (w *retentionWorkload) put(category string, policy map[string]any) {
	w.t.Helper()
	a, err := w.user.call(w.t.Context(), 0, "PUT", "/v1/retention/"+category, policy)
	if err != nil || a.status/100 != 2 {
		w.t.Fatalf("put a policy for %s: %s, %v", category, a, err)
	}
}

func (w *retentionWorkload) policy(category string) (p client.RetentionPolicy) {
	w.t.Helper()
	w.user.must(w.t, 200, &p, "GET", "/v1/retention/"+category, nil)
	return p
}

// until waits for something that can only be looked at. If it waits in vain, it logs what keeps the policies from
// removing more.
func (w *retentionWorkload) until(what string, holds func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	for !holds() {
		if rest(ctx, 50*time.Millisecond); ctx.Err() == nil {
			continue
		}
		for _, category := range []string{countedCategory, compactCategory} {
			a, err := w.user.call(w.t.Context(), 0, "GET", "/v1/retention/"+category, nil)
			w.t.Logf("the policy of %s: %s, %v", category, a, err)
		}
		w.t.Fatalf("waited in vain: %s", what)
	}
}

// left returns the remaining events of the log, by category. Their order, versions and positions must be those of the
// appended events.
func (w *retentionWorkload) left() map[string][]retained {
	w.t.Helper()
	left := map[string][]retained{}
	position := int64(0)
	for path := "/v1/streams/$all?count=1000"; path != ""; {
		a, err := w.user.call(w.t.Context(), 0, "GET", path, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		var page client.EventList
		if err := a.decode(200, &page); err != nil {
			w.t.Fatal(err)
		}
		w.mu.Lock()
		for _, e := range page.Events {
			if e.Position <= position {
				w.t.Fatalf("behind position %d comes %d", position, e.Position)
			}
			position = e.Position
			if err := w.mustBe(e); err != nil {
				w.t.Fatal(err)
			}
			place := retained{e.Stream, e.Version}
			if err := w.at(e.Position, place); err != nil {
				w.t.Fatal(err)
			}
			category := domain.Category(e.Stream)
			left[category] = append(left[category], place)
		}
		w.mu.Unlock()
		path = a.next()
	}
	return left
}

// shouldBeLeft returns the events that the policies keep.
func (w *retentionWorkload) shouldBeLeft() map[string][]retained {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string][]retained{}
	newest := map[string]int64{}
	for e := range w.events {
		newest[e.stream] = max(newest[e.stream], e.version)
	}
	for _, position := range slices.Sorted(maps.Keys(w.positions)) {
		e := w.positions[position]
		category := domain.Category(e.stream)
		if category == compactCategory && e.version < newest[e.stream] {
			continue
		}
		all[category] = append(all[category], e)
	}
	counted := all[countedCategory]
	all[countedCategory] = counted[max(0, len(counted)-countKept):]
	return all
}

// difference describes how the remaining events differ from those that the policies keep; it is empty if they do not.
func (w *retentionWorkload) difference() (text string) {
	w.t.Helper()
	left, want := w.left(), w.shouldBeLeft()
	for _, category := range []string{countedCategory, compactCategory, keptCategory} {
		if !slices.Equal(left[category], want[category]) {
			text += fmt.Sprintf("of %s are left\n%v\nand should be\n%v\n", category, left[category], want[category])
		}
	}
	return text
}

// documents compares a projection's documents with a fold of the given events: all that were appended, or those that
// are left.
func (w *retentionWorkload) documents(name string, edition int64, of func(retained) bool) {
	w.t.Helper()
	documents, err := w.user.documents(w.t.Context(), name, 100, w.head)
	if err != nil {
		w.t.Fatal(err)
	}
	type folded struct{ Edition, N, Sum, Version int64 }
	want, got := map[string]folded{}, map[string]folded{}
	for e, number := range w.events {
		if of(e) {
			f := want[e.stream]
			want[e.stream] = folded{edition, f.N + 1, f.Sum + number, max(f.Version, e.version)}
		}
	}
	for _, d := range documents {
		var f folded
		if err := json.Unmarshal(d.Document, &f); err != nil {
			w.t.Fatal(err)
		}
		got[d.Id] = f
	}
	if !maps.Equal(got, want) {
		w.t.Errorf("the documents of %s are\n%v, a fold gives\n%v", name, got, want)
	}
}

func (w *retentionWorkload) loss(name string) []client.Loss {
	w.t.Helper()
	var state client.ProjectionState
	w.user.must(w.t, 200, &state, "GET", "/v1/projections/"+name+"/state", nil)
	return state.Loss
}

func (w *retentionWorkload) rebuild(body map[string]any) (r client.Rebuild) {
	w.t.Helper()
	w.user.must(w.t, 202, &r, "POST", "/v1/projections/rebuilt/rebuilds", body)
	return r
}

func (w *retentionWorkload) swapped(id string) (r client.Rebuild) {
	w.t.Helper()
	w.until("the rebuild's end", func() bool {
		r = client.Rebuild{}
		w.user.must(w.t, 200, &r, "GET", "/v1/projections/rebuilt/rebuilds/"+id, nil)
		return r.EndedAt != nil
	})
	if r.State != "swapped" {
		w.t.Fatalf("the rebuild is %+v", r)
	}
	return r
}

func (w *retentionWorkload) run(disturb func(await func(events int64))) {
	t := w.t
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	quit, calm := context.WithCancel(ctx)
	defer calm()
	var appenders, others errgroup.Group
	watched := func(err error) error {
		if err != nil {
			cancel()
		}
		return err
	}
	for n := range 2 {
		appenders.Go(func() error { return watched(w.append(ctx, quit, n)) })
	}
	reading, enough := context.WithCancel(ctx)
	defer enough()
	for n := range 2 {
		others.Go(func() error { return watched(w.consume(reading, n)) })
	}
	follower := newRetainedFollower()
	others.Go(func() error { return watched(w.follow(reading, follower)) })
	fail := func() {
		if ctx.Err() != nil {
			t.Fatal(appenders.Wait(), others.Wait())
		}
	}
	await := func(events int64) {
		for before := w.appended.Load(); w.appended.Load() < before+events && ctx.Err() == nil; {
			rest(ctx, 10*time.Millisecond)
		}
		fail()
	}

	// Nothing is removed while a rebuild is under way.
	await(60)
	held := w.rebuild(map[string]any{"definition": retainedDefinition(2), "approve": "manual"})
	w.put(countedCategory, map[string]any{"maxCount": countKept})
	w.put(compactCategory, map[string]any{"compact": true})
	disturb(await)
	for _, category := range []string{countedCategory, compactCategory} {
		w.until("a run that the rebuild delays", func() bool {
			return slices.ContainsFunc(w.policy(category).HeldBy, func(h client.RetentionHold) bool { return h.Kind == "rebuild" })
		})
		if p := w.policy(category); p.Removed != 0 {
			t.Fatalf("a rebuild is under way, and of %s %d events went", category, p.Removed)
		}
	}
	w.until("that the rebuild waits", func() bool {
		var r client.Rebuild
		w.user.must(t, 200, &r, "GET", "/v1/projections/rebuilt/rebuilds/"+held.Id, nil)
		return r.State == "awaiting-approval"
	})
	w.user.must(t, 202, nil, "POST", "/v1/projections/rebuilt/rebuilds/"+held.Id+"/approve", nil)
	if r := w.swapped(held.Id); len(r.Loss) > 0 {
		t.Errorf("it has lost %v", r.Loss)
	}

	// From here on, events are removed up to the group's position.
	for _, category := range []string{countedCategory, compactCategory} {
		w.until("that events of "+category+" go", func() bool {
			fail()
			return w.policy(category).Removed > 0
		})
	}
	disturb(await)
	a, err := w.user.call(ctx, 0, "POST", "/v1/projections/rebuilt/rebuilds", nil)
	if err != nil || a.status != http.StatusConflict || a.code() != string(domain.CodeEventsRemoved) {
		t.Fatalf("a rebuild over what is gone: %s, %v", a, err)
	}
	calm()
	if err := appenders.Wait(); err != nil {
		t.Fatal(err)
	}
	w.drain(fail)
	for _, name := range []string{"followed", "rebuilt"} {
		w.documents(name, map[string]int64{"followed": 1, "rebuilt": 2}[name], func(retained) bool { return true })
		if lost := w.loss(name); len(lost) > 0 {
			t.Errorf("%s lacks %v", name, lost)
		}
	}
	var difference string
	defer func() {
		if t.Failed() {
			t.Log(difference)
		}
	}()
	w.until("that all has gone that should", func() bool {
		fail()
		difference = w.difference()
		return difference == ""
	})
	// A follower that begins now receives the remaining events, and is notified of the gaps.
	late := newRetainedFollower()
	others.Go(func() error { return watched(w.follow(reading, late)) })
	w.until("that the followers are there", func() bool {
		fail()
		w.mu.Lock()
		defer w.mu.Unlock()
		return follower.next > w.head && late.next > w.head
	})
	enough()
	if err := others.Wait(); err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		return
	}
	left := slices.Concat(slices.Collect(maps.Values(w.left()))...)
	if len(late.seen) < len(left) { // there may be more: what a process has in memory for its followers is given
		t.Errorf("a late follower was given %d events; %d are left", len(late.seen), len(left))
	}
	t.Logf("%d events, %d of them left; a follower has missed %d, a late one %d", len(w.events), len(left), len(w.events)-len(follower.seen), len(w.events)-len(late.seen))
	w.acceptLoss()
	w.force()
}

// drain lets the group finish. It must have received all of its events, and none of them may have been removed
// before.
func (w *retentionWorkload) drain(fail func()) {
	w.t.Helper()
	w.good.Store(true)
	for drained := false; !drained; {
		w.until("that the group has settled all", func() bool {
			fail()
			var status client.Subscription
			w.user.must(w.t, 200, &status, "GET", "/v1/subscriptions/lagging", nil)
			p := status.Progress[0]
			drained = p.DeadLetters == 0
			return p.ReadTo >= status.Head && p.InFlight == 0 && p.Retrying == 0 && p.Oldest == nil
		})
		if !drained { // what was parked, whose events were spared
			w.user.must(w.t, 202, nil, "POST", "/v1/subscriptions/lagging/dead-letters/replay", nil)
			w.until("that dead letters are delivered", func() bool {
				fail()
				var letters client.DeadLetterList
				w.user.must(w.t, 200, &letters, "GET", "/v1/subscriptions/lagging/dead-letters", nil)
				for _, letter := range letters.DeadLetters {
					if letter.Event.Data == nil {
						w.t.Fatalf("the event of dead letter %d is gone", letter.Event.Position)
					}
				}
				return len(letters.DeadLetters) == 0
			})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for e := range w.events {
		if !w.delivered[e] {
			w.t.Errorf("version %d of %s was never delivered", e.version, e.stream)
		}
	}
}

// acceptLoss rebuilds although events are missing.
func (w *retentionWorkload) acceptLoss() {
	w.t.Helper()
	r := w.swapped(w.rebuild(map[string]any{"definition": retainedDefinition(3), "acceptLoss": true}).Id)
	if len(r.Loss) != 2 || r.Loss[0].Category != compactCategory || r.Loss[1].Category != countedCategory || r.Loss[0].RemovedTo == 0 {
		w.t.Errorf("it says that it has lost %v", r.Loss)
	}
	left := map[retained]bool{}
	for _, events := range w.left() {
		for _, e := range events {
			left[e] = true
		}
	}
	w.documents("rebuilt", 3, func(e retained) bool { return left[e] })
	if lost := w.loss("rebuilt"); fmt.Sprint(lost) != fmt.Sprint(r.Loss) {
		w.t.Errorf("the projection says that it lacks %v, its rebuild that it has lost %v", lost, r.Loss)
	}
}

// force makes retention stop waiting for a group, and the group must be notified.
func (w *retentionWorkload) force() {
	w.t.Helper()
	w.user.must(w.t, 201, nil, "PUT", "/v1/subscriptions/absent", map[string]any{"source": map[string]any{"categories": []string{countedCategory}}, "from": "end"})
	stream := countedCategory + "-forced"
	for n := range int64(2 * countKept) {
		e := retained{stream, n + 1}
		var appended client.Appended
		w.user.must(w.t, 201, &appended, "POST", "/v1/append", client.AppendRequest{Streams: []client.StreamAppend{{
			Stream: stream, Events: []client.NewEvent{{Id: eventID(stream, n+1), Type: "Counted", Data: []byte(`{"n":1}`)}},
		}}})
		w.events[e] = 1
		if err := w.at(appended.Position, e); err != nil {
			w.t.Fatal(err)
		}
	}
	lagging := "/v1/subscriptions/lagging"
	w.user.must(w.t, 204, nil, "DELETE", lagging, nil)
	w.until("that the group holds events", func() bool {
		held := w.policy(countedCategory).HeldBy
		return len(held) == 1 && held[0].Name == "absent"
	})
	if got := len(w.left()[countedCategory]); got < 2*countKept {
		w.t.Fatalf("%d events are left, of which the group still has to read %d", got, 2*countKept)
	}
	w.put(countedCategory, map[string]any{"maxCount": countKept, "force": map[string]any{"groups": []string{"absent"}}})
	w.until("that they go by force", func() bool { return len(w.left()[countedCategory]) == countKept })
	var received client.Deliveries
	w.user.must(w.t, 200, &received, "POST", "/v1/subscriptions/absent/receive", map[string]any{"batch": 1000})
	if len(received.Deliveries) != countKept || received.Deliveries[0].Gap == nil || received.Deliveries[0].Gap.To >= received.Deliveries[0].Event.Position {
		w.t.Errorf("the group is given %d events, the first of them with %+v", len(received.Deliveries), received.Deliveries[0].Gap)
	}
	var status client.Subscription
	w.user.must(w.t, 200, &status, "GET", "/v1/subscriptions/absent", nil)
	if policy := w.policy(countedCategory); status.RemovedTo != policy.RemovedTo || policy.RemovedTo == 0 {
		w.t.Errorf("the group says that events went up to %d, the policy up to %d", status.RemovedTo, policy.RemovedTo)
	}
	w.documents("followed", 1, func(retained) bool { return true })
	if lost := w.loss("followed"); len(lost) > 0 {
		w.t.Errorf("the projection lacks %v", lost)
	}
}

// atOnce are settings by which events go without delay.
var atOnce = []string{"MANIFOLD_RETENTION_GRACE=0s", "MANIFOLD_RETENTION_EVERY=100ms", "MANIFOLD_RETENTION_SHARE=1"}

func TestRetention(t *testing.T) {
	t.Parallel()
	r := chance(t)
	c := configuration(pgtest.Database(t))
	c.Retention = config.Retention{Every: 100 * time.Millisecond, Share: 1}
	newRetentionWorkload(t, inside(t, c), r).run(func(await func(int64)) { await(200) })
}

// Two processes share the work, and are killed again and again.
func TestRetentionOfProcessesThatAreKilled(t *testing.T) {
	t.Parallel()
	r := chance(t)
	db := pgtest.Database(t)
	both := services{serve(t, db, atOnce...), serve(t, db, atOnce...)}
	newRetentionWorkload(t, both, r).run(func(await func(int64)) {
		for range 3 {
			await(int64(20 + r.IntN(80)))
			one := both[r.IntN(2)]
			one.kill()
			await(int64(r.IntN(40)))
			one.start()
		}
	})
}

func TestRetentionWherePostgreSQLIsKilled(t *testing.T) {
	t.Parallel()
	r := chance(t)
	server := pgtest.Private(t, pgtest.Options{})
	db := pgtest.Migrated(t, server)
	newRetentionWorkload(t, services{serve(t, db, atOnce...)}, r).run(func(await func(int64)) {
		for range 2 {
			await(int64(30 + r.IntN(80)))
			server.Kill()
			if err := server.Restart(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
