package aggregate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
)

// taker takes snapshots in the background. Its queue has the streams that wait for one. The append path only reads its
// memory.
type taker struct {
	workers int
	line    *tenantQueue[streamKey] // each key is in moved as well
	every   *lru.Cache[categoryKey, cadence]

	mu    sync.Mutex
	moved map[streamKey]span
}

// streamKey identifies a tenant's stream.
type streamKey struct {
	tenant domain.TenantID
	stream string
}

// span is what was appended to a stream: the versions after from, up to to.
type span struct{ from, to int64 }

// due is the span of a stream that must have a snapshot however many events were appended to it.
var due = span{0, math.MaxInt64}

// passes reports whether a multiple of every lies in the span.
func (s span) passes(every int64) bool { return s.to/every > s.from/every }

// cadence is how many events lie between a category's snapshots, and until when that value is trusted.
type cadence struct {
	every int64 // 0: the category has no definition
	until time.Time
}

const (
	cadencesKept = 10_000
	// cadenceTTL is how late this process may notice a definition put by another one: a snapshot then comes slightly
	// early or late.
	cadenceTTL = 30 * time.Second
)

func newTaker(workers, waiting int) (*taker, error) {
	every, err := lru.New[categoryKey, cadence](cadencesKept)
	if err != nil {
		return nil, err
	}
	return &taker{workers: workers, line: newTenantQueue[streamKey](waiting, max(1, workers-1)), every: every, moved: make(map[streamKey]span)}, nil
}

// forget makes the taker read again how often a category needs snapshots.
func (t *taker) forget(tenant domain.TenantID, category string) {
	t.every.Remove(categoryKey{tenant, category})
}

// add queues a stream if it has passed a multiple, or if that is unknown. It always does so if moved is due: that
// caller has folded the stream with a definition that may be newer than the remembered cadence. A stream is queued
// once. If the queue is full, the stream waits for its next multiple or for the sweep.
func (t *taker) add(tenant domain.TenantID, stream string, moved span) {
	known, ok := t.every.Get(categoryKey{tenant, domain.Category(stream)})
	if ok && moved != due && time.Now().Before(known.until) && (known.every == 0 || !moved.passes(known.every)) {
		return
	}
	key := streamKey{tenant, stream}
	t.mu.Lock()
	defer t.mu.Unlock()
	if waiting, ok := t.moved[key]; ok {
		t.moved[key] = span{min(waiting.from, moved.from), max(waiting.to, moved.to)}
		return
	}
	if t.line.push(tenant, key) {
		t.moved[key] = moved
	}
}

// take removes a stream from moved, and returns what was appended to it since it was queued.
func (t *taker) take(key streamKey) span {
	t.mu.Lock()
	defer t.mu.Unlock()
	moved := t.moved[key]
	delete(t.moved, key)
	return moved
}

// Appended must be called after each append. It only remembers the streams that are due for a snapshot.
func (s *States) Appended(tenant domain.TenantID, appended domain.Appended) {
	if appended.Duplicate {
		return
	}
	for _, stream := range appended.Streams {
		s.taker.add(tenant, stream.Stream, span{stream.Version - int64(len(stream.Events)), stream.Version})
	}
}

// Run takes due and scheduled snapshots, and sweeps, until ctx ends. It waits for work under way, and returns nil.
func (s *States) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for range s.taker.workers {
		running.Go(func() { s.take(ctx) })
	}
	running.Go(func() { s.sweepDaily(ctx) })
	running.Go(func() { s.renew(ctx) })
	running.Wait()
	return nil
}

// take takes the snapshots of queued streams, one after the other.
func (s *States) take(ctx context.Context) {
	for {
		key, done, ok := s.taker.line.next(ctx)
		if !ok {
			return
		}
		if err := s.takeDue(ctx, key, s.taker.take(key)); err != nil && ctx.Err() == nil {
			s.complain(ctx, key, err)
		}
		done()
	}
}

// takeDue takes a stream's snapshot if the appended events pass a multiple of the category's current setting.
func (s *States) takeDue(ctx context.Context, key streamKey, moved span) error {
	category := domain.Category(key.stream)
	f, definition, err := s.fold(ctx, key.tenant, category)
	if problem, ok := errors.AsType[*domain.Error](err); ok && problem.Code == domain.CodeNotFound {
		s.taker.every.Add(categoryKey{key.tenant, category}, cadence{until: time.Now().Add(cadenceTTL)})
		return nil
	}
	if err != nil {
		return err
	}
	every := int64(cmp.Or(definition.SnapshotEvery, domain.DefaultSnapshotEvery))
	s.taker.every.Add(categoryKey{key.tenant, category}, cadence{every: every, until: time.Now().Add(cadenceTTL)})
	if !moved.passes(every) {
		return nil
	}
	return s.refresh(ctx, key, f)
}

// refreshTime is how long one stream is folded in the background before others get their turn.
const refreshTime = 2 * time.Second

// refresh folds a stream up to its newest event and stores a snapshot. If that takes long, it stores one of its
// progress and queues the stream again. So every stream's state is eventually folded to its end.
func (s *States) refresh(ctx context.Context, key streamKey, f *fold) error {
	state, err := s.load(budget.OfTenant(ctx, key.tenant), key.tenant, key.stream, f, At{until: time.Now().Add(refreshTime)})
	if err != nil {
		return err
	}
	if state.Snapshot == state.Version {
		return nil
	}
	if state.partial {
		defer s.taker.add(key.tenant, key.stream, due)
	}
	snapshot := domain.Snapshot{Stream: state.Stream, Version: state.Version, Tag: state.tag, State: state.Data}
	if err := s.store.PutSnapshot(ctx, key.tenant, snapshot); err != nil {
		return fmt.Errorf("keep the snapshot: %w", err)
	}
	return nil
}

// complain logs that a snapshot was not taken. Clients see the errors they cause when they load the state.
func (s *States) complain(ctx context.Context, key streamKey, err error) {
	level := slog.LevelWarn
	if isTheClients(err) {
		level = slog.LevelDebug
	}
	s.log.Log(ctx, level, "a snapshot was not taken", "tenant", key.tenant.String(), "stream", key.stream, "error", err)
}
