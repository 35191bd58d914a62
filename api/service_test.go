package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/audit"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/domain"
)

// Every invalid request gets a problem that says what to do.
func TestProblems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	nobody := &actor{world: w}
	for _, c := range []struct {
		by           *actor
		method, path string
		body         any
		headers      []string
		status       int
		code         domain.Code
		where        string
	}{
		{nobody, "GET", "/v1/streams", nil, nil, 401, domain.CodeUnauthenticated, "Authorization"},
		{nobody, "GET", "/v1/streams", nil, []string{"Authorization", "Basic x"}, 401, domain.CodeUnauthenticated, "Authorization"},
		{nobody, "GET", "/v1/streams", nil, []string{"Authorization", "Bearer mk_wrong"}, 401, domain.CodeUnauthenticated, ""},
		{a, "GET", "/v1/tenants", nil, nil, 403, domain.CodeForbidden, "Authorization"},
		{w.operator(), "GET", "/v1/streams", nil, nil, 403, domain.CodeForbidden, "Authorization"},
		{a, "GET", "/v1/nothing", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "PUT", "/v1/streams", nil, nil, 405, "method-not-allowed", ""},
		{a, "DELETE", "/v1/streams/order-1", nil, nil, 405, "method-not-allowed", ""},
		{a, "POST", "/v1/projections", "{", nil, 400, domain.CodeInvalidJSON, "body"},
		{a, "POST", "/v1/projections", "", nil, 400, domain.CodeInvalidRequest, "body"},
		{a, "POST", "/v1/projections", "[]", nil, 400, domain.CodeInvalidRequest, "body"},
		{a, "POST", "/v1/projections", `{"name":"x","on":{"A":"doc"},"initial":{"a":"\u0000"}}`, nil, 400, domain.CodeInvalidJSON, "body"},
		{a, "POST", "/v1/projections", `{"name":"x","on":{"A":"doc"}}`, []string{"Content-Type", "text/yaml"}, 415, "unsupported-media-type", "Content-Type"},
		{a, "POST", "/v1/projections", `{"name":"X","on":{"A":"doc"}}`, nil, 400, domain.CodeInvalidRequest, "name"},
		{a, "POST", "/v1/projections", `{"on":{"A":"doc"}}`, nil, 400, domain.CodeInvalidRequest, "name"},
		{a, "POST", "/v1/projections", `{"name":"x","on":{"A":5}}`, nil, 400, domain.CodeInvalidRequest, "on.A"},
		{a, "POST", "/v1/projections", `{"name":"x","on":{"A":"doc"},"source":{"categorys":[]}}`, nil, 400, domain.CodeInvalidRequest, "source"},
		{a, "POST", "/v1/projections", `{"name":"x","on":{"A":"doc"},"mode":"sideways"}`, nil, 400, domain.CodeInvalidRequest, "mode"},
		{a, "POST", "/v1/projections", `{"name":"x","on":{"A":"dco"}}`, nil, 422, domain.CodeInvalidDefinition, "on.A"},
		{a, "POST", "/v1/projections", `{"name":"x","on":{"A":"` + strings.Repeat("x", 9<<20) + `"}}`, nil, 413, domain.CodeTooLarge, "body"},
		{a, "PUT", "/v1/projections/y", `{"name":"x","on":{"A":"doc"}}`, nil, 400, domain.CodeInvalidRequest, "name"},
		{a, "POST", "/v1/projections", `{"on":{"A":"doc"}}`, nil, 400, domain.CodeInvalidRequest, "name"},
		{a, "GET", "/v1/projections/none", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "GET", "/v1/projections/none/state", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "GET", "/v1/projections/none/documents", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "GET", "/v1/projections/none/documents/x?timeout=31", nil, nil, 400, domain.CodeInvalidRequest, "query timeout"},
		{a, "POST", "/v1/projections/none/reset", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "POST", "/v1/projections/none/rebuilds", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "GET", "/v1/projections/none/rebuilds", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "GET", "/v1/projections/none/rebuilds/" + domain.NewRebuildID().String(), nil, nil, 404, domain.CodeNotFound, ""},
		{a, "GET", "/v1/projections/none/rebuilds/7", nil, nil, 400, domain.CodeInvalidRequest, "path rebuildId"},
		{a, "PUT", "/v1/aggregates/order", `{"on":{"A":"stat"}}`, nil, 422, domain.CodeInvalidDefinition, "on.A"},
		{a, "PUT", "/v1/aggregates/order", `{"category":"other","on":{"A":"state"}}`, nil, 400, domain.CodeInvalidRequest, "category"},
		{a, "PUT", "/v1/aggregates/a-b", `{"on":{"A":"state"}}`, nil, 400, domain.CodeInvalidRequest, "path category"},
		{a, "GET", "/v1/aggregates/order", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "DELETE", "/v1/aggregates/order", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "GET", "/v1/streams/order-1/state", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "GET", "/v1/streams/order-1/state?version=1&at=2026-03-01T00:00:00Z", nil, nil, 400, domain.CodeInvalidRequest, "query at"},
		{a, "GET", "/v1/streams/order-1/state?at=today", nil, nil, 400, domain.CodeInvalidRequest, "query at"},
		{a, "POST", "/v1/snapshots/order-1", nil, nil, 404, domain.CodeNotFound, ""},
		{a, "POST", "/v1/snapshots/order-1", `{"state":{},"version":0,"tag":"x"}`, nil, 400, domain.CodeInvalidRequest, "version"},
		{a, "GET", "/v1/snapshots/order-1/latest", nil, nil, 404, domain.CodeNotFound, ""},
		{w.operator(), "POST", "/v1/tenants", `{"name":"acme"}`, nil, 409, domain.CodeAlreadyExists, ""},
		{w.operator(), "POST", "/v1/tenants", `{"name":" "}`, nil, 400, domain.CodeInvalidRequest, "name"},
		{w.operator(), "GET", "/v1/tenants/x", nil, nil, 400, domain.CodeInvalidRequest, "path tenantId"},
		{w.operator(), "GET", "/v1/tenants/00000000-0000-0000-0000-000000000000", nil, nil, 404, domain.CodeNotFound, ""},
		{w.operator(), "GET", "/v1/tenants/" + domain.NewTenantID().String() + "/keys", nil, nil, 404, domain.CodeNotFound, ""},
		{w.operator(), "PATCH", "/v1/tenants/" + a.tenantID, `{"state":"deleted"}`, nil, 400, domain.CodeInvalidRequest, "state"},
		{w.operator(), "DELETE", "/v1/tenants/" + a.tenantID + "?confirm=other", nil, nil, 400, domain.CodeInvalidRequest, "query confirm"},
		{w.operator(), "DELETE", "/v1/tenants/" + a.tenantID, nil, nil, 400, domain.CodeInvalidRequest, "query confirm"},
		{a, "POST", "/v1/keys", `{"name":"x","scopes":["operator"]}`, nil, 400, domain.CodeInvalidRequest, "scopes[0]"},
		{a, "POST", "/v1/keys", `{"name":"x","scopes":[]}`, nil, 400, domain.CodeInvalidRequest, "scopes"},
		{a, "DELETE", "/v1/keys/" + auth.NewKeyID().String(), nil, nil, 404, domain.CodeNotFound, ""},
	} {
		got := c.by.send(c.method, c.path, c.body, c.headers...)
		if got.status != c.status {
			t.Errorf("%s %s with %.60v is answered %d %s, want %d", c.method, c.path, c.body, got.status, got.body, c.status)
			continue
		}
		got.wantProblem(c.status, c.code, c.where)
	}
	equal(t, "Allow", a.send("PUT", "/v1/streams", nil).header.Get("Allow"), "OPTIONS, GET, HEAD")
	equal(t, "WWW-Authenticate", nobody.get("/v1/streams").header.Get("WWW-Authenticate"), `Bearer realm="manifold"`)
	equal(t, "OPTIONS", a.send("OPTIONS", "/v1/streams", nil).status, 204)
	equal(t, "CORS", a.send("OPTIONS", "/v1/streams", nil, "Origin", "https://example.org").header.Get("Access-Control-Allow-Origin"), "")
	head := a.send("HEAD", "/v1/append", nil).want(405)
	equal(t, "what HEAD gives where there is no GET", list{head.header.Get("Content-Type"), len(head.body)}, list{"application/problem+json", 0})
	traced := nobody.get("/v1/streams", "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "X-Request-Id", "mine").wantProblem(401, domain.CodeUnauthenticated, "")
	equal(t, "what names the request", list{traced["traceparent"], traced["requestId"]}, list{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "mine"})
}

// Panics and faults are logged with details. The client gets only a number to refer to.
func TestFaultsSayNothing(t *testing.T) {
	t.Parallel()
	for name, log := range map[string]api.Appender{"panic": panickingLog{}, "fault": brokenLog{}} {
		w := newWorld(t, func(c *api.Config) { c.Appends = log })
		a := w.tenant("acme")
		got := a.post("/v1/streams/a-1/events", `[{"type":"T","data":1}]`)
		problem := got.wantProblem(500, "internal", "")
		if strings.Contains(string(got.body), "secret") {
			t.Errorf("%s: the client receives %s", name, got.body)
		}
		if logged := w.log.String(); !strings.Contains(logged, "a secret of the inside") || !strings.Contains(logged, problem["requestId"].(string)) {
			t.Errorf("%s: the log has no word of it: %s", name, logged)
		}
	}
}

type panickingLog struct{}

func (panickingLog) Append(context.Context, domain.TenantID, domain.Append) (domain.Appended, error) {
	panic("a secret of the inside")
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) {
		c.Metrics = nil
		c.Ready = func(context.Context) []api.Check {
			return []api.Check{{Name: "database", Err: domain.Errorf(domain.CodeUnavailable, "", "it is gone")}, {Name: "other"}}
		}
	})
	nobody := &actor{world: w}
	equal(t, "readiness", nobody.get("/readyz").want(503).json(), object{"ready": false, "checks": list{
		object{"name": "database", "ok": false, "message": "it is gone"}, object{"name": "other", "ok": true},
	}})
	nobody.get("/livez").want(200)
	nobody.get("/metrics").wantProblem(404, domain.CodeNotFound, "")
}

func TestObserverIsToldRoutesNotPaths(t *testing.T) {
	t.Parallel()
	var seen []string
	server, err := api.New(api.Config{Audit: audit.New(audit.Config{}), Observer: api.Observer{Request: func(method, route string, status int, duration time.Duration) {
		seen = append(seen, method+" "+route+" "+http.StatusText(status))
	}}})
	must(t, err)
	for _, path := range []string{"/v1/streams/order-123", "/livez"} {
		server.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	equal(t, "what was observed", seen, []string{"GET /v1/streams/:streamId Unauthorized", "GET /livez OK"})
}

// Two tenants with the same names everywhere see nothing of one another.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	left, right := w.tenant("left"), w.tenant("right")
	id := domain.NewEventID().String()
	definition := object{"name": "sums", "on": object{"Added": `{"sum": doc.?sum.orValue(0) + event.data.n}`}}
	var rebuilds, keys []string
	for i, a := range []*actor{left, right} {
		n := i + 1
		a.post("/v1/streams/sum-1/events", list{object{"id": id, "type": "Added", "data": object{"n": n}}}, "Expected-Version", "none").want(201)
		for range i {
			a.post("/v1/append", object{"streams": list{object{"stream": "sum-1", "expectedVersion": 1, "events": list{object{"type": "Added", "data": object{"n": n}}}}}}).want(201)
		}
		a.importLines("?name=same", `{"stream":"sum-2","type":"Added","data":{"n":10}}`)
		a.post("/v1/projections", definition).want(201)
		a.send("PUT", "/v1/aggregates/sum", object{"on": object{"Added": `{"n": event.data.n}`}}).want(200)
		a.post("/v1/snapshots/sum-1", nil).want(201)
		rebuilds = append(rebuilds, a.post("/v1/projections/sums/rebuilds", nil).want(202).text("id"))
		keys = append(keys, a.post("/v1/keys", object{"name": "same", "scopes": list{"events:read"}}).want(201).text("id"))
	}
	for i, a := range []*actor{left, right} {
		n, events := i+1, i+2 // of the tenant
		equal(t, "the log", len(a.get("/v1/streams/$all").want(200).at("events").(list)), events)
		equal(t, "the lines", len(a.get("/v1/streams/$all", "Accept", ndjson).want(200).lines()), events)
		equal(t, "the export", len(a.get("/v1/export").want(200).lines()), events)
		equal(t, "the category", len(a.get("/v1/categories/sum/events").want(200).at("events").(list)), events)
		equal(t, "the stream", a.get("/v1/streams/sum-1").want(200).number("events", 0, "data", "n"), n)
		equal(t, "the streams", a.get("/v1/streams").want(200).at("streams"), list{"sum-1", "sum-2"})
		equal(t, "the metadata", a.get("/v1/streams/sum-1/metadata").want(200).number("version"), n)
		equal(t, "the state", a.get("/v1/streams/sum-1/state").want(200).at("state"), object{"n": n})
		equal(t, "the snapshot", a.get("/v1/snapshots/sum-1/latest").want(200).number("version"), n)
		document := a.get("/v1/projections/sums/documents/sum-1?timeout=20&minPosition=2").want(200)
		equal(t, "the document", document.at("document"), object{"sum": n * n})
		equal(t, "the documents", len(a.get("/v1/projections/sums/documents").want(200).at("documents").(list)), 2)
		equal(t, "the head", a.get("/v1/projections/sums/state").want(200).number("head"), events)
		equal(t, "the projections", len(a.get("/v1/projections").want(200).at("projections").(list)), 1)
		equal(t, "the rebuilds", len(a.get("/v1/projections/sums/rebuilds").want(200).at("rebuilds").(list)), 1)
		a.get("/v1/projections/sums/rebuilds/"+rebuilds[1-i]).wantProblem(404, domain.CodeNotFound, "")
		a.send("DELETE", "/v1/keys/"+keys[1-i], nil).wantProblem(404, domain.CodeNotFound, "")
	}
	left.send("DELETE", "/v1/aggregates/sum", nil).want(204)
	right.get("/v1/aggregates/sum").want(200)
	left.send("DELETE", "/v1/projections/sums", nil).want(204)
	right.get("/v1/projections/sums").want(200)
}

func TestScopes(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	all := w.tenant("acme")
	all.append("order-1", 1)
	all.post("/v1/projections", object{"name": "p", "on": object{"*": "doc"}}).want(201)
	calls := map[auth.Scope][2]string{
		auth.ScopeEventsAppend:     {"POST", "/v1/streams/order-2/events"},
		auth.ScopeEventsRead:       {"GET", "/v1/streams/order-1"},
		auth.ScopeDocumentsRead:    {"GET", "/v1/projections/p/documents"},
		auth.ScopeProjectionsWrite: {"POST", "/v1/projections/p/reset"},
		auth.ScopeTenantAdmin:      {"GET", "/v1/keys"},
	}
	for has := range calls {
		a := &actor{w, w.key(all.tenantID, has), all.tenantID}
		for needs, call := range calls {
			var body any
			if needs == auth.ScopeEventsAppend {
				body = `[{"type":"T","data":1}]`
			}
			got := a.send(call[0], call[1], body)
			if needs == has {
				got.want(200, 201)
			} else if problem := got.wantProblem(403, domain.CodeForbidden, "Authorization"); !strings.Contains(problem["detail"].(string), string(needs)) {
				t.Errorf("the refusal does not name %s: %v", needs, problem)
			}
		}
	}
}

func TestTenantsAndKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	operator := w.operator()
	a := w.tenant("acme")
	w.tenant("other")
	page := operator.get("/v1/tenants?pageSize=1").want(200)
	rest := operator.get(page.next()).want(200)
	equal(t, "the tenants", []string{page.text("tenants", 0, "name"), rest.text("tenants", 0, "name")}, []string{"acme", "other"})
	equal(t, "the last page's link", rest.next(), "")

	a.append("order-1", 1)
	second := a.post("/v1/keys", object{"name": "second", "scopes": list{"events:read"}}).want(201)
	reader := &actor{w, second.text("key"), a.tenantID}
	reader.get("/v1/streams/order-1").want(200)
	if keys := string(a.get("/v1/keys").want(200).body); strings.Contains(keys, second.text("key")) {
		t.Errorf("the list of keys shows a secret: %s", keys)
	}
	a.send("DELETE", "/v1/keys/"+second.text("id"), nil).want(204)
	reader.get("/v1/streams/order-1").wantProblem(401, domain.CodeUnauthenticated, "")

	operator.send("PATCH", "/v1/tenants/"+a.tenantID, object{"state": "suspended"}).want(200)
	a.get("/v1/streams/order-1").wantProblem(403, domain.CodeTenantSuspended, "")
	operator.send("PATCH", "/v1/tenants/"+a.tenantID, object{"state": "active"}).want(200)
	a.get("/v1/streams/order-1").want(200)
	equal(t, "the state", operator.send("DELETE", "/v1/tenants/"+a.tenantID+"?confirm=acme", nil).want(202).text("state"), "deleting")
	a.get("/v1/streams/order-1").want(403, 401)
	operator.send("DELETE", "/v1/tenants/"+a.tenantID+"?confirm=acme", nil).want(202)
	operator.send("PATCH", "/v1/tenants/"+a.tenantID, object{"state": "active"}).wantProblem(409, domain.CodeConflict, "")
	operator.post("/v1/tenants/"+a.tenantID+"/keys", object{"name": "late", "scopes": list{"events:read"}}).wantProblem(409, domain.CodeConflict, "")
}

// The operator's projections are shared: each tenant sees its own documents in them, and none may change them.
func TestSharedProjections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	operator, a, b := w.operator(), w.tenant("a"), w.tenant("b")
	definition := object{"name": "counts", "key": "'all events/100%'", "on": object{"*": `{"n": doc.?n.orValue(0) + 1}`}}
	operator.send("PUT", "/v1/projections/counts", definition).want(201)
	operator.send("PUT", "/v1/projections/counts", definition).want(200)
	a.append("x-1", 3)
	b.append("x-1", 5)
	for actor, n := range map[*actor]int{a: 3, b: 5} {
		got := actor.get("/v1/projections/counts/documents/all%20events%2F100%25?timeout=20&minPosition=" + string(rune('0'+n))).want(200)
		equal(t, "the document", list{got.text("id"), got.number("document", "n"), got.header.Get("ETag")}, list{"all events/100%", n, `"` + string(rune('0'+n)) + `"`})
		equal(t, "shared", actor.get("/v1/projections/counts").want(200).at("shared"), true)
		actor.send("DELETE", "/v1/projections/counts", nil).wantProblem(403, domain.CodeForbidden, "")
		actor.post("/v1/projections/counts/rebuilds", nil).wantProblem(403, domain.CodeForbidden, "")
		actor.post("/v1/projections/counts/reset", nil).wantProblem(403, domain.CodeForbidden, "")
		actor.send("PUT", "/v1/projections/counts", definition).wantProblem(409, domain.CodeAlreadyExists, "")
	}
	operator.get("/v1/projections/counts/documents").wantProblem(403, domain.CodeForbidden, "")
	a.get("/v1/projections/counts/documents/x?minPosition=99&timeout=0").wantProblem(503, domain.CodeNotCaughtUp, "")
	a.get("/v1/projections/counts/documents?pageToken=abc").wantProblem(400, domain.CodeInvalidRequest, "pageToken")

	definition["on"] = object{"*": `{"n": doc.?n.orValue(0) + 2}`}
	rebuild := operator.send("PUT", "/v1/projections/counts", definition).want(202)
	location := rebuild.header.Get("Location")
	for deadline := time.Now().Add(patience); ; {
		got := operator.get(location).want(200)
		if got.text("state") == "swapped" {
			break
		}
		if time.Now().After(deadline) || got.text("state") == "failed" {
			t.Fatalf("the rebuild does not come to its end: %s", got.body)
		}
	}
	equal(t, "the document by the new definition", a.get("/v1/projections/counts/documents/all%20events%2F100%25").want(200).number("document", "n"), 6)
	operator.send("DELETE", "/v1/projections/counts", nil).want(204)
	a.get("/v1/projections/counts").wantProblem(404, domain.CodeNotFound, "")
}

// Every list has the same two parameters, and an error about a misspelt one names both.
func TestPageParameters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.post("/v1/projections", object{"name": "p", "on": object{"*": "doc"}}).want(201)
	for path, by := range map[string]*actor{"/v1/streams": a, "/v1/projections/p/documents": a, "/v1/tenants": w.operator()} {
		for _, query := range []string{"page=abc", "limit=5", "pagesize=5"} {
			name, _, _ := strings.Cut(query, "=")
			problem := by.get(path+"?"+query).wantProblem(400, domain.CodeInvalidRequest, "query "+name)
			if detail := problem["detail"].(string); !strings.Contains(detail, "pageSize, pageToken") {
				t.Errorf("%s?%s: %s", path, query, detail)
			}
		}
		by.get(path+"?pageSize=0").wantProblem(400, domain.CodeInvalidRequest, "query pageSize")
		by.get(path+"?pageSize=1001").wantProblem(400, domain.CodeInvalidRequest, "query pageSize")
		by.get(path+"?pageToken=abc").wantProblem(400, domain.CodeInvalidRequest, "pageToken")
		by.get(path + "?pageSize=1").want(200)
	}
}

func TestDocumentPages(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	for _, stream := range []string{"x-3", "x-1", "x-2"} {
		a.append(stream, 1)
	}
	a.post("/v1/projections", object{"name": "p", "on": object{"*": "doc"}}).want(201)
	a.get("/v1/projections/p/documents?minPosition=3&timeout=20").want(200)
	var ids []string
	path := "/v1/projections/p/documents?pageSize=2"
	token := ""
	for path != "" {
		page := a.get(path).want(200)
		for i := range page.at("documents").(list) {
			ids = append(ids, page.text("documents", i, "id"))
		}
		if path = page.next(); path != "" {
			token = path
		}
	}
	equal(t, "the documents", ids, []string{"x-1", "x-2", "x-3"})
	a.post("/v1/projections/p/reset", nil).want(200)
	a.get(token).wantProblem(410, domain.CodeGone, "")
	a.post("/v1/streams/x-1/events", list{object{"type": "Broken", "data": 1}}).want(201)
	a.post("/v1/projections", object{"name": "q", "on": object{"Broken": "doc.nothing"}}).want(201)
	for deadline := time.Now().Add(patience); ; {
		state := a.get("/v1/projections/q/state").want(200)
		if state.text("state") == "faulted" {
			equal(t, "the fault's position", state.number("fault", "position"), 4)
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the projection meets no fault: %s", state.body)
		}
	}
	a.get("/v1/projections/q/documents?minPosition=4").wantProblem(409, domain.CodeFaulted, "")
}

// The generated client works with the service.
func TestClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	c, err := client.NewClientWithResponses(w.url, client.WithKey(a.key), client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}))
	must(t, err)
	expected := client.ExpectedVersion("none")
	appended, err := c.AppendToStreamWithResponse(t.Context(), "order-1", &client.AppendToStreamParams{ExpectedVersion: &expected}, client.NewEvents{{Type: "OrderPlaced", Data: []byte(`{"n":1}`)}})
	must(t, err)
	if appended.JSON201 == nil || appended.JSON201.Version != 1 {
		t.Fatalf("the append is answered %s", appended.Body)
	}
	page, err := c.ReadAllWithResponse(t.Context(), nil)
	must(t, err)
	if page.JSON200 == nil || len(page.JSON200.Events) != 1 || string(page.JSON200.Events[0].Data) != `{"n": 1}` && string(page.JSON200.Events[0].Data) != `{"n":1}` {
		t.Fatalf("the read is answered %s", page.Body)
	}
	again, err := c.AppendToStreamWithResponse(t.Context(), "order-1", &client.AppendToStreamParams{ExpectedVersion: &expected}, client.NewEvents{{Type: "OrderPlaced", Data: []byte(`1`)}})
	must(t, err)
	if problem := again.ApplicationproblemJSON409; problem == nil || problem.Code != "version-conflict" || *problem.CurrentVersion != 1 {
		t.Fatalf("the conflict is answered %s", again.Body)
	}
}

// If the path names a projection, the body does not have to.
func TestProjectionNamedByThePath(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	put := func(expression string) *answer {
		return a.send("PUT", "/v1/projections/counts", object{"on": object{"*": expression}})
	}
	created := put(`{"n": 1}`).want(201)
	equal(t, "the names", list{created.text("name"), created.text("definition", "name")}, list{"counts", "counts"})
	put(`{"n": 1}`).want(200)
	definition := object{"on": object{"*": `{"n": 2}`}}
	started := a.post("/v1/projections/counts/rebuilds", object{"definition": definition}).want(202)
	equal(t, "the rebuild's projection", started.text("projection"), "counts")
	definition["name"] = "other"
	a.post("/v1/projections/counts/rebuilds", object{"definition": definition}).wantProblem(400, domain.CodeInvalidRequest, "definition.name")
	// People read it, so the name comes first instead of alphabetical order.
	if body := string(created.body); !strings.HasPrefix(body, `{"name":"counts","shared":false,"definition":{"name":"counts","database":"default",`) {
		t.Errorf("the answer is %s", body)
	}
}

// HEAD answers as GET does, without the body.
func TestHead(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	a.append("order-1", 3)
	for _, path := range []string{
		"/v1/streams", "/v1/streams/order-1", "/v1/streams/order-1?count=2", "/v1/streams/$all", "/v1/streams/order-1/metadata", "/v1/export",
		"/v1/streams/order-2", "/v1/streams?cuont=1", "/", "/docs", "/docs/errors", "/docs/style.css", "/openapi.yaml", "/livez", "/readyz",
	} {
		for _, accept := range []string{"*/*", ndjson} {
			get, head := a.get(path, "Accept", accept), a.send("HEAD", path, nil, "Accept", accept)
			if head.status != get.status || len(head.body) != 0 {
				t.Errorf("%s: HEAD gives %d and %d bytes, GET %d", path, head.status, len(head.body), get.status)
			}
			for _, name := range []string{"Content-Type", "Content-Encoding", "ETag", "Link", "Cache-Control"} {
				if head.header.Get(name) != get.header.Get(name) {
					t.Errorf("%s: HEAD gives %s %q, GET %q", path, name, head.header.Get(name), get.header.Get(name))
				}
			}
		}
	}
	(&actor{a.world, "wrong", ""}).send("HEAD", "/v1/streams", nil).want(401)
}

// Every time in an answer has six fractional digits, so that sorting the texts sorts the times.
func TestTimesSort(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.post("/v1/projections", object{"name": "times", "on": object{"T": `{"at": event.occurredAt}`}}).want(201)
	a.post("/v1/streams/order-1/events", `[{"type":"T","data":1,"occurredAt":"2026-03-01T09:30:00Z"},{"type":"T","data":1,"occurredAt":"2026-03-01T09:30:00.5Z"}]`).want(201)
	full := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`)
	short := regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`)
	for _, path := range []string{"/v1/streams/order-1", "/v1/streams/order-1/metadata", "/v1/projections/times", "/v1/keys", "/v1/export", "/v1/projections/times/documents?minPosition=2&timeout=10"} {
		answer := a.get(path).want(200)
		times := short.FindAllString(string(answer.body), -1)
		if len(times) == 0 {
			t.Errorf("%s has no times: %s", path, answer.body)
		}
		for _, text := range times {
			if !full.MatchString(strings.Trim(text, `"`)) {
				t.Errorf("%s has the time %s", path, text)
			}
		}
	}
}
