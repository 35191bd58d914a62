package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
)

func isolationCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "isolation", "Measure a quiet tenant's lag beside a backlog and a fault",
		`Measure a quiet tenant's lag beside a backlog and a fault.

Three tenants share a projection: one whose log is suddenly far ahead of its documents, one whose projection is stopped at an
event that cannot be folded while its log keeps growing, and a quiet one. The benchmark measures the quiet tenant's lag, from
the answer to an append until a read with minPosition returns the document: first alone, then for as long as there is a
backlog. Every append is read.`,
		isolation, "backlog", "documents", "rate")
	command.Flags().IntVar(&f.backlog, "backlog", 2_000_000, "events of the tenant that lags behind")
	command.Flags().IntVar(&f.documents, "documents", 100_000, "documents of these events")
	command.Flags().Float64Var(&f.rate, "rate", 50, "events that the quiet tenant appends per second, one per request")
	command.Flags().DurationVar(&f.duration, "duration", 20*time.Second, "how long to measure at most; half as long for the quiet tenant alone")
	command.Flags().DurationVar(&f.warmUp, "warm-up", 2*time.Second, "how long to run before measuring")
	return command
}

// brokenOrders is orders with an event type that cannot be folded.
var brokenOrders = strings.Replace(orders, `"on":{`, `"on":{"Broken":"merge(doc, {\"events\": doc.nothing + 1})",`, 1)

func isolation(ctx context.Context, r *run) error {
	s, err := r.startService(ctx)
	if err != nil {
		return err
	}
	operator, err := r.dial(s.operator)
	if err != nil {
		return err
	}
	if err := operator.createProjection(brokenOrders, defaultDatabase); err != nil {
		return err
	}
	const appenders, readers = 4, 32
	wires, err := r.connect(appenders + readers)
	if err != nil {
		return err
	}
	var alone, beside samples
	quiet := lagLoad{appenders: wires[:appenders], readers: wires[appenders:], rate: r.rate, readAll: true, record: alone.add}
	begin := time.Now().Add(r.warmUp)
	r.log("appending %.0f events/s for %s, alone", r.rate, r.duration/2)
	if _, err := quiet.drive(ctx, r.warmUp, r.duration/2); err != nil {
		return err
	}
	before := alone.since(begin)

	faulty, err := r.createFaultyTenant(ctx)
	if err != nil {
		return fmt.Errorf("create a tenant whose projection faults: %w", err)
	}
	lagging, err := r.createBacklog(ctx)
	if err != nil {
		return fmt.Errorf("create a backlog: %w", err)
	}
	r.log("appending %.0f events/s for at most %s, beside the backlog", r.rate, r.duration)
	if err := lagging.await(ctx, 1); err != nil {
		return err
	}
	from, began := lagging.checkpoint.Load(), time.Now()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var others sync.WaitGroup
	others.Go(func() {
		err := lagging.await(running, lagging.events)
		if err == nil || running.Err() != nil {
			err = errEnough
		}
		stop(err)
	})
	grow := func(context.Context) (int, error) {
		_, err := faulty.append()
		return 1, err
	}
	others.Go(func() {
		if _, err := drive(running, paced([]client{grow}, r.rate), 0, time.Hour, 0); err != nil {
			stop(fmt.Errorf("append to the faulty tenant's log: %w", err))
		}
	})
	quiet.run = 1
	quiet.record = func(at time.Time, lag time.Duration) {
		if lagging.left() > 0 {
			beside.add(at, lag)
		}
	}
	begin = time.Now().Add(r.warmUp)
	measured, err := quiet.drive(running, r.warmUp, r.duration)
	folded, took, left := lagging.checkpoint.Load()-from, time.Since(began), lagging.left()
	stop(errEnough)
	others.Wait()
	if err == nil {
		err = faulty.checkFaulted()
	}
	if err != nil {
		return err
	}
	measured.latencies = beside.since(begin)
	if before == nil || measured.latencies == nil {
		return errors.New("nothing was measured while there was a backlog: increase --backlog or --duration")
	}
	r.Name, r.Clients, r.latencyName = fmt.Sprintf("isolation --backlog %d --rate %.0f", r.backlog, r.rate), appenders, "quiet tenant's lag"
	r.addLatencies(before, "quiet tenant's lag, alone")
	r.addFigure(float64(measured.latencies.TotalCount()), "", "appends read while there was a backlog")
	r.addFigure(float64(measured.latencies.Max())/1000, "ms", "the longest lag among them")
	r.addFigure(float64(folded)/took.Seconds(), "events/s", "folded of the backlog meanwhile")
	r.addFigure(float64(left), "events", "left of it in the end")
	return r.finish(ctx, measured, nil)
}

// faultyTenant is a tenant whose projection is stopped at its first event.
type faultyTenant struct{ *sender }

func (r *run) createFaultyTenant(ctx context.Context) (*faultyTenant, error) {
	_, key, err := r.service.createTenant("faulty")
	if err != nil {
		return nil, err
	}
	w, err := r.dial(key)
	if err != nil {
		return nil, err
	}
	t := &faultyTenant{newSender(w, 0, streamLength, 1)}
	if _, err := w.do("POST", "/v1/streams/order-broken/events", "", []byte(`[{"type":"Broken","data":{}}]`), http.StatusCreated); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errNotFaulted)
	defer cancel()
	return t, poll(ctx, 50*time.Millisecond, func() (bool, error) {
		err := t.checkFaulted()
		if errors.Is(err, errNotFaulted) {
			return false, nil
		}
		return err == nil, err
	})
}

var errNotFaulted = errors.New("the projection of the faulty tenant is not stopped")

func (t *faultyTenant) checkFaulted() error {
	var answer struct{ State string }
	if err := t.json("GET", ordersPath+"/state", nil, http.StatusOK, &answer); err != nil {
		return err
	}
	if answer.State != "faulted" {
		return fmt.Errorf("%w: its state is %s", errNotFaulted, answer.State)
	}
	return nil
}

// backlog is the progress of the documents of a tenant that lags behind.
type backlog struct {
	conn       *pgx.Conn
	query      string
	tenant     domain.TenantID
	events     int64
	checkpoint atomic.Int64
}

// createBacklog creates a tenant with many events, which become visible to the service all at once at the end.
func (r *run) createBacklog(ctx context.Context) (*backlog, error) {
	r.log("loading a backlog of %d events", r.backlog)
	tenants, err := r.db.createTenants(ctx, 1)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, r.db.super)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	h := history{events: r.backlog, streams: r.documents}
	if err := h.copyTo(ctx, conn, tenants[0]); err != nil {
		return nil, err
	}
	if err := execute(ctx, r.db.super, "vacuum analyze manifold.events", "checkpoint"); err != nil {
		return nil, err
	}
	if err := h.show(ctx, conn, tenants[0]); err != nil {
		return nil, err
	}
	return r.watchBacklog(ctx, tenants[0], r.backlog)
}

// watchBacklog returns the progress of a tenant's documents, of the projection orders, up to a number of events.
func (r *run) watchBacklog(ctx context.Context, tenant domain.TenantID, events int) (*backlog, error) {
	table, err := r.db.liveTable(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, r.db.super)
	if err != nil {
		return nil, err
	}
	r.onClose(func() error { return conn.Close(context.WithoutCancel(ctx)) })
	return &backlog{
		conn: conn, tenant: tenant, events: int64(events),
		query: "select coalesce(max(version), 0) from " + table + " where tenant_id = $1 and id = ''",
	}, nil
}

// left returns how many events were left at the last check.
func (b *backlog) left() int64 { return b.events - b.checkpoint.Load() }

// await waits until the documents have reached a position.
func (b *backlog) await(ctx context.Context, position int64) error {
	return poll(ctx, 50*time.Millisecond, func() (bool, error) {
		var checkpoint int64
		if err := b.conn.QueryRow(ctx, b.query, b.tenant.String()).Scan(&checkpoint); err != nil {
			return false, fmt.Errorf("look at the backlog's checkpoint: %w", err)
		}
		b.checkpoint.Store(checkpoint)
		return checkpoint >= position, nil
	})
}
