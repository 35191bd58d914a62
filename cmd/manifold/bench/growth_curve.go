package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// curve measures what clients do at each size of the same logs.
type curve struct {
	*run
	operator *wire
	all      []domain.TenantID
	clients  []curveClient
	numbers  map[domain.TenantID]int // indexes in all
	streams  int                     // preloaded so far; stream n belongs to tenant n % len(all)
	random   *rand.Rand
}

// curveClient is a tenant that requests over HTTP.
type curveClient struct {
	*wire
	key    string
	number int // in curve.all
}

const (
	curveClients = 16  // tenants with a key
	curveStream  = 100 // events per stream
)

// curveOrders is orders with an index, so that it can also be queried.
const curveOrders = `{"name":"bench-orders","database":%q,"source":{"categories":["order"]},"initial":{"events":0,"total":0},"indexes":["customer"],"on":{` +
	`"ItemAdded":"merge(doc, {\"events\": doc.events + 1, \"total\": doc.total + event.data.price * event.data.quantity, \"sku\": event.data.sku})",` +
	`"OrderPlaced":"merge(doc, {\"events\": doc.events + 1, \"customer\": event.data.customer})",` +
	`"*":"merge(doc, {\"events\": doc.events + 1})"}}`

func growthCurve(ctx context.Context, r *run) error {
	s, err := r.startService(ctx, withoutUsage)
	if err != nil {
		return err
	}
	c := &curve{run: r, numbers: map[domain.TenantID]int{}, random: rand.New(rand.NewPCG(1, 22))}
	keys := []string{s.key}
	c.all = []domain.TenantID{s.tenant}
	for n := 1; n < min(r.tenants, curveClients); n++ {
		tenant, key, err := s.createTenant(fmt.Sprintf("client-%d", n))
		if err != nil {
			return err
		}
		c.all, keys = append(c.all, tenant), append(keys, key)
	}
	others, err := r.db.createTenants(ctx, r.tenants-len(c.all))
	if err != nil {
		return err
	}
	c.all = append(c.all, others...)
	for n, tenant := range c.all {
		c.numbers[tenant] = n
	}
	if c.operator, err = r.dial(r.service.operator); err != nil {
		return err
	}
	for n, key := range keys {
		w, err := r.dial(key)
		if err != nil {
			return err
		}
		c.clients = append(c.clients, curveClient{w, key, n})
	}
	for _, client := range c.clients {
		if _, err := client.do("PUT", "/v1/aggregates/order", "", []byte(orderState), http.StatusOK); err != nil {
			return err
		}
	}
	for _, size := range r.sizes {
		if err := c.measure(ctx, size); err != nil {
			return fmt.Errorf("with %d events: %w", size, err)
		}
	}
	r.SyncedCommits, err = r.db.synced(ctx)
	return err
}

// measure grows the logs to size events in total, then measures.
func (c *curve) measure(ctx context.Context, size int) error {
	heads, err := c.extend(ctx, size)
	if err != nil {
		return err
	}
	resetPeakMemory(c.service.process.Process.Pid)
	for _, step := range []struct {
		what string
		do   func(ctx context.Context, size int, heads []int64) error
	}{
		{"reading", c.read}, {"reading pages", c.readPages}, {"following", c.follow}, {"loading states", c.loadStates},
		{"rebuilding", c.rebuild}, {"appending", c.append},
	} {
		c.log("%s with %d events", step.what, size)
		if err := step.do(ctx, size, heads); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	c.add(size, c.service.peakMemory(), "MB", "memory of the service")
	return nil
}

// add adds a figure at a size of the logs, and reports it at once, because the next size takes long.
func (c *curve) add(size int, value float64, unit, name string) {
	c.addFigure(value, unit, "%d events: %s", size, name)
	c.log("%s: %.3f %s", name, value, unit)
}

func (c *curve) addLoad(size int, l load, name string) {
	c.add(size, milliseconds(l.latencies, 50), "ms", name+", p50")
	c.add(size, milliseconds(l.latencies, 99), "ms", name+", p99")
}

// extend writes events with COPY, in the order in which busy tenants would append them, until there are size of them.
// It returns the logs' heads.
func (c *curve) extend(ctx context.Context, size int) ([]int64, error) {
	conn, err := pgx.Connect(ctx, c.db.super)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	heads, total := make([]int64, len(c.all)), 0
	rows, err := conn.Query(ctx, "select tenant_id::text, head from manifold.logs")
	if err != nil {
		return nil, err
	}
	var id string
	var head int64
	_, err = pgx.ForEachRow(rows, []any{&id, &head}, func() error {
		tenant, err := domain.ParseTenantID(id)
		if n, ours := c.numbers[tenant]; ours { // audit logs are nobody's
			heads[n] = head
			total += int(head)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if size <= total {
		return nil, fmt.Errorf("--sizes must grow; there are %d events already", total)
	}
	c.log("loading events until there are %d", size)
	began := time.Now()
	if err := c.copyEvents(ctx, conn, heads, size-total); err != nil {
		return nil, err
	}
	c.add(size, float64(size-total)/time.Since(began).Seconds(), "events/s", "load by COPY")
	ids := make([]string, len(c.all))
	for n, tenant := range c.all {
		ids[n] = tenant.String()
	}
	_, err = conn.Exec(ctx, `insert into manifold.logs (tenant_id, head, last_at) select t, h, now() from unnest($1::uuid[], $2::bigint[]) as l(t, h)
		on conflict (tenant_id) do update set head = excluded.head, last_at = excluded.last_at`, ids, heads)
	if err != nil {
		return nil, err
	}
	began = time.Now()
	if err := c.awaitSeals(ctx); err != nil {
		return nil, err
	}
	c.add(size, float64(size-total)/time.Since(began).Seconds(), "events/s", "seal")
	began = time.Now()
	if err := execute(ctx, c.db.super, "vacuum analyze manifold.events", "vacuum analyze manifold.logs", "checkpoint"); err != nil {
		return nil, err
	}
	c.add(size, time.Since(began).Seconds(), "s", "vacuum, analyze, checkpoint")
	return heads, c.addSizes(ctx, conn, size)
}

// copyEvents writes events of new streams.
func (c *curve) copyEvents(ctx context.Context, conn *pgx.Conn, heads []int64, events int) error {
	g, now := newGenerator(0, 0), time.Now()
	versions := make([]int64, max(len(c.all), events/curveStream))
	written := 0
	source := pgx.CopyFromFunc(func() ([]any, error) {
		if written == events {
			return nil, nil
		}
		written++
		stream := written - 1 // each has at least one event
		if stream >= len(versions) {
			stream = c.random.IntN(len(versions))
		}
		versions[stream]++
		n := (c.streams + stream) % len(c.all)
		heads[n]++
		return []any{
			c.all[n].String(), heads[n], domain.NewEventID().String(), fmt.Sprintf("order-%d", c.streams+stream), versions[stream],
			eventType(versions[stream]), g.data(nil), nil, nil, now, nil,
		}, nil
	})
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"manifold", "events"}, eventColumns, source)
	c.streams += len(versions)
	return err
}

// addSizes adds the size of the table of events and of its indexes.
func (c *curve) addSizes(ctx context.Context, conn *pgx.Conn, size int) error {
	rows, err := conn.Query(ctx, `select relname, pg_table_size(oid)::float8 from pg_class where oid = 'manifold.events'::regclass
		or oid in (select indexrelid from pg_index where indrelid = 'manifold.events'::regclass) order by relname`)
	if err != nil {
		return err
	}
	var name string
	var bytes float64
	_, err = pgx.ForEachRow(rows, []any{&name, &bytes}, func() error {
		c.add(size, bytes/float64(size), "bytes per event", name)
		return nil
	})
	return err
}

// read reads whole logs, one tenant's after another's.
func (c *curve) read(ctx context.Context, size int, _ []int64) error {
	usage, events := c.watchUsage(ctx), 0
	for n := 0; n == 0 || time.Since(usage.began) < c.duration; n++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		count, err := c.clients[n%len(c.clients)].countEvents(readings["log"](0))
		if err != nil {
			return err
		}
		events += count
	}
	c.add(size, usage.load(int64(events)).perSecond(), "events/s", "read logs")
	return nil
}

// request sends requests of random tenants one after the other.
func (c *curve) request(ctx context.Context, size int, name string, path func(client curveClient) string) error {
	measured, err := drive(ctx, []client{func(context.Context) (int, error) {
		client := c.clients[c.random.IntN(len(c.clients))]
		_, err := client.do("GET", path(client), "", nil, http.StatusOK)
		return 1, err
	}}, c.duration/3, c.duration, 0)
	if err != nil {
		return err
	}
	c.addLoad(size, measured, name)
	return nil
}

func (c *curve) readPages(ctx context.Context, size int, heads []int64) error {
	return errors.Join(
		c.request(ctx, size, "page of 100 events", func(client curveClient) string {
			return fmt.Sprintf("/v1/streams/$all?count=100&from=%d", 1+c.random.Int64N(heads[client.number]))
		}),
		c.request(ctx, size, "read a stream", func(client curveClient) string { return "/v1/streams/" + c.streamOf(client) }),
	)
}

// streamOf returns a random stream of a tenant.
func (c *curve) streamOf(client curveClient) string {
	return fmt.Sprintf("order-%d", c.random.IntN(c.streams/len(c.all))*len(c.all)+client.number)
}

func (c *curve) loadStates(ctx context.Context, size int, _ []int64) error {
	return c.request(ctx, size, "state", func(client curveClient) string { return "/v1/streams/" + c.streamOf(client) + "/state" })
}

// follow follows logs from their first event, and then one from its head.
func (c *curve) follow(ctx context.Context, size int, heads []int64) error {
	usage, events := c.watchUsage(ctx), int64(0)
	for n := 0; n == 0 || time.Since(usage.began) < c.duration; n++ {
		client := c.clients[n%len(c.clients)]
		w, err := dial(c.service.url, client.key)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, w.close)
		subscriber, err := follow(w, transportSocket, "start")
		if err == nil {
			subscriber.at = 0
			err = subscriber.readToHead()
		}
		stop()
		w.close()
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		events += heads[client.number]
	}
	c.add(size, usage.load(events).perSecond(), "events/s", "follow from the first event")
	return c.followHead(ctx, size)
}

// followHead appends events over HTTP, and waits for each of them.
func (c *curve) followHead(ctx context.Context, size int) error {
	w, err := dial(c.service.url, c.clients[0].key)
	if err != nil {
		return err
	}
	defer w.close()
	subscriber, err := follow(w, transportSocket, "end")
	if err != nil {
		return err
	}
	if err := subscriber.readToHead(); err != nil {
		return err
	}
	sender := newSender(c.clients[0].wire, size, curveStream, 1)
	measured, err := drive(ctx, []client{func(context.Context) (int, error) {
		if _, err := sender.append(); err != nil {
			return 0, err
		}
		for {
			if kind, _, err := subscriber.step(); err != nil || kind == eventFrame {
				return 1, err
			}
		}
	}}, c.duration/3, c.duration, 0)
	if err != nil {
		return err
	}
	c.addLoad(size, measured, "append over HTTP until it is delivered")
	return nil
}

// rebuild rebuilds a shared projection that had no events of its source, and queries its documents.
func (c *curve) rebuild(ctx context.Context, size int, heads []int64) error {
	nothing := strings.Replace(curveOrders, `"order"`, `"nothing"`, 1)
	if err := c.operator.createProjection(nothing, defaultDatabase); err != nil {
		return err
	}
	times, err := runRebuild(ctx, c.operator, map[string]any{"definition": json.RawMessage(fmt.Sprintf(curveOrders, defaultDatabase))})
	if err != nil {
		return err
	}
	total := int64(0)
	for _, head := range heads {
		total += head
	}
	c.add(size, float64(total)/times.ended.Sub(times.asked).Seconds(), "events/s", "rebuild")
	table, err := c.db.liveTable(ctx)
	if err != nil {
		return err
	}
	if err := execute(ctx, c.db.super, "vacuum analyze "+table); err != nil {
		return err
	}
	err = errors.Join(
		c.request(ctx, size, "query by id", func(client curveClient) string { return ordersPath + "/documents/" + c.streamOf(client) }),
		c.request(ctx, size, "query by an indexed field", func(curveClient) string {
			return ordersPath + fmt.Sprintf("/documents?filter=doc.customer%%20%%3D%%3D%%20%%22customer-%06d%%22", c.random.IntN(1_000_000))
		}),
	)
	if err != nil {
		return err
	}
	_, err = c.operator.do("DELETE", ordersPath, "", nil, http.StatusNoContent)
	return err
}

// append appends without HTTP, each event to a random tenant.
func (c *curve) append(ctx context.Context, size int, _ []int64) error {
	e, err := c.db.openEngine(ctx)
	if err != nil {
		return err
	}
	defer e.close()
	for i, number := range []int{1, 64} {
		clients := make([]client, number)
		for n := range clients {
			// Many tenants share a client, so each append begins a stream.
			length := 1
			if len(c.all) == 1 {
				length = curveStream
			}
			g := newGenerator(1000*(1+c.streams)+100*i+n, length)
			clients[n] = func(ctx context.Context) (int, error) {
				_, err := e.Append(ctx, c.all[g.random.IntN(len(c.all))], g.append(1))
				return 1, err
			}
		}
		measured, err := drive(ctx, clients, c.duration/3, c.duration, 0)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("append, %s", count(number, "client"))
		c.add(size, measured.perSecond(), "events/s", name)
		c.addLoad(size, measured, name)
	}
	c.RSS = peakMemory(os.Getpid())
	return nil
}
