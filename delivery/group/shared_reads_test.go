package group_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// Many groups that wait for one log share the reads of what is new, and each receives its events in order.
func TestGroupsShareReadsOfNewEvents(t *testing.T) {
	t.Parallel()
	const groups, appends = 40, 30
	b := newGroupBench(t)
	s, network := b.through(t)
	var slices atomic.Int64
	count(network, "manifold_log_forward", &slices)
	count(network, "manifold_category_forward", &slices)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	running := runGroupsOf(t, ctx, s)
	b.groups = running.groups
	for i := range groups {
		b.put(t, fmt.Sprint("g", i), domain.GroupDefinition{Selection: domain.Selection{Categories: []string{fmt.Sprint("c", i%4)}}, MaxInFlight: 1000})
	}
	var all sync.WaitGroup
	got := make([][]int64, groups)
	var waiting sync.WaitGroup
	waiting.Add(groups)
	for i := range groups {
		all.Go(func() {
			first := sync.OnceFunc(waiting.Done)
			for len(got[i]) < appends && ctx.Err() == nil {
				wait := 10 * time.Second
				if len(got[i]) == 0 {
					wait = 50 * time.Millisecond // so that it is in use
				}
				deliveries, err := running.groups.Receive(ctx, b.tenant, fmt.Sprint("g", i), group.Receive{Wait: wait})
				first()
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = append(got[i], positions(deliveries)...)
			}
		})
	}
	waiting.Wait()
	slices.Store(0)
	want := make([][]int64, 4)
	for range appends {
		last := b.append(t, "c0-1", "c1-1", "c2-1", "c3-1")
		for c := range 4 {
			want[c] = append(want[c], last-3+int64(c))
		}
		pause(t)
	}
	all.Wait()
	for i := range groups {
		if fmt.Sprint(got[i]) != fmt.Sprint(want[i%4]) {
			t.Errorf("group %d was given %d; want %d", i, got[i], want[i%4])
		}
	}
	if reads := slices.Load(); reads > groups*appends/4 {
		t.Errorf("the log was read %d times, by %d groups for %d appends", reads, groups, appends)
	} else {
		t.Logf("the log was read %d times, by %d groups for %d appends", reads, groups, appends)
	}
	cancel()
	running.done.Wait()
}

// The partitions of a group read each part of the log once for all of them, both while they catch up and at its end.
func TestPartitionsShareReadsOfTheLog(t *testing.T) {
	t.Parallel()
	const events, partitions = 4000, 16
	b := newGroupBench(t)
	b.fill(t, events, 500, 0)
	s, network := b.through(t)
	var slices atomic.Int64
	count(network, "manifold_log_forward", &slices)
	b.groups = groupsOf(s)
	b.put(t, "g", domain.GroupDefinition{Partitions: partitions, AckTimeout: time.Hour})
	member, err := b.groups.Join(t.Context(), b.tenant, "g", "")
	if err != nil {
		t.Fatal(err)
	}
	versions := make(map[string]int64)
	consume := func(n int) {
		for n > 0 {
			deliveries, err := b.groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 1000, Member: member.ID, Wait: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			for i := range deliveries {
				e := &deliveries[i].Event
				if versions[e.Stream]++; e.Version != versions[e.Stream] {
					t.Fatalf("version %d of %s was delivered; want %d", e.Version, e.Stream, versions[e.Stream])
				}
			}
			mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(deliveries...)))
			n -= len(deliveries)
		}
	}
	consume(events)
	// Each shared read takes two statements, and partitions may read a part again that was dropped meanwhile.
	if reads := slices.Load(); reads > partitions {
		t.Errorf("%d partitions read the log of %d events %d times", partitions, events, reads)
	}
	slices.Store(0)
	var streams []string
	for i := range partitions * 4 {
		streams = append(streams, fmt.Sprint("order-", i))
	}
	b.append(t, streams...)
	consume(len(streams))
	if reads := slices.Load(); reads > partitions/2 {
		t.Errorf("%d partitions read an append %d times", partitions, reads)
	}
}

// An append of many events is also read once for all groups that wait.
func TestGroupsShareReadsOfALargeAppend(t *testing.T) {
	t.Parallel()
	const groups, events = 20, 1000
	b := newGroupBench(t)
	s, network := b.through(t)
	var slices atomic.Int64
	count(network, "manifold_log_forward", &slices)
	b.groups = groupsOf(s)
	for i := range groups {
		b.put(t, fmt.Sprint("g", i), domain.GroupDefinition{MaxInFlight: 10_000})
		b.receive(t, fmt.Sprint("g", i), 1) // so that it is in use
	}
	b.fill(t, events, 10, 0)
	last := b.append(t, "order-1")
	slices.Store(0)
	for i := range groups {
		for next := int64(1); next <= last; {
			deliveries := b.receive(t, fmt.Sprint("g", i), 1000)
			if len(deliveries) == 0 || deliveries[0].Event.Position != next {
				t.Fatalf("group %d was given the events at %d; want them from %d on", i, positions(deliveries), next)
			}
			next += int64(len(deliveries))
		}
	}
	if reads := slices.Load(); reads > groups/2 {
		t.Errorf("%d groups read an append of %d events %d times", groups, events, reads)
	}
}
