package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/audit"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/auth/oidc/oidctest"
	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/report"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/erasure/subjects"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/projection/totals"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/retention"
	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/seal"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/upcasting"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const operatorKey = "an operator's key of the tests alone"

// world is the whole service on a database, wired as in one process.
type world struct {
	t       testing.TB
	db      pgtest.DB
	url     string
	log     *syncBuffer
	tokens  *oidctest.Provider // issues tokens that the service accepts; nil: none does
	server  *api.Server
	handler http.Handler
	shared  bool
	audit   *audit.Recorder // appends denied requests only when a test flushes it
	seals   *seal.Postgres  // seals a log only when a test does
}

// setup says how a world differs from the usual one. All fields are optional.
type setup struct {
	change func(*api.Config)
	faults func(*pgtest.Network)               // of the network to the service's own database
	driver func(drivers.Driver) drivers.Driver // wraps the driver of the documents
	keys   auth.Config                         // without Store and Operators
	tokens *oidctest.Provider                  // whose tokens the service accepts, by tokenRules
	ended  func(*http.Request)                 // called when the service has ended a request
	alone  bool                                // on its own server: nothing interrupts PostgreSQL while it prints, and others wait
}

// newWorld starts a world. change, which may be nil, modifies the configuration.
func newWorld(t testing.TB, change func(*api.Config)) *world {
	t.Helper()
	return setup{change: change}.start(t)
}

// common is the world of sharedWorld.
var common struct {
	once sync.Once
	*world
}

// sharedWorld returns a world with the usual configuration that many tests share, each with separate tenants. It is for
// tests that use neither the operator's key nor the service's database, log or metrics: starting a world takes longer
// than most of them. The name of each tenant is extended, and the tenant is deleted when the test ends.
func sharedWorld(t testing.TB) *world {
	t.Helper()
	common.once.Do(func() { common.world = setup{}.start(pgtest.Lasting(t)) })
	if common.world == nil {
		t.Fatal("the shared world has not started")
	}
	w := *common.world
	w.t, w.shared = t, true
	return &w
}

// database creates the service's database.
func (c setup) database(t testing.TB) pgtest.DB {
	t.Helper()
	if c.alone {
		return pgtest.Migrated(t, pgtest.Private(t, pgtest.Options{}))
	}
	return pgtest.Database(t)
}

func (c setup) start(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, log: &syncBuffer{}, tokens: c.tokens}
	logger := slog.New(slog.NewTextHandler(w.log, nil))
	quiet := slog.New(slog.DiscardHandler)
	db := c.database(t)
	w.db = db
	url := db.URL
	if c.faults != nil {
		network := pgtest.NewNetwork(t, db)
		c.faults(network)
		url = func(role migrations.Role) string { return network.URL(t, db, role) }
	}
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: url(migrations.RoleApp), SystemURL: url(migrations.RoleSystem), RetentionURL: url(migrations.RoleRetention),
		MaxConns: 8, Log: quiet,
	})
	must(t, err)
	t.Cleanup(s.Close)
	driver, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 8, Log: quiet})
	must(t, err)
	t.Cleanup(driver.Close)
	databases := map[string]drivers.Driver{"default": driver}
	if c.driver != nil {
		databases["default"] = c.driver(driver)
	}
	operator, err := auth.ParseOperatorKey(operatorKey)
	must(t, err)
	c.keys.Store, c.keys.Operators = s.KeyTables, []auth.OperatorKey{operator}
	if c.tokens != nil {
		c.keys.Tokens, c.keys.TokenRules = verifier(t, c.tokens), tokenRules
	}
	keys, err := auth.NewKeys(c.keys)
	must(t, err)
	upcasters, err := upcasting.New(s.Registry, s.Log, nil)
	must(t, err)
	requests := budget.New(budget.Limits{Time: patience}) // PostgreSQL may need seconds for an event that a fold reads
	schemas, err := schema.New(schema.Config{Store: s.SchemaTables, Events: s.Log, Upcasters: upcasters, Requests: requests, Log: quiet})
	must(t, err)
	states, err := aggregate.New(aggregate.Config{Store: s.AggregateTables, Events: s.Log, Upcasters: upcasters, Tagger: schemas.Tagger, Requests: requests, Log: quiet})
	must(t, err)
	progress := projection.NewProgress()
	catalog := projection.NewCatalog(projection.CatalogConfig{Store: projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}, Drivers: databases, Progress: progress, Upcasters: upcasters, Requests: requests, Log: quiet,
		Aggregate: func(ctx context.Context, tenant domain.TenantID, category string) (folding.AggregateRules, error) {
			definition, err := states.Definition(ctx, tenant, category)
			return folding.AggregateRules{Initial: definition.Initial, On: definition.On}, err
		},
	})
	runner := projection.NewRunner(projection.RunnerConfig{Store: projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}, Drivers: databases, Progress: progress, Upcasters: upcasters, Log: quiet})
	tails := tail.New(tail.Config{Events: s.Log, Log: quiet})
	groups := group.New(group.Config{Store: s.GroupTables, Events: s.Log, Log: quiet})
	hooks := webhook.New(webhook.Config{
		Store: s.WebhookTables, Events: s.Log, Groups: groups, Projections: catalog, Log: quiet, AllowHTTP: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	var dispatcher *consume.Dispatcher
	reports := report.New(report.Config{
		Store: s.ReportTables, Append: schemas.AppendAnyway, Events: s.Log, Groups: s.GroupTables, Webhooks: s.WebhookTables, Registry: s.Registry, Projections: catalog,
		Notice: func(tenant domain.TenantID) { dispatcher.Notice(tenant) }, Busy: 10 * time.Millisecond, Idle: 50 * time.Millisecond, Log: quiet,
	})
	dispatcher = consume.New(consume.Config{Heads: s.Heads, Sources: []consume.Source{hooks, reports}, Log: quiet})
	wake := func(head domain.Head) {
		runner.Wake(head)
		tails.Wake(head)
		groups.Wake(head)
		dispatcher.Wake(head)
	}
	rebuilds := rebuild.New(rebuild.Config{Store: projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}, Drivers: databases, Catalog: catalog, Upcasters: upcasters, Seeds: states.Seeds, Log: quiet})

	sums := totals.New(totals.Config{
		Store: s.TotalTables, Registry: s.Registry, Drivers: databases, Owns: func(domain.TenantID) bool { return true }, Every: 50 * time.Millisecond, Share: 1e9, Log: quiet,
	})

	settings, err := limits.LoadSettings(t.Context(), s.LimitTables, quiet)
	must(t, err)
	limiter := limits.NewLimiter(limits.Config{Store: s.LimitTables, Settings: settings, Process: domain.NewUUID().String(), Log: quiet})
	ctx, cancel := context.WithCancel(context.Background())
	var background sync.WaitGroup
	for _, run := range []func(context.Context) error{
		runner.Run, rebuilds.Run, states.Run, groups.Run, dispatcher.Run, hooks.Run, reports.Run, sums.Run,
		func(ctx context.Context) error { return s.Listen(ctx, wake) },
		func(ctx context.Context) error { return s.ListenGroups(ctx, groups.Notice) },
		func(ctx context.Context) error {
			return s.ListenWebhooks(ctx, func(tenant domain.TenantID) {
				hooks.Notice(tenant)
				dispatcher.Notice(tenant)
			})
		},
		settings.Run, limiter.Run,
		func(ctx context.Context) error { return s.ListenLimits(ctx, settings.Notice) },
		func(ctx context.Context) error { return s.ListenKeys(ctx, keys.Forget) },
		func(ctx context.Context) error { return s.ListenSchemas(ctx, schemas.Notice) },
		func(ctx context.Context) error { return s.ListenProjections(ctx, runner.Refresh) },
		func(ctx context.Context) error { return s.ListenRetries(ctx, runner.Retry) },
	} {
		background.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("a part of the service ended: %v", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); background.Wait() })

	removal := retention.New(retention.Config{
		Store: s.RetentionTables, Holders: []retention.Holder{s, catalog}, Owns: func(domain.TenantID) bool { return true }, Log: quiet, Grace: -1, Share: 1,
	})
	w.seals = s.SealTables
	erasures := subjects.New(subjects.Config{
		Store: s.SubjectTables, Events: s.Log, Registry: s.Registry, Catalog: catalog, Rebuilds: rebuilds, Drivers: databases, Owners: s.SubjectOwners(), Personal: s.Personal,
		Keys: s.SigningKeys, ForgetSalts: s.ForgetSalts, Owns: func(domain.TenantID) bool { return true }, Settle: time.Millisecond, Log: quiet,
	})
	background.Go(func() { _ = erasures.Run(ctx) })
	w.audit = audit.New(audit.Config{Append: s.Append, Log: logger, Every: time.Hour})
	config := api.Config{
		Log: s.Log, Appends: schemas, Schemas: schemas, Keys: keys, KeyTables: s.KeyTables, LimitTables: s.LimitTables, UsageTables: s.UsageTables, Limits: limiter, Tenants: s.TenantTables, Members: s.MemberTables, Births: s.GroupTables, Aggregates: states, Commands: aggregate.NewCommands(states, schemas, nil),
		Projections: catalog, Rebuilds: rebuilds, Upcasters: upcasters, Follower: tails, Groups: groups, Webhooks: hooks, Retention: removal, Subjects: erasures, Reports: reports, Totals: sums, Seals: s.SealTables, Signing: s.SigningKeys, Audit: w.audit,
		Ready:   func(ctx context.Context) []api.Check { return []api.Check{{Name: "database", Err: s.Ping(ctx)}} },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "manifold_up 1\n") }),
		Logger:  logger,
	}
	if c.change != nil {
		c.change(&config)
	}
	w.serve(config, c.ended)
	return w
}

func (w *world) serve(config api.Config, ended func(*http.Request)) {
	server, err := api.New(config)
	must(w.t, err)
	w.server, w.handler = server, server.Handler()
	if handler := w.handler; ended != nil {
		w.handler = http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			defer ended(request)
			handler.ServeHTTP(writer, request)
		})
	}
	served := httptest.NewServer(w.handler)
	w.t.Cleanup(func() {
		server.Stop() // otherwise Close would wait for followers
		served.Close()
		must(w.t, server.Wait(context.Background()))
	})
	w.url = served.URL
}

// tenant creates a tenant with a key of all scopes, and returns an actor with that key.
func (w *world) tenant(name string, scopes ...auth.Scope) *actor {
	w.t.Helper()
	operator := w.operator()
	if w.shared {
		name += " " + rand.Text()
	}
	id := operator.post("/v1/tenants", object{"name": name}).want(201).text("id")
	if w.shared {
		w.t.Cleanup(func() { w.deleteTenant(id, name) })
	}
	return &actor{w, w.key(id, scopes...), id}
}

// deleteTenant ends what a tenant does in a shared world. The test's context has ended.
func (w *world) deleteTenant(id, name string) {
	request, err := http.NewRequest("DELETE", w.url+"/v1/tenants/"+id+"?confirm="+url.QueryEscape(name), nil)
	must(w.t, err)
	request.Header.Set("Authorization", "Bearer "+operatorKey)
	response, err := http.DefaultClient.Do(request)
	must(w.t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		w.t.Errorf("delete the tenant %s: %s", name, response.Status)
	}
}

func (w *world) key(tenant string, scopes ...auth.Scope) string {
	w.t.Helper()
	if len(scopes) == 0 {
		scopes = auth.TenantScopes[:]
	}
	return w.operator().post("/v1/tenants/"+tenant+"/keys", object{"name": "test", "scopes": scopes}).want(201).text("key")
}

func (w *world) operator() *actor { return &actor{w, operatorKey, ""} }

// actor calls the API with a key.
type actor struct {
	*world
	key      string
	tenantID string
}

type (
	object = map[string]any
	list   = []any
)

func (a *actor) get(path string, headers ...string) *answer {
	a.t.Helper()
	return a.send("GET", path, nil, headers...)
}

func (a *actor) post(path string, body any, headers ...string) *answer {
	a.t.Helper()
	return a.send("POST", path, body, headers...)
}

// send sends a request and reads the whole answer. A body that is a string, bytes or a reader is sent as it is; any
// other is sent as JSON. headers are name, value, name, value ...
func (a *actor) send(method, path string, body any, headers ...string) *answer {
	a.t.Helper()
	response := a.open(method, path, body, headers...)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return &answer{t: a.t, what: method + " " + path, status: response.StatusCode, header: response.Header, body: text}
}

// web does not decompress answers.
var web = &http.Client{Timeout: 3 * patience, Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}

// open sends a request and returns the answer as a stream.
func (a *actor) open(method, path string, body any, headers ...string) *http.Response {
	a.t.Helper()
	request := a.request(method, path, body, headers...)
	response, err := web.Do(request)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	return response
}

func (a *actor) request(method, path string, body any, headers ...string) *http.Request {
	a.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	case []byte:
		reader = bytes.NewReader(b)
	case io.Reader:
		reader = b
	default:
		text, err := json.Marshal(b)
		must(a.t, err)
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, reader)
	must(a.t, err)
	if reader != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if a.key != "" {
		request.Header.Set("Authorization", "Bearer "+a.key)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return request
}

// append appends events that have only a type and a number.
func (a *actor) append(stream string, count int) {
	a.t.Helper()
	for count > 0 {
		n := min(count, 1000)
		events := make(list, n)
		for i := range events {
			events[i] = object{"type": "Happened", "data": object{"n": i}}
		}
		a.post("/v1/streams/"+stream+"/events", events).want(201)
		count -= n
	}
}

// answer is the service's answer to a request.
type answer struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	body   []byte
}

// want fails the test unless the status is one of those given.
func (a *answer) want(status ...int) *answer {
	a.t.Helper()
	if !slices.Contains(status, a.status) {
		a.t.Fatalf("%s is answered %d, want %v: %s", a.what, a.status, status, a.body)
	}
	return a
}

// wantProblem fails the test unless the answer is a problem with this status and code, whose place contains where.
func (a *answer) wantProblem(status int, code domain.Code, where string) object {
	a.t.Helper()
	a.want(status)
	problem := a.json()
	place, _ := problem["where"].(string)
	if kind := a.header.Get("Content-Type"); kind != "application/problem+json" || problem["code"] != string(code) || !strings.Contains(place, where) ||
		problem["status"] != float64(status) || problem["type"] != "/docs/errors#"+string(code) || problem["title"] == "" || problem["requestId"] == nil {
		a.t.Fatalf("%s is answered with %s %s; want code %s at %q", a.what, kind, a.body, code, where)
	}
	return problem
}

func (a *answer) json() object {
	a.t.Helper()
	var o object
	if err := json.Unmarshal(a.body, &o); err != nil {
		a.t.Fatalf("%s: %v: %s", a.what, err, a.body)
	}
	return o
}

// at follows a path into the answer: names of members, and indexes of elements.
func (a *answer) at(path ...any) any {
	a.t.Helper()
	var here any = a.json()
	for _, step := range path {
		switch s := step.(type) {
		case string:
			o, _ := here.(object)
			here = o[s]
		case int:
			l, _ := here.(list)
			if s >= len(l) {
				a.t.Fatalf("%s: there is no %v in %s", a.what, path, a.body)
			}
			here = l[s]
		}
	}
	return here
}

func (a *answer) text(path ...any) string {
	a.t.Helper()
	text, ok := a.at(path...).(string)
	if !ok {
		a.t.Fatalf("%s: there is no text at %v in %s", a.what, path, a.body)
	}
	return text
}

func (a *answer) number(path ...any) int {
	a.t.Helper()
	number, ok := a.at(path...).(float64)
	if !ok {
		a.t.Fatalf("%s: there is no number at %v in %s", a.what, path, a.body)
	}
	return int(number)
}

// lines decodes an answer of lines of JSON.
func (a *answer) lines() []object {
	a.t.Helper()
	var lines []object
	for line := range bytes.Lines(a.body) {
		var o object
		if err := json.Unmarshal(line, &o); err != nil {
			a.t.Fatalf("%s: %v in the line %q", a.what, err, line)
		}
		lines = append(lines, o)
	}
	return lines
}

// next returns the target of the Link header, or "".
func (a *answer) next() string {
	link, ok := strings.CutPrefix(a.header.Get("Link"), "<")
	if !ok {
		return ""
	}
	link, ok = strings.CutSuffix(link, `>; rel="next"`)
	if !ok {
		a.t.Fatalf("%s: the Link header is %q", a.what, a.header.Get("Link"))
	}
	return link
}

// positions returns the positions of events.
func positions(events any) []int {
	var all []int
	for _, e := range events.(list) {
		all = append(all, int(e.(object)["position"].(float64)))
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal fails the test unless both are the same JSON.
func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	g, err := json.Marshal(got)
	must(t, err)
	w, err := json.Marshal(want)
	must(t, err)
	if !bytes.Equal(g, w) {
		t.Fatalf("%s is\n%s\nwant\n%s", what, g, w)
	}
}

// without returns the object without some members.
func without(o object, names ...string) object {
	o = maps.Clone(o)
	for _, name := range names {
		delete(o, name)
	}
	return o
}

// patience is how long a test waits for an expected result, on a slow machine.
const patience = time.Minute

// syncBuffer is a log that tests read.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
