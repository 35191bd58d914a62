package eventlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// storedTags are the tags of a stored event.
type storedTags struct{ tags, derived []string }

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

func (t storedTags) equal(other storedTags) bool {
	return slices.Equal(t.tags, other.tags) && slices.Equal(t.derived, other.derived)
}

// Each row is named by its whole key, since without statistics the planner would rather read a tenant's part of the index.
var readTags = pg.Statement{Name: "manifold_read_tags", SQL: `
	select g.position, array_to_string(g.tags, ' '), array_to_string(g.derived, ' ') from unnest($2::bigint[]) as p(position)
	cross join lateral (select * from event_tags as g where g.tenant_id = $1::uuid and g.position = p.position limit 1) as g`}

// Outdated returns those of the retaggings that change something, or that give an event too many tags. Nothing keeps the
// events from changing afterwards.
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

// Retag replaces the derived tags of events, in one transaction with also. An event that has been removed stays removed.
// Appends wait meanwhile, so callers should pass about a hundred events. Afterwards writers of all processes have
// forgotten what they remembered of tags. If pg.Busy reports true for the SQLSTATE of the error, a concurrent transaction
// held the same rows: retry. The error is domain.CodeNotFound if the log no longer exists.
func (s *Log) Retag(ctx context.Context, tenant domain.TenantID, events []Retagging, also func(tx pgx.Tx, done Retagged) error) error {
	return pgx.BeginTxFunc(ctx, s.db.Retention, pgx.TxOptions{
		// SET takes no parameters. The tenant's canonical form contains only hexadecimal digits and dashes.
		BeginQuery: fmt.Sprintf("begin; set local manifold.tenant = '%s'; set local lock_timeout = %d", tenant, retagLockTimeout.Milliseconds()),
	}, func(tx pgx.Tx) error {
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
	stored := make(map[int64]storedTags)
	var position int64
	var tags, derived *string
	rows, _ := tx.Query(ctx, readTags.SQL, tenant, positionsOf(events))
	_, err = pgx.ForEachRow(rows, []any{&position, &tags, &derived}, func() error {
		stored[position] = storedTags{split(tags), split(derived)}
		return nil
	})
	if err != nil {
		return Retagged{}, fmt.Errorf("read the tags of events: %w", err)
	}
	// Updating an event fails a concurrent transaction of retention that removes it, since that has read its old tags.
	var mark pgx.Batch
	exist := make(map[int64]bool)
	for _, event := range events {
		next, overfull := stored[event.Position].with(event.Derived)
		if overfull {
			done.Overfull = append(done.Overfull, event.Position)
		}
		if next.equal(stored[event.Position]) {
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
			before := stored[event.Position]
			next, _ := before.with(event.Derived)
			queueTags(&write, tenant, event, before, next)
			done.Changed++
		}
	}
	if err := tx.SendBatch(ctx, &write).Close(); err != nil {
		return Retagged{}, fmt.Errorf("write the tags of events: %w", err)
	}
	return done, nil
}

// queueTags queues the statements that give an event other tags.
func queueTags(batch *pgx.Batch, tenant domain.TenantID, event Retagging, before, next storedTags) {
	for _, tag := range before.tags {
		if !slices.Contains(next.tags, tag) {
			batch.Queue("delete from tagged_events as t where t.tenant_id = $1 and t.tag = $2 and t.position = $3", tenant, tag, event.Position)
		}
	}
	for _, tag := range next.tags {
		if !slices.Contains(before.tags, tag) {
			batch.Queue("insert into tagged_events (tenant_id, tag, position, event_type) values ($1, $2, $3, $4)", tenant, tag, event.Position, event.Type)
		}
	}
	if len(next.tags) == 0 {
		batch.Queue("delete from event_tags as g where g.tenant_id = $1 and g.position = $2", tenant, event.Position)
		return
	}
	batch.Queue(`
		insert into event_tags (tenant_id, position, tags, derived) values ($1, $2, $3, $4)
		on conflict (tenant_id, position) do update set tags = excluded.tags, derived = excluded.derived`,
		tenant, event.Position, next.tags, next.derived)
}

func split(tags *string) []string {
	if tags == nil || *tags == "" {
		return nil
	}
	return strings.Split(*tags, " ")
}
