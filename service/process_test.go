package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/service"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const operatorKey = "the operator's key of the tests, long enough"

// configuration returns the configuration of a process on a test's database, at a free port.
func configuration(db pgtest.DB) config.Config {
	c := config.Default()
	c.Listen = "127.0.0.1:0"
	c.Database.URL = db.URL(pgtest.RoleMigrator)
	c.Database.App.URL = db.URL(migrations.RoleApp)
	c.Database.System.URL = db.URL(migrations.RoleSystem)
	c.Database.Documents.URL = db.URL(migrations.RoleDocuments)
	c.Database.Retention.URL = db.URL(migrations.RoleRetention)
	c.Database.MaxConns = 6
	c.OperatorKeys = []string{operatorKey}
	return c
}

func start(t *testing.T, c config.Config) *service.Process {
	t.Helper()
	return startWith(t, c, service.Extensions{})
}

func startWith(t *testing.T, c config.Config, extensions service.Extensions) *service.Process {
	t.Helper()
	p, err := service.Start(t.Context(), c, slog.New(slog.DiscardHandler), extensions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, p) })
	return p
}

func withProjection(name string, handler folding.Handler) service.Extensions {
	return service.Extensions{Projections: []service.Projection{{Definition: domain.Definition{Name: name}, Handler: handler}}}
}

func withReactor(definition reactor.Definition, handler reactor.Handler) service.Extensions {
	return service.Extensions{Reactors: []reactor.Reactor{{Definition: definition, Handler: handler}}}
}

func stop(t *testing.T, p *service.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// user is a client of a process with a key.
type user struct {
	t *testing.T
	*client.ClientWithResponses
}

func as(t *testing.T, p *service.Process, key string) user {
	t.Helper()
	c, err := client.NewClientWithResponses("http://"+p.Address(), client.WithKey(key))
	if err != nil {
		t.Fatal(err)
	}
	return user{t, c}
}

// newTenant creates a tenant with a key for everything.
func newTenant(t *testing.T, p *service.Process, name string) (key string) {
	t.Helper()
	operator := as(t, p, operatorKey)
	tenant, err := operator.CreateTenantWithResponse(t.Context(), client.NewTenant{Name: name})
	if err != nil || tenant.JSON201 == nil {
		t.Fatalf("create the tenant: %v, %s", err, tenant.Body)
	}
	var scopes []string
	for _, scope := range auth.TenantScopes {
		scopes = append(scopes, string(scope))
	}
	made, err := operator.CreateTenantKeyWithResponse(t.Context(), tenant.JSON201.Id, client.NewKey{Name: "all", Scopes: scopes})
	if err != nil || made.JSON201 == nil {
		t.Fatalf("create the key: %v, %s", err, made.Body)
	}
	return made.JSON201.Key
}

// add appends one event and returns its position.
func (u user) add(stream, eventType, data string) int64 {
	u.t.Helper()
	r, err := u.AppendToStreamWithResponse(u.t.Context(), stream, nil, client.NewEvents{{Type: eventType, Data: json.RawMessage(data)}})
	if err != nil || r.JSON201 == nil {
		u.t.Fatalf("append: %v, %s", err, r.Body)
	}
	return r.JSON201.Position
}

// document returns a document as JSON with its keys sorted, after the projection has reached position. It returns ""
// if there is no document.
func (u user) document(name, id string, position int64) string {
	u.t.Helper()
	wait := 20
	r, err := u.GetDocumentWithResponse(u.t.Context(), name, id, &client.GetDocumentParams{MinPosition: &position, Timeout: &wait})
	if err != nil {
		u.t.Fatal(err)
	}
	if r.StatusCode() == http.StatusNotFound {
		return ""
	}
	if r.JSON200 == nil {
		u.t.Fatalf("read %s of %s: %s", id, name, r.Body)
	}
	var value map[string]any
	if err := json.Unmarshal(r.JSON200.Document, &value); err != nil {
		u.t.Fatal(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		u.t.Fatal(err)
	}
	return string(text)
}

func (u user) put(definition string) *client.PutProjectionResponse {
	u.t.Helper()
	var named struct{ Name string }
	if err := json.Unmarshal([]byte(definition), &named); err != nil {
		u.t.Fatal(err)
	}
	r, err := u.PutProjectionWithBodyWithResponse(u.t.Context(), named.Name, nil, "application/json", strings.NewReader(definition))
	if err != nil {
		u.t.Fatal(err)
	}
	return r
}

// swapped waits until a rebuild has ended, and reports whether it was swapped in.
func (u user) swapped(rebuild client.Rebuild) bool {
	u.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for rebuild.EndedAt == nil {
		<-tick.C
		r, err := u.GetRebuildWithResponse(u.t.Context(), rebuild.Projection, rebuild.Id)
		if err != nil || r.JSON200 == nil {
			u.t.Fatalf("look at the rebuild: %v, %s", err, r.Body)
		}
		rebuild = *r.JSON200
	}
	return rebuild.State == string(domain.RebuildSwapped)
}

const (
	counting = `{"name":"counts","on":{"Added":"{\"n\": doc.?n.orValue(0) + event.data.n}"}}`
	doubling = `{"name":"counts","on":{"Added":"{\"n\": doc.?n.orValue(0) + 2 * event.data.n}"}}`
)

// The whole path of one event: it is appended, projected, read, rebuilt with another definition, and found again by
// the next process.
func TestTheWholePath(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	p := start(t, configuration(db))
	key := newTenant(t, p, "acme")
	acme := as(t, p, key)
	if r := acme.put(counting); r.JSON201 == nil {
		t.Fatalf("create the projection: %s", r.Body)
	}
	acme.add("thing-1", "Added", `{"n":2}`)
	position := acme.add("thing-1", "Added", `{"n":3}`)
	if got := acme.document("counts", "thing-1", position); got != `{"n":5}` {
		t.Errorf("the document is %s", got)
	}

	r := acme.put(doubling)
	if r.JSON202 == nil {
		t.Fatalf("change the projection: %s", r.Body)
	}
	if !acme.swapped(*r.JSON202) {
		t.Fatal("the rebuild was not swapped in")
	}
	if got := acme.document("counts", "thing-1", position); got != `{"n":10}` {
		t.Errorf("by the new definition the document is %s", got)
	}
	position = acme.add("thing-1", "Added", `{"n":1}`)
	if got := acme.document("counts", "thing-1", position); got != `{"n":12}` {
		t.Errorf("after the rebuild the document is %s", got)
	}
	stop(t, p)

	p = start(t, configuration(db))
	acme = as(t, p, key)
	if got := acme.document("counts", "thing-1", position); got != `{"n":12}` {
		t.Errorf("after a restart the document is %s", got)
	}
	umbrella := as(t, p, newTenant(t, p, "umbrella"))
	if r, err := umbrella.GetProjectionWithResponse(t.Context(), "counts"); err != nil || r.StatusCode() != http.StatusNotFound {
		t.Errorf("another tenant sees the projection: %v, %s", err, r.Body)
	}

	awaitMetric(t, p, `manifold_projection_lag_events{projection="(own)"} 0`)
	awaitMetric(t, p, `manifold_http_request_seconds_count{method="POST",route="/v1/tenants",status="201"} 1`)
}

// A reader waits also for an event that is for no document. The reader cannot know that, and there may be no further
// event for long.
func TestMinPositionOfAnEventForNoDocument(t *testing.T) {
	t.Parallel()
	p := start(t, configuration(pgtest.Database(t)))
	acme := as(t, p, newTenant(t, p, "acme"))
	if r := acme.put(`{"name":"keyed","key":"event.data.?key.orValue(null)","on":{"*":"{\"n\": doc.?n.orValue(0) + 1}"}}`); r.JSON201 == nil {
		t.Fatalf("create the projection: %s", r.Body)
	}
	acme.add("thing-1", "Added", `{"key":"k"}`)
	position := acme.add("thing-1", "Added", `{}`)
	if got := acme.document("keyed", "k", position); got != `{"n":1}` {
		t.Errorf("the document is %s", got)
	}
}

// Definitions in a folder run for every tenant; a changed one is rebuilt when a process starts with it.
func TestSharedProjections(t *testing.T) {
	t.Parallel()
	db, folder := pgtest.Database(t), t.TempDir()
	file := filepath.Join(folder, "counts.json")
	define := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	define(counting)
	c := configuration(db)
	c.Projections = []string{folder}
	p := start(t, c)
	keys := []string{newTenant(t, p, "acme"), newTenant(t, p, "umbrella")}
	for i, key := range keys {
		u := as(t, p, key)
		position := u.add("thing-1", "Added", fmt.Sprintf(`{"n":%d}`, 10+i))
		if got, want := u.document("counts", "thing-1", position), fmt.Sprintf(`{"n":%d}`, 10+i); got != want {
			t.Errorf("tenant %d has %s, not %s", i, got, want)
		}
	}
	stop(t, p)

	define(doubling)
	p = start(t, c)
	operator := as(t, p, operatorKey)
	list, err := operator.ListRebuildsWithResponse(t.Context(), "counts")
	if err != nil || list.JSON200 == nil || len(list.JSON200.Rebuilds) != 1 {
		t.Fatalf("the rebuilds after the change: %v, %s", err, list.Body)
	}
	if !operator.swapped(list.JSON200.Rebuilds[0]) {
		t.Fatal("the rebuild was not swapped in")
	}
	for i, key := range keys {
		if got, want := as(t, p, key).document("counts", "thing-1", 1), fmt.Sprintf(`{"n":%d}`, 2*(10+i)); got != want {
			t.Errorf("rebuilt, tenant %d has %s, not %s", i, got, want)
		}
	}
	// The built-in projection keeps the totals that the operator has given it.
	totals := client.TotalsDefinition{Sum: []string{"events"}, By: "day"}
	put, err := operator.PutProjectionWithResponse(t.Context(), "usage", nil, client.Definition{Handler: "usage", Totals: &totals})
	if err != nil || put.StatusCode() != http.StatusOK {
		t.Fatalf("totals for usage: %v, %s", err, put.Body)
	}
	stop(t, p)

	p = start(t, c) // nothing to change
	usage, err := as(t, p, operatorKey).GetProjectionWithResponse(t.Context(), "usage")
	if err != nil || usage.JSON200 == nil || usage.JSON200.Definition.Totals == nil || usage.JSON200.Definition.Totals.By != totals.By {
		t.Errorf("after a restart, the definition of usage is: %v, %s", err, usage.Body)
	}
	list, err = as(t, p, operatorKey).ListRebuildsWithResponse(t.Context(), "counts")
	if err != nil || list.JSON200 == nil || len(list.JSON200.Rebuilds) != 1 {
		t.Errorf("the same definition was rebuilt: %v, %s", err, list.Body)
	}
	stop(t, p)

	define(`{"name":"counts","on":{"Added":"nonsense("}}`)
	if _, err := service.Start(t.Context(), c, slog.New(slog.DiscardHandler), service.Extensions{}); err == nil || !strings.Contains(err.Error(), "counts") {
		t.Errorf("a definition that is wrong: %v", err)
	}
}

// Web processes answer requests, and worker processes do the background work. Two processes with the same role share
// it.
func TestRoles(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	of := func(role config.Role) *service.Process {
		c := configuration(db)
		c.Role = role
		return start(t, c)
	}
	web, other, worker := of(config.RoleWeb), of(config.RoleWeb), of(config.RoleWorker)
	key := newTenant(t, web, "acme")
	acme := as(t, web, key)
	if r := acme.put(counting); r.JSON201 == nil {
		t.Fatalf("create the projection: %s", r.Body)
	}
	position := acme.add("thing-1", "Added", `{"n":2}`)
	if got := as(t, other, key).document("counts", "thing-1", position); got != `{"n":2}` {
		t.Errorf("the document is %s", got)
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/v1/projections": 404, "/docs": 404} {
		if status, body := get(t, worker, path); status != want {
			t.Errorf("the worker answers %s with %d: %s", path, status, body)
		}
	}
}

// get sends a request to a process. For metrics, it uses the admin listener.
func get(t *testing.T, p *service.Process, path string) (int, string) {
	t.Helper()
	address := p.Address()
	if path == "/metrics" {
		address = p.AdminAddress()
	}
	return getAt(t, address, path)
}

func getAt(t *testing.T, address, path string) (int, string) {
	t.Helper()
	r, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

type tally struct {
	N int `json:"n"`
}

// A program that embeds Manifold brings a fold in Go.
func TestProjectionInGo(t *testing.T) {
	t.Parallel()
	handler := folding.HandlerOf(folding.Rule[tally]{
		Types: []string{"Added"},
		Key:   func(e domain.Event) (string, error) { return domain.Category(e.Stream), nil },
		Fold: func(doc *tally, _ domain.Event) (bool, error) {
			doc.N++
			return true, nil
		},
	})
	p := startWith(t, configuration(pgtest.Database(t)), withProjection("tally", handler))
	acme := as(t, p, newTenant(t, p, "acme"))
	acme.add("thing-1", "Added", `1`)
	acme.add("thing-2", "Removed", `1`)
	position := acme.add("thing-2", "Added", `1`)
	if got := acme.document("tally", "thing", position); got != `{"n":2}` {
		t.Errorf("the document is %s", got)
	}
}

func TestRefusedAtStart(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	login := "manifold_system"
	if db.Distributed() {
		login = "nobody" // the nodes may trust this machine without a password
	}
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"port taken": {func(c *config.Config) { c.Listen = taken.Addr().String() }, "another program listens on " + taken.Addr().String()},
		"no such driver": {func(c *config.Config) {
			c.Databases = map[string]config.DocumentsDatabase{"x": {Driver: "oracle", URL: "o://x"}}
		}, `databases.x.driver: there is no driver "oracle"`},
		"short key":       {func(c *config.Config) { c.OperatorKeys = []string{"short"} }, "operatorKey: "},
		"no folder":       {func(c *config.Config) { c.Projections = []string{"/there/is/none"} }, "/there/is/none"},
		"wrong password":  {func(c *config.Config) { c.Database.System.URL = db.URLAs(login, "wrong") }, "creates the login with the configured password"},
		"port of admin":   {func(c *config.Config) { c.Admin.Listen = taken.Addr().String() }, "admin.listen: another program listens on " + taken.Addr().String()},
		"not checked yet": {func(c *config.Config) { c.Role = "both" }, "role: "},
		"not the wanted kind": {func(c *config.Config) {
			c.Database.Distributed = config.DistributedTrue
			if db.Distributed() {
				c.Database.Distributed = config.DistributedFalse
			}
		}, "or set it to auto"},
	} {
		c2 := configuration(db)
		c.change(&c2)
		p, err := service.Start(t.Context(), c2, slog.New(slog.DiscardHandler), service.Extensions{})
		if err == nil {
			stop(t, p)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// A request or a file that declares an impossible definition is refused, and the message lists what exists.
func TestDefinitionsThatCannotWork(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	c := configuration(db)
	c.Databases = map[string]config.DocumentsDatabase{"reports": {Driver: "postgres", URL: db.URL(migrations.RoleDocuments)}}
	p := start(t, c)
	acme := as(t, p, newTenant(t, p, "acme"))
	for name, d := range map[string]struct{ definition, file, request string }{
		"unknown database": {`{"name":"x","database":"nowhere","on":{"A":"doc"}}`,
			`database: there is no database "nowhere" in the configuration; there is default, reports`,
			`there is no database \"nowhere\" in the configuration; there is default, reports`},
		"inline elsewhere": {`{"name":"x","database":"reports","mode":"inline","on":{"A":"doc"}}`,
			`its documents must be in the log's database, "default", not in "reports"`, "mode"},
		"inline that looks at the time": {`{"name":"x","mode":"inline","on":{"A":"{'at': string(event.recordedAt)}"}}`,
			"with mode inline it cannot use event.recordedAt", "with mode inline it cannot use event.recordedAt"},
		"any mode": {`{"name":"x","mode":"sideways","on":{"A":"doc"}}`, `there is no mode "sideways"; use async`, "mode"},
	} {
		if r := acme.put(d.definition); r.StatusCode() != http.StatusBadRequest && r.StatusCode() != http.StatusUnprocessableEntity || !strings.Contains(string(r.Body), d.request) {
			t.Errorf("%s by a request: %d %s", name, r.StatusCode(), r.Body)
		}
		bad := c
		bad.Projections = []string{t.TempDir()}
		if err := os.WriteFile(filepath.Join(bad.Projections[0], "x.json"), []byte(d.definition), 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := service.Start(t.Context(), bad, slog.New(slog.DiscardHandler), service.Extensions{})
		if err == nil {
			stop(t, q)
		}
		if err == nil || !strings.Contains(err.Error(), d.file) {
			t.Errorf("%s in a file: %v", name, err)
		}
	}
}

// A request that does not finish in time is cancelled, and one that does is answered.
func TestStopDrainsThenCancels(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	for name, c := range map[string]struct {
		deadline time.Duration
		ctx      func() (context.Context, context.CancelFunc)
	}{
		"deadline": {50 * time.Millisecond, func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }},
		"second signal": {time.Hour, func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return ctx, cancel
		}},
	} {
		cfg := configuration(db)
		cfg.ShutdownDeadline = c.deadline
		p := start(t, cfg)
		u := as(t, p, newTenant(t, p, name))
		if r := u.put(counting); r.JSON201 == nil {
			t.Fatalf("create the projection: %s", r.Body)
		}
		// It waits for a position that never comes.
		answered := make(chan error, 1)
		go func() {
			beyond, wait := int64(1_000_000), 30
			r, err := u.GetDocumentWithResponse(context.Background(), "counts", "x", &client.GetDocumentParams{MinPosition: &beyond, Timeout: &wait})
			if err == nil && r.StatusCode() < 400 {
				answered <- errors.New(r.Status())
				return
			}
			answered <- nil
		}()
		awaitMetric(t, p, "manifold_http_requests_in_flight 2") // the one that waits, and the one that asks this
		ctx, cancel := c.ctx()
		begin := time.Now()
		if err := p.Stop(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("%s: stopping took %s", name, took)
		}
		if err := <-answered; err != nil {
			t.Errorf("%s: a request that was cut off was answered: %v", name, err)
		}
		if _, err := http.Get("http://" + p.Address() + "/livez"); err == nil {
			t.Errorf("%s: a stopped process answers", name)
		}
	}
}

// A program's own code that never returns does not block Stop, which reports what is left.
func TestStopReturnsWhateverStillRuns(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 100), make(chan struct{})
	defer close(release)
	stuck := folding.HandlerOf(folding.Rule[struct{}]{
		Key: func(domain.Event) (string, error) { return "stuck", nil },
		Fold: func(*struct{}, domain.Event) (bool, error) {
			entered <- struct{}{}
			<-release
			return true, nil
		},
	})
	c := configuration(pgtest.Database(t))
	c.ShutdownDeadline = 100 * time.Millisecond
	p, err := service.Start(t.Context(), c, slog.New(slog.DiscardHandler), withProjection("stuck", stuck))
	if err != nil {
		t.Fatal(err)
	}
	as(t, p, newTenant(t, p, "acme")).add("thing-1", "Added", `{}`)
	<-entered
	began := time.Now()
	err = p.Stop(context.Background())
	if err == nil || !strings.Contains(err.Error(), "follow projections") {
		t.Errorf("it returns %v", err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it returns after %s", took)
	}
}

// A process that stops counts as working until its consumers have ended. Otherwise others would repeat their work.
func TestStopLeavesAfterTheConsumers(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	pool := db.Pool(t, pgtest.RoleSuperuser, 1)
	entered, announced := make(chan struct{}, 1), make(chan error, 1)
	again := func(ctx context.Context) error {
		var last, next time.Time
		const alive = "select alive_at from manifold.members"
		if err := pool.QueryRow(ctx, alive).Scan(&last); err != nil {
			return err
		}
		for !next.After(last) {
			if err := pool.QueryRow(ctx, alive).Scan(&next); err != nil {
				return err
			}
		}
		return nil
	}
	p, err := service.Start(t.Context(), configuration(db), slog.New(slog.DiscardHandler), withReactor(
		reactor.Definition{Name: "slow", Categories: []string{"thing"}, From: "start"},
		func(ctx context.Context, _ domain.TenantID, _ reactor.Event) error {
			entered <- struct{}{}
			<-ctx.Done()
			announced <- again(t.Context())
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	as(t, p, newTenant(t, p, "acme")).add("thing-1", "Added", `{}`)
	<-entered
	stop(t, p)
	if err := <-announced; err != nil {
		t.Errorf("while a consumer runs, the process does not announce itself: %v", err)
	}
	var members int
	if err := pool.QueryRow(t.Context(), "select count(*) from manifold.members").Scan(&members); err != nil || members != 0 {
		t.Errorf("%d members are left, %v", members, err)
	}
}

// A consumer that never ends does not keep the process among the working ones, for which others wait.
func TestStopLeavesWhateverStillRuns(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 1), make(chan struct{})
	defer close(release)
	db := pgtest.Database(t)
	c := configuration(db)
	c.ShutdownDeadline = 100 * time.Millisecond
	p, err := service.Start(t.Context(), c, slog.New(slog.DiscardHandler), withReactor(
		reactor.Definition{Name: "stuck", Categories: []string{"thing"}, From: "start"},
		func(context.Context, domain.TenantID, reactor.Event) error {
			entered <- struct{}{}
			<-release
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	as(t, p, newTenant(t, p, "acme")).add("thing-1", "Added", `{}`)
	<-entered
	if err = p.Stop(context.Background()); err == nil || !strings.Contains(err.Error(), "at the deadline: run consumers") {
		t.Errorf("it returns %v", err)
	}
	var members int
	if err := db.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(), "select count(*) from manifold.members").Scan(&members); err != nil || members != 0 {
		t.Errorf("%d members are left, %v", members, err)
	}
}

// awaitMetric waits until /metrics has a line.
func awaitMetric(t *testing.T, p *service.Process, line string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	body := ""
	for range 2000 {
		_, body = get(t, p, "/metrics")
		if strings.Contains(body, line+"\n") {
			return
		}
		<-tick.C
	}
	t.Fatalf("/metrics never has %s; at last it was:\n%s", line, body)
}
