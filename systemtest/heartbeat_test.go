package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// processState is the state of each process from its heartbeats, as in docs/guides/heartbeat.md.
const processState = `{
  "name": "process.state", "source": {"categories": ["heartbeat.received"]}, "publishChanges": true,
  "key": "event.data.host + ':' + event.data.name + ':' + string(event.data.pid)",
  "on": {"heartbeat.received": "event.data.status == 'stopped' ? null : {'host': event.data.host, 'name': event.data.name, 'pid': event.data.pid, 'status': event.data.status}"}
}`

// fleet is a set of hosts whose processes send heartbeats, the heartbeats sent, and a pager.
type fleet struct {
	t     *testing.T
	user  user
	mu    sync.Mutex
	state map[string]string // the last published state of each process by key; missing: it has stopped

	mended  atomic.Bool // the pager answers
	rings   sync.Map    // event id -> true: those that the pager has taken
	refused sync.Map    // event id -> true: those that it has failed for
}

// beat publishes heartbeats of one host until quit ends: a message, or several.
func (f *fleet) beat(ctx context.Context, quit <-chan struct{}, host int, r *rand.Rand) error {
	for n := 0; ; n++ {
		select {
		case <-quit:
			return nil
		case <-time.After(time.Duration(10+r.IntN(60)) * time.Millisecond):
		}
		states := make(map[string]string)
		var messages []map[string]any
		for i := range 1 + r.IntN(4) {
			name, pid := []string{"api", "mail"}[r.IntN(2)], 1+r.IntN(2)
			status := []string{"up", "up", "up", "failing", "stopped"}[r.IntN(5)]
			states[fmt.Sprintf("web-%d:%s:%d", host, name, pid)] = status
			messages = append(messages, map[string]any{
				"id":    domain.DeriveEventID("heartbeat", fmt.Sprint(host, n, i)).String(),
				"topic": "heartbeat.received", "key": fmt.Sprintf("web-%d", host), "payload": map[string]any{"host": fmt.Sprintf("web-%d", host), "name": name, "pid": pid, "status": status},
			})
		}
		a, err := f.user.call(ctx, host, "POST", "/v1/publish", messages)
		if err != nil {
			return err
		}
		if a.status/100 != 2 {
			return fmt.Errorf("publish: %s", a)
		}
		f.mu.Lock()
		for key, status := range states {
			if f.state[key] = status; status == "stopped" {
				delete(f.state, key)
			}
		}
		f.mu.Unlock()
	}
}

// processChange is the data of an event of process.state.changed.
type processChange struct {
	Document string
	Version  int64
	Data     *struct{ Status string }
}

// page acts as the pager until ctx ends. While it is out of order, it fails for every process that is out of order or
// gone.
func (f *fleet) page(ctx context.Context, n int) error {
	for ctx.Err() == nil {
		a, err := f.user.once(ctx, n, "POST", "/v1/subscriptions/pager/receive", map[string]any{"batch": 20, "wait": 0.5})
		if err != nil || a.status == http.StatusServiceUnavailable {
			n++
			continue // the delivery is lost, and is redelivered
		}
		var received client.Deliveries
		if err := a.decode(http.StatusOK, &received); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		var good, bad []client.Attempt
		for _, d := range received.Deliveries {
			var change processChange
			if err := json.Unmarshal(d.Event.Data, &change); err != nil {
				return err
			}
			attempt := client.Attempt{Id: d.Event.Id, Attempt: d.Attempt}
			if f.mended.Load() || change.Data != nil && change.Data.Status == "up" {
				good = append(good, attempt)
				f.rings.Store(d.Event.Id, true)
			} else {
				bad = append(bad, attempt)
				f.refused.Store(d.Event.Id, true)
			}
		}
		if len(good) > 0 {
			_, _ = f.user.once(ctx, n, "POST", "/v1/subscriptions/pager/ack", map[string]any{"ids": good}) // if it is lost, the event is redelivered
		}
		if len(bad) > 0 {
			_, _ = f.user.once(ctx, n, "POST", "/v1/subscriptions/pager/nack", map[string]any{"ids": bad, "reason": "the pager does not answer"})
		}
	}
	return nil
}

// changes folds the published events of process.state. Each change must exist once, in order, and must be caused by a
// heartbeat.
func (f *fleet) changes(ctx context.Context) (events []client.Event, states map[string]string, err error) {
	states, versions, heartbeats := make(map[string]string), make(map[string]int64), make(map[string]bool)
	for from := int64(1); ; {
		a, err := f.user.call(ctx, 0, "GET", fmt.Sprintf("/v1/streams/$all?from=%d&count=1000", from), nil)
		if err != nil {
			return nil, nil, err
		}
		var page client.EventList
		if err := a.decode(http.StatusOK, &page); err != nil {
			return nil, nil, err
		}
		for _, event := range page.Events {
			from = event.Position + 1
			if event.Type == "heartbeat.received" {
				heartbeats[event.Id] = true
				continue
			}
			events = append(events, event)
			var change processChange
			var metadata struct {
				CausedBy string `json:"caused_by"`
			}
			if err := json.Unmarshal(event.Data, &change); err != nil {
				return nil, nil, err
			}
			if err := json.Unmarshal(event.Metadata, &metadata); err != nil || !heartbeats[metadata.CausedBy] {
				return nil, nil, fmt.Errorf("the change at %d is caused by %s", event.Position, event.Metadata)
			}
			before, there := states[change.Document]
			switch {
			case event.Stream != "process.state.changed-"+change.Document || event.Type != "process.state.changed":
				return nil, nil, fmt.Errorf("%s is a %s of %s", event.Stream, event.Type, change.Document)
			case change.Version <= versions[change.Document]:
				return nil, nil, fmt.Errorf("the change at %d is of version %d, after version %d", event.Position, change.Version, versions[change.Document])
			case change.Data == nil && !there, change.Data != nil && there && change.Data.Status == before:
				return nil, nil, fmt.Errorf("the change at %d changes nothing", event.Position)
			case change.Data == nil:
				delete(states, change.Document)
			default:
				states[change.Document] = change.Data.Status
			}
			versions[change.Document] = change.Version
		}
		if len(page.Events) == 0 {
			return events, states, nil
		}
	}
}

// troubledIDs returns the ids of the changes for which the pager fails while it is broken.
func troubledIDs(changes []client.Event) (map[string]bool, error) {
	trouble := make(map[string]bool)
	for _, event := range changes {
		var change processChange
		if err := json.Unmarshal(event.Data, &change); err != nil {
			return nil, err
		}
		if change.Data == nil || change.Data.Status != "up" {
			trouble[event.Id] = true
		}
	}
	return trouble, nil
}

// until waits until a condition holds.
func (f *fleet) until(what string, holds func() (bool, error)) {
	f.t.Helper()
	began := time.Now()
	defer func() { f.t.Logf("waited %s for %s", time.Since(began).Round(time.Millisecond), what) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); ; {
		ok, err := holds()
		if err != nil {
			f.t.Fatalf("%s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			f.t.Fatalf("waited for %s", what)
		}
	}
}

func (f *fleet) deadLetters() ([]string, error) {
	var ids []string
	for path := "/v1/subscriptions/pager/dead-letters?pageSize=1000"; path != ""; {
		a, err := f.user.call(f.t.Context(), 0, "GET", path, nil)
		if err != nil {
			return nil, err
		}
		var page client.DeadLetterList
		if err := a.decode(http.StatusOK, &page); err != nil {
			return nil, err
		}
		for _, letter := range page.DeadLetters {
			ids = append(ids, letter.Event.Id)
		}
		path = a.next()
	}
	return ids, nil
}

// Heartbeats are published, folded into the state of each process, and read one by one. Changed states are published
// again, and delivered to a pager that is out of order at first. Meanwhile processes of the service are killed.
//
// The folded heartbeats must equal the documents, and each change must exist once. The pager must receive every
// change, and those for which it failed from the dead letters.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	r := chance(t)
	site := serveTwo(t, db)
	operator := newUser(t, site, operatorKey)
	_, u := newTenant(t, operator, "acme")
	f := &fleet{t: t, user: u, state: make(map[string]string)}
	operator.must(t, http.StatusCreated, nil, "POST", "/v1/projections", []byte(processState))
	u.must(t, http.StatusCreated, nil, "PUT", "/v1/subscriptions/pager", []byte(
		`{"source": {"categories": ["process.state.changed"]}, "ordering": "stream", "ackTimeout": 1, "maxAttempts": 5, "backoff": {"min": 0.01, "max": 0.02}}`))

	quit := make(chan struct{})
	paging, stopPaging := context.WithCancel(t.Context())
	var beating, pagers errgroup.Group
	for host := range 3 {
		chance := rand.New(rand.NewPCG(r.Uint64(), 0))
		beating.Go(func() error { return f.beat(t.Context(), quit, host, chance) })
		pagers.Go(func() error { return f.page(paging, host) })
	}
	for n := range 3 {
		<-time.After(time.Duration(300+r.IntN(900)) * time.Millisecond)
		victim := site[n%2]
		victim.kill()
		victim.start()
	}
	// A slow machine publishes fewer versions of the documents, so the hosts continue until there are enough changes.
	f.until("enough changes", func() (bool, error) {
		events, _, err := f.changes(t.Context())
		trouble, err2 := troubledIDs(events)
		return len(events) >= 20 && len(trouble) >= 5, errors.Join(err, err2)
	})
	close(quit)
	if err := beating.Wait(); err != nil {
		t.Fatal(err)
	}

	// The documents must equal the last published states, also when read one by one.
	f.until("the documents", func() (bool, error) {
		documents, err := u.documents(t.Context(), "process.state", 1000, 0)
		got := make(map[string]string)
		for _, document := range documents {
			var data struct{ Status string }
			if err := json.Unmarshal(document.Document, &data); err != nil {
				return false, err
			}
			got[document.Id] = data.Status
		}
		return maps.Equal(got, f.state), err
	})
	for key, status := range f.state {
		a, err := u.call(t.Context(), 0, "GET", "/v1/snap/process.state/"+key, nil)
		if err != nil || a.status != http.StatusOK || !strings.Contains(string(a.body), `"status": "`+status+`"`) && !strings.Contains(string(a.body), `"status":"`+status+`"`) {
			t.Errorf("%s is %s, %v; its last heartbeat says %s", key, a, err, status)
		}
	}
	var events []client.Event
	f.until("the changes", func() (bool, error) {
		var states map[string]string
		var err error
		events, states, err = f.changes(t.Context())
		return maps.Equal(states, f.state), err
	})
	want, err := troubledIDs(events) // the dead letters
	if err != nil {
		t.Fatal(err)
	}
	f.until("the dead letters", func() (bool, error) {
		letters, err := f.deadLetters()
		return len(letters) == len(want) && !slices.ContainsFunc(letters, func(id string) bool { return !want[id] }), err
	})
	for _, event := range events {
		if _, rung := f.rings.Load(event.Id); rung == want[event.Id] {
			t.Errorf("the pager has taken %s: %t", event.Stream, rung)
		}
	}

	f.mended.Store(true)
	u.must(t, http.StatusAccepted, nil, "POST", "/v1/subscriptions/pager/dead-letters/replay", nil)
	f.until("the replay", func() (bool, error) {
		letters, err := f.deadLetters()
		for id := range want {
			if _, rung := f.rings.Load(id); !rung {
				return false, err
			}
		}
		return len(letters) == 0, err
	})
	stopPaging()
	if err := pagers.Wait(); err != nil {
		t.Error(err)
	}

	// A rebuild publishes no changes.
	var rebuild client.Rebuild
	operator.must(t, http.StatusAccepted, &rebuild, "POST", "/v1/projections/process.state/rebuilds", []byte(`{}`))
	f.until("the rebuild", func() (bool, error) {
		a, err := operator.call(t.Context(), 0, "GET", "/v1/projections/process.state/rebuilds/"+rebuild.Id, nil)
		if err != nil {
			return false, err
		}
		err = a.decode(http.StatusOK, &rebuild)
		return rebuild.State == "swapped", err
	})
	u.must(t, http.StatusOK, nil, "POST", "/v1/projections/process.state/catch-up?timeout=30", nil)
	if after, _, err := f.changes(t.Context()); err != nil || len(after) != len(events) {
		t.Errorf("behind the rebuild there are %d changes, %v; there were %d", len(after), err, len(events))
	}
}
