package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

const (
	// countEvery is the pause between two looks for events that are not counted.
	countEvery = 5 * time.Second
	// countSlice is how many events one transaction counts.
	countSlice = 5000
	// countPause is the pause after a full slice or a failure, so that counting a long log leaves room for others.
	countPause = 20 * time.Millisecond
)

// Counter counts the stored events of tenants with a quota for them, and their bytes. Appends do not wait for it: what
// it has not counted yet, the quota estimates.
type Counter struct {
	Store    *Postgres
	Settings *Settings
	Owns     func(tenant domain.TenantID) bool // whether this process works for the tenant
	Log      *slog.Logger
}

// Run counts until ctx ends, and then returns nil.
func (c *Counter) Run(ctx context.Context) error {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		if err := c.Count(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("stored events could not be counted; it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Count counts what is not counted yet. A tenant whose events cannot be counted does not keep others from it.
func (c *Counter) Count(ctx context.Context) error {
	counted, all := c.Settings.counted()
	if len(counted) == 0 && !all {
		return nil
	}
	if all {
		counted = nil
	}
	tenants, err := c.Store.uncounted(ctx, counted)
	if err != nil {
		return err
	}
	tenants = slices.DeleteFunc(tenants, func(tenant domain.TenantID) bool {
		return tenant.IsAuditLog() || !c.Settings.of(tenant).countsStored() || !c.Owns(tenant)
	})
	var errs []error
	for len(tenants) > 0 { // a slice of each in turn
		full := tenants[:0]
		for _, tenant := range tenants {
			done, err := c.Store.countSlice(ctx, tenant)
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("tenant %s: %w", tenant, err))
			case done:
				continue
			default:
				full = append(full, tenant)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(countPause):
			}
		}
		tenants = full
	}
	return errors.Join(errs...)
}

// uncounted returns the tenants with events that are not counted, among those given or, if none are, among all.
func (s *Postgres) uncounted(ctx context.Context, among []domain.TenantID) ([]domain.TenantID, error) {
	return pg.Select(ctx, s.db.System, "list tenants with events that are not counted", func(row pgx.CollectableRow) (id domain.TenantID, err error) {
		err = row.Scan((*[16]byte)(&id))
		return id, err
	}, `
		select l.tenant_id from logs l left join stored_events s on s.tenant_id = l.tenant_id
		where ($1::uuid[] is null or l.tenant_id = any ($1::uuid[])) and (coalesce(s.counted_to, 0) < l.head or s.complete is not true)`, among)
}

// storedSize is what an event counts towards the quota for bytes: its data and metadata as they are stored, compressed
// if the database compresses them, and the names. It must not change while counts are stored.
const storedSize = "pg_column_size(e.event_data) + coalesce(pg_column_size(e.metadata), 0) + octet_length(e.stream_id) + octet_length(e.event_type)"

// Uncount subtracts the events at the positions $2 of the tenant $1 that have been counted. It belongs into the
// transaction that removes them, before that, and needs a snapshot of the transaction (repeatable read): then it fails
// if they are counted at the same time.
var Uncount = pg.Statement{Name: "manifold_uncount_events", SQL: `
	update stored_events as s set events = s.events - r.events, bytes = s.bytes - r.bytes
	from (
		select count(*) as events, coalesce(sum(e.size), 0)::bigint as bytes
		from unnest($2::bigint[]) as d(position)
		cross join lateral (
			select e.position, ` + storedSize + ` as size from events as e where e.tenant_id = $1::uuid and e.position = d.position limit 1
		) as e
		where e.position <= (select c.counted_to from stored_events as c where c.tenant_id = $1::uuid)
	) as r
	where s.tenant_id = $1::uuid`}

// countSlice counts the next events of a tenant. done means that it has reached the head of the log.
func (s *Postgres) countSlice(ctx context.Context, tenant domain.TenantID) (done bool, err error) {
	return done, pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		if _, err := pg.Exec(ctx, tx, "begin to count events", "insert into stored_events (tenant_id) values ($1) on conflict do nothing", tenant); err != nil {
			return err
		}
		// Retention updates the row before it removes events. So none that it removes is counted.
		counted, _, err := pg.SelectOne(ctx, tx, "lock a count of events", pgx.RowTo[int64],
			"select s.counted_to from stored_events s where s.tenant_id = $1 for update", tenant)
		if err != nil {
			return err
		}
		head, _, err := pg.SelectOne(ctx, tx, "read the head of a log", pgx.RowTo[int64], "select l.head from logs l where l.tenant_id = $1", tenant)
		if err != nil {
			return err
		}
		type slice struct{ Events, Bytes, Last int64 }
		found, _, err := pg.SelectOne(ctx, tx, "count events", pgx.RowToStructByPos[slice], `
			select count(*), coalesce(sum(e.size), 0)::bigint, coalesce(max(e.position), 0) from (
				select e.position, `+storedSize+` as size from events e
				where e.tenant_id = $1 and e.position > $2 and e.position <= $3 order by e.position limit $4
			) e`, tenant, counted, head, countSlice)
		if err != nil {
			return err
		}
		if done = found.Events < countSlice; done {
			found.Last = head
		}
		_, err = pg.Exec(ctx, tx, "save a count of events", `
			update stored_events s set counted_to = $2, events = s.events + $3, bytes = s.bytes + $4, complete = s.complete or $5
			where s.tenant_id = $1`, tenant, found.Last, found.Events, found.Bytes, done)
		return err
	})
}

// CountedBytes returns what the events at positions count towards the quota for bytes, as far as they have been
// counted, and keeps others from counting until the transaction ends. It belongs into a transaction of the retention
// login that changes the events, before that.
func CountedBytes(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, positions []int64) (int64, error) {
	counted, there, err := pg.SelectOne(ctx, tx, "lock a count of events", pgx.RowTo[int64],
		"select s.counted_to from stored_events s where s.tenant_id = $1 for update", tenant)
	if err != nil || !there {
		return 0, err
	}
	bytes, _, err := pg.SelectOne(ctx, tx, "count the bytes of events", pgx.RowTo[int64],
		"select coalesce(sum("+storedSize+"), 0)::bigint from events e where e.tenant_id = $1 and e.position = any ($2::bigint[]) and e.position <= $3",
		tenant, positions, counted)
	return bytes, err
}

// Recount replaces what CountedBytes returned by what the events count now that they have changed.
func Recount(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, positions []int64, before int64) error {
	after, err := CountedBytes(ctx, tx, tenant, positions)
	if err != nil || after == before {
		return err
	}
	_, err = pg.Exec(ctx, tx, "save a count of events", "update stored_events as s set bytes = s.bytes + $2 where s.tenant_id = $1", tenant, after-before)
	return err
}
