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
