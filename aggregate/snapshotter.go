package aggregate

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
)

// snapshotter takes snapshots in the background. Its queue has the streams that wait for one. The append path only
// reads its memory.
type snapshotter struct {
	workers  int
	queue    *tenantQueue[streamKey] // streams that wait for a snapshot; each is in appended as well
	cadences *lru.Cache[categoryKey, cadence]

	mu       sync.Mutex
	appended map[streamKey]versionRange
}

// streamKey identifies a tenant's stream.
type streamKey struct {
	tenant domain.TenantID
	stream string
}

// versionRange is what was appended to a stream: the versions after from, up to to.
type versionRange struct{ from, to int64 }

// allVersions represents a stream that must have a snapshot however many events were appended to it.
var allVersions = versionRange{0, math.MaxInt64}

// passes reports whether a multiple of every lies in the range.
func (r versionRange) passes(every int64) bool { return r.to/every > r.from/every }

// cadence is how many events lie between a category's snapshots, and until when that value is trusted.
type cadence struct {
	every int64 // 0: the category has no definition
	until time.Time
}

const (
	maxCadences = 10_000
	// cadenceTTL is how late this process may notice a definition put by another one: a snapshot then comes slightly
	// early or late.
	cadenceTTL = 30 * time.Second
)

func newSnapshotter(workers, waiting int) (*snapshotter, error) {
	every, err := lru.New[categoryKey, cadence](maxCadences)
	if err != nil {
		return nil, err
	}
	return &snapshotter{workers: workers, queue: newTenantQueue[streamKey](waiting, max(1, workers-1)), cadences: every, appended: make(map[streamKey]versionRange)}, nil
}

// forget makes the snapshotter read again how often a category needs snapshots.
func (t *snapshotter) forget(tenant domain.TenantID, category string) {
	t.cadences.Remove(categoryKey{tenant, category})
}

// add queues a stream if it has passed a multiple, or if that is unknown. With allVersions it always queues it: that
// caller has folded the stream with a definition that may be newer than the remembered cadence. A stream is queued
// once. If the queue is full, the stream waits for its next multiple or for the sweep.
func (t *snapshotter) add(tenant domain.TenantID, stream string, appended versionRange) {
	known, ok := t.cadences.Get(categoryKey{tenant, domain.Category(stream)})
	if ok && appended != allVersions && time.Now().Before(known.until) && (known.every == 0 || !appended.passes(known.every)) {
		return
	}
	key := streamKey{tenant, stream}
	t.mu.Lock()
	defer t.mu.Unlock()
	if waiting, ok := t.appended[key]; ok {
		t.appended[key] = versionRange{min(waiting.from, appended.from), max(waiting.to, appended.to)}
		return
	}
	if t.queue.push(tenant, key) {
		t.appended[key] = appended
	}
}

// dequeue removes a stream from appended, and returns what was appended to it since it was queued.
func (t *snapshotter) dequeue(key streamKey) versionRange {
	t.mu.Lock()
	defer t.mu.Unlock()
	appended := t.appended[key]
	delete(t.appended, key)
	return appended
}

// Appended must be called after each append. It only remembers the streams that need a snapshot.
func (s *States) Appended(tenant domain.TenantID, appended domain.Appended) {
	if appended.Duplicate {
		return
	}
	for _, stream := range appended.Streams {
		s.snapshotter.add(tenant, stream.Stream, versionRange{stream.Version - int64(len(stream.Events)), stream.Version})
	}
}

// Run takes snapshots of queued streams and renewed categories, and sweeps, until ctx ends. It waits for work under
// way, and returns nil.
func (s *States) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for range s.snapshotter.workers {
		running.Go(func() { s.takeSnapshots(ctx) })
	}
	running.Go(func() { s.sweepDaily(ctx) })
	running.Go(func() { s.renew(ctx) })
	running.Wait()
	return nil
}

// takeSnapshots takes the snapshots of queued streams, one after the other.
func (s *States) takeSnapshots(ctx context.Context) {
	for {
		key, done, ok := s.snapshotter.queue.next(ctx)
		if !ok {
			return
		}
		if err := s.takeIfDue(ctx, key, s.snapshotter.dequeue(key)); err != nil && ctx.Err() == nil {
			s.logFailure(ctx, key, err)
		}
		done()
	}
}

// takeIfDue takes a stream's snapshot if the appended events pass a multiple of the category's current setting.
func (s *States) takeIfDue(ctx context.Context, key streamKey, appended versionRange) error {
	category := domain.Category(key.stream)
	f, err := s.fold(ctx, key.tenant, category)
	if domain.IsCode(err, domain.CodeNotFound) {
		s.snapshotter.cadences.Add(categoryKey{key.tenant, category}, cadence{until: time.Now().Add(cadenceTTL)})
		return nil
	}
	if err != nil {
		return err
	}
	every := int64(f.snapshotEvery)
	s.snapshotter.cadences.Add(categoryKey{key.tenant, category}, cadence{every: every, until: time.Now().Add(cadenceTTL)})
	if !appended.passes(every) {
		return nil
	}
	return s.takeNewest(ctx, key, f)
}

// maxRefreshTime is how long one stream is folded in the background before others get their turn.
const maxRefreshTime = 2 * time.Second

// takeNewest folds a stream up to its newest event and stores a snapshot, and others on the way if that is long
// (nextRung). If it takes long, it stores one of its progress and queues the stream again. So every stream's state is
// eventually folded to its end.
func (s *States) takeNewest(ctx context.Context, key streamKey, f *fold) error {
	l := loading{States: s, tenant: key.tenant, fold: f, at: At{until: time.Now().Add(maxRefreshTime), rungs: true}, loaded: newState(key.stream, f)}
	if err := l.beginHot(ctx, key); err != nil {
		return err
	}
	state, err := l.run(budget.OfTenant(ctx, key.tenant))
	if err == nil && state.Snapshot < state.Version {
		err = s.storeState(ctx, key.tenant, state)
	}
	incomplete := state.partial && state.Snapshot < state.Version
	if errors.Is(err, errDefinitionChanged) {
		incomplete, err = true, nil // continue with the new one
	}
	if incomplete {
		s.snapshotter.add(key.tenant, key.stream, allVersions)
	}
	return err
}

// beginHot starts from the state that commands have left in memory, if there is one. It does not if that would leave
// out snapshots on the way from the newest one.
func (l *loading) beginHot(ctx context.Context, key streamKey) error {
	hot, ok := l.hot.get(key, l.fold.tag)
	if !ok {
		return nil
	}
	stored, err := l.isStored(ctx, key, hot)
	if err != nil || !stored {
		return err
	}
	if err := l.begin(ctx); err != nil {
		return err
	}
	if hot.version > l.loaded.Version && !l.fold.passesRungs(l.loaded.Version, hot.version, hot.state) {
		l.state, l.decoded, l.loaded.Version = hot.state, true, hot.version
	}
	return nil
}

// isStored reports whether the log has the event that a state in memory ends with, and forgets the state if it has
// another one: a failover may have lost events that others have followed. A state that came from a snapshot, without
// later events, is not looked up.
func (s *States) isStored(ctx context.Context, key streamKey, hot hotState) (bool, error) {
	if hot.last.IsZero() {
		return false, nil
	}
	query := domain.StreamQuery{From: hot.version, To: hot.version, Limit: 1}
	slice, err := s.events.StreamSlice(ctx, key.tenant, key.stream, query)
	if err != nil {
		return false, err
	}
	removed := len(slice.Events) == 0 && slice.Floor >= hot.version // by retention
	if removed || len(slice.Events) > 0 && slice.Events[0].ID == hot.last {
		return true, nil
	}
	s.hot.drop(key)
	return false, nil
}

// logFailure logs that a snapshot could not be taken. Clients see the errors they cause when they load the state.
func (s *States) logFailure(ctx context.Context, key streamKey, err error) {
	level := slog.LevelWarn
	if isClientError(err) {
		level = slog.LevelDebug
	}
	s.log.Log(ctx, level, "could not take a snapshot", "tenant", key.tenant.String(), "stream", key.stream, "error", err)
}
