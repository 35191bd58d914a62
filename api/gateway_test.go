package api_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// A missing or superfluous field is reported with its place, and the connection continues.
func TestGatewayRefusesWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	g := a.gateway()
	for _, c := range []struct {
		text  string
		id    any
		code  domain.Code
		where string
	}{
		{"", nil, domain.CodeInvalidJSON, "message"},
		{"{", nil, domain.CodeInvalidJSON, "message"},
		{`{"op":"ACK","id":"1"} x`, nil, domain.CodeInvalidJSON, "message"},
		{"{\"op\":\"ACK\",\"id\":\"\xff\"}", nil, domain.CodeInvalidJSON, "message"},
		{"[]", nil, domain.CodeInvalidRequest, "message"},
		{"null", nil, domain.CodeInvalidRequest, "message"},
		{"{}", nil, domain.CodeInvalidRequest, "id"},
		{`{"op":"ACK"}`, nil, domain.CodeInvalidRequest, "id"},
		{`{"op":"ACK","id":7}`, nil, domain.CodeInvalidRequest, "id"},
		{`{"op":"ACK","id":""}`, nil, domain.CodeInvalidRequest, "id"},
		{`{"op":"ACK","id":"` + strings.Repeat("é", 101) + `"}`, nil, domain.CodeInvalidRequest, "id"},
		{`{"id":"a"}`, "a", domain.CodeInvalidRequest, "op"},
		{`{"id":"a","op":1}`, "a", domain.CodeInvalidRequest, "op"},
		{`{"id":"a","op":"PING"}`, "a", domain.CodeInvalidRequest, "op"},
		{`{"id":"a","op":"ACK","op":"NACK"}`, "a", domain.CodeInvalidRequest, "op"},
		{`{"id":"q\"\\\n","op":"PAUSE","subscription":"x","other":1}`, "q\"\\\n", domain.CodeInvalidRequest, "other"},
		{`{"id":"` + strings.Repeat("é", 100) + `","op":"PAUSE"}`, strings.Repeat("é", 100), domain.CodeInvalidRequest, "subscription"},
		{`{"id":"a","op":"PAUSE","subscription":"` + strings.Repeat("x", 101) + `"}`, "a", domain.CodeInvalidRequest, "subscription"},
		{`{"id":"a","op":"PAUSE","subscription":"x"}`, "a", domain.CodeNotFound, "subscription"},
		{`{"id":"a","op":"RESUME","subscription":"x"}`, "a", domain.CodeNotFound, "subscription"},
		{`{"id":"a","op":"UNSUBSCRIBE","subscription":"x"}`, "a", domain.CodeNotFound, "subscription"},
		{`{"id":"a","op":"AUTH","key":"` + a.key + `"}`, "a", domain.CodeInvalidRequest, "op"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x"}`, "a", domain.CodeInvalidRequest, "source"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{},"group":"g"}`, "a", domain.CodeInvalidRequest, "source"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":[]}`, "a", domain.CodeInvalidRequest, "source"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{"category":"order"}}`, "a", domain.CodeInvalidRequest, "source.category"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{"categories":[]}}`, "a", domain.CodeInvalidRequest, "source.categories"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{"categories":["a","b-c"]}}`, "a", domain.CodeInvalidRequest, "source.categories[1]"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{"categories":["a"],"stream":"a-1"}}`, "a", domain.CodeInvalidRequest, "source.categories"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{"stream":"order"}}`, "a", domain.CodeInvalidRequest, "source.stream"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{},"types":["a b"]}`, "a", domain.CodeInvalidRequest, "types[0]"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{},"query":[]}`, "a", domain.CodeInvalidRequest, "query"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{},"query":{"items":[{"tags":["a b"]}]}}`, "a", domain.CodeInvalidRequest, "query.items[0].tags[0]"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{},"from":"yesterday"}`, "a", domain.CodeInvalidRequest, "from"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{},"from":5}`, "a", domain.CodeInvalidRequest, "from"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{},"filter":"event.data.n >"}`, "a", domain.CodeInvalidDefinition, "filter"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{},"from":"0190d3a4-5b6c-7def-8123-456789abcde0"}`, "a", domain.CodeNotFound, "from"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","source":{},"maxInFlight":5}`, "a", domain.CodeInvalidRequest, "maxInFlight"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","group":"Mail"}`, "a", domain.CodeInvalidRequest, "group"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","group":"mail"}`, "a", domain.CodeNotFound, "group"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","group":"mail","maxInFlight":101}`, "a", domain.CodeInvalidRequest, "maxInFlight"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","group":"mail","maxInFlight":1.5}`, "a", domain.CodeInvalidRequest, "maxInFlight"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","group":"mail","memberId":"1"}`, "a", domain.CodeInvalidRequest, "memberId"},
		{`{"id":"a","op":"SUBSCRIBE","subscription":"x","group":"mail","from":"end"}`, "a", domain.CodeInvalidRequest, "from"},
		{`{"id":"a","op":"ACK","subscription":"x"}`, "a", domain.CodeInvalidRequest, "ids"},
		{`{"id":"a","op":"ACK","subscription":"x","ids":[]}`, "a", domain.CodeInvalidRequest, "ids"},
		{`{"id":"a","op":"ACK","subscription":"x","ids":[{"id":"x","attempt":1}]}`, "a", domain.CodeInvalidRequest, "ids[0].id"},
		{`{"id":"a","op":"ACK","subscription":"x","ids":["0190d3a4-5b6c-7def-8123-456789abcde0"]}`, "a", domain.CodeInvalidRequest, "ids[0]"},
		{`{"id":"a","op":"ACK","subscription":"x","ids":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0"}]}`, "a", domain.CodeInvalidRequest, "ids[0].attempt"},
		{`{"id":"a","op":"ACK","subscription":"x","ids":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","attempt":0}]}`, "a", domain.CodeInvalidRequest, "ids[0].attempt"},
		{`{"id":"a","op":"ACK","subscription":"x","ids":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","attempt":1,"x":1}]}`, "a", domain.CodeInvalidRequest, "ids[0].x"},
		{`{"id":"a","op":"ACK","subscription":"x","ids":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","attempt":1}]}`, "a", domain.CodeNotFound, "subscription"},
		{`{"id":"a","op":"NACK","subscription":"x","ids":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","attempt":1}],"action":"drop"}`, "a", domain.CodeInvalidRequest, "action"},
		{`{"id":"a","op":"NACK","subscription":"x","ids":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","attempt":1}],"action":"park","delay":1}`, "a", domain.CodeInvalidRequest, "delay"},
		{`{"id":"a","op":"NACK","subscription":"x","ids":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","attempt":1}],"delay":-1}`, "a", domain.CodeInvalidRequest, "delay"},
		{`{"id":"a","op":"NACK","subscription":"x","ids":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","attempt":1}],"reason":"` + strings.Repeat("é", 600) + `"}`, "a", domain.CodeInvalidRequest, "reason"},
		{`{"id":"a","op":"MODACK","subscription":"x","ids":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","attempt":1}],"by":0.5}`, "a", domain.CodeInvalidRequest, "by"},
		{`{"id":"a","op":"PUBLISH"}`, "a", domain.CodeInvalidRequest, "message"},
		{`{"id":"a","op":"PUBLISH","topic":"order","event":{"type":"A","data":1}}`, "a", domain.CodeInvalidRequest, "event"},
		{`{"id":"a","op":"PUBLISH","message":{"topic":"order"}}`, "a", domain.CodeInvalidRequest, "message.payload"},
		{`{"id":"a","op":"PUBLISH","message":{"topic":"order-1","payload":1}}`, "a", domain.CodeInvalidRequest, "message.topic"},
		{`{"id":"a","op":"PUBLISH","message":{"topic":"order","key":"","payload":1}}`, "a", domain.CodeInvalidRequest, "message.key"},
		{`{"id":"a","op":"PUBLISH","message":{"topic":"order","key":"a b","payload":1}}`, "a", domain.CodeInvalidRequest, "message.key"},
		{`{"id":"a","op":"PUBLISH","message":{"topic":"order","payload":1},"messages":[{"topic":"order","payload":1}]}`, "a", domain.CodeInvalidRequest, "messages"},
		{`{"id":"a","op":"PUBLISH","message":{"payload":1}}`, "a", domain.CodeInvalidRequest, "message.topic"},
		{`{"id":"a","op":"PUBLISH","message":{"topic":"order","payload":1,"id":"x"}}`, "a", domain.CodeInvalidRequest, "message.id"},
		{`{"id":"a","op":"PUBLISH","message":{"topic":"order","payload":1,"at":1}}`, "a", domain.CodeInvalidRequest, "message"},
		{`{"id":"a","op":"PUBLISH","message":[]}`, "a", domain.CodeInvalidRequest, "message"},
		{`{"id":"a","op":"PUBLISH","messages":{}}`, "a", domain.CodeInvalidRequest, "messages"},
		{`{"id":"a","op":"PUBLISH","messages":[]}`, "a", domain.CodeInvalidRequest, "messages"},
		{`{"id":"a","op":"PUBLISH","messages":[{"topic":"order","payload":1},{"topic":"order"}]}`, "a", domain.CodeInvalidRequest, "messages[1].payload"},
		{`{"id":"a","op":"PUBLISH","messages":[{"topic":"order","payload":1},{"topic":"or-der","payload":1}]}`, "a", domain.CodeInvalidRequest, "messages[1].topic"},
		{`{"id":"a","op":"PUBLISH","message":{"topic":"order","payload":"\u0000"}}`, nil, domain.CodeInvalidJSON, "message"},
	} {
		g.write(websocket.MessageText, []byte(c.text))
		got := g.find("ERR", func(m object) bool { return m["op"] == "ERR" })
		place, _ := got["where"].(string)
		if got["code"] != string(c.code) || place != c.where || got["id"] != c.id {
			t.Errorf("%s is answered %v, want %s at %q", c.text, got, c.code, c.where)
		}
	}
	g.ask("PUBLISH", object{"message": object{"topic": "order", "type": "Placed", "payload": 1}})
}

// A key arrives with the request, as a ticket, or in the first message.
func TestGatewayKnowsItsClient(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	nobody := &actor{world: a.world}
	beat := object{"message": object{"topic": "beat", "payload": 1}}

	a.gateway().ask("PUBLISH", beat)
	ticket := a.post("/v1/tickets", nil).want(201).text("ticket")
	a.dialGateway("/v1/ws?ticket="+ticket, nil).ask("PUBLISH", beat)

	g := nobody.gateway()
	g.refused("PUBLISH", beat, domain.CodeUnauthenticated, "op")
	g.refused("AUTH", object{}, domain.CodeInvalidRequest, "key")
	g.refused("AUTH", object{"key": "mfk_wrong"}, domain.CodeUnauthenticated, "key")
	g.refused("AUTH", object{"key": operatorKey}, domain.CodeForbidden, "key")
	equal(t, "the tenant", g.ask("AUTH", object{"key": a.key})["tenant"], a.tenantID)
	g.ask("PUBLISH", beat)
	g.refused("AUTH", object{"key": a.key}, domain.CodeInvalidRequest, "op")

	useless := &actor{a.world, a.world.key(a.tenantID, auth.ScopeDocumentsRead), a.tenantID}
	useless.get("/v1/ws", "Upgrade", "websocket", "Connection", "Upgrade").wantProblem(403, domain.CodeForbidden, "Authorization")
	nobody.get("/v1/ws?ticket=mft_wrong", "Upgrade", "websocket", "Connection", "Upgrade").wantProblem(401, domain.CodeUnauthenticated, "")
	nobody.get("/v1/ws", "Authorization", "Bearer wrong", "Upgrade", "websocket", "Connection", "Upgrade").wantProblem(401, domain.CodeUnauthenticated, "")
	nobody.get("/v1/ws", "Upgrade", "websocket", "Connection", "Upgrade").wantProblem(400, domain.CodeInvalidRequest, "Upgrade")
	nobody.get("/v1/ws").wantProblem(400, domain.CodeInvalidRequest, "Upgrade")
}

// A client that does not authenticate in time is disconnected. Long messages of unknown clients are refused.
func TestGatewayWaitsForAKeyShortly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.AuthTimeout = 100 * time.Millisecond })
	nobody := &actor{world: w}
	g := nobody.gateway()
	reason := g.ended(websocket.StatusPolicyViolation)
	g.wantERR(g.backlog[0], domain.CodeUnauthenticated, "")
	if !strings.Contains(reason, "no AUTH with a working key within 100ms") {
		t.Errorf("the reason is %q", reason)
	}

	patient := &actor{world: sharedWorld(t)}
	g = patient.gateway()
	g.send("AUTH", object{"key": strings.Repeat("k", 20<<10)})
	g.ended(websocket.StatusMessageTooBig)
}

// Messages of one connection are limited in number, size and kind.
func TestGatewayBoundsMessages(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	g := a.gateway()
	// At most 200 at once, and 200 a second.
	began := time.Now()
	var ids []string
	for range 400 {
		ids = append(ids, g.send("PAUSE", object{"subscription": "x"}))
	}
	refused := 0
	for _, id := range ids {
		got := g.answer(id)
		if got["code"] == string(domain.CodeTooManyRequests) {
			refused++
		}
	}
	most := 200 + int(200*time.Since(began).Seconds()) + 1
	if taken := 400 - refused; taken < 200 || taken > most {
		t.Errorf("%d messages of 400 were taken within %s", taken, time.Since(began))
	}

	g = a.gateway()
	g.write(websocket.MessageBinary, []byte(`{"op":"PAUSE","id":"1","subscription":"x"}`))
	g.ended(websocket.StatusUnsupportedData)

	g = a.gateway()
	large := g.ask("PUBLISH", object{"message": object{"topic": "order", "key": "1", "type": "Placed", "payload": strings.Repeat("x", domain.MaxEventBytes-100)}})
	equal(t, "the position", large["position"], 1)
	text := `{"op":"PAUSE","id":"1","subscription":"x"` + strings.Repeat(" ", domain.MaxRequestBytes) + `}`
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_ = g.ws.Write(ctx, websocket.MessageText, []byte(text)) // the service may close before everything is written
	g.ended(websocket.StatusMessageTooBig)
}

// A client that stays far above the rate is disconnected.
func TestGatewayEndsAFlood(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws := a.bareGateway(ctx)
	var flooding sync.WaitGroup
	defer flooding.Wait()
	defer ws.CloseNow()
	flooding.Go(func() {
		for ws.Write(ctx, websocket.MessageText, []byte(`{"op":"PAUSE","id":"1","subscription":"x"}`)) == nil {
		}
	})
	// The client reads all the time. If it had answers left to read, the service would not wait to say why it ends the
	// connection.
	for {
		_, answer, err := ws.Reader(ctx)
		if err == nil {
			_, err = io.Copy(io.Discard, answer)
		}
		if err != nil {
			equal(t, "the end", websocket.CloseStatus(err), websocket.StatusPolicyViolation)
			return
		}
	}
}

// A published event goes to the stream of its key, or without a key to a new stream. It is appended once, however often
// it is sent, and in the order of the messages.
func TestGatewayPublishes(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	g := a.gateway()
	var ids []string
	for i := range 50 {
		ids = append(ids, g.send("PUBLISH", object{"message": object{"topic": "order", "key": "1", "type": "Placed", "payload": i}}))
	}
	for i, id := range ids {
		got := g.answer(id)
		equal(t, "the answer", without(got, "events"), object{"op": "OK", "id": id, "position": i + 1, "duplicate": false})
		equal(t, "the event", without(objects(got["events"])[0], "id"), object{"stream": "order-1", "version": i + 1, "position": i + 1})
	}
	id := domain.NewEventID().String()
	message := object{"topic": "heartbeat.web", "id": id, "type": "Beat", "payload": object{"load": 1}, "headers": object{"host": "web"}, "ts": "2026-03-01T09:30:00Z"}
	other := object{"topic": "heartbeat", "payload": 2}
	got := g.ask("PUBLISH", object{"messages": list{message, other}})
	events := objects(got["events"])
	equal(t, "the first", events[0], object{"id": id, "stream": "heartbeat.web-" + id, "version": 1, "position": 51})
	equal(t, "the second's stream", events[1]["stream"], "heartbeat-"+events[1]["id"].(string))
	equal(t, "what was kept", without(objects(a.get("/v1/streams/heartbeat.web-" + id).want(200).at("events"))[0], "recordedAt", "stream", "version", "position"), object{
		"id": id, "type": "Beat", "data": object{"load": 1}, "metadata": object{"headers": object{"host": "web"}}, "occurredAt": "2026-03-01T09:30:00.000000Z",
	})
	again := g.ask("PUBLISH", object{"message": message})
	equal(t, "the answer to a repeat", without(again, "id"), object{"op": "OK", "position": 51, "duplicate": true, "events": list{events[0]}})
	message["payload"] = "other"
	conflict := g.refused("PUBLISH", object{"message": message}, domain.CodeEventIDConflict, "message.id")
	equal(t, "the stream meant", conflict["stream"], "heartbeat.web-"+id)
	g.refused("PUBLISH", object{"messages": list{other, message, message}}, domain.CodeDuplicateID, "messages[2].id")
}

// A subscription to a part of the log starts at the requested place, continues with new events, and pauses and ends on
// request.
func TestGatewayFollows(t *testing.T) {
	t.Parallel()
	a := newWorld(t, func(c *api.Config) { c.Heartbeat = 200 * time.Millisecond }).tenant("acme")
	a.append("order-1", 5)
	a.append("invoice-1", 3)
	g := a.gateway()
	equal(t, "the answer", without(g.ask("SUBSCRIBE", object{"subscription": "all", "source": object{}, "from": "3"}), "id"), object{"op": "OK", "subscription": "all", "position": 2})
	g.ask("SUBSCRIBE", object{"subscription": "orders", "source": object{"categories": list{"order", "other"}}, "types": list{"Happened"}, "filter": "event.data.n >= 3"})
	g.ask("SUBSCRIBE", object{"subscription": "one", "source": object{"stream": "invoice-1"}})
	g.ask("SUBSCRIBE", object{"subscription": "new", "source": object{"stream": "order-1"}, "from": "end"})
	g.refused("SUBSCRIBE", object{"subscription": "one", "source": object{}}, domain.CodeAlreadyExists, "subscription")
	want := func(subscription string, positions ...int) {
		t.Helper()
		for _, position := range positions {
			got := g.come("EVENT", subscription)
			equal(t, "the position of what "+subscription+" gets", got["event"].(object)["position"], position)
			if got["attempt"] != nil || got["ackDeadline"] != nil {
				t.Errorf("%v is no event of a group", got)
			}
		}
	}
	want("all", 3, 4, 5, 6, 7, 8)
	want("orders", 4, 5)
	want("one", 6, 7, 8)
	for _, name := range []string{"all", "orders", "one", "new"} {
		equal(t, "the place", g.come("CAUGHT_UP", name)["position"], 8)
	}
	a.append("order-1", 1)
	want("all", 9)
	want("new", 9)
	checkpoint := g.find("a checkpoint of orders behind what it passed over", func(m object) bool {
		return m["op"] == "CHECKPOINT" && m["subscription"] == "orders" && m["position"] == float64(9)
	})
	equal(t, "its fields", len(checkpoint), 3)

	g.ask("PAUSE", object{"subscription": "all"})
	g.ask("PAUSE", object{"subscription": "all"})
	a.append("invoice-1", 2)
	want("one", 10, 11)
	g.none("all")
	g.ask("RESUME", object{"subscription": "all"})
	want("all", 10, 11)
	g.ask("UNSUBSCRIBE", object{"subscription": "all"})
	a.append("invoice-1", 1)
	want("one", 12)
	g.none("all")
	g.refused("PAUSE", object{"subscription": "all"}, domain.CodeNotFound, "subscription")
	id := g.send("SUBSCRIBE", object{"subscription": "all", "source": object{}, "from": "12"})
	g.answer(g.send("UNSUBSCRIBE", object{"subscription": "all"}))
	equal(t, "the answer", g.answer(id)["op"], "OK")
	g.refused("ACK", object{"subscription": "one", "ids": list{object{"id": domain.NewEventID().String(), "attempt": 1}}}, domain.CodeInvalidRequest, "subscription")
}

// Events of a group arrive up to the in-flight limit, are answered over the connection, and are returned to the group
// when it ends.
func TestGatewayConsumes(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 10)
	c := a.consumer("mail", object{"source": object{"categories": list{"order"}}})
	g := a.gateway()
	equal(t, "the answer", without(g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail", "maxInFlight": 4}), "id"), object{"op": "OK", "subscription": "m"})
	first := g.events("m", 4)
	g.none("m")
	equal(t, "the attempt", first[0]["attempt"], 1)
	equal(t, "what became of it", outcomes(g.ask("ACK", object{"subscription": "m", "ids": attemptsOf(first[1], first[0])})), []string{"done", "done"})
	equal(t, "what became of it", outcomes(g.ask("ACK", object{"subscription": "m", "ids": attemptsOf(first[0])})), []string{"not-in-flight"})
	more := g.events("m", 2)
	g.none("m")
	equal(t, "what became of it", outcomes(g.ask("NACK", object{"subscription": "m", "ids": attemptsOf(first[2]), "delay": 0, "reason": "not now"})), []string{"done"})
	again := g.come("EVENT", "m")
	equal(t, "what came again", []any{again["event"].(object)["id"], again["attempt"]}, []any{first[2]["event"].(object)["id"], 2})
	equal(t, "what became of it", outcomes(g.ask("ACK", object{"subscription": "m", "ids": attemptsOf(first[2])})), []string{"stale"})
	equal(t, "what became of it", outcomes(g.ask("MODACK", object{"subscription": "m", "ids": attemptsOf(again), "by": 60})), []string{"done"})
	equal(t, "what became of it", outcomes(g.ask("NACK", object{"subscription": "m", "ids": attemptsOf(again), "action": "park", "reason": "never"})), []string{"done"})
	more = append(more, g.events("m", 1)...)
	g.ask("PAUSE", object{"subscription": "m"})
	equal(t, "what became of it", outcomes(g.ask("ACK", object{"subscription": "m", "ids": attemptsOf(more...)})), []string{"done", "done", "done"})
	g.none("m")
	g.ask("RESUME", object{"subscription": "m"})
	last := g.events("m", 3)
	dead := objects(a.get("/v1/subscriptions/mail/dead-letters").want(200).at("deadLetters"))
	equal(t, "the reason", dead[0]["reason"], "never")

	g.ask("UNSUBSCRIBE", object{"subscription": "m"})
	back := c.receive(100)
	equal(t, "what was returned", len(back), 4)
	for _, d := range back {
		equal(t, "its attempt", d["attempt"], 2)
	}
	_ = last
	c.answer("nack", object{"delay": 0}, back...)
	g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail"})
	g.events("m", 4)
	must(t, g.ws.Close(websocket.StatusNormalClosure, ""))
	equal(t, "what was returned", len(c.receive(100)), 4)
}

// A connection has at most 100 events in flight, however many groups it uses, and an idle group does not reduce what a
// busy one gets.
func TestGatewayBoundsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	g := a.gateway()
	a.consumer("idle", object{"source": object{"categories": list{"none"}}})
	a.consumer("busy", object{"source": object{"categories": list{"busy"}}})
	a.consumer("other", object{"source": object{"categories": list{"other"}}})
	a.append("busy-1", 150)
	a.append("other-1", 150)
	g.ask("SUBSCRIBE", object{"subscription": "idle", "group": "idle"})
	g.ask("SUBSCRIBE", object{"subscription": "busy", "group": "busy"})
	g.ask("SUBSCRIBE", object{"subscription": "other", "group": "other"})
	inFlight, got := map[string]list{}, 0
	take := func() {
		m := g.find("an event", func(m object) bool { return m["op"] == "EVENT" })
		name := m["subscription"].(string)
		inFlight[name] = append(inFlight[name], attemptsOf(m)...)
		got++
	}
	// The idle group waits for one event, once it has begun to; the others may have been faster.
	for range 99 {
		take()
	}
	if more := g.arrived(); more > 1 {
		t.Fatalf("%d are in flight", 99+more)
	}
	for got < 300 {
		for name, ids := range inFlight {
			delete(inFlight, name)
			g.ask("ACK", object{"subscription": name, "ids": ids})
		}
		take()
		if waiting := len(inFlight["busy"]) + len(inFlight["other"]); waiting > 100 {
			t.Fatalf("%d are in flight", waiting)
		}
	}
}

// Unanswered events make room for others when their lease expires, and are redelivered.
func TestGatewayForgetsWhatTimedOut(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 1)
	a.consumer("mail", object{"ackTimeout": 1})
	g := a.gateway()
	g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail", "maxInFlight": 1})
	first := g.come("EVENT", "m")
	again := g.come("EVENT", "m")
	equal(t, "what came again", []any{again["event"].(object)["position"], again["attempt"]}, []any{1, 2})
	equal(t, "what became of it", outcomes(g.ask("ACK", object{"subscription": "m", "ids": attemptsOf(first)})), []string{"stale"})
	equal(t, "what became of it", outcomes(g.ask("ACK", object{"subscription": "m", "ids": attemptsOf(again)})), []string{"done"})
	a.append("order-1", 1)
	equal(t, "the next", g.come("EVENT", "m")["event"].(object)["position"], 2)
}

// A subscription ends when its group is removed, and the connection continues.
func TestGatewayEndsASubscription(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.consumer("mail", object{})
	g := a.gateway()
	g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail"})
	a.send("DELETE", "/v1/subscriptions/mail", nil).want(204)
	equal(t, "why", g.come("ENDED", "m")["code"], domain.CodeNotFound)
	g.refused("PAUSE", object{"subscription": "m"}, domain.CodeNotFound, "subscription")
	a.consumer("mail", object{})
	g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail"})
}

// A connection receives from a group with partitions as a member: its own, or one that the client names.
func TestGatewayJoins(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	for i := range 8 {
		a.append(fmt.Sprintf("order-%d", i), 1)
	}
	c := a.consumer("mail", object{"partitions": 4})
	a.consumer("plain", object{})
	g := a.gateway()
	joined := g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail"})
	members := objects(a.get(c.path("/members")).want(200).at("members"))
	equal(t, "the members", len(members), 1)
	equal(t, "the member", members[0]["memberId"], joined["memberId"])
	for _, e := range g.events("m", 8) {
		if e["partition"] == nil {
			t.Errorf("%v has no partition", e)
		}
		equal(t, "what became of it", outcomes(g.ask("ACK", object{"subscription": "m", "ids": attemptsOf(e)})), []string{"done"})
	}
	g.ask("UNSUBSCRIBE", object{"subscription": "m"})
	equal(t, "the members", a.get(c.path("/members")).want(200).at("members"), list{})

	own := a.post(c.path("/members"), object{"label": "mine"}).want(201).text("memberId")
	equal(t, "the member", g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail", "memberId": own})["memberId"], own)
	a.append("order-9", 1)
	g.events("m", 1)
	g.ask("UNSUBSCRIBE", object{"subscription": "m"})
	equal(t, "the members", len(objects(a.get(c.path("/members")).want(200).at("members"))), 1)
	g.refused("SUBSCRIBE", object{"subscription": "m", "group": "plain", "memberId": own}, domain.CodeInvalidRequest, "memberId")
	g.refused("SUBSCRIBE", object{"subscription": "m", "group": "mail", "memberId": domain.NewGroupMemberID().String()}, domain.CodeNotFound, "memberId")
}

// The key's grants are checked for each category.
func TestGatewayAsksForScopes(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	all := w.tenant("acme")
	some := &actor{w, w.key(all.tenantID, "events:append:heartbeat.*", "events:read:order.**", "events:consume:order"), all.tenantID}
	all.consumer("orders", object{"source": object{"categories": list{"order"}}})
	all.consumer("everything", object{})
	g := some.gateway()
	beat := func(topic string) object { return object{"message": object{"topic": topic, "payload": 1}} }
	g.ask("PUBLISH", beat("heartbeat.web"))
	g.refused("PUBLISH", beat("order"), domain.CodeForbidden, "message.topic")
	g.refused("PUBLISH", beat("heartbeat"), domain.CodeForbidden, "message.topic")
	all.send("PUT", "/v1/aggregates/order", orderCommands).want(200)
	g.refused("COMMAND", object{"stream": "order-7", "command": "Place", "data": object{}}, domain.CodeForbidden, "stream")
	g.ask("SUBSCRIBE", object{"subscription": "1", "source": object{"categories": list{"order", "order.eu"}}})
	g.ask("SUBSCRIBE", object{"subscription": "2", "source": object{"stream": "order.eu.west-1"}})
	g.refused("SUBSCRIBE", object{"subscription": "3", "source": object{}}, domain.CodeForbidden, "source")
	g.refused("SUBSCRIBE", object{"subscription": "3", "source": object{"categories": list{"order", "invoice"}}}, domain.CodeForbidden, "source")
	g.refused("SUBSCRIBE", object{"subscription": "3", "source": object{"stream": "invoice-1"}}, domain.CodeForbidden, "source")
	g.ask("SUBSCRIBE", object{"subscription": "4", "group": "orders"})
	g.refused("SUBSCRIBE", object{"subscription": "5", "group": "everything"}, domain.CodeForbidden, "group")

	// The group's selection changes to other events.
	all.send("PUT", "/v1/subscriptions/orders", object{"source": object{"categories": list{"order", "invoice"}}}).want(200)
	all.append("invoice-1", 1)
	equal(t, "why", g.come("ENDED", "4")["code"], domain.CodeForbidden)
	reader := &actor{w, w.key(all.tenantID, auth.ScopeEventsRead), all.tenantID}
	g = reader.gateway()
	g.refused("PUBLISH", beat("order"), domain.CodeForbidden, "message.topic")
	g.refused("SUBSCRIBE", object{"subscription": "1", "group": "orders"}, domain.CodeForbidden, "group")
	g.ask("SUBSCRIBE", object{"subscription": "1", "source": object{}})
}

func TestGatewayCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.send("PUT", "/v1/aggregates/order", orderCommands).want(200)
	g := a.gateway()
	place := object{"stream": "order-7", "command": "Place", "data": object{}, "idempotencyKey": "k", "expectedVersion": "none"}
	first, again := g.ask("COMMAND", place), g.ask("COMMAND", place)
	equal(t, "the outcome of a repetition", list{again["version"], again["duplicate"], again["events"]}, list{first["version"], true, first["events"]})
	add := object{"stream": "order-7", "command": "AddItem", "data": object{"price": 5}, "expectedVersion": 2}
	conflict := g.refused("COMMAND", add, domain.CodeVersionConflict, "expectedVersion")
	equal(t, "the version", conflict["currentVersion"], 1)
	delete(add, "expectedVersion")
	add["dryRun"] = true
	equal(t, "the event of a dry run", g.ask("COMMAND", add)["events"], list{object{"stream": "order-7", "type": "ItemAdded", "data": object{"price": 5}}})
	equal(t, "how many events there are", len(a.get("/v1/streams/order-7").want(200).at("events").(list)), 1)
	add["stream"] = "order-8"
	delete(add, "dryRun")
	equal(t, "the rule", g.refused("COMMAND", add, domain.CodeRejected, "")["reason"], "not-open")
	add["minPosition"] = 1
	g.refused("COMMAND", add, domain.CodeRejected, "")
	add["minPosition"] = 900
	g.refused("COMMAND", add, domain.CodeNotCaughtUp, "minPosition")
	add["minPosition"] = 0
	g.refused("COMMAND", add, domain.CodeInvalidRequest, "minPosition")
}

// Connections end when their key is revoked or the process stops, and return their events in flight.
func TestGatewayEndsWithItsKeyAndProcess(t *testing.T) {
	t.Parallel()
	var groups *group.Groups
	w := newWorld(t, func(c *api.Config) { c.Recheck, groups = 50*time.Millisecond, c.Groups })
	a := w.tenant("acme")
	a.append("order-1", 3)
	c := a.consumer("mail", object{"source": object{"categories": list{"order"}}})
	made := a.post("/v1/keys", object{"name": "short", "scopes": list{"events:consume"}}).want(201)
	g := (&actor{world: w}).gateway()
	g.ask("AUTH", object{"key": made.text("key")})
	g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail"})
	g.events("m", 3)
	a.send("DELETE", "/v1/keys/"+made.text("id"), nil).want(204)
	g.ended(websocket.StatusPolicyViolation)
	g.wantERR(g.backlog[len(g.backlog)-1], domain.CodeUnauthenticated, "Authorization")
	equal(t, "what was returned", len(c.receive(100)), 3)

	g = a.gateway()
	a.append("order-1", 2)
	g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail"})
	g.events("m", 2)
	id := g.send("PUBLISH", object{"message": object{"topic": "late", "type": "Beat", "payload": 1}})
	g.answer(id)
	w.server.Stop()
	g.ended(websocket.StatusGoingAway)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, w.server.Wait(ctx))
	tenant, err := domain.ParseTenantID(a.tenantID)
	must(t, err)
	back, err := groups.Receive(ctx, tenant, "mail", group.Receive{})
	must(t, err)
	equal(t, "what was returned", len(back), 2)
	a.get("/v1/ws", "Upgrade", "websocket", "Connection", "Upgrade").want(503)
}

// Names can be reused after their subscriptions have ended, and at most 100 exist at a time.
func TestGatewayBoundsSubscriptions(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	g := a.gateway()
	for i := range 100 {
		g.ask("SUBSCRIBE", object{"subscription": fmt.Sprint("s", i), "source": object{}, "from": "end"})
	}
	g.refused("SUBSCRIBE", object{"subscription": "one more", "source": object{}}, domain.CodeTooManyRequests, "subscription")
	g.ask("UNSUBSCRIBE", object{"subscription": "s7"})
	g.ask("SUBSCRIBE", object{"subscription": "one more", "source": object{}})
	g.refused("SUBSCRIBE", object{"subscription": "and one", "source": object{}}, domain.CodeTooManyRequests, "subscription")
}

// blockedLog is a log that blocks appends until it is released.
type blockedLog struct {
	api.Appender
	asked chan struct{}
	free  chan struct{}
}

func (l blockedLog) Append(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
	if domain.Category(request.Streams[0].Stream) == "slow" {
		l.asked <- struct{}{}
		select {
		case <-l.free:
		case <-ctx.Done():
			return domain.Appended{}, ctx.Err()
		}
	}
	return l.Appender.Append(ctx, tenant, request)
}

// A slow operation in one job queue does not delay other queues. Operations beyond the limit are refused. Received
// operations are completed even if the client has disconnected meanwhile.
func TestGatewayCarriesOutBesideEachOther(t *testing.T) {
	t.Parallel()
	log := blockedLog{asked: make(chan struct{}, 1000), free: make(chan struct{})}
	w := newWorld(t, func(c *api.Config) { log.Appender, c.Appends = c.Appends, &log })
	a := w.tenant("acme")
	a.append("order-1", 2)
	a.consumer("mail", object{"source": object{"categories": list{"order"}}})
	g := a.gateway()
	g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail"})
	events := g.events("m", 2)
	var published []string
	for i := range 101 {
		published = append(published, g.send("PUBLISH", object{"message": object{"topic": "slow", "key": "1", "type": "Beat", "payload": i}}))
		if i == 0 {
			<-log.asked // the others wait
		}
	}
	g.refused("PUBLISH", object{"message": object{"topic": "slow", "key": "1", "type": "Beat", "payload": 0}}, domain.CodeTooManyRequests, "")
	equal(t, "what became of it", outcomes(g.ask("ACK", object{"subscription": "m", "ids": attemptsOf(events...)})), []string{"done", "done"})
	g.ask("SUBSCRIBE", object{"subscription": "s", "source": object{"stream": "slow-1"}})
	close(log.free)
	for i, id := range published {
		equal(t, "the version", objects(g.answer(id)["events"])[0]["version"], i+1)
	}
	g.events("s", 101)

	last := a.gateway()
	for i := range 20 {
		last.send("PUBLISH", object{"message": object{"topic": "late", "key": "1", "type": "Beat", "payload": i}})
	}
	last.ask("PUBLISH", object{"message": object{"topic": "late", "key": "1", "type": "Beat", "payload": 20}})
	must(t, last.ws.Close(websocket.StatusNormalClosure, ""))
	equal(t, "the version", a.get("/v1/streams/late-1/metadata").want(200).at("version"), 21)
}

// A client that does not read is disconnected after a while, and slows down no other.
func TestGatewayCutsOffWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	// Enough time for the one who reads, on a slow machine with the race detector.
	w := newWorld(t, func(c *api.Config) { c.StallTimeout = 15 * time.Second })
	a := w.tenant("acme")
	for i := range 30 {
		a.post(fmt.Sprintf("/v1/streams/large-%d/events", i), list{object{"type": "Large", "data": strings.Repeat("x", 1<<20-100)}}).want(201)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	deaf := a.bareGateway(ctx)
	defer deaf.CloseNow()
	must(t, deaf.Write(ctx, websocket.MessageText, []byte(`{"op":"SUBSCRIBE","id":"1","subscription":"all","source":{}}`)))
	g := a.gateway()
	g.ask("SUBSCRIBE", object{"subscription": "all", "source": object{}})
	g.events("all", 30)
	must(t, g.ws.Close(websocket.StatusNormalClosure, ""))
	must(t, w.server.Wait(ctx))
}
