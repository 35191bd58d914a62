package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// makeTenants creates tenants directly in the database.
func (db *database) makeTenants(ctx context.Context, count int) ([]domain.TenantID, error) {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tenants := make([]domain.TenantID, count)
	for i := range tenants {
		tenants[i] = domain.NewTenantID()
		_, err := conn.Exec(ctx, "insert into manifold.tenants (tenant_id, name, state) values ($1, $2, 'active')", tenants[i].String(), fmt.Sprintf("bench-%d", i+1))
		if err != nil {
			return nil, fmt.Errorf("make a tenant: %w", err)
		}
	}
	return tenants, nil
}

// preload fills an empty log with events over a number of streams with COPY: one event per stream if there are as
// many streams. Then it lets the database update its statistics and visibility, as it would later by itself.
func (db *database) preload(ctx context.Context, tenant domain.TenantID, events, streams int, progress io.Writer) error {
	fmt.Fprintf(progress, "loading %d events of %d streams ...\n", events, max(streams, 1))
	return db.fill(ctx, newSales(0), []domain.TenantID{tenant}, events, streams)
}

// preloadBehind is preload with additional events of the stream slowStream before all others.
func (db *database) preloadBehind(ctx context.Context, tenant domain.TenantID, front, events, streams int, progress io.Writer) error {
	fmt.Fprintf(progress, "loading %d events of one stream, and behind them %d of %d streams ...\n", front, events, max(streams, 1))
	goods := newSales(0)
	goods.front = front
	return db.fill(ctx, goods, []domain.TenantID{tenant}, front+events, streams)
}

// slowStream is the stream whose events preloadBehind puts first.
const slowStream = "slow-1"

// preloadAll is preload for several logs, which share the events and the streams evenly.
func (db *database) preloadAll(ctx context.Context, tenants []domain.TenantID, events, streams int, progress io.Writer) error {
	fmt.Fprintf(progress, "loading %d events of %d streams of %d tenants ...\n", events, max(streams, len(tenants)), len(tenants))
	return db.fill(ctx, newSales(0), tenants, events, streams)
}

func (db *database) fill(ctx context.Context, goods *sales, tenants []domain.TenantID, events, streams int) error {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for i, tenant := range tenants {
		if err := fillLog(ctx, conn, goods, tenant, shareOf(events, i, len(tenants)), shareOf(streams, i, len(tenants))); err != nil {
			return fmt.Errorf("load events: %w", err)
		}
	}
	_, err = conn.Exec(ctx, "vacuum analyze manifold.events")
	return err
}

// shareOf returns part i when whole is divided into even parts.
func shareOf(whole, i, parts int) int { return whole*(i+1)/parts - whole*i/parts }

func fillLog(ctx context.Context, conn *pgx.Conn, goods *sales, tenant domain.TenantID, events, streams int) error {
	now := time.Now()
	if err := fillEvents(ctx, conn, goods, tenant, events, streams, now); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, setHead, tenant.String(), events, now)
	return err
}

// setHead makes the preloaded events of a log visible.
const setHead = "insert into manifold.logs (tenant_id, head, last_at) values ($1, $2, $3)"

// fillEvents writes the events of a log. They are invisible until the log has its head.
func fillEvents(ctx context.Context, conn *pgx.Conn, goods *sales, tenant domain.TenantID, events, streams int, now time.Time) error {
	versions := make([]int64, max(streams, 1))
	var position int64
	rows := pgx.CopyFromFunc(func() ([]any, error) {
		if position == int64(events) {
			return nil, nil
		}
		position++
		name, version := slowStream, position
		if position > int64(goods.front) {
			// Adjacent events are of different streams, as in a busy log.
			stream := int(position-1) - goods.front
			if len(versions) < events-goods.front {
				stream = goods.random.IntN(len(versions))
			}
			versions[stream]++
			name, version = fmt.Sprintf("order-%d", stream), versions[stream]
		}
		eventType := kind(version)
		if goods.rare > 0 && position%int64(goods.rare) == 0 {
			eventType = rareType
		}
		return []any{
			tenant.String(), position, domain.NewEventID().String(), name, version,
			eventType, goods.data(nil), nil, nil, now,
		}, nil
	})
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"manifold", "events"},
		[]string{"tenant_id", "position", "event_id", "stream_id", "stream_version", "event_type", "event_data", "metadata", "occurred_at", "created_at"}, rows)
	return err
}
