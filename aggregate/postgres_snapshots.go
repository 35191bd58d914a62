package aggregate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
)

const snapshotColumns = "s.stream_id, s.version, s.tag, s.state, s.taken_at, s.removed_to"

func scanSnapshot(row pgx.CollectableRow) (Snapshot, error) {
	var snapshot Snapshot
	var state []byte
	err := row.Scan(&snapshot.Stream, &snapshot.Version, &snapshot.Tag, &state, (*pg.Moment)(&snapshot.TakenAt), &snapshot.RemovedTo)
	snapshot.State = state
	return snapshot, err
}

// PutSnapshot stores a snapshot. It replaces one with the same stream, tag and version, unless that one lacks fewer
// events. Of the stream's snapshots with the same tag, the newest SnapshotsKept stay. If the tag is a
// definition's (IsDefinitionTag), snapshots with other definitions' tags are deleted, because the definition has
// changed. TakenAt is the database's current time.
func (s *Postgres) PutSnapshot(ctx context.Context, tenant domain.TenantID, snapshot Snapshot) error {
	return pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		_, err := pg.Exec(ctx, tx, "keep a snapshot", `
			insert into snapshots as s (tenant_id, stream_id, tag, version, state, removed_to) values ($1, $2, $3, $4, $5, $6)
			on conflict (tenant_id, stream_id, tag, version) do update
			  set state = excluded.state, removed_to = excluded.removed_to, taken_at = excluded.taken_at
			  where s.removed_to >= excluded.removed_to`,
			tenant, snapshot.Stream, snapshot.Tag, snapshot.Version, []byte(snapshot.State), snapshot.RemovedTo)
		if err != nil {
			return err
		}
		_, err = pg.Exec(ctx, tx, "remove older snapshots", `
			delete from snapshots s
			where s.tenant_id = $1 and s.stream_id = $2
			  and (s.tag = $3 and s.version <= (
			         select o.version from snapshots o where o.tenant_id = $1 and o.stream_id = $2 and o.tag = $3
			         order by o.version desc offset $4 limit 1)
			    or $5 and s.tag like 'def:%' and s.tag <> $3)`,
			tenant, snapshot.Stream, snapshot.Tag, SnapshotsKept, IsDefinitionTag(snapshot.Tag))
		return err
	})
}

// Snapshot returns the newest snapshot of a stream with a tag and, unless atMost is 0, a version of at most atMost.
// Without lossy, it ignores snapshots that lack events. ok is false if there is none.
func (s *Postgres) Snapshot(ctx context.Context, tenant domain.TenantID, stream, tag string, atMost int64, lossy bool) (snapshot Snapshot, ok bool, err error) {
	return s.snapshot(ctx, tenant, "select "+snapshotColumns+` from snapshots s
		where s.tenant_id = $1 and s.stream_id = $2 and s.tag = $3 and ($4 = 0 or s.version <= $4) and ($5 or s.removed_to = 0)
		order by s.version desc limit 1`, stream, tag, atMost, lossy)
}

// LatestSnapshot returns the newest snapshot of a stream, whatever made it. Of several at one version, it returns the
// one that was taken last. ok is false if there is none.
func (s *Postgres) LatestSnapshot(ctx context.Context, tenant domain.TenantID, stream string) (snapshot Snapshot, ok bool, err error) {
	return s.snapshot(ctx, tenant, "select "+snapshotColumns+` from snapshots s
		where s.tenant_id = $1 and s.stream_id = $2 order by s.version desc, s.taken_at desc limit 1`, stream)
}

// snapshot reads one of a stream's snapshots. It removes unreadable ones, because the events contain the same
// information.
func (s *Postgres) snapshot(ctx context.Context, tenant domain.TenantID, query, stream string, args ...any) (snapshot Snapshot, ok bool, err error) {
	args = append([]any{tenant, stream}, args...)
	snapshot, ok, err = pg.SelectOneUnder(ctx, s.db.App, tenant, "read a snapshot", scanSnapshot, query, args...)
	if !pg.Unprintable(err) {
		return snapshot, ok, err
	}
	_, err = pg.ExecUnder(ctx, s.db.App, tenant, "remove snapshots that cannot be read",
		"delete from snapshots s where s.tenant_id = $1 and s.stream_id = $2 and "+eventlog.PrintedSQL("s.state")+" > $3",
		tenant, stream, eventlog.UnreadableBytes)
	if err != nil {
		return Snapshot{}, false, err
	}
	return pg.SelectOneUnder(ctx, s.db.App, tenant, "read a snapshot", scanSnapshot, query, args...)
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
