package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
)

// orders is the projection of the benchmarks: one document per stream, changed by every event. %s is the database.
const orders = `{"name":"bench-orders","database":%q,"source":{"categories":["order"]},"initial":{"events":0,"total":0},"on":{` +
	`"ItemAdded":"merge(doc, {\"events\": doc.events + 1, \"total\": doc.total + event.data.price * event.data.quantity, \"sku\": event.data.sku})",` +
	`"OrderPlaced":"merge(doc, {\"events\": doc.events + 1, \"customer\": event.data.customer})",` +
	`"*":"merge(doc, {\"events\": doc.events + 1})"}}`

const ordersPath = "/v1/projections/bench-orders"

func projectionFlags(f *flags, command *cobra.Command) *cobra.Command {
	command.Flags().IntVar(&f.events, "events", 500_000, "events in the log")
	command.Flags().IntVar(&f.documents, "documents", 10_000, "streams that they are of, and so documents; as many as events: each event has a document of its own")
	command.Flags().IntVar(&f.tenants, "tenants", 1, "tenants that events and documents are spread over; more than one: the projection is shared")
	databaseFlags(f, command)
	return command
}

func projectCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "project", "Let a new projection catch up with a log", project)
	command.Long = `Let a new projection catch up with a log, from its creation until its documents are as far as the log's head.

The limit is a plain SELECT of the same rows over one connection. With --database, documents are kept in that database of
the configuration file, and the limit is the database's own bulk insert of such documents, over one connection.`
	return projectionFlags(f, command)
}

// named returns a benchmark's name with its numbers of events, documents and tenants.
func (f *flags) named(command string) string {
	name := fmt.Sprintf("%s --events %d --documents %d", command, f.events, f.documents)
	if f.tenants > 1 {
		name += fmt.Sprintf(" --tenants %d", f.tenants)
	}
	return name
}

// loaded starts a service with f.events events of f.documents streams, in one log or evenly in the logs of f.tenants
// tenants. The returned wire acts as the owner of the projection: the tenant, or the operator if there are several
// tenants.
func loaded(ctx context.Context, f *flags, progress io.Writer) (*service, *wire, error) {
	switch {
	case f.events < 1 || f.documents < 1:
		return nil, nil, errors.New("--events and --documents must be at least 1")
	case f.tenants > 1 && f.config != "":
		return nil, nil, errors.New("--tenants looks at the checkpoints of all tenants, which only the benchmark's own database shows: leave --config out")
	case f.events < f.tenants:
		return nil, nil, errors.New("there must be an event for each tenant: fewer --tenants, or more --events")
	}
	s, err := startService(ctx, f, progress, func(db *database, tenant domain.TenantID) error {
		fill := func() error { return db.preload(ctx, tenant, f.events, f.documents, progress) }
		if f.tenants > 1 {
			fill = func() error {
				others, err := db.makeTenants(ctx, f.tenants-1)
				if err != nil {
					return err
				}
				return db.preloadAll(ctx, append(others, tenant), f.events, f.documents, progress)
			}
		}
		if err := fill(); err != nil {
			return err
		}
		return execute(ctx, db.super, "checkpoint")
	})
	if err != nil {
		return nil, nil, err
	}
	key := s.key
	if f.tenants > 1 {
		key = s.operator
	}
	w, err := dial(s.url, key)
	if err != nil {
		return nil, nil, errors.Join(err, s.close())
	}
	return s, w, nil
}

func project(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	s, w, err := loaded(ctx, f, progress)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		err = errors.Join(err, s.drop(ctx, f, w, ordersPath))
		w.close()
		err = errors.Join(err, s.close())
	}()
	fmt.Fprintln(progress, "projecting ...")
	start := time.Now()
	if err := s.catchUp(ctx, f, w); err != nil {
		return Result{}, err
	}
	result := Result{Name: f.named("project"), Clients: 1}
	result.take(load{events: int64(f.events), took: time.Since(start)})
	if f.database == "" {
		err = s.finish(ctx, &result, "SELECT of the same rows", selectLimit, progress)
		return result, err
	}
	result.Name += " --database " + f.database
	err = s.finish(ctx, &result, "bulk insert of such documents", func(ctx context.Context, _ string, progress io.Writer) (float64, error) {
		return insertLimit(ctx, f, s, progress)
	}, progress)
	return result, err
}

// drop deletes a projection through one of the service's connections. If its documents are not in the benchmark's own
// database, it waits until they are gone.
func (s *service) drop(ctx context.Context, f *flags, w *wire, path string) error {
	status, answer, err := w.do("DELETE", path, "", nil)
	if err := want(status, http.StatusNoContent, answer, err); err != nil || f.config == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.db.super)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		var left int
		if err := conn.QueryRow(ctx, "select count(*) from manifold.retired_builds").Scan(&left); err != nil || left == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the documents of %s are still in the database %s", path, f.database)
		}
	}
}

// catchUp creates the projection and waits until it has caught up with the log, or with all logs.
func (s *service) catchUp(ctx context.Context, f *flags, w *wire) error {
	status, answer, err := w.do("POST", "/v1/projections", "", fmt.Appendf(nil, orders, f.databaseName()))
	if err := want(status, http.StatusCreated, answer, err); err != nil {
		return err
	}
	if f.tenants > 1 {
		return s.awaitCheckpoints(ctx, f.events)
	}
	return w.awaitPosition(ctx, ordersPath, f.events)
}

// awaitCheckpoints waits until the checkpoints of all tenants in the live build reach a sum. It reads the database,
// since a request to the service for each of a thousand tenants would add load.
func (s *service) awaitCheckpoints(ctx context.Context, sum int) error {
	conn, err := pgx.Connect(ctx, s.db.super)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	table, err := liveTable(ctx, conn)
	if err != nil {
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var reached int
		if err := conn.QueryRow(ctx, "select coalesce(sum(version), 0) from "+table+" where id = ''").Scan(&reached); err != nil {
			return fmt.Errorf("look at the checkpoints: %w", err)
		}
		if reached >= sum {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// liveTable returns the table of the shared projection's live build.
func liveTable(ctx context.Context, conn *pgx.Conn) (string, error) {
	var build int64
	if err := conn.QueryRow(ctx, "select build from manifold.projections where name = 'bench-orders'").Scan(&build); err != nil {
		return "", fmt.Errorf("look for the live build: %w", err)
	}
	return pgx.Identifier{"manifold_documents", fmt.Sprintf("bench-orders.%d", build)}.Sanitize(), nil
}

// awaitPosition waits until a projection has reached a position.
func (w *wire) awaitPosition(ctx context.Context, path string, position int) error {
	for {
		status, answer, err := w.do("GET", fmt.Sprintf("%s/documents?timeout=30&minPosition=%d", path, position), "", nil)
		if err == nil && status == http.StatusOK {
			return nil
		}
		var problem struct{ Code string }
		if err != nil || json.Unmarshal(answer, &problem) != nil || problem.Code != string(domain.CodeNotCaughtUp) {
			return want(status, http.StatusOK, answer, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
