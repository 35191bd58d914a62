package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
)

// Every example of a client message is accepted, and every message of the contract occurs.
func TestAsyncExamplesWork(t *testing.T) {
	t.Parallel()
	a := newWorld(t, func(c *api.Config) { c.Heartbeat = 100 * time.Millisecond }).tenant("acme")
	a.consumer("send-mail", object{"source": object{"categories": list{"order"}}})
	g := (&actor{world: a.world}).gateway()
	tried := map[string]int{}
	try := func(op string, change object) object {
		t.Helper()
		example := maps.Clone(g.contract.ops[op].examples[tried[op]])
		tried[op]++
		maps.Copy(example, change)
		id := g.send(op, without(example, "id", "op"))
		got := g.answer(id)
		if got["op"] != "OK" {
			t.Fatalf("the example %v is answered %v", example, got)
		}
		return got
	}
	try("AUTH", object{"key": a.key})
	try("PUBLISH", nil) // with a key
	try("SUBSCRIBE", nil)
	try("SUBSCRIBE", nil)
	try("SUBSCRIBE", nil)
	try("SUBSCRIBE", nil)
	try("SUBSCRIBE", nil)
	try("SUBSCRIBE", nil) // as CloudEvents
	cloud := g.come("EVENT", "forward")["event"].(object)
	equal(t, "the CloudEvent", without(cloud, "time", "manifoldrecordedat"), without(g.contract.messages["cloudEvent"].examples[0], "time", "manifoldrecordedat"))
	for _, subscription := range []string{"mail", "orders"} {
		event := g.come("EVENT", subscription)["event"].(object)
		equal(t, "the event", without(event, "recordedAt"), without(g.contract.messages["EVENT"].examples[0]["event"].(object), "recordedAt"))
	}
	try("PUBLISH", nil) // several
	try("PUBLISH", nil) // a CloudEvent
	try("PUBLISH", nil) // several
	a.send("PUT", "/v1/aggregates/order", object{
		"initial": object{"total": 0}, "on": object{"ItemAdded": `{"total": state.total + event.data.price * event.data.qty}`},
		"commands": object{"AddItem": object{"require": list{object{"if": "command.qty > 0", "reject": "no-items"}}, "emit": list{object{"ItemAdded": "command"}}}},
	}).want(200)
	equal(t, "the state after a command", try("COMMAND", nil)["state"], object{"total": 25})
	rejected := g.refused("COMMAND", object{"stream": "order-1001", "command": "AddItem", "data": object{"price": 1, "qty": 0}}, domain.CodeRejected, "")
	equal(t, "why", rejected["reason"], "no-items")
	equal(t, "what became of it", outcomes(try("MODACK", nil)), []string{"done"})
	equal(t, "what became of it", outcomes(try("NACK", nil)), []string{"done"})
	try("ACK", nil)
	try("PAUSE", nil)
	try("RESUME", nil)
	try("UNSUBSCRIBE", nil)
	g.come("CAUGHT_UP", "orders")
	g.come("CHECKPOINT", "orders")
	g.ask("SUBSCRIBE", object{"subscription": "mail", "group": "send-mail"})
	a.send("DELETE", "/v1/subscriptions/send-mail", nil).want(204)
	g.come("ENDED", "mail")
	// Followers get events from memory even after their removal, so this test uses another log.
	other := a.tenant("globex")
	other.append("order-1", 1)
	other.remove("order", 1)
	gone := other.gateway()
	gone.ask("SUBSCRIBE", object{"subscription": "orders", "source": object{}})
	gone.come("GAP", "orders")
	g.refused("PUBLISH", object{"message": object{"topic": "order-1", "payload": 1}}, domain.CodeInvalidRequest, "message.topic")

	for op, m := range g.contract.ops {
		if tried[op] != len(m.examples) {
			t.Errorf("%d of %d examples of %s were tried", tried[op], len(m.examples), op)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	gone.mu.Lock()
	defer gone.mu.Unlock()
	for name := range member(t, g.contract.doc, "channels", "gateway", "messages") {
		if !g.seen[name] && !gone.seen[name] && g.contract.ops[name] == nil {
			t.Errorf("%s did not come", name)
		}
	}
}

// The service refuses what asyncapi.yaml refuses, and considers well-formed what it accepts. The test changes examples
// at random.
func TestAsyncContractIsWhatTheServiceKeeps(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	g := a.gateway()
	ops := slices.Sorted(maps.Keys(g.contract.ops))
	count := 0
	rapid.Check(t, func(r *rapid.T) {
		// The message rate of one connection is limited.
		if count++; count%150 == 0 {
			must(t, g.ws.Close(websocket.StatusNormalClosure, ""))
			g = a.gateway()
		}
		op := rapid.SampledFrom(ops).Draw(r, "op")
		m := g.contract.ops[op]
		text, err := json.Marshal(rapid.SampledFrom(m.examples).Draw(r, "example"))
		must(t, err)
		var message object
		must(t, json.Unmarshal(text, &message))
		change(r, message)
		message["id"], message["op"] = fmt.Sprint("r", count), op
		text, err = json.Marshal(message)
		must(t, err)
		id := message["id"].(string)
		g.mu.Lock()
		g.sent[id] = text
		g.mu.Unlock()
		g.write(websocket.MessageText, text)
		got := g.answer(id)
		where, _ := got["where"].(string)
		refused := got["code"] == string(domain.CodeInvalidRequest) || got["code"] == string(domain.CodeUnsupported)
		kept := m.check(text, false)
		switch {
		case kept != nil && !refused:
			r.Fatalf("%s is answered %v; by the contract: %v", text, got, kept)
		case where == "from": // the schema does not define places in a log
		case op == "AUTH" && where == "op": // already authenticated
		case kept == nil && refused:
			r.Fatalf("%s is answered %v; by the contract it may be sent", text, got)
		}
		if name, ok := message["subscription"].(string); ok && op == "SUBSCRIBE" && got["op"] == "OK" {
			g.ask("UNSUBSCRIBE", object{"subscription": name})
		}
	})
}

// change changes something in a JSON value: an existing member or a new one.
func change(r *rapid.T, o object) {
	names := slices.Sorted(maps.Keys(o))
	name := rapid.SampledFrom(append(names, "other", "events", "event", "source", "group", "key", "by", "delay", "maxInFlight")).Draw(r, "name")
	switch inner := o[name].(type) {
	case object:
		if len(inner) > 0 && rapid.Bool().Draw(r, "inside") {
			change(r, inner)
			return
		}
	case list:
		if first, ok := inner[0].(object); ok && rapid.Bool().Draw(r, "inside") {
			change(r, first)
			return
		}
	}
	if rapid.IntRange(0, 3).Draw(r, "remove") == 0 {
		delete(o, name)
		return
	}
	o[name] = rapid.SampledFrom([]any{
		nil, true, 0, 1, 1.5, 100.0, 101, -1, 5000, 1e6, "", "a", "a-1", "a b", "A.b_c", "0190d3a4-5b6c-7def-8123-456789abcde0", "2026-03-01T09:30:00Z", "/", "é",
		strings.Repeat("x", 101), strings.Repeat("x", 300), list{}, list{1}, list{"a"}, list{"a-1"}, object{}, object{"type": "A", "data": nil}, object{"stream": "a-1"},
		list{object{"type": "A", "data": 1}}, list{object{"id": "0190d3a4-5b6c-7def-8123-456789abcde0", "attempt": 3}},
		list{object{"id": "0190d3a4-5b6c-7def-8123-456789abcde0", "attempt": 2.5}},
	}).Draw(r, "value")
}
