package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	command := newCommand(f, "query", "Ask for documents: by id, filtered, in an order, counted", query)
	command.Long = `Ask for documents over HTTP: by id, filtered, in an order, counted, one kind after the other. They are of a shared
projection with indexes on customer (next to no two are alike), total and city (six different ones).

The same question by id is put to the database itself, too, to a table with the same documents, over one connection.`
	command.Flags().IntVar(&f.documents, "documents", 1_000_000, "documents that there are")
	command.Flags().IntVar(&f.clients, "clients", 1, "clients at the same time")
	command.Flags().DurationVar(&f.duration, "duration", 5*time.Second, "how long to ask each kind")
	command.Flags().DurationVar(&f.warmUp, "warm-up", time.Second, "how long each kind is asked before")
	databaseFlags(f, command)
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

func query(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.documents < 1 || f.clients < 1 {
		return Result{}, errors.New("--documents and --clients must be at least 1")
	}
	f.events = f.documents
	s, w, err := loaded(ctx, f, progress)
	if err != nil {
		return Result{}, err
	}
	defer func() { w.close(); err = errors.Join(err, s.close()) }()
	operator, err := dial(s.url, s.operator)
	if err != nil {
		return Result{}, err
	}
	defer operator.close()
	fmt.Fprintln(progress, "projecting ...")
	status, answer, err := operator.do("POST", "/v1/projections", "", fmt.Appendf(nil, sold, f.databaseName()))
	if err := want(status, http.StatusCreated, answer, err); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.drop(ctx, f, operator, soldPath)) }()
	if err := w.awaitPosition(ctx, soldPath, f.events); err != nil {
		return Result{}, err
	}
	// Statistics would be updated automatically, but only about a minute after so many writes.
	if err := execute(ctx, s.db.super, "vacuum analyze"); err != nil {
		return Result{}, err
	}
	result := Result{Name: fmt.Sprintf("query --documents %d", f.documents), Clients: f.clients}
	if f.database != "" {
		result.Name += " --database " + f.database
	}
	for _, q := range questions(f.documents) {
		fmt.Fprintf(progress, "asking %s ...\n", q.name)
		measured, err := s.ask(ctx, f, q)
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", q.name, err)
		}
		if measured.events == 0 {
			return Result{}, fmt.Errorf("%s: no question was answered within %s; give more --duration", q.name, f.duration)
		}
		result.Events += measured.events
		result.Queries = append(result.Queries, Query{
			Name: q.name, Asked: measured.events, P50: milliseconds(measured.latencies, 50), P99: milliseconds(measured.latencies, 99),
		})
	}
	if result.Queries[0].Plain, err = plainByID(ctx, f, s, progress); err != nil {
		return Result{}, err
	}
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}

// ask sends queries of one kind until the duration is over. Each query counts as one event.
func (s *service) ask(ctx context.Context, f *flags, q question) (load, error) {
	wires, err := s.connect(f.clients)
	if err != nil {
		return load{}, err
	}
	defer disconnect(wires)
	clients := make([]client, f.clients)
	for i, w := range wires {
		random := rand.New(rand.NewPCG(uint64(i), 21))
		clients[i] = func(context.Context) (int, error) {
			status, answer, err := w.do("GET", q.path(random), "", nil)
			return 1, want(status, http.StatusOK, answer, err)
		}
	}
	return drive(ctx, clients, f.warmUp, f.duration, 0)
}

// plainRows bounds the table for queries to the database itself. An index with that many rows is as deep as one with
// millions.
const plainRows = 100_000

// plainByID returns the median time in milliseconds of reading a document by id from the database itself. It returns
// 0 if the database's client is unknown.
func plainByID(ctx context.Context, f *flags, s *service, progress io.Writer) (p50 float64, err error) {
	database, err := openPlain(ctx, f, s.db.super)
	if err != nil || database == nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, database.close(context.WithoutCancel(ctx))) }()
	fmt.Fprintln(progress, "asking the database itself by id ...")
	goods := newSales(0)
	all := make([]plainDocument, min(f.documents, plainRows))
	for i := range all {
		all[i] = plainDocument{ID: fmt.Sprintf("order-%d", i), Document: json.RawMessage(goods.data(nil))}
	}
	if _, err := database.insert(ctx, slices.Clone(all)); err != nil {
		return 0, fmt.Errorf("fill the database's own table: %w", err)
	}
	// Let the last query finish: a connection that was cut off cannot be used afterwards.
	measured, err := drive(ctx, []client{func(context.Context) (int, error) {
		return 1, database.get(ctx, all[goods.random.IntN(len(all))].ID)
	}}, f.warmUp, f.duration, 0)
	if err != nil {
		return 0, err
	}
	return milliseconds(measured.latencies, 50), nil
}
