package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/proof"
	"github.com/manifold-es/manifold/seal"
)

// The statements of a slice. All of them see one snapshot. So an event that a group has just taken from its dead
// letters is either still a dead letter, or the group holds the events after it.
var (
	retentionWindow = pg.Statement{Name: "manifold_retention_window", SQL: `
		select e.position, e.event_id, e.stream_id, e.stream_version, coalesce(e.tagged, false) from events as e
		where e.tenant_id = $1::uuid and e.category = $2::text and e.position > $3::bigint and e.position <= $4::bigint
		order by e.position limit $5::bigint`}

	// The newest event of each stream before a version.
	retentionBefore = pg.Statement{Name: "manifold_retention_before", SQL: `
		select b.position, b.event_id, b.stream_id, b.stream_version, coalesce(b.tagged, false)
		from unnest($2::text[], $3::bigint[]) as w(stream_id, version)
		cross join lateral (
			select * from events as e where e.tenant_id = $1::uuid and e.stream_id = w.stream_id and e.stream_version < w.version
			order by e.stream_version desc limit 1
		) as b`}

	// The streams whose next event after a version is in the positions ($4, $5].
	retentionSuperseded = pg.Statement{Name: "manifold_retention_superseded", SQL: `
		select w.stream_id from unnest($2::text[], $3::bigint[]) as w(stream_id, version)
		cross join lateral (
			select e.position from events as e where e.tenant_id = $1::uuid and e.stream_id = w.stream_id and e.stream_version > w.version
			order by e.stream_version limit 1
		) as n where n.position > $4::bigint and n.position <= $5::bigint`}

	// The spared events after a position, and whether their stream has a newer event up to another position. Events
	// that have been removed since have only their positions.
	retentionSpared = pg.Statement{Name: "manifold_retention_spared", SQL: `
		select s.position, e.event_id, e.stream_id, e.stream_version, coalesce(e.tagged, false),
			coalesce((select n.position from events as n where n.tenant_id = $1::uuid and n.stream_id = e.stream_id
				and n.stream_version > e.stream_version order by n.stream_version limit 1) <= $6::bigint, false)
		from (
			select s.position from retention_spared as s
			where s.tenant_id = $1::uuid and s.category = $2::text and s.position > $3::bigint and s.position <= $4::bigint
			order by s.position limit $5::bigint
		) as s
		left join lateral (select * from events as e where e.tenant_id = $1::uuid and e.position = s.position limit 1) as e on true
		order by s.position`}

	// The events that a dead letter names or that wait for a parked document, except forced ones.
	retentionNamed = pg.Statement{Name: "manifold_retention_named", SQL: `
		select c.position from unnest($2::bigint[], $3::uuid[]) as c(position, event_id)
		where (select true from dead_letters as d where d.tenant_id = $1::uuid and d.event_id = c.event_id and d.name <> all($4::text[])
				limit 1)
			or (select true from parked_events as p where p.tenant_id = $1::uuid and p.position = c.position and p.name <> all($5::text[])
				order by p.name limit 1)
			or (select true from parked_documents as p where p.tenant_id = $1::uuid and p.position = c.position and p.name <> all($5::text[])
				order by p.name limit 1)`}

	// The removed part of a range is an interval minus a list, and single events are removed one by one. A planner that
	// expects few rows would scan all of a tenant's events rather than search for several from a list.
	retentionRemove = pg.Statement{Name: "manifold_retention_remove", SQL: `
		delete from events as e
		where e.tenant_id = $1::uuid and e.category = $2::text and e.position > $3::bigint and e.position <= $4::bigint
			and e.position <> all($5::bigint[])`}
	retentionRemoveOne = pg.Statement{Name: "manifold_retention_remove_one", SQL: `
		delete from events as e where e.tenant_id = $1::uuid and e.position = $2::bigint`}

	// Streams whose newest event was removed keep their versions. The tenant comes from a row in the database. A
	// message published without a key has a separate stream, named by the message's id. If that message is all there
	// ever was of the stream, and there is no snapshot of it, nothing is kept, since otherwise each message would leave
	// a row permanently. Publishing the message again begins the stream again.
	retentionFloors = pg.Statement{Name: "manifold_retention_floors", SQL: `
		insert into stream_floors as f (tenant_id, stream_id, version)
		select r.tenant_id, d.stream_id, d.version
		from retention_floors as r cross join unnest($3::text[], $4::bigint[], $5::boolean[]) as d(stream_id, version, own)
		where r.tenant_id = $1::uuid and r.category = $2::text
			and (not d.own or exists (select from snapshots as s where s.tenant_id = $1::uuid and s.stream_id = d.stream_id))
			and not coalesce((
			select e.stream_version > d.version from events as e where e.tenant_id = $1::uuid and e.stream_id = d.stream_id
			order by e.stream_version desc limit 1), false)
		on conflict (tenant_id, stream_id) do update set version = greatest(f.version, excluded.version)`}

	// Sparing may be all there is to do, without any announcement. The policy's row always exists.
	retentionSpare = pg.Statement{Name: "manifold_retention_spare", SQL: `
		insert into retention_spared (tenant_id, category, position)
		select p.tenant_id, p.category, d.position from retention_policies as p cross join unnest($3::bigint[]) as d(position)
		where p.tenant_id = $1::uuid and p.category = $2::text on conflict do nothing`}
	retentionUnspare = pg.Statement{Name: "manifold_retention_unspare", SQL: `
		delete from retention_spared as s
		where s.tenant_id = $1::uuid and s.category = $2::text and s.position > $3::bigint and s.position <= $4::bigint
			and s.position = any($5::bigint[])`}
	retentionRemoved = pg.Statement{Name: "manifold_retention_removed", SQL: `
		update retention_floors as f
		set removed_to = greatest(f.removed_to, $3::bigint), removed = f.removed + $4::bigint, updated_at = now()
		where f.tenant_id = $1::uuid and f.category = $2::text`}

	// The first of the groups that hold a category, except the forced ones.
	firstGroupHold = pg.Statement{Name: "manifold_retention_group_hold", SQL: `
		select h.position from (` + group.HoldsSQL + ` and s.name <> all($3::text[])) as h order by h.position limit 1`}
)

// retained is an event that a slice examines.
type retained struct {
	position int64
	id       domain.EventID
	stream   string
	version  int64
	tagged   bool
}

// verdict is the decision on a slice: the events of the category in the positions (after, upTo].
type verdict struct {
	after, upTo int64
	stay        []int64    // events of the slice
	remove      []retained // all events to remove: those of the slice that do not stay, and single ones
	single      []retained // the single ones of remove
	spare       []int64    // positions due for removal, but named
	unspare     []int64    // positions that no longer need to be spared
}

// RemoveRetained removes the next slice of a category's events that a policy selects, in one transaction with the
// floors. It leaves events that a group may still have to read, even if the run's announcement did not know of them. It
// spares events that a dead letter or a parked document names. If the step's run has not announced removal that far, it
// removes nothing and reports Unannounced. It returns domain.CodeConflict if the policy has changed.
func (s *Postgres) RemoveRetained(ctx context.Context, tenant domain.TenantID, step Step) (slice Slice, err error) {
	// It begins again if others have changed one of the rows: the retention of another category may have removed tags
	// of neighbouring events.
	err = s.seals.WithReceipts(ctx, tenant, func(receipts *seal.Receipts) error {
		slice, err = s.removeRetained(ctx, tenant, step, receipts)
		return err
	})
	return slice, err
}

func (s *Postgres) removeRetained(
	ctx context.Context, tenant domain.TenantID, step Step, receipts *seal.Receipts,
) (slice Slice, err error) {
	err = s.inOneSnapshot(ctx, tenant, func(tx pgx.Tx) error {
		held, err := tx.Exec(ctx, "select from retention_policies p where p.tenant_id = $1 and p.category = $2 and p.revision = $3 for share",
			tenant, step.Category, step.Revision)
		if err != nil {
			return fmt.Errorf("hold a retention policy: %w", err)
		}
		if held.RowsAffected() == 0 {
			return policyChanged(step.Category)
		}
		announced := int64(-1)
		err = tx.QueryRow(ctx, `
			select f.announced_to from retention_floors f
			where f.tenant_id = $1 and f.category = $2 and f.run_id = $3 for update`, tenant, step.Category, step.Run).Scan(&announced)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("lock a category's floor: %w", err)
		}
		var v verdict
		if slice, v, err = judge(ctx, tx, tenant, step); err != nil {
			return err
		}
		upTo := step.UpTo
		if step.Reason == ReasonSuperseded {
			upTo = step.Below
		}
		if announced < upTo && len(v.remove) > 0 {
			slice.Unannounced, slice.Done, slice.Seen = true, false, step.After
			return nil
		}
		slice.Removed = int64(len(v.remove))
		return v.carryOut(ctx, tx, tenant, step.Category, receipts)
	})
	return slice, err
}

// FindRetained is RemoveRetained without removing anything, and without an announced run. It does not count events up
// to step.SweptTo, because they were found before.
func (s *Postgres) FindRetained(ctx context.Context, tenant domain.TenantID, step Step) (slice Slice, err error) {
	err = s.inOneSnapshot(ctx, tenant, func(tx pgx.Tx) error {
		var v verdict
		if slice, v, err = judge(ctx, tx, tenant, step); err != nil {
			return err
		}
		slice.Found = 0
		for _, e := range v.remove {
			if e.position > step.SweptTo {
				slice.Found++
			}
		}
		return nil
	})
	return slice, err
}

// inOneSnapshot runs do in a transaction of the retention login whose statements see one snapshot. If it changes a row
// that another transaction has changed since, pg.Busy reports true for the SQLSTATE of the error.
func (s *Postgres) inOneSnapshot(ctx context.Context, tenant domain.TenantID, do func(pgx.Tx) error) error {
	return pg.UnderWith(ctx, s.db.Retention, tenant, pg.TxOptions{OneSnapshot: true}, do)
}

// judge examines the next slice and decides about its events.
func judge(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, step Step) (slice Slice, v verdict, err error) {
	slice.HeldAt = -1
	upTo := step.UpTo
	var hold int64
	err = tx.QueryRow(ctx, firstGroupHold.SQL, tenant, step.Category, orEmpty(step.Force.Groups)).Scan(&hold)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return slice, v, fmt.Errorf("look for what groups still need: %w", err)
	case err == nil && step.Reason == ReasonSuperseded:
		step.Below = min(step.Below, hold) // the examined events stay in any case
	case err == nil && hold < upTo:
		upTo, slice.HeldAt = hold, hold
	}
	v.after, v.upTo = step.After, max(step.After, upTo)
	switch step.Reason {
	case ReasonSpared:
		err = v.judgeSpared(ctx, tx, tenant, step)
	case ReasonSuperseded:
		err = v.judgeSuperseded(ctx, tx, tenant, step)
	default:
		err = v.judgeSlice(ctx, tx, tenant, step)
	}
	slice.Done, slice.Seen, slice.Found = v.upTo >= upTo, v.upTo, int64(len(v.remove))
	return slice, v, err
}

// window reads the slice's events.
func (v *verdict) window(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, step Step) ([]retained, error) {
	rows, _ := tx.Query(ctx, retentionWindow.SQL, tenant, step.Category, v.after, v.upTo, step.Limit)
	events, err := pgx.CollectRows(rows, scanRetained)
	if err != nil {
		return nil, fmt.Errorf("look at the events that should go: %w", err)
	}
	if len(events) == step.Limit {
		v.upTo = events[len(events)-1].position
	}
	return events, nil
}

// judgeSuperseded is judge for events that stay, because they may still be unread, but supersede older events that
// no longer have to be read.
func (v *verdict) judgeSuperseded(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, step Step) error {
	events, err := v.window(ctx, tx, tenant, step)
	if err != nil {
		return err
	}
	before, err := newestBefore(ctx, tx, tenant, events)
	if err != nil {
		return err
	}
	before = slices.DeleteFunc(before, func(e retained) bool { return e.position > step.Below })
	named, err := namedOf(ctx, tx, tenant, step.Force, before)
	if err != nil {
		return err
	}
	for _, e := range before {
		if named[e.position] {
			v.spare = append(v.spare, e.position)
		} else {
			v.remove, v.single = append(v.remove, e), append(v.single, e)
		}
	}
	return nil
}

// judgeSlice is judge for events in the log's order.
func (v *verdict) judgeSlice(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, step Step) error {
	end := v.upTo // of all slices
	events, err := v.window(ctx, tx, tenant, step)
	if err != nil {
		return err
	}
	var before []retained
	if step.Reason == ReasonCompact {
		newest := newestOf(events)
		if before, err = newestBefore(ctx, tx, tenant, events); err != nil {
			return err
		}
		superseded, err := supersededAbove(ctx, tx, tenant, newest, end, step.Ripe)
		if err != nil {
			return err
		}
		events = slices.DeleteFunc(events, func(e retained) bool {
			stays := e.version == newest[e.stream] && !superseded[e.stream]
			if stays {
				v.stay = append(v.stay, e.position)
			}
			return stays
		})
	}
	named, err := namedOf(ctx, tx, tenant, step.Force, slices.Concat(events, before))
	if err != nil {
		return err
	}
	for _, e := range events {
		if named[e.position] {
			v.spare, v.stay = append(v.spare, e.position), append(v.stay, e.position)
		} else {
			v.remove = append(v.remove, e)
		}
	}
	for _, e := range before {
		if named[e.position] {
			v.spare = append(v.spare, e.position)
		} else {
			v.remove, v.single = append(v.remove, e), append(v.single, e)
		}
	}
	return nil
}

// judgeSpared is judge for events that were spared before.
func (v *verdict) judgeSpared(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, step Step) error {
	ripe := int64(0) // up to here an event supersedes others
	if step.Compact {
		ripe = step.Ripe
	}
	var events []retained
	superseded := make(map[int64]bool)
	looked := 0
	rows, _ := tx.Query(ctx, retentionSpared.SQL, tenant, step.Category, v.after, v.upTo, step.Limit, ripe)
	var position int64
	var id *[16]byte
	var stream *string
	var version *int64
	var tagged, newer bool
	_, err := pgx.ForEachRow(rows, []any{&position, &id, &stream, &version, &tagged, &newer}, func() error {
		if looked++; looked == step.Limit {
			v.upTo = position
		}
		if id == nil {
			v.unspare = append(v.unspare, position) // it was removed with others
			return nil
		}
		events, superseded[position] = append(events, retained{position, *id, *stream, *version, tagged}), newer
		return nil
	})
	if err != nil {
		return fmt.Errorf("look at the events that were spared: %w", err)
	}
	named, err := namedOf(ctx, tx, tenant, step.Force, events)
	if err != nil {
		return err
	}
	for _, e := range events {
		if named[e.position] {
			continue
		}
		v.unspare = append(v.unspare, e.position)
		// Under the current policy it may stay.
		if e.position <= step.SweptTo || e.position <= step.CompactedTo && superseded[e.position] {
			v.remove, v.single = append(v.remove, e), append(v.single, e)
		}
	}
	return nil
}

func scanRetained(row pgx.CollectableRow) (e retained, err error) {
	return e, row.Scan(&e.position, (*[16]byte)(&e.id), &e.stream, &e.version, &e.tagged)
}

// newestOf returns the highest version of each stream in a range of a category's events.
func newestOf(events []retained) map[string]int64 {
	newest := make(map[string]int64)
	for _, e := range events {
		newest[e.stream] = max(newest[e.stream], e.version)
	}
	return newest
}

// supersededAbove returns the streams whose next event, after their newest in a range, is in the positions (end, ripe].
// Next events up to end are found with the ranges that contain them.
func supersededAbove(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, newest map[string]int64, end, ripe int64) (map[string]bool, error) {
	superseded := make(map[string]bool)
	if ripe <= end || len(newest) == 0 {
		return superseded, nil
	}
	streams, versions := make([]string, 0, len(newest)), make([]int64, 0, len(newest))
	for stream, version := range newest {
		streams, versions = append(streams, stream), append(versions, version)
	}
	rows, _ := tx.Query(ctx, retentionSuperseded.SQL, tenant, streams, versions, end, ripe)
	var stream string
	_, err := pgx.ForEachRow(rows, []any{&stream}, func() error {
		superseded[stream] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for newer events of streams: %w", err)
	}
	return superseded, nil
}

// newestBefore returns, for each stream with events in a range, its newest event before the range. Everything before
// the range is compacted, so that event is the only one that these supersede.
func newestBefore(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, events []retained) ([]retained, error) {
	var streams []string
	var firsts []int64
	seen := make(map[string]bool)
	for _, e := range events {
		if !seen[e.stream] && e.version > 1 {
			streams, firsts = append(streams, e.stream), append(firsts, e.version)
		}
		seen[e.stream] = true
	}
	if len(streams) == 0 {
		return nil, nil
	}
	rows, _ := tx.Query(ctx, retentionBefore.SQL, tenant, streams, firsts)
	before, err := pgx.CollectRows(rows, scanRetained)
	if err != nil {
		return nil, fmt.Errorf("look for what newer events supersede: %w", err)
	}
	return before, nil
}

// namedOf returns the positions of the events that a dead letter names or that wait for a parked document, except
// forced ones.
func namedOf(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, force Force, events []retained) (map[int64]bool, error) {
	if len(events) == 0 {
		return nil, nil
	}
	positions, ids := make([]int64, len(events)), make([][16]byte, len(events))
	for i, e := range events {
		positions[i], ids[i] = e.position, e.id
	}
	named := make(map[int64]bool)
	var position int64
	rows, _ := tx.Query(ctx, retentionNamed.SQL, tenant, positions, ids, orEmpty(force.Groups), orEmpty(force.Projections))
	_, err := pgx.ForEachRow(rows, []any{&position}, func() error {
		named[position] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for what dead letters and parked documents name: %w", err)
	}
	return named, nil
}

// removeTags queues the removal of the tags of the events that the verdict removes.
func (v *verdict) removeTags(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, batch *pgx.Batch) error {
	var tagged []int64
	for _, e := range v.remove {
		if e.tagged {
			tagged = append(tagged, e.position)
		}
	}
	if len(tagged) == 0 {
		return nil
	}
	return eventlog.QueueTagRemoval(ctx, tx, tenant, tagged, batch)
}

// carryOut executes the verdict in two round trips, or three if events have tags.
func (v *verdict) carryOut(
	ctx context.Context, tx pgx.Tx, tenant domain.TenantID, category string, receipts *seal.Receipts,
) error {
	var batch pgx.Batch
	var gone int64
	count := func(tag pgconn.CommandTag) error {
		gone += tag.RowsAffected()
		return nil
	}
	if err := v.removeTags(ctx, tx, tenant, &batch); err != nil {
		return err
	}
	if len(v.remove) > 0 {
		positions := make([]int64, len(v.remove))
		for i, e := range v.remove {
			positions[i] = e.position
		}
		batch.Queue(limits.Uncount.SQL, tenant, positions)
		if err := receipts.Queue(ctx, tx, &batch, proof.Expired, "retention of category "+category, positions); err != nil {
			return err
		}
	}
	if len(v.remove) > len(v.single) {
		batch.Queue(retentionRemove.SQL, tenant, category, v.after, v.upTo, orEmpty(v.stay)).Exec(count)
	}
	for _, e := range v.single {
		batch.Queue(retentionRemoveOne.SQL, tenant, e.position).Exec(count)
	}
	if len(v.remove) > 0 {
		highest := int64(0)
		for _, e := range v.remove {
			highest = max(highest, e.position)
		}
		newest := newestOf(v.remove)
		own := make(map[string]bool)
		for _, e := range v.remove {
			if newest[e.stream] == 1 && e.stream == category+"-"+e.id.String() {
				own[e.stream] = true
			}
		}
		streams, versions := slices.Sorted(maps.Keys(newest)), make([]int64, 0, len(newest))
		owns := make([]bool, 0, len(newest))
		for _, stream := range streams {
			versions, owns = append(versions, newest[stream]), append(owns, own[stream])
		}
		batch.Queue(retentionFloors.SQL, tenant, category, streams, versions, owns)
		batch.Queue(retentionRemoved.SQL, tenant, category, highest, int64(len(v.remove)))
	}
	if len(v.spare) > 0 {
		batch.Queue(retentionSpare.SQL, tenant, category, v.spare)
	}
	if len(v.unspare) > 0 {
		batch.Queue(retentionUnspare.SQL, tenant, category, v.after, v.upTo, v.unspare)
	}
	if batch.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("remove a slice of events: %w", err)
	}
	if gone != int64(len(v.remove)) {
		return fmt.Errorf("remove a slice of events: %d of %d went", gone, len(v.remove))
	}
	return nil
}

// orEmpty returns an empty list for nil, which would be a null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
