package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/audit"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// unaudited are the operations besides GET that are not administrative: they carry data, change nothing, or are the
// work of consumers.
var unaudited = strings.Fields(`appendToStream append publish importEvents sendCommand sendCommands takeSnapshot
	readByQuery previewAggregate previewProjection planProjections catchUpProjection checkSchema previewUpcaster
	createTicket receive ackEvents ackEvent nackEvents extendEvents joinSubscription heartbeatSubscription leaveSubscription`)

// Every operation of the contract that changes something is recorded in an audit log, unless it is listed above. What
// works on audit logs cannot append.
func TestEveryAdministrativeOperationIsAudited(t *testing.T) {
	t.Parallel()
	spec := loadContract(t)
	ids := map[string]bool{"": true}
	for _, item := range spec.Paths.Map() {
		for _, op := range item.Operations() {
			ids[op.OperationID] = true
		}
	}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			given, marked := op.Extensions["x-audit"].(map[string]any)
			if wanted := method != http.MethodGet && !slices.Contains(unaudited, op.OperationID); marked != wanted {
				t.Errorf("%s %s (%s): x-audit is %t, want %t", method, path, op.OperationID, marked, wanted)
			}
			state, _ := given["state"].(string)
			if marked && (domain.CheckCategory("", given["category"].(string)) != nil || !ids[state]) {
				t.Errorf("%s: invalid x-audit %v", op.OperationID, given)
			}
			scopes, _ := op.Extensions["x-scopes"].([]any)
			if op.Extensions["x-audit-log"] == true && (slices.Contains(scopes, any("events:append")) || slices.Contains(scopes, any("commands:send")) || op.OperationID == "createKey") {
				t.Errorf("%s must not work on audit logs", op.OperationID)
			}
		}
	}
}

// auditEvents returns the events of the actor's audit log.
func (a *actor) auditEvents() []object {
	a.t.Helper()
	a.audit.Flush(a.t.Context()) // outcomes that took longer than a second
	return a.get("/audit/v1/export", "Accept", ndjson).want(200).lines()
}

// jsonText returns a value as JSON.
func jsonText(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	must(t, err)
	return string(text)
}

// wantAudited fails unless each of the operations was recorded before and after in the actor's audit log, without
// secrets.
func wantAudited(t *testing.T, a *actor, done map[string]bool, owned func(scopes []any) bool) {
	t.Helper()
	started, ended := map[string]int{}, map[string]int{}
	for _, event := range a.auditEvents() {
		data := event["data"].(object)
		action, _ := data["action"].(string)
		switch event["type"] {
		case audit.TypeStarted:
			started[action]++
		case audit.TypeDone, audit.TypeRefused, audit.TypeUnknown:
			ended[action]++
		}
		for _, secret := range []string{"mfk_", "mft_", "whsec_", operatorKey} {
			if text := jsonText(t, event); strings.Contains(text, secret) {
				t.Errorf("an event of the audit log has a secret: %s", text)
			}
		}
	}
	for _, item := range loadContract(t).Paths.Map() {
		for _, op := range item.Operations() {
			if scopes, _ := op.Extensions["x-scopes"].([]any); op.Extensions["x-audit"] == nil || !done[op.OperationID] || !owned(scopes) {
				continue
			}
			if n := started[op.OperationID]; n == 0 || n != ended[op.OperationID] {
				t.Errorf("%s: %d attempts and %d outcomes are in the audit log", op.OperationID, n, ended[op.OperationID])
			}
		}
	}
}

func TestAuditLogOfATenant(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("audited")
	a.append("order-1", 1)
	created := a.post("/v1/keys", object{"name": "app", "scopes": list{"events:read", "events:append:order"}}, "User-Agent", "a test").want(201)
	a.send("PUT", "/v1/webhooks/mail", object{"url": "https://example.com/hook?token=hidden", "source": object{"categories": list{"order"}}}).want(201)
	a.send("PUT", "/v1/webhooks/mail", object{"url": "https://example.com/other", "source": object{"categories": list{"order"}}}).want(200)
	a.send("PUT", "/v1/webhooks/mail", object{"url": "https://10.0.0.1/x?y"}).want(400)
	events := a.auditEvents()
	var types []any
	for _, e := range events {
		types = append(types, object{e["stream"].(string): e["type"]})
	}
	equal(t, "the events", types, list{
		object{"key-" + a.tenantID: "ActionStarted"}, object{"key-" + a.tenantID: "ActionDone"}, // the operator's, of the key of a
		object{"key-new": "ActionStarted"}, object{"key-new": "ActionDone"},
		object{"webhook-mail": "ActionStarted"}, object{"webhook-mail": "ActionDone"},
		object{"webhook-mail": "ActionStarted"}, object{"webhook-mail": "ActionDone"},
		object{"webhook-mail": "ActionStarted"}, object{"webhook-mail": "ActionRefused"},
	})
	equal(t, "the operator", (&answer{t: t, body: []byte(jsonText(t, events[0]))}).at("data", "actor"), object{"kind": "operator", "name": "operator", "role": "admin"})
	made := (&answer{t: t, body: []byte(jsonText(t, events[3]))})
	equal(t, "the new key", list{made.at("data", "after", "id"), made.at("data", "after", "key"), made.at("data", "context", "userAgent")}, list{created.text("id"), "***", "a test"})
	before, after := (&answer{t: t, body: []byte(jsonText(t, events[6]))}), (&answer{t: t, body: []byte(jsonText(t, events[7]))})
	equal(t, "the change", list{before.at("data", "before", "url"), after.at("data", "after", "url"), after.at("data", "targets")},
		list{"https://example.com/***", "https://example.com/***", object{"name": "mail"}})

	// It is read, filtered, paged, and delivered as any log.
	found := a.post("/audit/v1/query", object{"query": object{"items": list{object{"tags": list{"action:createKey"}, "types": list{"ActionDone"}}}}}).want(200)
	equal(t, "the events of an action", len(found.at("events").(list)), 1)
	page := a.get("/audit/v1/streams/$all?count=1").want(200)
	if link := page.header.Get("Link"); !strings.HasPrefix(link, "</audit/v1/streams/$all?") {
		t.Errorf("the next page is at %s", link)
	}
	a.send("PUT", "/audit/v1/subscriptions/watch", object{"from": "start", "types": list{"ActionRefused"}}).want(201)
	got := a.post("/audit/v1/subscriptions/watch/receive", object{"wait": 30}).want(200)
	if len(got.at("deliveries").(list)) == 0 { // on a slow machine; no receive waits longer
		got = a.post("/audit/v1/subscriptions/watch/receive", object{"wait": 30}).want(200)
	}
	equal(t, "what a group gets", got.at("deliveries", 0, "event", "stream"), "webhook-mail")
	a.get("/v1/subscriptions/watch").want(404)
	for i := range 9 {
		a.send("PUT", "/audit/v1/subscriptions/more-"+strconv.Itoa(i), object{}).want(201)
	}
	a.send("PUT", "/audit/v1/subscriptions/one-more", object{}).wantProblem(403, domain.CodeQuotaExceeded, "")
	a.send("PUT", "/audit/v1/retention/webhook", object{"maxAge": 3600}).wantProblem(400, domain.CodeInvalidRequest, "maxAge")
	a.send("PUT", "/audit/v1/retention/webhook", object{"maxAge": 90 * 86400, "maxCount": 1}).wantProblem(400, domain.CodeInvalidRequest, "maxAge")
	a.send("PUT", "/audit/v1/retention/webhook", object{"maxAge": 90 * 86400}).want(201)
	equal(t, "the tenant's own log", len(a.get("/v1/export", "Accept", ndjson).want(200).lines()), 1)

	// No credential can write there, and reading needs the scope.
	for path, body := range map[string]any{
		"/audit/v1/streams/key-1/events": list{object{"type": "T", "data": 1}}, "/audit/v1/append": object{}, "/audit/v1/publish": list{},
		"/audit/v1/import?name=x": "", "/audit/v1/commands": object{}, "/audit/v1/aggregates/key/1/commands/X": object{}, "/audit/v1/keys": object{}, "/audit/v1/tickets": nil,
		"/audit/v1/snapshots/key-1": nil, "/audit/v1/projections": object{},
	} {
		a.post(path, body).wantProblem(404, domain.CodeNotFound, "")
	}
	for _, scope := range []string{"events:read", "events:read:order", "tenant:admin"} {
		key := a.post("/v1/keys", object{"name": "less", "scopes": list{scope}}).want(201).text("key")
		(&actor{w, key, a.tenantID}).get("/audit/v1/streams/$all").wantProblem(403, domain.CodeForbidden, "Authorization")
	}
	reader := &actor{w, a.post("/v1/keys", object{"name": "auditor", "scopes": list{"audit:read"}}).want(201).text("key"), a.tenantID}
	reader.get("/audit/v1/streams/$all").want(200)
	reader.get("/v1/streams/$all").want(403)
	reader.send("PUT", "/audit/v1/webhooks/x", object{"url": "https://example.com/"}).want(403)
	reader.send("DELETE", "/audit/v1/retention/webhook", nil).want(403)
	ticket := reader.post("/v1/tickets", nil).want(201).text("ticket")
	nobody := &actor{world: w}
	nobody.get("/v1/subscribe/$all?ticket=" + ticket).want(403)
}

// After a panic nobody knows whether the action took effect.
func TestAuditedPanic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Retention = nil })
	a := w.tenant("acme")
	a.post("/v1/retention/order/run", nil).wantProblem(500, "internal", "")
	events := a.auditEvents()
	last := &answer{t: t, body: []byte(jsonText(t, events[len(events)-1]))}
	equal(t, "the outcome", list{last.at("type"), last.at("data", "action")}, list{"ActionUnknown", "runRetention"})
}

// What an operator does to a tenant is in the logs of both, wherever the request names the tenant. A refused action
// shows what it has changed nevertheless.
func TestAuditLogsOfAnOperatorsActions(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("operated")
	w.operator().post("/v1/projections/none/retry?tenant="+a.tenantID, nil).want(404)
	events := a.auditEvents()
	last := &answer{t: t, body: []byte(jsonText(t, events[len(events)-1]))}
	equal(t, "the action in the tenant's log", list{last.at("stream"), last.at("type"), last.at("data", "action"), last.at("data", "query")},
		list{"projection-none", "ActionRefused", "retryProjection", object{"tenant": a.tenantID}})

	tenant := "/v1/tenants/" + a.tenantID
	name := w.operator().get(tenant).want(200).text("name")
	w.operator().send("DELETE", tenant+"?confirm="+url.QueryEscape(name), nil).want(202)
	w.operator().send("PATCH", tenant, object{"weight": 7, "state": "active"}).want(409)
	var refused *answer
	for _, e := range w.operator().auditEvents() {
		if e["stream"] == "tenant-"+a.tenantID && e["type"] == audit.TypeRefused {
			refused = &answer{t: t, body: []byte(jsonText(t, e))}
		}
	}
	if refused == nil {
		t.Fatal("the refused action is not in the operators' log")
	}
	equal(t, "what it changed", list{refused.at("data", "after", "weight"), refused.at("data", "code")}, list{7.0, "conflict"})
}

// A flood of denied requests is a few events, of the tenant only if the caller's key is certain.
func TestDeniedRequestsAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a, other := w.tenant("denied"), w.tenant("other")
	less := &actor{w, w.key(a.tenantID, auth.ScopeDocumentsRead), a.tenantID}
	revoked := a.post("/v1/keys", object{"name": "old", "scopes": list{"events:read"}}).want(201)
	a.send("DELETE", "/v1/keys/"+revoked.text("id"), nil).want(204)
	gone, forged := &actor{w, revoked.text("key"), ""}, &actor{w, other.key[:len(other.key)-8] + "AAAAAAAA", ""}
	for range 50 {
		less.get("/v1/streams/$all").want(403)
		gone.get("/v1/streams/$all").want(401)
		forged.get("/v1/streams/$all").want(401)
	}
	w.audit.Flush(t.Context())
	counts := func(of *actor) (counts object) {
		counts = object{}
		for _, e := range of.auditEvents() {
			if e["type"] == audit.TypeDenied {
				data := (&answer{t: t, body: []byte(jsonText(t, e["data"]))}).json()
				name := ""
				if by, known := data["actor"].(object); known {
					name = by["name"].(string)
				}
				counts[data["action"].(string)+" "+data["code"].(string)+" "+name] = data["count"]
			}
		}
		return counts
	}
	equal(t, "in the tenant's log", counts(a), object{"readAll forbidden test": 50.0, "readAll unauthenticated old": 50.0})
	equal(t, "in the other tenant's log", counts(other), object{})
	equal(t, "in the operators' log", counts(w.operator()), object{"readAll unauthenticated ": 50.0})
}

// An action whose attempt cannot be recorded does not take effect. If only its outcome cannot, that is recorded later.
func TestNoActionWithoutARecord(t *testing.T) {
	t.Parallel()
	var failing atomic.Int64 // appends still to succeed; below 0: all
	failing.Store(-1)
	var recorder *audit.Recorder
	w := newWorld(t, func(c *api.Config) {
		log := c.Log
		recorder = audit.New(audit.Config{Append: func(ctx context.Context, tenant domain.TenantID, events domain.Append) (domain.Appended, error) {
			if failing.Load() >= 0 && failing.Add(-1) < 0 {
				failing.Store(0)
				return domain.Appended{}, domain.Errorf(domain.CodeUnavailable, "", "there is no connection")
			}
			return log.Append(ctx, tenant, events)
		}})
		c.Audit = recorder
	})
	a := w.tenant("recorded")
	before := len(a.auditEvents())
	failing.Store(0)
	a.send("PUT", "/v1/subscriptions/one", object{}).wantProblem(503, domain.CodeUnavailable, "")
	a.get("/v1/subscriptions/one").want(404)
	failing.Store(1) // the attempt alone: as after the death of the process
	a.send("PUT", "/v1/subscriptions/two", object{}).want(201)
	events := a.auditEvents()[before:]
	equal(t, "the events", list{len(events), events[0]["type"]}, list{1, "ActionStarted"})
	failing.Store(-1)
	recorder.Flush(t.Context())
	equal(t, "the outcome", a.auditEvents()[before+1]["type"], "ActionDone")
}
