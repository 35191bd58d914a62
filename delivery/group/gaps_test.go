package group_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// A group learns of a gap with the first event after the gap, in each partition, and again if that event was not
// delivered. Its streams and its progress continue even if events are gone that were in flight, waiting for a retry, or
// left behind.
func TestGroupsReportGaps(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-1", "order-1", "order-2", "user-1", "order-1")
	b.db.Remove(t, b.tenant, "order", 2)
	b.put(t, "late", domain.GroupDefinition{Selection: domain.Selection{Categories: []string{"order"}}})
	b.put(t, "others", domain.GroupDefinition{Selection: domain.Selection{Categories: []string{"user"}}})
	first := b.receive(t, "late", 1)
	mustPositions(t, first, 3)
	if gap := first[0].Gap; gap == nil || gap.From != 1 || gap.To != 2 || !slices.Equal(gap.Categories, []string{"order"}) {
		t.Fatalf("the first event comes with %+v", gap)
	}
	rest := b.receive(t, "late", 10)
	mustPositions(t, rest, 4, 6)
	for _, d := range rest {
		if d.Gap != nil {
			t.Errorf("event %d comes with %+v once more", d.Event.Position, d.Gap)
		}
	}
	if other := b.receive(t, "others", 10); len(other) != 1 || other[0].Gap != nil {
		t.Errorf("a group of what was not removed is given %+v", other)
	}
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "late", attempts(append(first, rest...)...)))
	if _, err := b.groups.Seek(t.Context(), b.tenant, "late", domain.From{Position: 2}); err != nil {
		t.Fatal(err)
	}
	again := b.receive(t, "late", 10)
	mustPositions(t, again, 3, 4, 6)
	if again[0].Gap == nil || again[0].Gap.From != 2 || again[0].Gap.To != 2 {
		t.Errorf("behind a seek it comes with %+v", again[0].Gap)
	}
	if s := b.status(t, "late"); s.ReadTo != 6 {
		t.Errorf("its status is %+v", s)
	}
}

// Events that are removed by force while a group holds them are dropped, and nothing waits for them.
func TestGroupsContinueAfterEventsAreRemoved(t *testing.T) {
	t.Parallel()
	for _, ordering := range []domain.Ordering{domain.OrderingNone, domain.OrderingStream} {
		t.Run(string(ordering), func(t *testing.T) {
			t.Parallel()
			b := newGroupBench(t)
			b.append(t, "order-1", "order-2", "order-1", "order-3", "order-1", "order-2", "order-4")
			b.put(t, "g", domain.GroupDefinition{Ordering: ordering, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond, MaxAttempts: 2})
			held := b.receive(t, "g", 4)
			if ordering == domain.OrderingStream {
				mustPositions(t, held, 1, 2, 4, 7)
			} else {
				mustPositions(t, held, 1, 2, 3, 4)
			}
			// One is to be tried again, one is parked, the others are in flight; of order-1 some are left behind.
			mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(held[0]), domain.Nack{Action: domain.NackRetry}))
			mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(held[1]), domain.Nack{Action: domain.NackPark}))
			b.db.Remove(t, b.tenant, "order", 5)
			head := b.append(t, "order-1")
			seen := map[int64]bool{}
			for deadline := time.Now().Add(time.Minute); !seen[6] || !seen[head]; {
				if time.Now().After(deadline) {
					t.Fatalf("it has given %v", seen)
				}
				for _, d := range b.wait(t, "g", 10, time.Second) {
					seen[d.Event.Position] = true
					mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(d)))
				}
			}
			if seen[1] || seen[2] {
				t.Errorf("what is gone was read once more: %v", seen) // what had been read already may be delivered
			}
			// What is in flight and gone can be answered here, and is given up with its time elsewhere.
			for _, d := range held[2:] {
				if _, err := b.groups.Ack(t.Context(), b.tenant, "g", attempts(d)); err != nil {
					t.Errorf("an answer to event %d: %v", d.Event.Position, err)
				}
			}
			if s := b.status(t, "g"); s.InFlight != 0 || s.Retrying != 0 || s.ReadTo != head || s.Checkpoint != head || s.Parked != 1 {
				t.Errorf("in the end its status is %+v", s)
			}
			// The dead letter's event is gone: a replay gives it up.
			letters, err := b.groups.DeadLetters(t.Context(), b.tenant, "g", 0, 10)
			if err != nil || len(letters) != 1 || letters[0].Event.Data != nil {
				t.Fatalf("the dead letters are %+v, %v", letters, err)
			}
			if n, err := b.groups.Replay(t.Context(), b.tenant, "g", domain.EventID{}); n != 1 || err != nil {
				t.Fatalf("replayed %d, %v", n, err)
			}
			if d := b.receive(t, "g", 10); len(d) > 0 {
				t.Errorf("it gives %+v", d)
			}
			if s := b.status(t, "g"); s.Parked != 0 {
				t.Errorf("behind the replay its status is %+v", s)
			}
		})
	}
}

// Each partition reports a gap with its first event.
func TestPartitionsReportGaps(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	var streams []string
	for i := range 40 {
		streams = append(streams, fmt.Sprintf("order-%d", i))
	}
	b.append(t, streams...)
	b.db.Remove(t, b.tenant, "order", 10)
	b.put(t, "g", domain.GroupDefinition{Partitions: 3})
	member, err := b.groups.Join(t.Context(), b.tenant, "g", "me")
	if err != nil {
		t.Fatal(err)
	}
	told := map[int]int{}
	for received := 0; received < 30; {
		deliveries, err := b.groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 5, Member: member.ID, Wait: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range deliveries {
			received++
			if d.Gap != nil {
				told[d.Partition]++
				if d.Gap.To != 10 || d.Gap.From != 1 {
					t.Errorf("partition %d reports %+v", d.Partition, d.Gap)
				}
			}
		}
	}
	if told[0] != 1 || told[1] != 1 || told[2] != 1 {
		t.Errorf("partitions have told %v", told)
	}
}

// A removal in one category is also reported to readers that know of a later removal in another category.
func TestGapsOfSeveralCategories(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	const events = 1200
	for range events / 2 {
		b.append(t, "order-1", "user-1")
	}
	both := domain.Selection{Categories: []string{"order", "user"}}
	b.put(t, "late", domain.GroupDefinition{Selection: both, BatchSize: 100, MaxInFlight: 1000})
	tails := tail.New(tail.Config{Events: tablestest.OpenAgain(t, b.db).Log, Log: quiet, Bytes: 1})
	feed, err := tails.Follow(t.Context(), b.tenant, domain.Follow{Selection: both, From: domain.From{Position: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	follow := func() (told []string) {
		slice, err := feed.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slice.Gap != nil {
			told = slice.Gap.Categories
		}
		return told
	}
	receive := func(most int) (told []string) {
		for _, d := range b.receive(t, "late", most) {
			if d.Gap != nil {
				told = append(told, d.Gap.Categories...)
			}
		}
		return told
	}
	b.db.Remove(t, b.tenant, "order", events-1)
	if told := follow(); !slices.Equal(told, []string{"order"}) {
		t.Errorf("the follower receives %v first", told)
	}
	if told := receive(1); !slices.Equal(told, []string{"order"}) {
		t.Errorf("the group receives %v first", told)
	}
	b.db.Remove(t, b.tenant, "user", events-2)
	var told []string
	for feed.Position() < events {
		told = append(told, follow()...)
	}
	if !slices.Equal(told, []string{"user"}) {
		t.Errorf("the follower receives %v then", told)
	}
	if _, err := b.groups.Seek(t.Context(), b.tenant, "late", domain.From{Position: 1}); err != nil {
		t.Fatal(err)
	}
	if told := receive(10); !slices.Equal(told, []string{"order", "user"}) {
		t.Errorf("the group receives %v after a seek", told)
	}
}
