package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/atrest"
	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/tables"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// process is what one process runs of webhooks.
type process struct {
	network    *pgtest.Network // the process dies where it is cut
	store      *tables.Tables
	groups     *group.Groups
	catalog    *projection.Catalog
	webhooks   *webhook.Webhooks
	dispatcher *consume.Dispatcher
	listings   atomic.Int64 // of a tenant's webhooks that have begun
	stop       func()
}

// source counts the listings of webhooks.
type source struct{ *process }

func (s source) Consumers(ctx context.Context, tenant domain.TenantID) ([]consume.Consumer, error) {
	s.listings.Add(1)
	return s.webhooks.Consumers(ctx, tenant)
}

// options change how a process is set up.
type options struct {
	schedule []time.Duration // nil: retries are immediate
	pause    time.Duration   // first pause of a breaker; 0: a moment
	lease    time.Duration   // 0: a minute
	observer webhook.Observer
	idle     bool // no consumer runs
	inward   bool // no address of this machine is allowed
	secrets  *atrest.Keys
}

// start starts a process on a database. The process ends with the test, or when its stop is called.
func start(t testing.TB, db pgtest.DB, o options) *process {
	t.Helper()
	network := pgtest.NewNetwork(t, db)
	s, err := tables.Open(context.Background(), tables.Config{
		AppURL: network.URL(t, db, migrations.RoleApp), SystemURL: network.URL(t, db, migrations.RoleSystem), RetentionURL: network.URL(t, db, migrations.RoleRetention), MaxConns: 8, Log: quiet,
		Secrets: o.secrets,
	})
	if err != nil {
		t.Fatal(err)
	}
	driver, err := postgres.Open(context.Background(), postgres.Config{URL: network.URL(t, db, migrations.RoleDocuments), MaxConns: 4, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{network: network, store: s}
	byName := map[string]drivers.Driver{"default": driver}
	progress := projection.NewProgress()
	p.catalog = projection.NewCatalog(projection.CatalogConfig{Store: projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}, Drivers: byName, Progress: progress, Log: quiet})
	runner := projection.NewRunner(projection.RunnerConfig{Store: projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}, Drivers: byName, Progress: progress, Poll: 100 * time.Millisecond, Log: quiet})
	p.groups = group.New(group.Config{Store: s.GroupTables, Events: s.Log, Log: quiet, Changed: func(tenant domain.TenantID, _ string) { p.dispatcher.Notice(tenant) }})
	config := webhook.Config{
		DataSchema: func(event *domain.Event) string { return "schema:" + event.Type },
		Store:      s.WebhookTables, Events: s.Log, Groups: p.groups, Projections: p.catalog, AllowHTTP: true, Version: "test", Log: quiet, Observer: o.observer,
	}
	if !o.inward {
		config.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	p.webhooks = webhook.New(config)
	if o.schedule == nil {
		o.schedule = []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond}
	}
	if o.pause == 0 {
		o.pause = time.Millisecond
	}
	if o.lease == 0 {
		o.lease = time.Minute
	}
	webhook.SetPace(p.webhooks, o.schedule, o.pause, 4*o.pause, o.lease)
	p.dispatcher = consume.New(consume.Config{Heads: s.Heads, Sources: []consume.Source{source{p}}, Log: quiet, PauseMin: 10 * time.Millisecond, PauseMax: 50 * time.Millisecond})

	ctx, cancel := context.WithCancel(context.Background())
	last, endLast := context.WithCancel(context.Background())
	var first, second sync.WaitGroup
	run := func(of *sync.WaitGroup, do func() error) {
		of.Go(func() {
			if err := do(); err != nil {
				t.Error(err)
			}
		})
	}
	if !o.idle {
		run(&first, func() error { return p.dispatcher.Run(ctx) })
	}
	run(&first, func() error { return p.webhooks.Run(ctx) })
	run(&first, func() error { return runner.Run(ctx) })
	run(&first, func() error { return s.ListenProjections(ctx, runner.Refresh) })
	run(&first, func() error {
		return s.ListenWebhooks(ctx, func(tenant domain.TenantID) { p.webhooks.Notice(tenant); p.dispatcher.Notice(tenant) })
	})
	run(&first, func() error {
		return s.ListenGroups(ctx, func(tenant domain.TenantID, name string) { p.groups.Notice(tenant, name); p.dispatcher.Notice(tenant) })
	})
	run(&second, func() error {
		return s.Listen(last, func(head domain.Head) { p.groups.Wake(head); p.dispatcher.Wake(head); runner.Wake(head) })
	})
	run(&second, func() error { return p.groups.Run(last) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		first.Wait()
		endLast()
		second.Wait()
		driver.Close()
		s.Close()
	})
	t.Cleanup(p.stop)
	return p
}

// tenant creates a tenant.
func (p *process) tenant(t testing.TB) domain.TenantID {
	t.Helper()
	id := domain.NewTenantID()
	if err := p.store.CreateTenant(t.Context(), domain.Tenant{ID: id, Name: id.String()}); err != nil {
		t.Fatal(err)
	}
	return id
}

// add appends events of one type with these data to a stream, and returns their positions.
func (p *process) add(t testing.TB, tenant domain.TenantID, stream, eventType string, data ...string) []domain.AppendedEvent {
	t.Helper()
	events := make([]domain.NewEvent, len(data))
	for i := range data {
		events[i] = domain.NewEvent{Type: eventType, Data: json.RawMessage(data[i])}
	}
	appended, err := p.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: events}}})
	if err != nil {
		t.Fatal(err)
	}
	return appended.Streams[0].Events
}

// put creates or changes a webhook.
func (p *process) put(t testing.TB, tenant domain.TenantID, name string, d webhook.Definition) webhook.Webhook {
	t.Helper()
	w, _, err := p.webhooks.Put(t.Context(), tenant, name, d)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// request is a request that an endpoint received.
type request struct {
	header http.Header
	body   []byte
	answer chan int // where the test answers manually
}

// id returns the event's id.
func (r request) id() string { return r.header.Get("Webhook-Id") }

// received is the body of the standard format.
type received struct {
	Type string
	Data struct {
		Event struct {
			ID, Stream, Type string
			Version          int64
			Position         int64
			Data             json.RawMessage
			Metadata         json.RawMessage
		}
		Document *struct {
			ID      string
			Version int64
			Data    json.RawMessage
		}
	}
}

func (r request) read(t testing.TB) received {
	t.Helper()
	var read received
	if err := json.Unmarshal(r.body, &read); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	return read
}

// endpoint is a server that answers as the test says, and reports each request.
type endpoint struct {
	url      string
	requests chan request
}

// newEndpoint starts an endpoint. status returns the status of each response, given the number n of earlier requests. 0
// means that the test sends the status to the request's answer channel.
func newEndpoint(t testing.TB, status func(n int, r request) int) endpoint {
	t.Helper()
	e := endpoint{requests: make(chan request, 100_000)}
	var mu sync.Mutex
	n := 0
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, hr *http.Request) {
		body, err := io.ReadAll(hr.Body)
		if err != nil {
			return
		}
		r := request{header: hr.Header, body: body, answer: make(chan int, 1)}
		mu.Lock()
		before := n
		n++
		mu.Unlock()
		code := status(before, r)
		e.requests <- r
		if code == 0 {
			select {
			case code = <-r.answer:
			case <-over:
				code = 500
			case <-hr.Context().Done():
				return
			}
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(func() { close(over); server.CloseClientConnections(); server.Close() })
	e.url = server.URL
	return e
}

// always answers every request with one status.
func always(status int) func(int, request) int {
	return func(int, request) int { return status }
}

// manyTries is a schedule that does not end during a test.
func manyTries() []time.Duration {
	all := make([]time.Duration, 900)
	for i := range all {
		all[i] = 20 * time.Millisecond
	}
	return all
}

const patience = time.Minute

// lingers is how long consumers wait for more, as set by SetPace.
const lingers = 50 * time.Millisecond

// next waits for a request.
func (e endpoint) next(t testing.TB) request {
	t.Helper()
	select {
	case r := <-e.requests:
		return r
	case <-time.After(patience):
		t.Fatal("nothing arrives")
		return request{}
	}
}

// await waits until a condition holds, and checks it whenever there may be news.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// group returns the status of a webhook's group.
func (p *process) group(t testing.TB, tenant domain.TenantID, kind, name string) domain.PartitionStatus {
	t.Helper()
	status, err := p.groups.Get(t.Context(), tenant, domain.ServiceGroup(kind, name))
	if err != nil {
		t.Fatal(err)
	}
	return status.Partitions[0]
}

// attempts returns a webhook's attempts, oldest first.
func (p *process) attempts(t testing.TB, tenant domain.TenantID, name string) []webhook.Attempt {
	t.Helper()
	newest, err := p.webhooks.Attempts(t.Context(), tenant, name, webhook.AttemptQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for i, j := 0, len(newest)-1; i < j; i, j = i+1, j-1 {
		newest[i], newest[j] = newest[j], newest[i]
	}
	return newest
}
