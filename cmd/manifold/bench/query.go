package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// sold is the shared projection for queries: one document per stream. %s is the database.
const sold = `{"name":"bench-sold","database":%q,"source":{"categories":["order"]},"indexes":["customer","total","city"],"on":{` +
	`"*":"{\"customer\": event.data.customer, \"sku\": event.data.sku, \"total\": event.data.price * event.data.quantity, ` +
	`\"city\": event.data.address.city, \"channel\": event.data.channel}"}}`

const soldPath = "/v1/projections/bench-sold"

func queryCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "query", "Query documents: by id, filtered, sorted, counted",
		`Query documents over HTTP: by id, filtered, sorted, counted, one kind after another. They are of a shared projection with
indexes on customer (almost all differ), total, and city (six different ones).

For comparison, the database itself is also queried by id: a table with the same documents, over one connection.`,
		query, "documents", "clients")
	command.Flags().IntVar(&f.documents, "documents", 1_000_000, "number of documents")
	command.Flags().IntVar(&f.clients, "clients", 1, "concurrent clients")
	command.Flags().DurationVar(&f.duration, "duration", 5*time.Second, "how long to measure each kind")
	command.Flags().DurationVar(&f.warmUp, "warm-up", time.Second, "how long to run each kind before measuring")
	f.databaseFlags(command)
	return command
}

// question is one kind of query. path returns the next random one.
type question struct {
	name string
	path func(random *rand.Rand) string
}

// questions returns the queries over documents of count streams.
func questions(count int) []question {
	list := func(values ...string) string {
		v := url.Values{}
		for i := 0; i < len(values); i += 2 {
			v.Set(values[i], values[i+1])
		}
		return soldPath + "/documents?" + v.Encode()
	}
	customer := func(random *rand.Rand) string {
		return fmt.Sprintf(`doc.customer == "customer-%06d"`, random.IntN(1_000_000))
	}
	city := func(random *rand.Rand) string { return cities[random.IntN(len(cities))] }
	return []question{
		{"by id", func(random *rand.Rand) string {
			return fmt.Sprintf("%s/documents/order-%d", soldPath, random.IntN(count))
		}},
		{"filter: one customer", func(random *rand.Rand) string { return list("filter", customer(random)) }},
		{"filter: a narrow range of totals, 50 documents", func(random *rand.Rand) string {
			low := 1 + random.IntN(2000)
			return list("filter", fmt.Sprintf("doc.total >= %d && doc.total < %d", low, low+5), "pageSize", "50")
		}},
		{"filter: one of six cities and a total, 50 documents", func(random *rand.Rand) string {
			return list("filter", fmt.Sprintf("doc.city == %q && doc.total > %d", city(random), 500+random.IntN(1000)), "pageSize", "50")
		}},
		{"in order of total, descending, 50 documents", func(*rand.Rand) string { return list("orderBy", "total desc", "pageSize", "50") }},
		{"in order of total within one of six cities, 50 documents", func(random *rand.Rand) string {
			return list("filter", fmt.Sprintf("doc.city == %q", city(random)), "orderBy", "total desc", "pageSize", "50")
		}},
		{"counted: one customer", func(random *rand.Rand) string { return list("filter", customer(random), "count", "exact") }},
	}
}

func query(ctx context.Context, r *run) error {
	r.events = r.documents
	w, err := r.startLoaded(ctx)
	if err != nil {
		return err
	}
	operator, err := r.dial(r.service.operator)
	if err != nil {
		return err
	}
	r.log("projecting")
	if err := r.catchUp(ctx, operator, w, sold, soldPath); err != nil {
		return err
	}
	// Statistics would be updated automatically, but only about a minute after so many writes.
	if err := execute(ctx, r.db.super, "vacuum analyze"); err != nil {
		return err
	}
	r.Name, r.Clients = fmt.Sprintf("query --documents %d", r.documents), r.clients
	if r.database != "" {
		r.Name += " --database " + r.database
	}
	var total load
	for _, q := range questions(r.documents) {
		r.log("querying %s", q.name)
		measured, err := r.ask(ctx, q)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		if measured.events == 0 {
			return fmt.Errorf("%s: nothing was measured: no query was answered within %s; increase --duration", q.name, r.duration)
		}
		total.events += measured.events
		r.Queries = append(r.Queries, Query{
			Name: q.name, Asked: measured.events, P50: milliseconds(measured.latencies, 50), P99: milliseconds(measured.latencies, 99),
		})
	}
	if r.Queries[0].Plain, err = r.plainByID(ctx); err != nil {
		return err
	}
	return r.finish(ctx, total, nil)
}

// ask sends queries of one kind until the duration is over. Each query counts as one event.
func (r *run) ask(ctx context.Context, q question) (load, error) {
	clients := make([]client, r.clients)
	for i := range clients {
		w, err := dial(r.service.url, r.service.key)
		if err != nil {
			return load{}, err
		}
		defer w.close()
		random := rand.New(rand.NewPCG(uint64(i), 21))
		clients[i] = func(context.Context) (int, error) {
			_, err := w.do("GET", q.path(random), "", nil, http.StatusOK)
			return 1, err
		}
	}
	return drive(ctx, clients, r.warmUp, r.duration, 0)
}

// plainRows bounds the table for queries to the database itself. An index with that many rows is as deep as one with
// millions.
const plainRows = 100_000

// plainByID returns the median time in milliseconds of reading a document by id from the database itself. It returns
// 0 if the database's client is unknown.
func (r *run) plainByID(ctx context.Context) (p50 float64, err error) {
	database, err := r.openPlain(ctx)
	if err != nil || database == nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, database.close(context.WithoutCancel(ctx))) }()
	r.log("querying the database itself by id")
	g := newGenerator(0, 0)
	all := make([]plainDocument, min(r.documents, plainRows))
	for i := range all {
		all[i] = plainDocument{ID: fmt.Sprintf("order-%d", i), Document: json.RawMessage(g.data(nil))}
	}
	if _, err := database.insert(ctx, slices.Clone(all)); err != nil {
		return 0, fmt.Errorf("fill the database's own table: %w", err)
	}
	// Let the last query finish: a connection that was cut off cannot be used afterwards.
	measured, err := drive(ctx, []client{func(context.Context) (int, error) {
		return 1, database.get(ctx, all[g.random.IntN(len(all))].ID)
	}}, r.warmUp, r.duration, 0)
	if err != nil {
		return 0, err
	}
	return milliseconds(measured.latencies, 50), nil
}
