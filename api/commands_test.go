package api_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// orderCommands is an aggregate whose commands have an effect, none, or are rejected.
var orderCommands = object{
	"initial": object{"status": "new", "total": 0},
	"on": object{
		"Placed":    `merge(state, {"status": "placed"})`,
		"ItemAdded": `merge(state, {"total": state.total + event.data.price})`,
	},
	"commands": object{
		"Place": object{"emit": list{object{"if": `state.status == "new"`, "Placed": `{"by": metadata.?user.orValue("nobody")}`}}},
		"AddItem": object{
			"require": list{object{"if": `state.status == "placed"`, "reject": "not-open", "message": `"the order is " + state.status`}},
			"emit":    list{object{"ItemAdded": `{"price": command.price}`}},
		},
		"Note": object{"input": object{"properties": object{"text": object{"type": "string"}}}, "emit": list{object{"Noted": "command"}}},
		"Bill": object{"emit": list{object{"Billed": "{}"}, object{"stream": `"invoice-" + id`, "Issued": `{"total": state.total}`}}},
	},
}

func TestCommandsOverHTTP(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.send("PUT", "/v1/aggregates/order", orderCommands).want(200)
	equal(t, "the stored commands", a.get("/v1/aggregates/order").want(200).at("commands", "Place", "emit", 0, "if"), `state.status == "new"`)
	send := func(command string, body any, headers ...string) *answer {
		return a.send("POST", "/v1/aggregates/order/7/commands/"+command, body, headers...)
	}

	rejected := send("AddItem", object{"data": object{"price": 5}}).wantProblem(422, domain.CodeRejected, "")
	equal(t, "the reason", rejected["reason"], "not-open")
	equal(t, "the message", rejected["detail"], "the order is new")

	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	placed := send("Place", object{"data": object{}, "metadata": object{"user": "u-3"}}, "Traceparent", trace).want(200)
	equal(t, "the outcome", placed.text("outcome"), "accepted")
	equal(t, "its events", placed.at("events", 0, "type"), "Placed")
	equal(t, "the state", placed.at("state", "status"), "placed")
	event := a.get("/v1/events/" + placed.at("events", 0, "id").(string)).want(200)
	equal(t, "the event's data", event.at("data"), object{"by": "u-3"})
	equal(t, "the event's metadata", event.at("metadata"), object{"user": "u-3", "traceparent": trace})
	equal(t, "a second time", send("Place", object{"data": object{}}).want(200).text("outcome"), "nothing")

	dry := a.post("/v1/aggregates/order/7/commands/AddItem?dryRun=true", object{"data": object{"price": 5}}).want(200)
	equal(t, "the event of a dry run", dry.at("events", 0), object{"stream": "order-7", "type": "ItemAdded", "data": object{"price": 5}})
	equal(t, "a rejection in a dry run", a.post("/v1/aggregates/order/8/commands/AddItem?dryRun=true", object{"data": object{"price": 5}}).want(200).at("rejected"),
		object{"rule": 0, "code": "not-open", "message": "the order is new"})

	first := send("AddItem", object{"data": object{"price": 5}}, "Idempotency-Key", "k", "If-Match", `"1"`).want(200)
	again := send("AddItem", object{"data": object{"price": 5}}, "Idempotency-Key", "k", "If-Match", `"1"`).want(200)
	equal(t, "the events of a repetition", again.at("events"), first.at("events"))
	equal(t, "that it is one", again.at("duplicate"), true)
	send("AddItem", object{"data": object{"price": 5}}, "If-Match", `"1"`).wantProblem(412, domain.CodePreconditionFailed, "Expected-Version")
	send("AddItem", object{"data": object{"price": 5}}, "Expected-Version", "1").wantProblem(409, domain.CodeVersionConflict, "Expected-Version")
	a.post("/v1/aggregates/order/7/commands/Place?minPosition=2", object{"data": object{}}).want(200)
	a.post("/v1/aggregates/order/7/commands/Place?minPosition=900", object{"data": object{}}).wantProblem(503, domain.CodeNotCaughtUp, "query minPosition")

	for i, bad := range []struct {
		path string
		body any
		code domain.Code
		at   string
	}{
		{"/v1/aggregates/order/7/commands/Place", object{}, domain.CodeInvalidRequest, "body"},
		{"/v1/aggregates/order/7/commands/Place", list{}, domain.CodeInvalidRequest, "body"},
		{"/v1/aggregates/order/7/commands/Place", object{"data": list{}}, domain.CodeInvalidRequest, "data"},
		{"/v1/aggregates/order/7/commands/Place", object{"data": object{}, "metadata": 1}, domain.CodeInvalidRequest, "metadata"},
		{"/v1/aggregates/order/7/commands/Place", object{"data": object{}, "extra": 1}, domain.CodeInvalidRequest, "body"},
		{"/v1/aggregates/order/7/commands/Place", `{"data":{}} {}`, domain.CodeInvalidJSON, "body"},
		{"/v1/aggregates/order/7/commands/Place?dryRun=yes", object{"data": object{}}, domain.CodeInvalidRequest, "query dryRun"},
		{"/v1/aggregates/order/7/commands/Place?dry=true", object{"data": object{}}, domain.CodeInvalidRequest, "query dry"},
		{"/v1/aggregates/order/7/commands/Place?minPosition=0", object{"data": object{}}, domain.CodeInvalidRequest, "query minPosition"},
		{"/v1/aggregates/order/7/commands/Pl*ce", object{"data": object{}}, domain.CodeInvalidRequest, "path command"},
		{"/v1/aggregates/or-der/7/commands/Place", object{"data": object{}}, domain.CodeInvalidRequest, "path category"},
	} {
		got := a.post(bad.path, bad.body)
		if got.status != 400 || got.text("code") != string(bad.code) || got.text("where") != bad.at {
			t.Errorf("%d: %s %v is answered %d %s", i, bad.path, bad.body, got.status, got.body)
		}
	}
	violated := send("Note", object{"data": object{"text": 5}}).wantProblem(400, domain.CodeInvalidRequest, "data")
	equal(t, "what is wrong", violated["violations"].(list)[0].(object)["pointer"], "/text")
	a.post("/v1/aggregates/order/7/commands/Cancel", object{"data": object{}}).wantProblem(404, domain.CodeNotFound, "command")
	a.post("/v1/aggregates/basket/7/commands/Place", object{"data": object{}}).wantProblem(404, domain.CodeNotFound, "")
}

// The events that a command makes are checked against the schemas of their types.
func TestCommandsEventsFitTheirSchemas(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.send("PUT", "/v1/aggregates/order", orderCommands).want(200)
	a.send("PUT", "/v1/schemas/Noted", object{"schema": object{"required": list{"by"}}}).want(200, 201)
	a.send("PUT", "/v1/schema-rules/order", object{"mode": "enforce"}).want(200, 201)
	send := func(data object) *answer {
		return a.post("/v1/aggregates/order/7/commands/Note", object{"data": data})
	}
	refused := send(object{"text": "a"}).wantProblem(422, domain.CodeSchemaViolation, "the command's events[0].data")
	equal(t, "the place of the violation", refused["violations"].(list)[0].(object)["where"], "the command's events[0].data")
	a.get("/v1/streams/order-7/state").want(404)
	equal(t, "what fits", send(object{"text": "a", "by": "me"}).want(200).text("outcome"), "accepted")
}

// A key sends only to the categories that it is for, also through a command of one of them.
func TestCommandsOfLimitedKeys(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.send("PUT", "/v1/aggregates/order", orderCommands).want(200)
	orders := &actor{w, w.keyOf(a.tenantID, "commands:send:order"), a.tenantID}
	both := &actor{w, w.keyOf(a.tenantID, "commands:send:order", "commands:send:invoice", "events:read:order"), a.tenantID}
	bill := "/v1/aggregates/order/1/commands/Bill"
	orders.post(bill, object{"data": object{}}).wantProblem(403, domain.CodeForbidden, "")
	if got := orders.post("/v1/aggregates/order/1/commands/Place", object{"data": object{}}).want(200); got.at("state") != nil {
		t.Errorf("a key without %s receives a state: %s", auth.ScopeEventsRead, got.body)
	}
	got := both.post(bill, object{"data": object{}}).want(200)
	equal(t, "the events", fmt.Sprint(got.at("events", 0, "stream"), got.at("events", 1, "stream")), "order-1invoice-1")
	equal(t, "the state", got.at("state", "status"), "placed")
	(&actor{w, w.keyOf(a.tenantID, "events:append"), a.tenantID}).post(bill, object{"data": object{}}).wantProblem(403, domain.CodeForbidden, "")
}

// Each command of a request has its own outcome, and those of one stream are decided in order.
func TestSeveralCommands(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.send("PUT", "/v1/aggregates/order", orderCommands).want(200)
	entry := func(stream, command string, more object) object {
		e := object{"stream": stream, "command": command, "data": object{"price": 2}}
		for name, value := range more {
			e[name] = value
		}
		return e
	}
	got := a.post("/v1/commands", object{"commands": list{
		entry("order-1", "Place", nil), entry("order-1", "AddItem", object{"idempotencyKey": "k"}), entry("order-2", "AddItem", nil),
		entry("order-1", "AddItem", object{"idempotencyKey": "k"}), entry("order-1", "Place", object{"expectedVersion": 1}), entry("basket-1", "Place", nil),
	}}).want(200)
	for i, want := range []any{"accepted", "accepted", "rejected", "accepted", "version-conflict", "not-found"} {
		if i == 2 || i > 3 {
			equal(t, fmt.Sprint("the problem of ", i), got.at("outcomes", i, "problem", "code"), want)
		} else {
			equal(t, fmt.Sprint("the outcome of ", i), got.at("outcomes", i, "outcome"), want)
		}
	}
	equal(t, "the state", got.at("outcomes", 3, "state"), object{"status": "placed", "total": 2})
	equal(t, "a repetition", got.at("outcomes", 3, "duplicate"), true)
	ahead := a.post("/v1/commands", object{"commands": list{entry("order-3", "Place", object{"minPosition": 900}), entry("order-3", "Place", object{"minPosition": 2})}}).want(200)
	equal(t, "the problem of a log that ends before", list{ahead.at("outcomes", 0, "problem", "code"), ahead.at("outcomes", 0, "problem", "where")},
		list{string(domain.CodeNotCaughtUp), "commands[0].minPosition"})
	equal(t, "the outcome of a log with the position", ahead.at("outcomes", 1, "outcome"), "accepted")
	for _, bad := range []struct {
		body any
		code domain.Code
		at   string
	}{
		{object{}, domain.CodeInvalidRequest, "commands"},
		{object{"commands": list{}}, domain.CodeInvalidRequest, "commands"},
		{object{"commands": list{object{"stream": "order-1", "command": "Place"}}}, domain.CodeInvalidRequest, "commands[0]"},
		{object{"commands": list{entry("order", "Place", nil)}}, domain.CodeInvalidRequest, "commands[0].stream"},
		{object{"commands": list{entry("order-1", "P*", nil)}}, domain.CodeInvalidRequest, "commands[0].command"},
		{object{"commands": list{entry("order-1", "Place", object{"data": 1})}}, domain.CodeInvalidRequest, "commands[0].data"},
		{object{"commands": list{entry("order-1", "Place", object{"idempotencyKey": "a b"})}}, domain.CodeInvalidRequest, "commands[0].idempotencyKey"},
		{object{"commands": list{entry("order-1", "Place", object{"expectedVersion": "x"})}}, domain.CodeInvalidRequest, "commands[0].expectedVersion"},
		{object{"commands": list{entry("order-1", "Place", object{"minPosition": 0})}}, domain.CodeInvalidRequest, "commands[0].minPosition"},
		{object{"commands": slices.Repeat(list{entry("order-1", "Place", nil)}, 101)}, domain.CodeTooLarge, "commands"},
	} {
		if got := a.post("/v1/commands", bad.body); got.text("code") != string(bad.code) || got.text("where") != bad.at || got.status >= 500 {
			t.Errorf("%.120v is answered %d %s", bad.body, got.status, got.body)
		}
	}
	a.post("/v1/commands", object{"commands": list{entry("order-1", "Place", nil)}}, "Idempotency-Key", "k").wantProblem(400, domain.CodeInvalidRequest, "Idempotency-Key")
}
