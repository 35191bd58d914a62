package aggregate

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/projection/registry"
)

const snapshotColumns = "s.stream_id, s.version, s.tag, s.state, s.taken_at, s.removed_to"

var (
	selectSnapshot = pg.Statement{Name: "manifold_aggregate_snapshot", SQL: "select " + snapshotColumns + ` from snapshots as s
		where s.tenant_id = $1::uuid and s.stream_id = $2::text and s.tag = $3::text and s.version <= $4::bigint and s.removed_to <= $5::bigint
		order by s.version desc limit 1`}
	selectLatestSnapshot = pg.Statement{Name: "manifold_aggregate_latest_snapshot", SQL: "select " + snapshotColumns + ` from snapshots as s
		where s.tenant_id = $1::uuid and s.stream_id = $2::text and s.version <= $3::bigint and (s.tag = $4::text or $4::text = '')
		order by s.version desc, s.taken_at desc limit 1`}
)

// scan reads a row of snapshotColumns.
func (s *Snapshot) scan(values [][]byte) error {
	*s = Snapshot{
		Stream: string(values[0]), Version: pg.Int8Value(values[1]), Tag: string(values[2]), State: bytes.Clone(pg.JSONValue(values[3])),
		TakenAt: pg.TimeValue(values[4]), RemovedTo: pg.Int8Value(values[5]),
	}
	return nil
}

// snapshotQuery reads the newest snapshot of a stream with a tag and, unless atMost is 0, a version of at most atMost.
// Without lossy, it ignores snapshots that lack events. Without a row, snapshot stays as it is.
func snapshotQuery(tenant domain.TenantID, stream, tag string, atMost int64, lossy bool, snapshot *Snapshot) pg.Query {
	removedTo := int64(0)
	if lossy {
		removedTo = math.MaxInt64
	}
	if atMost == 0 {
		atMost = math.MaxInt64
	}
	return pg.Query{Statement: &selectSnapshot, Row: snapshot.scan, Params: [][]byte{
		pg.TenantParam(tenant), []byte(stream), []byte(tag), pg.Int8Param(atMost), pg.Int8Param(removedTo),
	}}
}

// PutSnapshots stores snapshots of one stream, with one tag, in the order of their versions; there is at least one.
// Each replaces one with the same version, unless that one lacks fewer events. Of the stream's snapshots with the same
// tag, the newest SnapshotsKept stay, and the first of each rung. If the tag is a definition's (IsDefinitionTag),
// snapshots with other definitions' tags are deleted, because the definition has changed. TakenAt is the database's
// current time.
func (s *Postgres) PutSnapshots(ctx context.Context, tenant domain.TenantID, snapshots ...Snapshot) error {
	return pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		for _, snapshot := range snapshots {
			_, err := pg.Exec(ctx, tx, "keep a snapshot", `
				insert into snapshots as s (tenant_id, stream_id, tag, version, state, removed_to) values ($1, $2, $3, $4, $5, $6)
				on conflict (tenant_id, stream_id, tag, version) do update
				  set state = excluded.state, removed_to = excluded.removed_to, taken_at = excluded.taken_at
				  where s.removed_to >= excluded.removed_to`,
				tenant, snapshot.Stream, snapshot.Tag, snapshot.Version, []byte(snapshot.State), snapshot.RemovedTo)
			if err != nil {
				return err
			}
		}
		// Of a long stream, only the rungs beside the newest snapshots are looked at: the others are as they should be.
		snapshot := snapshots[len(snapshots)-1]
		rung := rung(snapshot.Tag, len(snapshot.State))
		_, err := pg.Exec(ctx, tx, "remove older snapshots", `
			delete from snapshots s
			where s.tenant_id = $1 and s.stream_id = $2 and s.tag = $3
			  and s.version <= (
			    select o.version from snapshots o where o.tenant_id = $1 and o.stream_id = $2 and o.tag = $3
			    order by o.version desc offset $4 limit 1)
			  and ($5::bigint = 0 or s.version > $6::bigint and exists (
			    select from snapshots o where o.tenant_id = $1 and o.stream_id = $2 and o.tag = $3
			      and o.version < s.version and o.version >= s.version - (s.version - 1) % nullif($5::bigint, 0)))`,
			tenant, snapshot.Stream, snapshot.Tag, SnapshotsKept, rung, snapshot.Version-10*rung)
		if err != nil || rung == 0 {
			return err
		}
		_, err = pg.Exec(ctx, tx, "remove the snapshots of earlier definitions", `
			delete from snapshots s where s.tenant_id = $1 and s.stream_id = $2 and s.tag like 'def:%' and s.tag <> $3`,
			tenant, snapshot.Stream, snapshot.Tag)
		return err
	})
}

// Snapshot returns the newest snapshot of a stream with a tag and, unless atMost is 0, a version of at most atMost.
// Without lossy, it ignores snapshots that lack events. ok is false if there is none.
func (s *Postgres) Snapshot(ctx context.Context, tenant domain.TenantID, stream, tag string, atMost int64, lossy bool) (snapshot Snapshot, ok bool, err error) {
	err = s.readSnapshot(ctx, tenant, stream, snapshotQuery(tenant, stream, tag, atMost, lossy, &snapshot))
	return snapshot, snapshot.Version > 0, err
}

// LatestSnapshot returns the newest snapshot of a stream, up to a version (0: any), and with a tag (empty: any). Of
// several at one version, it returns the one that was taken last. ok is false if there is none.
func (s *Postgres) LatestSnapshot(ctx context.Context, tenant domain.TenantID, stream string, atMost int64, tag string) (snapshot Snapshot, ok bool, err error) {
	if atMost == 0 {
		atMost = math.MaxInt64
	}
	err = s.readSnapshot(ctx, tenant, stream, pg.Query{
		Statement: &selectLatestSnapshot, Params: [][]byte{pg.TenantParam(tenant), []byte(stream), pg.Int8Param(atMost), []byte(tag)}, Row: snapshot.scan,
	})
	return snapshot, snapshot.Version > 0, err
}

// SnapshotKey identifies one of a stream's snapshots. The zero SnapshotKey comes before all of them.
type SnapshotKey struct {
	Version int64
	Tag     string
}

// Snapshots returns the snapshots of a stream without their states, the newest first, and at one version by tag. It
// begins after a key, and returns at most limit.
func (s *Postgres) Snapshots(ctx context.Context, tenant domain.TenantID, stream string, after SnapshotKey, limit int) ([]Snapshot, error) {
	if after.Version == 0 {
		after.Version = math.MaxInt64
	}
	return pg.SelectUnder(ctx, s.db.App, tenant, "list snapshots", func(row pgx.CollectableRow) (Snapshot, error) {
		one := Snapshot{Stream: stream}
		err := row.Scan(&one.Version, &one.Tag, (*pg.Moment)(&one.TakenAt), &one.RemovedTo)
		return one, err
	}, `
		select s.version, s.tag, s.taken_at, s.removed_to from snapshots s
		where s.tenant_id = $1 and s.stream_id = $2 and (s.version < $3 or s.version = $3 and s.tag > $4)
		order by s.version desc, s.tag limit $5`, tenant, stream, after.Version, after.Tag, limit)
}

// readSnapshot reads one of a stream's snapshots. It removes unreadable ones, because the events contain the same
// information.
func (s *Postgres) readSnapshot(ctx context.Context, tenant domain.TenantID, stream string, query pg.Query) error {
	err := s.db.Read(ctx, tenant, nil, query)
	if !pg.Unprintable(err) {
		return err
	}
	_, err = pg.ExecUnder(ctx, s.db.App, tenant, "remove snapshots that cannot be read",
		`delete from snapshots s using (
			select u.tag, u.version from snapshots u where u.tenant_id = $1 and u.stream_id = $2 and `+eventlog.PrintedSQL("u.state")+` > $3) unreadable
			where s.tenant_id = $1 and s.stream_id = $2 and s.tag = unreadable.tag and s.version = unreadable.version`,
		tenant, stream, eventlog.UnreadableBytes)
	if err != nil {
		return err
	}
	return s.db.Read(ctx, tenant, nil, query)
}

// start is what the load of a state starts from.
type start struct {
	definition storedDefinition
	upcasters  domain.UpcasterRevision
	snapshot   Snapshot // Version 0: there is none
	asked      bool     // snapshot is the answer of the database
}

// readStart reads the definition of a stream's category, the revision of the upcasters and, unless the tag is empty,
// the newest complete snapshot with the tag and a version of at most atMost (0: any), all in one round trip. It leaves
// an unreadable snapshot out.
func (s *Postgres) readStart(ctx context.Context, tenant domain.TenantID, stream, tag string, atMost int64) (start, error) {
	var found start
	reset := func() { found = start{} }
	queries := []pg.Query{found.definition.query(tenant, domain.Category(stream)), registry.UpcasterRevisionQuery(tenant, &found.upcasters)}
	if tag != "" {
		queries = append(queries, snapshotQuery(tenant, stream, tag, atMost, false, &found.snapshot))
	}
	err := s.db.Read(ctx, tenant, reset, queries...)
	if tag != "" && pg.Unprintable(err) {
		err = s.db.Read(ctx, tenant, reset, queries[:2]...)
		tag = ""
	}
	found.asked = tag != ""
	return found, err
}

// snapshotsPerDelete is how many snapshots one statement removes.
const snapshotsPerDelete = 5000

// eventsPerSweepQuery is how many events one call of UnsnapshottedStreams examines.
const eventsPerSweepQuery = 5000

// UnsnapshottedStreams examines the next few thousand events of a category in the positions (after, upTo]. It returns
// the streams among them whose newest snapshot with the tag lags at least behind events, or that have none and at least
// that many events. seen is the position up to which it has examined events: the after of the next call, or upTo at the
// end. Several calls may return the same stream.
func (s *Postgres) UnsnapshottedStreams(ctx context.Context, tenant domain.TenantID, category, tag string, behind, after, upTo int64) (streams []string, seen int64, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		var last *int64
		err := tx.QueryRow(ctx, `
			with slice as materialized (
			  select e.stream_id, e.stream_version, e.position from events e
			  where e.tenant_id = @tenant and e.category = @category and e.position > @after and e.position <= @upTo
			  order by e.position limit @limit
			), moved as (
			  select m.stream_id, max(m.stream_version) as version from slice m group by m.stream_id
			)
			select
			  (select case when count(*) = @limit then max(m.position) end from slice m),
			  (select coalesce(array_agg(m.stream_id order by m.stream_id), '{}') from moved m
			   where m.version - @behind >= coalesce((
			     select max(s.version) from snapshots s where s.tenant_id = @tenant and s.stream_id = m.stream_id and s.tag = @tag), 0))`,
			pgx.NamedArgs{
				"tenant": tenant, "category": category, "after": after, "upTo": upTo, "limit": eventsPerSweepQuery, "tag": tag, "behind": behind,
			}).Scan(&last, &streams)
		if err != nil {
			return fmt.Errorf("look for streams without a snapshot: %w", err)
		}
		seen = upTo
		if last != nil {
			seen = *last
		}
		return nil
	})
	return streams, seen, err
}

// deleteDefinitionSnapshots removes the snapshots that definitions folded for a category's streams, in slices.
func (s *Postgres) deleteDefinitionSnapshots(ctx context.Context, tenant domain.TenantID, category string) error {
	for {
		// A category ends before the first dash, and "." is the byte after the dash.
		deleted, err := pg.ExecUnder(ctx, s.db.App, tenant, "remove a category's snapshots", `
			delete from snapshots s
			where s.tenant_id = $1 and s.stream_id >= $2 || '-' and s.tag like 'def:%'
			  and (s.stream_id, s.tag, s.version) <= (
			    select l.stream_id, l.tag, l.version from (
			      select o.stream_id, o.tag, o.version from snapshots o
			      where o.tenant_id = $1 and o.stream_id >= $2 || '-' and o.stream_id < $2 || '.' and o.tag like 'def:%'
			      order by o.stream_id, o.tag, o.version limit $3) l
			    order by l.stream_id desc, l.tag desc, l.version desc limit 1)`, tenant, category, snapshotsPerDelete)
		if err != nil || deleted == 0 {
			return err
		}
	}
}

// ForgetSnapshots removes the snapshots of streams that were folded from events at positions, because these events have
// changed. If retention has removed these events of a stream, it removes all of the stream's snapshots. It returns how
// many it has removed.
func (s *Postgres) ForgetSnapshots(ctx context.Context, tenant domain.TenantID, positions []int64, streams []string) (int64, error) {
	return pg.ExecUnder(ctx, s.db.App, tenant, "remove the snapshots of streams", `
		delete from snapshots s
		where s.tenant_id = $1 and s.stream_id = any ($2::text[]) and s.version >= coalesce((
		  select min(e.stream_version) from events e
		  where e.tenant_id = $1 and e.stream_id = s.stream_id and e.position = any ($3::bigint[])), 0)`, tenant, streams, positions)
}

// ForgetOutcomes removes the outcomes of a tenant's commands that appended nothing: a rejection may quote a state. A
// repeated command is decided again. Outcomes that are added meanwhile may stay. It returns how many it has removed,
// also with an error.
func (s *Postgres) ForgetOutcomes(ctx context.Context, tenant domain.TenantID) (removed int64, err error) {
	for more := true; more; {
		var upTo [16]byte
		upTo, more, err = pg.SelectOneUnder(ctx, s.db.App, tenant, "look for the outcomes of commands", pgx.RowTo[[16]byte], `
			select o.outcome_id from command_outcomes as o where o.tenant_id = $1::uuid order by o.outcome_id offset $2 limit 1`,
			tenant, outcomesAtOnce-1)
		if err != nil {
			return removed, err
		}
		if !more {
			upTo = [16]byte(bytes.Repeat([]byte{0xff}, len(upTo))) // fewer are left
		}
		page, err := pg.ExecUnder(ctx, s.db.App, tenant, "remove the outcomes of commands",
			"delete from command_outcomes as o where o.tenant_id = $1::uuid and o.outcome_id <= $2::uuid", tenant, upTo)
		if removed += page; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// outcomesAtOnce is about how many outcomes one statement removes.
const outcomesAtOnce = 5000
