package systemtest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
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
func TestRetentionSurvivesKilledProcesses(t *testing.T) {
	t.Parallel()
	r := chance(t)
	db := pgtest.Database(t)
	both := serveTwo(t, db, atOnce...)
	newRetentionWorkload(t, both, r).run(func(await func(int64)) {
		for range 2 {
			await(int64(20 + r.IntN(80)))
			one := both[r.IntN(2)]
			one.kill()
			await(int64(r.IntN(40)))
			one.start()
		}
	})
}

func TestRetentionSurvivesKilledPostgreSQL(t *testing.T) {
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
