package api_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/auth/oidc/oidctest"
	"github.com/manifold-es/manifold/domain"
)

// categoryCall is a request about one category, {c}.
type categoryCall struct {
	method, path, body string
	headers            []string
	// filtered is a text that an answer of 200 contains only if the category is allowed: lists leave out other
	// categories instead of refusing the request.
	filtered string
	endless  bool // the answer is an endless stream: only its status counts
	hidden   bool // the path does not reveal the category, so a caller without access gets "not found"
}

const (
	idOfNothing     = "0190d3a4-5b6c-7def-8123-456789abcde0"
	attemptsAtIt    = `{"ids":[{"id":"` + idOfNothing + `","attempt":1}]}`
	memberOfNothing = "0190d3a4-5b6c-7def-8123-456789abcde1"
)

// categoryCalls has a request for each operation with x-categories in the contract.
var categoryCalls = map[string]categoryCall{
	"appendToStream":    {method: "POST", path: "/v1/streams/{c}-2/events", body: `[{"type":"T","data":1}]`},
	"append":            {method: "POST", path: "/v1/append", body: `{"streams":[{"stream":"order-3","events":[{"type":"T","data":1}]},{"stream":"{c}-4","events":[{"type":"T","data":1}]}]}`},
	"importEvents":      {method: "POST", path: "/v1/import?name=a", body: `{"stream":"{c}-5","type":"T","data":1}`, headers: []string{"Content-Type", ndjson}, filtered: `"appended":1`},
	"publish":           {method: "POST", path: "/v1/publish", body: `[{"topic":"order","payload":1},{"topic":"{c}","payload":1}]`},
	"readLatest":        {method: "GET", path: "/v1/categories/{c}/latest?keys=1"},
	"readEvent":         {method: "GET", path: "/v1/events/{event}", hidden: true},
	"listStreams":       {method: "GET", path: "/v1/streams?category={c}"},
	"readStream":        {method: "GET", path: "/v1/streams/{c}-1"},
	"readAll":           {method: "GET", path: "/v1/streams/$all?categories=order,{c}"},
	"readCategory":      {method: "GET", path: "/v1/categories/{c}/events"},
	"exportEvents":      {method: "GET", path: "/v1/export?categories={c}"},
	"getStreamMetadata": {method: "GET", path: "/v1/streams/{c}-1/metadata"},
	"getState":          {method: "GET", path: "/v1/streams/{c}-1/state"},
	"listAggregates":    {method: "GET", path: "/v1/aggregates", filtered: `"category":"{c}"`},
	"getAggregate":      {method: "GET", path: "/v1/aggregates/{c}"},
	"sendCommand":       {method: "POST", path: "/v1/aggregates/{c}/1/commands/Touch?dryRun=true", body: `{"data":{}}`},
	"sendCommands":      {method: "POST", path: "/v1/commands", body: `{"commands":[{"stream":"{c}-1","command":"Touch","data":{}}]}`, filtered: `"outcome":"accepted"`},
	"takeSnapshot":      {method: "POST", path: "/v1/snapshots/{c}-1"},
	"listSnapshots":     {method: "GET", path: "/v1/snapshots/{c}-1"},
	"getLatestSnapshot": {method: "GET", path: "/v1/snapshots/{c}-1/latest"},

	"followStream":   {method: "GET", path: "/v1/subscribe/streams/{c}-1", endless: true},
	"followCategory": {method: "GET", path: "/v1/subscribe/categories/{c}", endless: true},
	// A ticket grants what its key grants, for a short time.
	"createTicket": {method: "POST", path: "/v1/tickets", filtered: "mft_"},

	"listSubscriptions":       {method: "GET", path: "/v1/subscriptions", filtered: `"name":"{c}"`},
	"putSubscription":         {method: "PUT", path: "/v1/subscriptions/another", body: `{"source":{"categories":["{c}"]}}`},
	"getSubscription":         {method: "GET", path: "/v1/subscriptions/{c}"},
	"deleteSubscription":      {method: "DELETE", path: "/v1/subscriptions/{c}-gone"},
	"receive":                 {method: "POST", path: "/v1/subscriptions/{c}/receive", body: `{}`},
	"peekSubscription":        {method: "GET", path: "/v1/subscriptions/{c}/peek"},
	"ackEvents":               {method: "POST", path: "/v1/subscriptions/{c}/ack", body: attemptsAtIt},
	"ackEvent":                {method: "POST", path: "/v1/subscriptions/{c}/ack/" + idOfNothing + "?attempt=1"},
	"nackEvents":              {method: "POST", path: "/v1/subscriptions/{c}/nack", body: attemptsAtIt},
	"extendEvents":            {method: "POST", path: "/v1/subscriptions/{c}/extend", body: attemptsAtIt},
	"seekSubscription":        {method: "POST", path: "/v1/subscriptions/{c}/seek", body: `{"position":1}`},
	"pauseSubscription":       {method: "POST", path: "/v1/subscriptions/{c}/pause"},
	"resumeSubscription":      {method: "POST", path: "/v1/subscriptions/{c}/resume"},
	"listDeadLetters":         {method: "GET", path: "/v1/subscriptions/{c}/dead-letters"},
	"discardDeadLetters":      {method: "DELETE", path: "/v1/subscriptions/{c}/dead-letters"},
	"replayDeadLetters":       {method: "POST", path: "/v1/subscriptions/{c}/dead-letters/replay"},
	"replayDeadLetter":        {method: "POST", path: "/v1/subscriptions/{c}/dead-letters/" + idOfNothing + "/replay"},
	"discardDeadLetter":       {method: "DELETE", path: "/v1/subscriptions/{c}/dead-letters/" + idOfNothing},
	"listSubscriptionMembers": {method: "GET", path: "/v1/subscriptions/{c}/members"},
	"joinSubscription":        {method: "POST", path: "/v1/subscriptions/{c}/members", body: `{}`},
	"heartbeatSubscription":   {method: "PUT", path: "/v1/subscriptions/{c}/members/" + memberOfNothing},
	"leaveSubscription":       {method: "DELETE", path: "/v1/subscriptions/{c}/members/" + memberOfNothing},
	"listWebhooks":            {method: "GET", path: "/v1/webhooks", filtered: `"name":"{c}"`},
	"putWebhook":              {method: "PUT", path: "/v1/webhooks/another", body: `{"source":{"categories":["{c}"]},"url":"https://127.0.0.1:1024/"}`},
	"getWebhook":              {method: "GET", path: "/v1/webhooks/{c}"},
	"deleteWebhook":           {method: "DELETE", path: "/v1/webhooks/{c}-gone"},
	"pauseWebhook":            {method: "POST", path: "/v1/webhooks/{c}/pause"},
	"resumeWebhook":           {method: "POST", path: "/v1/webhooks/{c}/resume"},
	"addWebhookSecret":        {method: "POST", path: "/v1/webhooks/{c}/secrets", body: `{}`},
	"removeWebhookSecret":     {method: "DELETE", path: "/v1/webhooks/{c}/secrets/" + idOfNothing},
	"listWebhookAttempts":     {method: "GET", path: "/v1/webhooks/{c}/attempts"},
	"startWebhookReplay":      {method: "POST", path: "/v1/webhooks/{c}/replay", body: `{"from":1}`},
	"getWebhookReplay":        {method: "GET", path: "/v1/webhooks/{c}/replay"},
	"cancelWebhookReplay":     {method: "DELETE", path: "/v1/webhooks/{c}/replay"},
	"testWebhook":             {method: "POST", path: "/v1/webhooks/{c}/test"},
	"listCursors":             {method: "GET", path: "/v1/cursors", filtered: `"name":"{c}"`},
	"getLag":                  {method: "GET", path: "/v1/lag", filtered: `"name":"{c}"`},
	"whoami":                  {method: "GET", path: "/v1/whoami", filtered: `"events:append:{c}"`},
}

// eventOf returns the id of an event of the category.
func eventOf(category string) string { return domain.DeriveEventID("scopes", category).String() }

// forCategory sends the request for a category, and returns the status and body of its answer.
func (call categoryCall) forCategory(a *actor, category string) (status int, body string) {
	a.t.Helper()
	in := strings.NewReplacer("{c}", category, "{event}", eventOf(category))
	var sent any
	if call.body != "" {
		sent = in.Replace(call.body)
	}
	if !call.endless {
		got := a.send(call.method, in.Replace(call.path), sent, call.headers...)
		return got.status, string(got.body)
	}
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	response, err := web.Do(a.request(call.method, in.Replace(call.path), sent, call.headers...).WithContext(ctx))
	must(a.t, err)
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return response.StatusCode, ""
	}
	text, err := io.ReadAll(response.Body)
	must(a.t, err)
	return response.StatusCode, string(text)
}

// limited returns a world with events, aggregates and groups of two categories, and two actors: one that may do
// everything, and one that has every scope that can be limited to categories, for order only.
func limited(t *testing.T) (all, some *actor) {
	w := setup{tokens: oidctest.Start(t)}.start(t)
	all = w.tenant("acme")
	for _, category := range []string{"order", "billing"} {
		all.append(category+"-1", 1)
		all.post("/v1/publish", object{"topic": category, "key": "1", "id": eventOf(category), "payload": object{"n": 1}}).want(201)
		all.send("PUT", "/v1/aggregates/"+category, object{"on": object{"*": "{\"n\": event.data.n}"},
			"commands": object{"Touch": object{"emit": list{object{"Touched": "{'n': 1}"}}}}}).want(200)
		all.post("/v1/snapshots/"+category+"-1", nil).want(201)
		all.send("PUT", "/v1/subscriptions/"+category, object{"source": object{"categories": list{category}}}).want(201)
		all.send("PUT", "/v1/subscriptions/"+category+"-gone", object{"source": object{"categories": list{category}}}).want(201)
		for _, name := range []string{category, category + "-gone"} {
			all.send("PUT", "/v1/webhooks/"+name, object{"source": object{"categories": list{category}}, "url": "https://127.0.0.1:1024/"}).want(201)
		}
	}
	some = &actor{w, w.keyOf(all.tenantID, "events:append:order", "events:read:order.**", "events:consume:order", "commands:send:order", "subscriptions:write:order"), all.tenantID}
	return all, some
}

// keyOf is key with grants.
func (w *world) keyOf(tenant string, grants ...string) string {
	w.t.Helper()
	return w.operator().post("/v1/tenants/"+tenant+"/keys", object{"name": "limited", "scopes": grants}).want(201).text("key")
}

// Every operation that is open to keys for some categories checks the category: with a key for another category nothing
// is read or written. Every other operation is closed to such keys.
func TestScopesByCategory(t *testing.T) {
	t.Parallel()
	all, some := limited(t)
	nothing := &actor{some.world, some.token(all.tenantID, "ledger"), all.tenantID}
	head := all.get("/v1/streams/$all?direction=backward&count=1").at("events", 0, "position")
	for path, item := range loadContract(t).Paths.Map() {
		for method, op := range item.Operations() {
			scopes := fmt.Sprint(op.Extensions["x-scopes"])
			if op.Extensions["x-categories"] != true {
				if !strings.Contains(scopes, "events:") && !strings.Contains(scopes, "subscriptions:") {
					continue
				}
				// The request is refused before its content is checked.
				some.send(method, path, nil).wantProblem(403, domain.CodeForbidden, "Authorization")
				if _, there := categoryCalls[op.OperationID]; there {
					t.Errorf("%s has no x-categories", op.OperationID)
				}
				continue
			}
			call, ok := categoryCalls[op.OperationID]
			if !ok {
				t.Errorf("%s has x-categories, and is not tried here", op.OperationID)
				continue
			}
			for _, refused := range []*actor{some, nothing} {
				status, body := call.forCategory(refused, "billing")
				switch {
				case op.OperationID == "createTicket":
				case call.hidden:
					// The answer is the same as for something that does not exist, except for the parts repeated from
					// the request.
					other, nothing := call.forCategory(refused, "nowhere")
					general := func(body, category string) string {
						body, _, _ = strings.Cut(body, `,"requestId"`)
						return strings.ReplaceAll(body, eventOf(category), "ID")
					}
					if status != 404 || other != 404 || general(body, "billing") != general(nothing, "nowhere") {
						t.Errorf("%s about another category: %d %s, and about none: %d %s", op.OperationID, status, body, other, nothing)
					}
				case call.filtered != "":
					if status != 200 || strings.Contains(body, strings.ReplaceAll(call.filtered, "{c}", "billing")) {
						t.Errorf("%s about another category: %d %s", op.OperationID, status, body)
					}
				case status != 403 || !strings.Contains(body, `"forbidden"`) || !strings.Contains(body, "for the category ") || !strings.Contains(body, "events:") && !strings.Contains(body, "subscriptions:write for"):
					t.Errorf("%s about another category: %d %s", op.OperationID, status, body)
				}
			}
		}
	}
	equal(t, "the head, when everything was refused", all.get("/v1/streams/$all?direction=backward&count=1").at("events", 0, "position"), head)
	equal(t, "the webhooks, when everything was refused", len(all.get("/v1/webhooks").at("webhooks").(list)), 4)
	equal(t, "the groups, with those of the webhooks", len(all.get("/v1/subscriptions").at("subscriptions").(list)), 8)
	for _, id := range slices.Sorted(maps.Keys(categoryCalls)) {
		call := categoryCalls[id]
		status, body := call.forCategory(some, "order")
		if status == 401 || status == 403 || status >= 500 || strings.Contains(body, `"unsupported"`) || !strings.Contains(body, strings.ReplaceAll(call.filtered, "{c}", "order")) {
			t.Errorf("%s about its own category: %d %s", id, status, body)
		}
	}
}

// roleOf is the role that an operator needs for each operation that is open to operators.
var roleOf = map[string]auth.Role{
	"listProjections": auth.RoleRead, "getProjection": auth.RoleRead, "getProjectionState": auth.RoleRead, "listProjectionVersions": auth.RoleRead,
	"previewProjection": auth.RoleRead, "planProjections": auth.RoleRead, "listDocuments": auth.RoleRead,
	"listSkippedEvents": auth.RoleRead, "listParkedDocuments": auth.RoleRead,
	"listRebuilds": auth.RoleRead, "getRebuild": auth.RoleRead, "listRebuildTenants": auth.RoleRead, "watchRebuild": auth.RoleRead,
	"listUpcasters": auth.RoleRead, "getUpcaster": auth.RoleRead, "previewUpcaster": auth.RoleRead,
	"getTotals": auth.RoleRead, "listMembers": auth.RoleRead, "listEgresses": auth.RoleRead, "listCursors": auth.RoleRead, "getLag": auth.RoleRead, "getAllLag": auth.RoleRead,
	"listTenants": auth.RoleRead, "getTenant": auth.RoleRead, "listTenantKeys": auth.RoleRead, "whoami": auth.RoleRead,
	"listPlans": auth.RoleRead, "getPlan": auth.RoleRead, "getTenantLimits": auth.RoleRead, "exportUsage": auth.RoleRead, "listSigningKeys": auth.RoleRead,

	"createProjection": auth.RoleOperate, "putProjection": auth.RoleOperate, "resetProjection": auth.RoleOperate,
	"retryProjection": auth.RoleOperate, "skipEvent": auth.RoleOperate, "withdrawSkip": auth.RoleOperate,
	"replayParkedDocuments": auth.RoleOperate, "replayParkedDocument": auth.RoleOperate, "discardParkedDocument": auth.RoleOperate,
	"startRebuild": auth.RoleOperate, "cancelRebuild": auth.RoleOperate, "approveRebuild": auth.RoleOperate, "pauseRebuild": auth.RoleOperate,
	"resumeRebuild": auth.RoleOperate, "rollbackRebuild": auth.RoleOperate, "putUpcaster": auth.RoleOperate, "deleteUpcaster": auth.RoleOperate,
	"changeTenant": auth.RoleOperate, "putPlan": auth.RoleOperate, "deletePlan": auth.RoleOperate, "putTenantLimits": auth.RoleOperate, "limitTenantKey": auth.RoleOperate,

	"listAllDocuments": auth.RoleAdmin, "exportDifference": auth.RoleAdmin, "deleteProjection": auth.RoleAdmin, "createTenant": auth.RoleAdmin, "deleteTenant": auth.RoleAdmin, "redactEvent": auth.RoleAdmin,
	"createTenantKey": auth.RoleAdmin, "revokeTenantKey": auth.RoleAdmin, "rotateTenantKey": auth.RoleAdmin, "rotateSigningKeys": auth.RoleAdmin,
}

// refusal calls the handler itself, without a connection: there are a thousand requests.
func (a *actor) refusal(method, path string) *answer {
	a.t.Helper()
	recorder := httptest.NewRecorder()
	a.handler.ServeHTTP(recorder, a.request(method, path, nil))
	return &answer{t: a.t, what: method + " " + path, status: recorder.Code, header: recorder.Header(), body: recorder.Body.Bytes()}
}

// Each role of operators may use the operations of its own and of lower roles only. The operator's key is an
// administrator's. An operation that is new here needs a role.
func TestOperatorsMayWhatTheirRolesAllow(t *testing.T) {
	t.Parallel()
	w := setup{tokens: oidctest.Start(t)}.start(t)
	tenant := w.tenant("acme")
	order := []auth.Role{auth.RoleRead, auth.RoleOperate, auth.RoleAdmin}
	callers := map[*actor]auth.Role{w.operator(): auth.RoleAdmin}
	for _, role := range order {
		callers[&actor{w, w.tokens.Token(oidctest.Claims{"groups": list{string(role)}, "tenant": tenant.tenantID, "roles": list{"all"}}), ""}] = role
	}
	for path, item := range loadContract(t).Paths.Map() {
		for method, op := range item.Operations() {
			scopes := fmt.Sprint(op.Extensions["x-scopes"])
			needed, listed := roleOf[op.OperationID]
			if listed != strings.Contains(scopes, "operator") {
				t.Errorf("%s has the scopes %s; a role for it here: %t", op.OperationID, scopes, listed)
			}
			if scopes == "[]" {
				continue
			}
			for by, role := range callers {
				may := listed && slices.Index(order, role) >= slices.Index(order, needed)
				// The request is refused before its content is checked.
				got := by.refusal(method, path)
				if refused := got.status == 403 && !strings.Contains(string(got.body), "only given events"); got.status == 401 || may == refused {
					t.Errorf("%s by the role %s: %d %s", op.OperationID, role, got.status, got.body)
				}
				if !may && listed && !strings.Contains(string(got.body), "the role "+string(needed)) {
					t.Errorf("%s by the role %s: %s", op.OperationID, role, got.body)
				}
			}
		}
	}
}

// What loses documents for good, or shows values of documents to every role, needs an administrator.
func TestOperatorsWithoutTheHighestRoleLoseAndRevealNothing(t *testing.T) {
	t.Parallel()
	w := setup{tokens: oidctest.Start(t)}.start(t)
	operator := func(role string) *actor { return &actor{w, w.tokens.Token(oidctest.Claims{"groups": list{role}}), ""} }
	operate, admin := operator("operate"), operator("admin")
	plain := object{"name": "p", "on": object{"*": "doc"}}
	revealing := object{"name": "p", "on": object{"*": "doc"}, "totals": object{"by": "secret"}}
	counting := object{"name": "p", "on": object{"*": "doc"}, "totals": object{"sum": list{"amount"}}}
	operate.post("/v1/projections", revealing).wantProblem(403, domain.CodeForbidden, "totals.by")
	operate.post("/v1/projections", plain).want(201)
	operate.send("PUT", "/v1/projections/p", revealing).wantProblem(403, domain.CodeForbidden, "totals.by")
	operate.post("/v1/projections/p/rebuilds", object{"definition": revealing}).wantProblem(403, domain.CodeForbidden, "totals.by")
	operate.send("PUT", "/v1/projections/p", counting).want(200, 202)

	rebuild := "/v1/projections/p/rebuilds/" + domain.NewRebuildID().String() + "/rollback?acceptLoss=true"
	for _, call := range []struct {
		method, path string
		body         any
	}{
		{"PUT", "/v1/projections/p?acceptLoss=true", plain}, {"POST", "/v1/projections/p/reset?acceptLoss=true", nil},
		{"POST", "/v1/projections/p/rebuilds", object{"acceptLoss": true}}, {"POST", rebuild, nil},
	} {
		operate.send(call.method, call.path, call.body).wantProblem(403, domain.CodeForbidden, "acceptLoss")
		if got := admin.send(call.method, call.path, call.body); got.status == 403 {
			t.Errorf("%s %s by an administrator: %s", call.method, call.path, got.body)
		}
	}
	operate.send("DELETE", "/v1/projections/p", nil).wantProblem(403, domain.CodeForbidden, "Authorization")
	admin.send("DELETE", "/v1/projections/p", nil).want(204)
	tenant := w.tenant("acme")
	tenant.post("/v1/projections", plain).want(201)
	tenant.post("/v1/projections/p/reset?acceptLoss=true", nil).want(200)
}

// Every operation that needs a credential refuses those that do not work, before it looks at the request.
func TestOperationsNeedAValidCredential(t *testing.T) {
	t.Parallel()
	w := setup{tokens: oidctest.Start(t)}.start(t)
	stranger := oidctest.Start(t)
	a := w.tenant("acme")
	revoked := a.post("/v1/keys", object{"name": "k", "scopes": list{"events:read"}}).want(201)
	a.send("DELETE", "/v1/keys/"+revoked.text("id"), nil).want(204)
	claims := oidctest.Claims{"tenant": a.tenantID, "roles": list{"all"}}
	with := func(more oidctest.Claims) string {
		maps.Copy(more, claims)
		return w.tokens.Token(more)
	}
	now := time.Now().Unix()
	credentials := map[string]struct {
		token  string
		status int
	}{
		"no credential":            {"", 401},
		"a revoked key":            {revoked.text("key"), 401},
		"an expired token":         {with(oidctest.Claims{"exp": now - 60}), 401},
		"a token of the future":    {with(oidctest.Claims{"nbf": now + 3600}), 401},
		"another issuer's token":   {stranger.Token(claims), 401},
		"another service's token":  {with(oidctest.Claims{"aud": "other"}), 401},
		"a token with no role":     {w.tokens.Token(oidctest.Claims{"tenant": a.tenantID}), 403},
		"a token with no tenant":   {w.tokens.Token(oidctest.Claims{"roles": list{"all"}}), 403},
		"a token of nobody's data": {w.tokens.Token(oidctest.Claims{"roles": list{"all"}, "tenant": domain.NewTenantID().String()}), 403},
	}
	for path, item := range loadContract(t).Paths.Map() {
		for method, op := range item.Operations() {
			if fmt.Sprint(op.Extensions["x-scopes"]) == "[]" {
				continue
			}
			for what, c := range credentials {
				if got := (&actor{w, c.token, ""}).refusal(method, path); got.status != c.status || !strings.Contains(string(got.body), `"where":"Authorization"`) {
					t.Errorf("%s with %s: %d %s", op.OperationID, what, got.status, got.body)
				}
			}
		}
	}
}

// A request may concern several categories, all categories, or one that only its body names.
func TestScopesOfSeveralCategories(t *testing.T) {
	t.Parallel()
	_, some := limited(t)
	some.get("/v1/streams?prefix=order-").want(200)
	for _, path := range []string{
		"/v1/streams", "/v1/streams?prefix=order", "/v1/streams?prefix=billing-1", "/v1/streams?category=billing&prefix=order-",
		"/v1/streams/$all", "/v1/streams/$all?types=Happened", "/v1/subscribe/$all", "/v1/export",
	} {
		some.get(path).wantProblem(403, domain.CodeForbidden, "")
	}
	some.get("/v1/streams/$all?categories=billing,order").wantProblem(403, domain.CodeForbidden, "query categories")
	problem := some.post("/v1/append", `{"streams":[{"stream":"order-9","events":[{"type":"T","data":1}]},{"stream":"billing-9","events":[{"type":"T","data":1}]}]}`).
		wantProblem(403, domain.CodeForbidden, "streams[1].stream")
	if detail := problem["detail"].(string); !strings.Contains(detail, "events:append for the category billing") {
		t.Errorf("the refusal is %q", detail)
	}
	some.post("/v1/publish", `[{"topic":"order","key":"9","payload":1},{"topic":"billing","payload":1}]`).wantProblem(403, domain.CodeForbidden, "messages[1].topic")
	some.get("/v1/streams/order-9").want(404)
	some.post("/v1/streams/billing-1/events", `[{"type":"T","data":1}]`).wantProblem(403, domain.CodeForbidden, "path streamId")

	report := some.importLines("?name=a&strict=false", strings.Join([]string{
		`{"stream":"order-9","type":"T","data":1}`, `{"stream":"billing-9","type":"T","data":1}`, `{"stream":"order-9","type":"T","data":2}`,
	}, "\n"))
	equal(t, "the lines appended", report["appended"], 2)
	equal(t, "the bad lines", without(report["bad"].(list)[0].(object), "reason"), object{"line": 2})
	if reason := report["bad"].(list)[0].(object)["reason"].(string); !strings.HasPrefix(reason, "stream: ") || !strings.Contains(reason, "events:append for the category billing") {
		t.Errorf("the reason is %q", reason)
	}
	strict := some.importLines("?name=b", `{"stream":"billing-9","type":"T","data":1}`+"\n"+`{"stream":"order-10","type":"T","data":1}`)
	equal(t, "a strict import", list{strict["appended"], strict["badLines"], strict["done"]}, list{0, 1, true})
}

// Grants are tested in order, stored in order, and refused if they can have no effect.
func TestGrantsOfKeys(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	given := list{"events:append:order.test", "!events:append:order.**", "events:append:**", "documents:read"}
	made := a.post("/v1/keys", object{"name": "limited", "scopes": given}).want(201)
	equal(t, "the scopes of the new key", made.at("scopes"), given)
	equal(t, "the scopes in the list", a.get("/v1/keys").at("keys", 1, "scopes"), given)
	some := &actor{w, made.text("key"), a.tenantID}
	for category, status := range map[string]int{"order.test": 201, "order": 403, "order.eu": 403, "order.test.eu": 403, "orders": 201, "a.order": 201} {
		some.post("/v1/streams/"+category+"-1/events", `[{"type":"T","data":1}]`).want(status)
	}
	some.get("/v1/streams/orders-1").wantProblem(403, domain.CodeForbidden, "Authorization")

	equal(t, "a scope behind a denial", a.post("/v1/keys", object{"name": "k", "scopes": list{"!events:read:a", "events:read"}}).want(201).at("scopes"), list{"!events:read:a", "events:read:**"})
	for where, scopes := range map[string]list{
		"scopes":       {},
		"scopes[0]":    {"everything"},
		"scopes[0] ":   {"events:read:a*"},
		"scopes[0]  ":  {"documents:read:order"},
		"scopes[1]":    {"events:read", "!events:read:billing"},
		"scopes[0]   ": {"!events:read:billing"},
	} {
		a.post("/v1/keys", object{"name": "k", "scopes": scopes}).wantProblem(400, domain.CodeInvalidRequest, strings.TrimSpace(where))
	}
	a.post("/v1/keys", object{"name": "k", "scopes": list{"events:read", "events:read"}}).wantProblem(400, domain.CodeInvalidRequest, "scopes")
}

// Lists of keys have pages, for a tenant's administrator and for the operator.
func TestKeysArePaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	for _, name := range []string{"one", "two", "three"} {
		a.post("/v1/keys", object{"name": name, "scopes": list{"events:read"}}).want(201)
	}
	for path, by := range map[string]*actor{"/v1/keys": a, "/v1/tenants/" + a.tenantID + "/keys": w.operator()} {
		names := map[any]bool{}
		pages := 0
		for next := path + "?pageSize=2"; next != ""; pages++ {
			page := by.get(next).want(200)
			for _, key := range page.at("keys").([]any) {
				names[key.(map[string]any)["name"]] = true
			}
			next = page.next()
		}
		if pages != 2 || len(names) != 4 {
			t.Errorf("%s: %d pages with the keys %v", path, pages, names)
		}
		by.get(path+"?pageToken="+base64.RawURLEncoding.EncodeToString([]byte("nobody"))).wantProblem(400, domain.CodeInvalidRequest, "query pageToken")
	}
}

// A preview shows events of the log, whatever their category.
func TestPreviewsNeedEveryCategory(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.append("order-1", 1)
	preview := object{"definition": object{"name": "p", "on": object{"*": "doc"}}, "source": object{"stream": "order-1"}}
	for grant, status := range map[string]int{"events:read": 200, "events:read:**": 200, "events:read:order": 403} {
		some := &actor{w, w.keyOf(a.tenantID, grant, "projections:write"), a.tenantID}
		some.post("/v1/projections/preview", preview).want(status)
		some.post("/v1/upcasters/preview", object{"source": object{"stream": "order-1"}}).want(status)
	}
}

// A group keeps its dead letters when its selection changes. A key for the new events does not see them.
func TestDeadLettersOfOtherCategories(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.append("order-1", 1)
	a.append("bill-1", 2)
	a.append("order-1", 1)
	g := a.consumer("g", object{"source": object{"categories": list{"order", "bill"}}})
	g.answer("nack", object{"action": "park"}, g.receive(4)...)
	a.send("PUT", g.path(""), object{"source": object{"categories": list{"order"}}}).want(200)
	limited := &actor{w, w.keyOf(a.tenantID, "events:read:order"), a.tenantID}
	equal(t, "those of all", of(objects(a.get(g.path("/dead-letters")).want(200).at("deadLetters"))), []int{1, 2, 3, 4})
	equal(t, "those of orders", of(objects(limited.get(g.path("/dead-letters")).want(200).at("deadLetters"))), []int{1, 4})
	first := limited.get(g.path("/dead-letters?pageSize=1")).want(200)
	equal(t, "the first page", of(objects(first.at("deadLetters"))), []int{1})
	next := limited.get(first.next()).want(200)
	equal(t, "the second page", of(objects(next.at("deadLetters"))), []int{4})

	// Dead letters contain events' data, so permission to manage a group is not enough to read them.
	for scope, status := range map[string]int{"events:read": 200, "events:consume": 200, "events:read:order": 200, "subscriptions:write": 403, "subscriptions:write:order": 403, "events:read:bill": 403} {
		(&actor{a.world, a.keyOf(a.tenantID, scope), a.tenantID}).get(g.path("/dead-letters")).want(status)
	}
	equal(t, "a third one", next.next(), "")
}
