package aggregate

import (
	"fmt"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

func TestSnapshotQueueIsBounded(t *testing.T) {
	t.Parallel()
	snapshots, err := newSnapshotter(1, 30) // three of one tenant
	must(t, err)
	tenant := domain.NewTenantID()
	snapshots.cadences.Add(categoryKey{tenant, "sum"}, cadence{every: 100, until: time.Now().Add(time.Hour)})
	snapshots.cadences.Add(categoryKey{tenant, "none"}, cadence{until: time.Now().Add(time.Hour)})
	snapshots.add(tenant, "sum-1", versionRange{0, 99})
	snapshots.add(tenant, "none-1", versionRange{0, 100})
	if snapshots.queue.waiting() != 0 {
		t.Fatal("a stream that is not due was queued")
	}
	snapshots.add(tenant, "sum-1", versionRange{99, 100})
	snapshots.add(tenant, "sum-1", versionRange{199, 201})
	if snapshots.queue.waiting() != 1 {
		t.Fatalf("a stream is queued %d times", snapshots.queue.waiting())
	}
	for n := range 10 {
		snapshots.add(tenant, fmt.Sprintf("unknown-%d", n), versionRange{0, 1})
	}
	if snapshots.queue.waiting() != 3 || len(snapshots.appended) != 3 {
		t.Errorf("%d streams of a tenant are in a queue of 30, and %d are remembered", snapshots.queue.waiting(), len(snapshots.appended))
	}
	if appended := snapshots.dequeue(nextOf(t, snapshots)); appended != (versionRange{99, 201}) {
		t.Errorf("%v was appended", appended)
	}
	snapshots.add(tenant, "sum-1", versionRange{299, 300})
	if snapshots.queue.waiting() != 3 {
		t.Error("a dequeued stream cannot be added again")
	}
}

// nextOf returns the next stream in a snapshotter's queue.
func nextOf(t *testing.T, of *snapshotter) streamKey {
	t.Helper()
	key, done, ok := of.queue.next(t.Context())
	if !ok {
		t.Fatal("nothing waits")
	}
	done()
	return key
}
