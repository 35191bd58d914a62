package reactor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
)

// With AsOfEvent each call has the document as the event left it, although later events were folded before.
func TestReactorGetsTheDocumentAsOfItsEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	want := make(map[int64]string) // by position
	totals := make(map[string]int)
	for i := range 60 {
		stream := fmt.Sprintf("x-%d", i%3)
		if i%10 == 9 {
			want[b.append(t, tenant, stream, "Drop", `{}`)] = "none"
			totals[stream] = 0
			continue
		}
		b.append(t, tenant, stream, "Ignored", `{}`)
		totals[stream] += i
		want[b.append(t, tenant, stream, "Add", fmt.Sprintf(`{"k": "one", "n": %d}`, i))] = fmt.Sprintf(`{"sum":%d}`, totals[stream])
	}
	definition := sums("sums", domain.ModeAsync)
	definition.PublishChanges, definition.Key = false, ""
	keyed := sums("keyed", domain.ModeAsync)
	keyed.PublishChanges = false
	var mu sync.Mutex
	got, ready := make(map[int64]string), make(chan struct{})
	p, _ := b.start(t, reactor.Reactor{
		Definition: reactor.Definition{Name: "as-of", Projection: "sums", AsOfEvent: true, From: "start", Ordering: domain.OrderingStream},
		Handler: func(_ context.Context, _ domain.TenantID, event reactor.Event) error {
			mu.Lock()
			defer mu.Unlock()
			got[event.Position] = "none"
			if event.Document != nil {
				got[event.Position] = strings.ReplaceAll(string(event.Document.Data), " ", "")
				if event.Document.Version != event.Position {
					t.Errorf("event %d has a document of version %d", event.Position, event.Document.Version)
				}
			}
			if len(got) == len(want) {
				close(ready)
			}
			return nil
		},
	}, reactor.Reactor{
		Definition: reactor.Definition{Name: "keyed", Projection: "keyed", AsOfEvent: true, From: "start", MaxAttempts: 1},
		Handler:    func(context.Context, domain.TenantID, reactor.Event) error { return nil },
	})
	p.create(t, tenant, definition)
	p.create(t, tenant, keyed)
	select {
	case <-ready:
	case <-time.After(time.Minute):
		t.Fatal("not all events have arrived")
	}
	mu.Lock()
	defer mu.Unlock()
	for position, document := range want {
		if got[position] != document {
			t.Errorf("event %d has the document %s; want %s", position, got[position], document)
		}
	}
	until(t, "dead letters with the reason", func() bool {
		letters, err := p.groups.DeadLetters(t.Context(), tenant, "reactor.keyed", 0, 10)
		return err == nil && len(letters) > 0 && strings.Contains(letters[0].Reason, `projection "keyed" has a key, a map or a handler in Go`)
	})
}

// A reactor waits for its delay, is called once for events with the same id within the window, and sees what a consumer
// of a group sees.
func TestReactorDelaysAndDeduplicates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const delay = 300 * time.Millisecond
	seen := make(chan reactor.Event, 100)
	p, stop := b.start(t, reactor.Reactor{
		Definition: reactor.Definition{
			Name: "alarm", Categories: []string{"x"}, From: "start", Delay: delay, DedupeID: "event.data.host", DedupeWindow: time.Hour,
			MaxAttempts: 3, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond, Ordering: domain.OrderingStream,
		},
		Handler: func(_ context.Context, _ domain.TenantID, event reactor.Event) error {
			if early := time.Until(event.RecordedAt.Add(delay)); early > 0 {
				t.Errorf("event %d is delivered %s early", event.Position, early)
			}
			seen <- event
			if event.Attempt < event.MaxAttempts {
				return errors.New("not yet")
			}
			return nil
		},
	})
	b.append(t, tenant, "x-1", "Add", `{"host": "a"}`, `{"host": "a"}`, `{"host": "b"}`, `{"n": 1}`, `{"host": "a"}`, `{"n": 1}`)
	for _, position := range []int64{1, 3, 4, 6} {
		for attempt := 1; attempt <= 3; attempt++ {
			select {
			case event := <-seen:
				if event.Position != position || event.Attempt != attempt || event.MaxAttempts != 3 || event.Group != "reactor.alarm" || event.Cursor >= position {
					t.Errorf("%+v is delivered; want attempt %d of event %d", event, attempt, position)
				}
			case <-time.After(time.Minute):
				t.Fatalf("event %d is not delivered", position)
			}
		}
	}
	until(t, "all is settled", func() bool {
		status, err := p.groups.Get(t.Context(), tenant, "reactor.alarm")
		return err == nil && status.Partitions[0].Checkpoint == 6 && status.Partitions[0].Retrying == 0
	})
	stop()
	if len(seen) > 0 {
		t.Errorf("%+v is delivered, too", <-seen)
	}
}

func TestReactorsWithBadDeduplication(t *testing.T) {
	t.Parallel()
	handler := func(context.Context, domain.TenantID, reactor.Event) error { return nil }
	for want, definition := range map[string]reactor.Definition{
		"dedupe.id":     {Name: "r", DedupeID: "1 +", DedupeWindow: time.Minute},
		"dedupe.window": {Name: "r", DedupeID: "event.type", DedupeWindow: 30 * 24 * time.Hour},
		"delay":         {Name: "r", Delay: -1},
		"asOfEvent":     {Name: "r", AsOfEvent: true},
	} {
		_, err := reactor.New(reactor.Config{Reactors: []reactor.Reactor{{Definition: definition, Handler: handler}}})
		if failure, ok := errors.AsType[*domain.Error](err); !ok || failure.Where != want {
			t.Errorf("%+v: %v; want an error at %s", definition, err, want)
		}
	}
}
