package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// createTenants creates tenants directly in the database.
func (db *database) createTenants(ctx context.Context, count int) ([]domain.TenantID, error) {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tenants := make([]domain.TenantID, count)
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"manifold", "tenants"}, []string{"tenant_id", "name", "state"},
		pgx.CopyFromSlice(count, func(i int) ([]any, error) {
			tenants[i] = domain.NewTenantID()
			return []any{tenants[i].String(), fmt.Sprintf("bench-%d", i+1), "active"}, nil
		}))
	if err != nil {
		return nil, fmt.Errorf("create tenants: %w", err)
	}
	return tenants, nil
}

// history is what is in the log of one or several tenants before a benchmark starts. Events and streams are spread
// evenly over tenants. If there are as many streams as events, each stream has one event.
type history struct {
	events, streams int
	front           int // this many events of slowStream come first
	rare            int // one event in this many is of rareType; 0: none
	tagged          bool
}

const (
	slowStream = "slow-1"
	rareType   = "OrderDisputed"
)

// fillLogs writes events into empty logs with COPY, and waits until the service, if one runs, has sealed them. Then it
// lets the database update its statistics and visibility, as it would later by itself.
func (r *run) fillLogs(ctx context.Context, h history, tenants ...domain.TenantID) error {
	r.log("loading %d events of %d streams of %s", h.front+h.events, max(h.streams, len(tenants)), count(len(tenants), "tenant"))
	conn, err := pgx.Connect(ctx, r.db.super)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for i, tenant := range tenants {
		part := h
		part.events, part.streams = partOf(h.events, i, len(tenants)), partOf(h.streams, i, len(tenants))
		if err := part.copyTo(ctx, conn, tenant); err != nil {
			return fmt.Errorf("load events: %w", err)
		}
		if err := part.show(ctx, conn, tenant); err != nil {
			return fmt.Errorf("load events: %w", err)
		}
	}
	if h.tagged {
		r.log("tagging the events")
		if err := execute(ctx, r.db.super, tagEvents...); err != nil {
			return fmt.Errorf("tag events: %w", err)
		}
	}
	if err := r.awaitSeals(ctx); err != nil {
		return err
	}
	return execute(ctx, r.db.super, "vacuum analyze", "checkpoint")
}

// awaitSeals waits until the service, if one runs, has sealed nearly all events. Sealing takes up to half of the time
// of one processor, which a measurement would contain.
func (r *run) awaitSeals(ctx context.Context) error {
	if r.service == nil {
		return nil
	}
	r.log("waiting until the events are sealed")
	return r.db.await(ctx, `select coalesce(sum(l.head - coalesce(s.size, 0)), 0) < 10000
		from manifold.logs as l left join manifold.sealed_logs as s on s.tenant_id = l.tenant_id`)
}

// tagEvents gives each event the tag of its stream, and one that all events have.
var tagEvents = []string{
	`insert into manifold.event_tags (tenant_id, position, tags)
		select tenant_id, min(position), string_agg('log:all stream:' || stream_id, e'\n' order by position)
		from manifold.events group by tenant_id, (position - 1) / 32`,
	`insert into manifold.tagged_events (tenant_id, tag, position, event_type)
		select e.tenant_id, t.tag, e.position, e.event_type from manifold.events e cross join lateral unnest(array['log:all', 'stream:' || e.stream_id]) as t(tag)`,
}

// partOf returns part i when total is divided into even parts.
func partOf(total, i, parts int) int { return total*(i+1)/parts - total*i/parts }

// count formats a number of things: 1 tenant, 2 tenants.
func count(number int, thing string) string {
	if number != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", number, thing)
}

// show makes the events visible that copyTo has written.
func (h history) show(ctx context.Context, conn *pgx.Conn, tenant domain.TenantID) error {
	_, err := conn.Exec(ctx, "insert into manifold.logs (tenant_id, head, last_at) values ($1, $2, now())", tenant.String(), h.front+h.events)
	return err
}

// eventColumns are the columns of events, as COPY writes them.
var eventColumns = []string{"tenant_id", "position", "event_id", "stream_id", "stream_version", "event_type", "event_data", "metadata", "occurred_at", "created_at", "tagged"}

// copyTo writes the events of a log. They are invisible until show.
func (h history) copyTo(ctx context.Context, conn *pgx.Conn, tenant domain.TenantID) error {
	g, now := newGenerator(0, 0), time.Now()
	versions := make([]int64, max(h.streams, 1))
	position := 0
	var tagged any // null in untagged events
	if h.tagged {
		tagged = true
	}
	rows := pgx.CopyFromFunc(func() ([]any, error) {
		if position == h.front+h.events {
			return nil, nil
		}
		position++
		name, version := slowStream, int64(position)
		if position > h.front {
			// Adjacent events are of different streams, as in a busy log.
			stream := position - 1 - h.front
			if len(versions) < h.events {
				stream = g.random.IntN(len(versions))
			}
			versions[stream]++
			name, version = fmt.Sprintf("order-%d", stream), versions[stream]
		}
		kind := eventType(version)
		if h.rare > 0 && position%h.rare == 0 {
			kind = rareType
		}
		return []any{tenant.String(), int64(position), domain.NewEventID().String(), name, version, kind, g.data(nil), nil, nil, now, tagged}, nil
	})
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"manifold", "events"}, eventColumns, rows)
	return err
}
