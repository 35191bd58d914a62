package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
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

// disputes is orders with only the events of rareType, of whatever category.
const disputes = `{"name":"bench-orders","database":%q,"initial":{"events":0},"on":{"` + rareType + `":"merge(doc, {\"events\": doc.events + 1})"}}`

const ordersPath = "/v1/projections/bench-orders"

func (f *flags) projectionFlags(command *cobra.Command) {
	command.Flags().IntVar(&f.events, "events", 1_000_000, "events in the log")
	command.Flags().IntVar(&f.documents, "documents", 100_000, "streams, and so documents; if there are as many as events, each event has a separate document")
	command.Flags().IntVar(&f.tenants, "tenants", 1, "number of tenants, which share events and documents; with more than one the projection is shared")
	command.Flags().BoolVar(&f.shared, "shared", false, "share the projection also if there is one tenant")
	f.databaseFlags(command)
}

func projectCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "project", "Let a new projection catch up with a log",
		`Measure a new projection from its creation until its documents have reached the log's head.

The limit is a plain SELECT of the same rows over one connection. With --database, documents are kept in that database of
the configuration file, and the limit is its bulk insert of such documents, over one connection.`,
		project, "events", "documents")
	f.projectionFlags(command)
	f.distributeFlag(command)
	return command
}

// projectionName returns a benchmark's name with its numbers of events, documents and tenants.
func (f *flags) projectionName(command string) string {
	name := fmt.Sprintf("%s --events %d --documents %d", command, f.events, f.documents)
	switch {
	case f.tenants > 1:
		name += fmt.Sprintf(" --tenants %d", f.tenants)
	case f.shared:
		name += " --shared"
	}
	return name
}

// startLoaded starts a service with events of as many streams as documents, in the logs of all tenants. The returned
// connection acts as the owner of the projection: the tenant, or the operator if the projection is shared.
func (r *run) startLoaded(ctx context.Context) (*wire, error) {
	r.shared = r.shared || r.tenants > 1
	switch {
	case r.shared && r.config != "":
		return nil, errors.New("--tenants or --shared, and --config cannot be combined: only the benchmark's own database shows the checkpoints of all tenants")
	case r.events < r.tenants:
		return nil, errors.New("--tenants must not be more than --events")
	}
	s, err := r.startService(ctx)
	if err != nil {
		return nil, err
	}
	tenants, key := []domain.TenantID{s.tenant}, s.key
	if r.shared {
		others, err := r.db.createTenants(ctx, r.tenants-1)
		if err != nil {
			return nil, err
		}
		tenants, key = append(others, s.tenant), s.operator
	}
	if err := r.fillLogs(ctx, history{events: r.events, streams: r.documents, rare: r.rare}, tenants...); err != nil {
		return nil, err
	}
	return r.dial(key)
}

func project(ctx context.Context, r *run) error {
	w, err := r.startLoaded(ctx)
	if err != nil {
		return err
	}
	r.log("projecting")
	start := time.Now()
	if err := r.catchUp(ctx, w, w, orders, ordersPath); err != nil {
		return err
	}
	measured := load{events: int64(r.events), took: time.Since(start)}
	r.Name, r.Clients = r.projectionName("project"), 1
	if r.database == "" {
		return r.finish(ctx, measured, selectLimit)
	}
	r.Name += " --database " + r.database
	return r.finish(ctx, measured, insertLimit)
}

// createProjection creates a projection. The definition has a %q for the name of its database.
func (w *wire) createProjection(definition, database string) error {
	_, err := w.do("POST", "/v1/projections", "", fmt.Appendf(nil, definition, database), http.StatusCreated)
	return err
}

// catchUp creates a projection for its owner, and waits until it has caught up with all logs. reader is the connection
// of the tenant, unless the projection is shared. The run deletes it at its end. If its documents are not in the
// benchmark's own database, the run then waits until they are gone.
func (r *run) catchUp(ctx context.Context, owner, reader *wire, definition, path string) error {
	if err := owner.createProjection(definition, r.databaseName()); err != nil {
		return err
	}
	r.onClose(func() error {
		if _, err := owner.do("DELETE", path, "", nil, http.StatusNoContent); err != nil || r.config == "" {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), time.Minute,
			fmt.Errorf("the documents of %s are still in the database %s", path, r.database))
		defer cancel()
		return r.db.await(ctx, "select count(*) = 0 from manifold.retired_builds")
	})
	if r.shared {
		// A request to the service for each of a thousand tenants would add load.
		table, err := r.db.liveTable(ctx)
		if err != nil {
			return err
		}
		return r.db.await(ctx, fmt.Sprintf("select coalesce(sum(version), 0) >= %d from %s where id = ''", r.events, table))
	}
	for {
		_, err := reader.do("GET", fmt.Sprintf("%s/documents?timeout=30&minPosition=%d", path, r.events), "", nil, http.StatusOK)
		if err == nil || !strings.Contains(err.Error(), string(domain.CodeNotCaughtUp)) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// await waits until a query returns true.
func (db *database) await(ctx context.Context, query string) error {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return poll(ctx, 20*time.Millisecond, func() (reached bool, err error) {
		err = conn.QueryRow(ctx, query).Scan(&reached)
		return reached, err
	})
}

// liveTable returns the table of the shared projection's live build.
func (db *database) liveTable(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var build int64
	if err := conn.QueryRow(ctx, "select build from manifold.projections where name = 'bench-orders'").Scan(&build); err != nil {
		return "", fmt.Errorf("look for the live build: %w", err)
	}
	return pgx.Identifier{"manifold_documents", fmt.Sprintf("bench-orders.%d", build)}.Sanitize(), nil
}
