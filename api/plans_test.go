package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	operator, a := w.operator(), w.tenant("acme")
	starter := object{"limits": object{"requests": object{"perSecond": 100_000}}, "quotas": object{"groups": 1, "webhooks": 0}}
	operator.send("PUT", "/v1/plans/starter", starter).want(201)
	operator.send("PUT", "/v1/plans/starter", starter).want(200)
	equal(t, "the default of burst", operator.get("/v1/plans/starter").at("limits", "requests", "burst"), 100_000.0)
	equal(t, "the list", operator.get("/v1/plans").at("plans", 0, "name"), "starter")
	for where, body := range map[string]any{
		"limits.requests.burst":     object{"limits": object{"requests": object{"perSecond": 10, "burst": 9}}},
		"limits.events.burst":       object{"limits": object{"events": object{"perSecond": 10, "burst": 36_001}}},
		"limits.bytes.burst":        object{"limits": object{"bytes": object{"perSecond": 1_000_000_000_000, "burst": 1_000_000_000_000_000}}},
		"limits.requests.perSecond": object{"limits": object{"requests": object{"perSecond": 0}}},
		"quotas.groups":             object{"quotas": object{"groups": -1}},
		"quotas":                    object{"quotas": object{"shoes": 1}},
	} {
		operator.send("PUT", "/v1/plans/wrong", body).wantProblem(400, domain.CodeInvalidRequest, where)
	}
	path := "/v1/tenants/" + a.tenantID + "/limits"
	operator.send("PUT", path, object{"plan": "starters"}).wantProblem(404, domain.CodeNotFound, "plan")
	assigned := operator.send("PUT", path, object{"plan": "starter", "quotas": object{"webhooks": 1}}).want(200)
	equal(t, "the assigned quotas", assigned.at("assigned", "quotas"), object{"webhooks": 1.0})
	operator.send("DELETE", "/v1/plans/starter", nil).wantProblem(409, domain.CodeConflict, "path plan")
	current := a.get("/v1/limits").want(200)
	equal(t, "the tenant's plan", current.at("plan"), "starter")
	equal(t, "its groups", current.at("quotas", 3), object{"quota": "groups", "used": 0.0, "limit": 1.0})

	a.send("PUT", "/v1/subscriptions/one", object{}).want(201)
	problem := a.send("PUT", "/v1/subscriptions/two", object{}).wantProblem(403, domain.CodeQuotaExceeded, "")
	equal(t, "the problem's quota", problem["quota"], object{"quota": "groups", "used": 1.0, "limit": 1.0})
	a.send("PUT", "/v1/subscriptions/one", object{"maxAttempts": 7}).want(200)
}

func TestRefusalsAboveALimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	made := a.post("/v1/keys", object{"name": "slow", "scopes": list{"tenant:admin"}, "limits": object{"requests": object{"perSecond": 1, "burst": 3}}}).want(201)
	equal(t, "the key's limits in the list", a.get("/v1/keys").at("keys", 1, "limits", "requests", "burst"), 3.0)
	slow := &actor{w, made.text("key"), a.tenantID}
	refused := 0
	for range 10 {
		got := slow.get("/v1/limits")
		if policy := got.header.Get("RateLimit-Policy"); policy != `"key-requests";q=3;w=3` {
			t.Fatalf("the policy is %q", policy)
		}
		if got.status == 200 {
			continue
		}
		refused++
		got.wantProblem(429, domain.CodeTooManyRequests, "")
		if after, current := got.header.Get("Retry-After"), got.header.Get("RateLimit"); after != "1" || !strings.HasPrefix(current, `"key-requests";r=0;t=`) {
			t.Errorf("Retry-After is %q, and RateLimit %q", after, current)
		}
	}
	if refused == 0 {
		t.Error("nothing is refused")
	}
	path := "/v1/keys/" + made.text("id") + "/limits"
	a.send("PUT", path, object{"requests": object{"perSecond": 10, "burst": 9}}).wantProblem(400, domain.CodeInvalidRequest, "requests.burst")
	a.send("PUT", "/v1/keys/"+domain.NewUUID().String()+"/limits", object{}).wantProblem(404, domain.CodeNotFound, "")
	wide := a.send("PUT", path, object{"requests": object{"perSecond": 1000}, "connections": 5}).want(200)
	equal(t, "the key's new limits", wide.at("limits", "connections"), 5.0)
	if policy := slow.get("/v1/limits").header.Get("RateLimit-Policy"); policy != `"key-requests";q=1000;w=1` {
		t.Errorf("the policy of the new limits is %q", policy)
	}
	if got := a.get("/v1/limits"); got.status != 200 || got.header.Get("RateLimit") != "" {
		t.Errorf("another key is answered %d, with RateLimit %q", got.status, got.header.Get("RateLimit"))
	}
	rotated := w.operator().post("/v1/tenants/"+a.tenantID+"/keys/"+made.text("id")+"/rotate", object{}).want(201)
	replacement := &actor{w, rotated.text("key"), a.tenantID}
	if replacement.get("/v1/limits").header.Get("RateLimit-Policy") == "" {
		t.Error("the key that replaces it has no limits")
	}
	free := w.operator().send("PUT", "/v1/tenants/"+a.tenantID+"/keys/"+rotated.text("id")+"/limits", object{}).want(200)
	if strings.Contains(string(free.body), "limits") || replacement.get("/v1/limits").header.Get("RateLimit-Policy") != "" {
		t.Error("the key still has limits")
	}
}

// The limits that a key gets or loses hold for connections that it has opened before.
func TestKeyLimitsOfOpenConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Recheck = 20 * time.Millisecond })
	a := w.tenant("acme")
	made := a.post("/v1/keys", object{"name": "open", "scopes": list{"events:read", "events:append"}}).want(201)
	b := &actor{w, made.text("key"), a.tenantID}
	gateways := []*gatewayClient{b.gateway(), (&actor{world: w}).gateway()}
	gateways[1].ask("AUTH", object{"key": b.key})
	b.follow(t, "sse", "/v1/subscribe/$all")
	path := "/v1/keys/" + made.text("id") + "/limits"
	beat := object{"message": object{"topic": "heartbeat", "payload": 1}}
	until := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !holds(); {
			if time.Now().After(deadline) {
				t.Fatalf("not in time: %s", what)
			}
		}
	}
	a.send("PUT", path, object{"requests": object{"perSecond": 1, "burst": 2}, "connections": 3}).want(200)
	for _, g := range gateways {
		until("a message is refused", func() bool { return g.answer(g.send("PUBLISH", beat))["code"] == string(domain.CodeTooManyRequests) })
	}
	a.send("PUT", path, object{"connections": 3}).want(200)
	for _, g := range gateways {
		until("messages pass", func() bool { return g.answer(g.send("PUBLISH", beat))["op"] == "OK" })
	}
	until("another connection is refused", func() bool {
		response := b.open("GET", "/v1/subscribe/$all", nil, "Accept", "text/event-stream")
		response.Body.Close()
		return response.StatusCode == 429
	})
	a.send("PUT", path, object{}).want(200)
	b.follow(t, "sse", "/v1/subscribe/$all")
}
