package api_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
)

// Every kind of connection ends when its key expires, even if it was opened with a ticket.
func TestConnectionsEndWhenTheirKeyExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Recheck = 20 * time.Millisecond })
	a := w.tenant("acme")
	a.append("order-1", 1)
	c := a.consumer("mail", object{"source": object{"categories": list{"mail"}}})
	made := a.post("/v1/keys", object{"name": "short", "scopes": list{"events:read", "events:consume", "events:append"}}).want(201)
	b, nobody := &actor{w, made.text("key"), a.tenantID}, &actor{world: w}
	ticket := b.post("/v1/tickets", nil).want(201).text("ticket")
	followers := map[*follower]string{}
	for _, transport := range transports {
		followers[b.follow(t, transport, "/v1/subscribe/$all")] = transport
		followers[nobody.follow(t, transport, "/v1/subscribe/$all?ticket="+ticket)] = transport
	}
	for f := range followers {
		f.want(1)
	}
	gateway := nobody.gateway()
	gateway.ask("AUTH", object{"key": b.key})
	received := make(chan *answer, 1)
	go func() { received <- b.post(c.path("/receive"), object{"wait": 30}) }()
	b.post(c.path("/receive"), nil).want(200) // a moment for the other request to start
	body, lines := io.Pipe()
	defer lines.Close()
	go func() {
		for {
			if _, err := io.WriteString(lines, `{"stream":"a-1","type":"T","data":1}`+"\n"); err != nil {
				return
			}
		}
	}()
	imported := make(chan string, 1)
	go func() {
		response := b.open("POST", "/v1/import?name=a", body, "Content-Type", ndjson)
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		imported <- string(text)
	}()

	a.post("/v1/keys/"+made.text("id")+"/rotate", object{"overlap": 1}).want(201)
	for f, transport := range followers {
		err := f.end()
		var closed websocket.CloseError
		switch {
		case transport != "websocket" && errors.Is(err, io.EOF):
			t.Errorf("%s ends with %v, as if it were whole", transport, err)
		case transport == "websocket" && (!errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation || !strings.Contains(closed.Reason, "expired")):
			t.Errorf("the socket ends with %v", err)
		}
	}
	gateway.ended(websocket.StatusPolicyViolation)
	gateway.wantERR(gateway.backlog[len(gateway.backlog)-1], domain.CodeUnauthenticated, "Authorization")
	a.append("mail-1", 1)
	(<-received).wantProblem(401, domain.CodeUnauthenticated, "Authorization")
	if text := <-imported; !strings.Contains(text, "expired") {
		t.Errorf("the import ends with %s", text)
	}
	if problem := b.get("/v1/streams/$all").wantProblem(401, domain.CodeUnauthenticated, "Authorization"); !strings.Contains(problem["detail"].(string), "expired") {
		t.Errorf("an expired key: %v", problem)
	}
	nobody.get("/v1/subscribe/$all?ticket="+ticket).wantProblem(401, domain.CodeUnauthenticated, "")
	again := nobody.gateway()
	if refused := again.refused("AUTH", object{"key": b.key}, domain.CodeUnauthenticated, "key"); !strings.Contains(fmt.Sprint(refused), "expired") {
		t.Errorf("AUTH with an expired key: %v", refused)
	}
}

// A rotated key and the new one work side by side. Lists show how they are connected.
func TestKeysAreRotated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	given := object{"name": "web", "scopes": list{"events:read"}, "expiresAt": time.Now().Add(30 * 24 * time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z")}
	made := a.post("/v1/keys", given).want(201)
	equal(t, "the expiry", made.at("expiresAt"), given["expiresAt"])
	old := &actor{w, made.text("key"), a.tenantID}
	equal(t, "what it knows of itself", old.get("/v1/whoami").want(200).at("key"), object{"id": made.text("id"), "name": "web", "expiresAt": given["expiresAt"]})
	path := "/v1/keys/" + made.text("id") + "/rotate"
	rotated := a.post(path, nil).want(201)
	equal(t, "the new key", list{rotated.at("name"), rotated.at("scopes")}, list{"web", list{"events:read"}})
	if problem := a.post(path, nil).wantProblem(409, domain.CodeConflict, "path keyId"); !strings.Contains(problem["detail"].(string), rotated.text("id")) {
		t.Errorf("a repetition: %v", problem)
	}
	replacement := &actor{w, rotated.text("key"), a.tenantID}
	for _, key := range []*actor{old, replacement} {
		key.get("/v1/streams/$all").want(200)
	}
	keys := a.get("/v1/keys").want(200)
	equal(t, "the keys", []any{keys.at("keys", 1, "rotatedTo"), keys.at("keys", 2, "id"), keys.at("keys", 2, "expiresAt")},
		[]any{rotated.at("id"), rotated.at("id"), rotated.at("expiresAt")})
	if at, err := time.Parse(time.RFC3339, keys.text("keys", 1, "expiresAt")); err != nil || time.Until(at) > 24*time.Hour || time.Until(at) < 23*time.Hour {
		t.Errorf("the old key expires at %s, %v", at, err)
	}

	last := w.operator().post("/v1/tenants/"+a.tenantID+"/keys/"+rotated.text("id")+"/rotate", object{"overlap": 0}).want(201)
	replacement.get("/v1/streams/$all").wantProblem(401, domain.CodeUnauthenticated, "Authorization")
	(&actor{w, last.text("key"), a.tenantID}).get("/v1/streams/$all").want(200)

	for _, overlap := range []any{-1, 7_776_001, 1.5, "1h"} {
		a.post("/v1/keys/"+last.text("id")+"/rotate", object{"overlap": overlap}).wantProblem(400, domain.CodeInvalidRequest, "overlap")
	}
	w.tenant("umbrella").post("/v1/keys/"+last.text("id")+"/rotate", nil).wantProblem(404, domain.CodeNotFound, "")
}

func TestNewKeysAreChecked(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	with := func(name string, value any) object {
		return object{"name": "k", "scopes": list{"events:read"}, name: value}
	}
	for _, at := range []any{"2020-01-01T00:00:00Z", "9999-01-01T00:00:00Z", "tomorrow", 5} {
		a.post("/v1/keys", with("expiresAt", at)).wantProblem(400, domain.CodeInvalidRequest, "expiresAt")
	}
	for _, networks := range []any{list{"203.0.113.7"}, list{"203.0.113.7/24"}, list{"everywhere"}, list{"10.0.0.0/8", "10.0.0.0/8"}, make(list, 51), "10.0.0.0/8"} {
		a.post("/v1/keys", with("networks", networks)).wantProblem(400, domain.CodeInvalidRequest, "networks")
	}
	// The address of a client is unknown here, so the key is refused.
	made := a.post("/v1/keys", with("networks", list{"0.0.0.0/0", "::/0"})).want(201)
	equal(t, "its networks", a.get("/v1/keys").want(200).at("keys", 1, "networks"), list{"0.0.0.0/0", "::/0"})
	(&actor{w, made.text("key"), a.tenantID}).get("/v1/streams/$all").wantProblem(403, domain.CodeForbidden, "Authorization")
}
