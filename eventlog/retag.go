package eventlog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Retagging gives a stored event other derived tags.
type Retagging struct {
	Position int64
	Type     string   // the event's
	Derived  []string // what its type's schema derives now, as domain.CheckTags returns them
}

// Retagged is what Retag has done.
type Retagged struct {
	Changed  int64   // events
	Overfull []int64 // the positions of events that would have more than domain.MaxTags tags, and have no derived ones
}

// with returns the tags after a retagging. If they would be too many, overfull is true, and only the given tags stay.
func (t storedTags) with(derived []string) (next storedTags, overfull bool) {
	given := slices.DeleteFunc(slices.Clone(t.tags), func(tag string) bool { return slices.Contains(t.derived, tag) })
	for _, tag := range derived {
		if !slices.Contains(given, tag) {
			next.derived = append(next.derived, tag)
		}
	}
	if len(given)+len(next.derived) > domain.MaxTags {
		return storedTags{tags: given}, true
	}
	next.tags = slices.Concat(given, next.derived)
	slices.Sort(next.tags)
	return next, false
}

var readTags = pg.Statement{Name: "manifold_read_tags", SQL: `
	select g.* from unnest($2::bigint[]) as p(position)
	cross join lateral (` +
	runOf("p.position, "+lineOf("g.tags", "p.position")+", "+lineOf("g.derived", "p.position"), "p.position") + `) as g`}

// Outdated returns those of the retaggings that change something, or that give an event too many tags. Nothing keeps
// the events from changing afterwards.
func (s *Log) Outdated(ctx context.Context, tenant domain.TenantID, events []Retagging) ([]Retagging, error) {
	if len(events) == 0 {
		return nil, nil
	}
	stored := make(map[int64]storedTags)
	reset := func() { clear(stored) }
	err := s.db.ReadInTurn(ctx, tenant, reset, pg.Query{
		Statement: &readTags, Params: [][]byte{pg.TenantParam(tenant), pg.Int8sParam(positionsOf(events))},
		Row: func(values [][]byte) error {
			stored[pg.Int8Value(values[0])] = storedTags{tagsOf(values[1]), tagsOf(values[2])}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	var outdated []Retagging
	for _, event := range events {
		before := stored[event.Position]
		if next, overfull := before.with(event.Derived); overfull || !next.equal(before) {
			outdated = append(outdated, event)
		}
	}
	return outdated, nil
}

func positionsOf(events []Retagging) []int64 {
	positions := make([]int64, len(events))
	for i, event := range events {
		positions[i] = event.Position
	}
	return positions
}

// retagLockTimeout limits how long Retag waits for a lock. It holds the log's lock meanwhile, and retention locks an
// event's rows in another order.
const retagLockTimeout = 200 * time.Millisecond

// Retag replaces the derived tags of events, in one transaction with also. An event that has been removed stays
// removed. Appends wait meanwhile, so callers should pass about a hundred events. Afterwards writers of all processes
// have forgotten what they remembered of tags. If pg.Busy reports true for the SQLSTATE of the error, a concurrent
// transaction held the same rows: retry. The error is domain.CodeNotFound if the log no longer exists.
func (s *Log) Retag(ctx context.Context, tenant domain.TenantID, events []Retagging, also func(tx pgx.Tx, done Retagged) error) error {
	return pg.UnderWith(ctx, s.db.Retention, tenant, pg.TxOptions{LockTimeout: retagLockTimeout}, func(tx pgx.Tx) error {
		// The next append fails to move the head, because the batch that it knows is no longer the last one.
		moved, err := pg.Exec(ctx, tx, "lock the log", "update logs as l set last_batch = $2 where l.tenant_id = $1", tenant, [16]byte(domain.NewEventID()))
		if err != nil {
			return err
		}
		if moved == 0 {
			return domain.Errorf(domain.CodeNotFound, "", "the tenant has no log")
		}
		done, err := retag(ctx, tx, tenant, events)
		if err != nil {
			return err
		}
		return also(tx, done)
	})
}

// retag replaces the tags of events under the log's lock.
func retag(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, events []Retagging) (done Retagged, err error) {
	runs, err := lockRunsOf(ctx, tx, tenant, positionsOf(events))
	if err != nil {
		return Retagged{}, err
	}
	events, err = withoutErasedTags(ctx, tx, tenant, events, runs)
	if err != nil {
		return Retagged{}, err
	}
	// Updating an event fails a concurrent transaction of retention that removes it, since that has read its old tags.
	var mark pgx.Batch
	exist := make(map[int64]bool)
	for _, event := range events {
		before := runs.get(event.Position)
		next, overfull := before.with(event.Derived)
		if overfull {
			done.Overfull = append(done.Overfull, event.Position)
		}
		if next.equal(before) {
			continue
		}
		var tagged *bool
		if len(next.tags) > 0 {
			tagged = new(bool)
			*tagged = true
		}
		mark.Queue("update events as e set tagged = $3 where e.tenant_id = $1 and e.position = $2 returning e.position", tenant, event.Position, tagged).
			Query(func(rows pgx.Rows) error {
				for rows.Next() {
					exist[event.Position] = true
				}
				return rows.Err()
			})
	}
	if err := tx.SendBatch(ctx, &mark).Close(); err != nil {
		return Retagged{}, fmt.Errorf("mark retagged events: %w", err)
	}
	var write pgx.Batch
	for _, event := range events {
		if exist[event.Position] {
			before := runs.get(event.Position)
			next, _ := before.with(event.Derived)
			queueTags(&write, tenant, event, before, next)
			runs.set(event.Position, next)
			done.Changed++
		}
	}
	runs.queue(&write, tenant)
	if err := tx.SendBatch(ctx, &write).Close(); err != nil {
		return Retagged{}, fmt.Errorf("write the tags of events: %w", err)
	}
	return done, nil
}

// withoutErasedTags returns the retaggings, those of erased events without tags that the events do not have: these tags
// may come from the data before the erasure, or name the person again.
func withoutErasedTags(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, events []Retagging, has runs) ([]Retagging, error) {
	rows, _ := tx.Query(ctx, "select e.position from events as e where e.tenant_id = $1 and e.position = any ($2::bigint[]) and e.erased", tenant, positionsOf(events))
	erased, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for erased events: %w", err)
	}
	if len(erased) == 0 {
		return events, nil
	}
	events = slices.Clone(events)
	for i := range events {
		if slices.Contains(erased, events[i].Position) {
			tags := has.get(events[i].Position).tags
			events[i].Derived = slices.DeleteFunc(slices.Clone(events[i].Derived), func(tag string) bool { return !slices.Contains(tags, tag) })
		}
	}
	return events, nil
}

// queueTags queues the statements by which an event is found by other tags.
func queueTags(batch *pgx.Batch, tenant domain.TenantID, event Retagging, before, next storedTags) {
	for _, tag := range before.tags {
		if !slices.Contains(next.tags, tag) {
			batch.Queue(deleteTag.SQL, tenant, tag, event.Position)
		}
	}
	for _, tag := range next.tags {
		if !slices.Contains(before.tags, tag) {
			batch.Queue(insertTag.SQL, tenant, tag, event.Position, event.Type)
		}
	}
}
