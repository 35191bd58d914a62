package api_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// A client can read a service group and handle its dead letters. All other operations belong to the group's owner, such
// as a webhook.
func TestServiceGroupsAreTheServices(t *testing.T) {
	t.Parallel()
	var groups *group.Groups
	w := newWorld(t, func(c *api.Config) { groups = c.Groups })
	a := w.tenant("acme")
	a.append("order-1", 2)
	const name, path = "egress.orders", "/v1/subscriptions/egress.orders"
	tenant, err := domain.ParseTenantID(a.tenantID)
	must(t, err)
	if _, _, err := groups.Put(t.Context(), tenant, name, domain.GroupDefinition{}); err != nil {
		t.Fatal(err)
	}
	equal(t, "its name", a.get(path).want(200).at("name"), name)
	if listed := a.get("/v1/subscriptions").want(200); !strings.Contains(string(listed.body), name) {
		t.Errorf("it is not listed: %s", listed.body)
	}
	if lag := a.get("/v1/lag").want(200); !strings.Contains(string(lag.body), name) {
		t.Errorf("how far it has come is not told: %s", lag.body)
	}
	a.get(path + "/dead-letters").want(200)
	a.post(path+"/dead-letters/replay", nil).want(202)

	id := domain.NewEventID().String()
	ids := object{"ids": list{object{"id": id, "attempt": 1}}}
	for _, call := range []struct {
		method, path string
		body         any
	}{
		{"PUT", "", object{}},
		{"DELETE", "", nil},
		{"POST", "/pause", nil},
		{"POST", "/resume", nil},
		{"POST", "/seek", object{"position": 1}},
		{"POST", "/receive", nil},
		{"POST", "/ack", ids},
		{"POST", "/ack/" + id + "?attempt=1", nil},
		{"POST", "/nack", ids},
		{"POST", "/extend", ids},
		{"POST", "/members", nil},
	} {
		got := a.send(call.method, path+call.path, call.body).want(409)
		if got.at("code") != string(domain.CodeConflict) || !strings.Contains(got.at("detail").(string), "the egress orders, which the operator has configured") {
			t.Errorf("%s %s: %s", call.method, call.path, got.body)
		}
	}
	// The refusal names the owner and its path, whether or not the owner exists.
	for group, want := range map[string]string{
		"webhook.mail": "/v1/webhooks/mail", "replay.mail": "/v1/webhooks/mail/replay", "reactor.pager": "the reactor pager",
		"changes.process.state": "/v1/projections/process.state",
	} {
		if got := a.send("PUT", "/v1/subscriptions/"+group, object{}).want(409); !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %s", group, got.body)
		}
	}
	a.send("PUT", "/v1/subscriptions/a.b", object{}).want(400)
	a.get("/v1/subscriptions/webhook.mail").want(404)

	g := a.gateway()
	if got := g.answer(g.send("SUBSCRIBE", object{"subscription": "s", "group": name})); got["op"] != "ERR" || got["code"] != string(domain.CodeConflict) {
		t.Errorf("over the gateway: %v", got)
	}
}
