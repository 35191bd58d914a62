package api_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

const aggregatePreview = "/v1/aggregates/preview"

// counter is a definition that no test stores.
var counter = object{
	"category": "counter", "initial": object{"n": 0},
	"on": object{"Added": `{"n": state.n + event.data.n}`, "Gone": "null"},
	"commands": object{"Add": object{
		"input":   object{"properties": object{"n": object{"type": "integer"}}},
		"require": list{object{"if": "state.n + command.n <= 10", "reject": "too-much", "message": `"<" + id + ">"`}},
		"emit":    list{object{"Added": `{"n": command.n}`}, object{"if": "has(command.other)", "stream": `"other-" + id`, "Told": "{}"}},
	}},
}

// counted is a given event that counter folds.
func counted(n any) object { return object{"type": "Added", "data": object{"n": n}} }

func TestPreviewOfAnAggregate(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	writer := &actor{w, w.key(a.tenantID, auth.ScopeProjectionsWrite), a.tenantID}
	preview := func(body object) *answer {
		t.Helper()
		body["definition"] = counter
		return writer.post(aggregatePreview, body).want(200)
	}
	got := preview(object{"events": list{counted(3), object{"type": "Gone", "data": 1}, object{"type": "Unknown", "data": 1}, counted(4)}, "command": object{
		"name": "Add", "data": object{"n": 7, "other": true}, "metadata": object{"user": "u"},
	}})
	var states list
	for i := range 4 {
		states = append(states, got.at("steps", i, "state"))
		equal(t, "the version", got.at("steps", i, "version"), i+1)
	}
	equal(t, "the states", states, list{object{"n": 3}, nil, nil, object{"n": 4}})
	if step := got.at("steps", 1).(object); !strings.Contains(string(got.body), `"state":null`) || step["type"] != "Gone" {
		t.Errorf("a state of null is missing in %v", step)
	}
	equal(t, "the state", got.at("state"), object{"n": 4})
	equal(t, "the outcome", got.at("outcome"), object{
		"outcome": "rejected", "stream": "counter-1", "version": 4, "events": list{}, "state": object{"n": 4},
		"rejected": object{"rule": 0, "code": "too-much", "message": "<1>"},
		"rules": list{object{"rule": 0, "if": "state.n + command.n <= 10", "holds": false, "code": "too-much", "message": "<1>",
			"values": object{"state.n": 4, "command.n": 7}}},
	})
	accepted := preview(object{"stream": "counter-a-b", "events": list{}, "command": object{"name": "Add", "data": object{"n": 7, "other": true}, "metadata": object{"user": "u"}}})
	equal(t, "no steps", accepted.at("steps"), list{})
	equal(t, "the initial state", accepted.at("state"), object{"n": 0})
	equal(t, "the events", accepted.at("outcome", "events"), list{
		object{"stream": "counter-a-b", "type": "Added", "data": object{"n": 7}, "metadata": object{"user": "u"}},
		object{"stream": "other-a-b", "type": "Told", "data": object{}, "metadata": object{"user": "u"}},
	})
	equal(t, "the version", accepted.at("outcome", "version"), 1)
	equal(t, "the state", accepted.at("outcome", "state"), object{"n": 7})

	faulty := preview(object{"events": list{counted(3), counted("x"), counted(4)}, "command": object{"name": "Add"}})
	equal(t, "the steps", len(faulty.at("steps").(list)), 2)
	equal(t, "where", faulty.at("steps", 1, "fault", "where"), "on.Added")
	if message := faulty.text("steps", 1, "fault", "message"); !strings.HasPrefix(message, "event 2 of counter-1 (") || !strings.Contains(message, "line 1, column ") {
		t.Errorf("the fault is %q", message)
	}
	equal(t, "the state before the fault", faulty.at("state"), object{"n": 3})
	if faulty.json()["outcome"] != nil || faulty.at("steps", 1).(object)["state"] != nil {
		t.Errorf("after a fault there is an outcome or a state: %s", faulty.body)
	}

	// Nothing was stored, and a category may have the name of the preview.
	equal(t, "the streams", a.get("/v1/streams").want(200).at("streams"), list{})
	equal(t, "the definitions", a.get("/v1/aggregates").want(200).at("aggregates"), list{})
	a.send("PUT", aggregatePreview, object{"on": object{"*": "state"}}).want(200)
	equal(t, "the category preview", a.get(aggregatePreview).want(200).at("category"), "preview")
}

// A preview of a stream in the log has the states and the outcome that the service has once the definition is stored.
func TestPreviewOfAStreamInTheLog(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.post("/v1/streams/counter-7/events", list{
		object{"type": "Added", "data": object{"count": 1}}, object{"type": "Added", "data": object{"n": 2}, "metadata": object{"schemaVersion": 2}},
		object{"type": "Added", "data": object{"n": 4}, "metadata": object{"schemaVersion": 2}},
	}).want(201)
	a.send("PUT", "/v1/upcasters/Added/1", object{"expression": "{'n': event.data.count}"}).want(201)
	command := object{"name": "Add", "data": object{"n": 3}}
	ask := func(by *actor, body object) *answer {
		t.Helper()
		body["definition"] = counter
		return by.post(aggregatePreview, body)
	}
	whole := ask(a, object{"stream": "counter-7", "command": command}).want(200)
	early := ask(a, object{"stream": "counter-7", "version": 2, "command": command}).want(200)
	equal(t, "the data that expressions see", whole.at("steps", 0, "data"), object{"n": 1})
	equal(t, "the steps up to a version", len(early.at("steps").(list)), 2)
	equal(t, "the state at a version", early.at("state"), object{"n": 3})
	equal(t, "the version after a command", early.at("outcome", "version"), 3)

	some := &actor{w, w.keyOf(a.tenantID, "events:read:counter", "projections:write"), a.tenantID}
	ask(some, object{"stream": "counter-7"}).want(200)
	for _, grants := range [][]string{{"projections:write"}, {"events:read:order", "projections:write"}} {
		other := &actor{w, w.keyOf(a.tenantID, grants...), a.tenantID}
		refused := ask(other, object{"stream": "counter-7"})
		refused.wantProblem(403, domain.CodeForbidden, "stream")
		ask(other, object{"stream": "counter-7", "events": list{counted(1)}}).want(200)
	}
	reader := &actor{w, w.key(a.tenantID, auth.ScopeEventsRead), a.tenantID}
	ask(reader, object{"events": list{}}).wantProblem(403, domain.CodeForbidden, "Authorization")
	ask(w.tenant("other"), object{"stream": "counter-7"}).wantProblem(404, domain.CodeNotFound, "stream")
	equal(t, "a command to a new stream", ask(a, object{"stream": "counter-8", "command": command}).want(200).at("outcome", "version"), 1)
	ask(a, object{"stream": "counter-7", "version": 4}).wantProblem(404, domain.CodeNotFound, "version")

	a.send("PUT", "/v1/aggregates/counter", counter).want(200)
	for i := range 3 {
		state := a.get(fmt.Sprintf("/v1/streams/counter-7/state?version=%d", i+1)).want(200)
		equal(t, "the state", whole.at("steps", i, "state"), state.at("state"))
	}
	dry := a.post("/v1/aggregates/counter/7/commands/Add?dryRun=true&explain=true", object{"data": object{"n": 3}}).want(200)
	equal(t, "the outcome", whole.at("outcome"), dry.json())
}

// A command's boundary has the given events, or those of the log, of all streams.
func TestPreviewWithABoundary(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	seat := object{"category": "ticket", "on": object{"*": "state"}, "commands": object{"Take": object{
		"boundary": object{"seat": object{"query": list{object{"tags": "['seat:' + command.seat]"}}, "initial": object{"taken": 0}, "on": object{"Taken": "{'taken': state.taken + 1}"}}},
		"require":  list{object{"if": "boundary.seat.taken == 0", "reject": "taken"}},
		"emit":     list{object{"Taken": "command", "tags": "['seat:' + command.seat]"}},
	}}}
	taken := object{"stream": "ticket-8", "type": "Taken", "data": object{}, "tags": list{"seat:1"}}
	ask := func(by *actor, what, number string) *answer {
		body := object{"definition": seat, "command": object{"name": "Take", "data": object{"seat": number}}}
		if body["stream"] = "ticket-9"; what == "given" {
			body["events"] = list{taken}
		}
		return by.post(aggregatePreview, body)
	}
	a.post("/v1/streams/ticket-8/events", list{without(taken, "stream")}).want(201)
	for _, what := range []string{"given", "logged"} {
		rejected := ask(a, what, "1").want(200)
		equal(t, what, rejected.at("outcome", "rejected", "code"), "taken")
		equal(t, what, rejected.at("outcome", "rules", 0, "values"), object{"boundary.seat.taken": 1})
		for _, step := range rejected.at("steps").(list) { // it is of another stream
			equal(t, "its state", step.(object)["state"], nil)
		}
		accepted := ask(a, what, "2").want(200)
		equal(t, what, accepted.at("outcome", "events"), list{object{"stream": "ticket-9", "type": "Taken", "data": object{"seat": "2"}, "tags": list{"seat:2"}}})
	}
	some := &actor{w, w.keyOf(a.tenantID, "events:read:ticket", "projections:write"), a.tenantID}
	ask(some, "given", "1").want(200)
	ask(some, "logged", "1").wantProblem(403, domain.CodeForbidden, "command.name")
}

func TestPreviewsOfAggregatesAreBounded(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.append("counter-1", aggregate.MaxTrialEvents)
	a.append("counter-1", 1)
	definition := object{"category": "counter", "on": object{"*": "{'n': 1}"}, "commands": object{"Touch": object{"emit": list{object{"Touched": "{}"}}}}}
	touch := object{"name": "Touch"}
	ask := func(body object) *answer { body["definition"] = definition; return a.post(aggregatePreview, body) }
	equal(t, "the first events", len(ask(object{"stream": "counter-1"}).want(200).at("steps").(list)), aggregate.MaxTrialEvents)
	ask(object{"stream": "counter-1", "command": touch}).wantProblem(413, domain.CodeTooLarge, "version")
	ask(object{"stream": "counter-1", "version": 1001}).wantProblem(413, domain.CodeTooLarge, "version")
	equal(t, "at a version", ask(object{"stream": "counter-1", "version": 1000, "command": touch}).want(200).at("outcome", "version"), 1001)

	text := strings.Repeat("x", 9<<10)
	definition["on"] = object{"*": "{'text': event.data.text}"}
	long := make(list, 400)
	for i := range long {
		long[i] = object{"type": "A", "data": object{"text": text[:4<<10]}}
	}
	ask(object{"events": long}).want(200)
	definition["commands"] = object{"Touch": object{"emit": list{object{"each": "lists.range(900)", "Touched": "{'text': command.text}"}}}}
	ask(object{"events": list{}, "command": object{"name": "Touch", "data": object{"text": text}}}).want(200)
	large := ask(object{"events": long, "command": object{"name": "Touch", "data": object{"text": text}}}).want(200)
	equal(t, "the problem", list{large.at("problem", "code"), large.at("problem", "where")}, list{string(domain.CodeTooLarge), "events"})
	definition["on"] = object{"*": "{'text': [1, 2, 3, 4, 5].map(n, event.data.text)}"}
	ask(object{"events": long}).wantProblem(413, domain.CodeTooLarge, "events")
}

// Errors name their places in the request.
func TestPreviewsOfAggregatesRefuse(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.append("order-1", 1)
	changed := func(changes object) object {
		definition := maps.Clone(counter)
		maps.Copy(definition, changes)
		return definition
	}
	command := func(emit any) object { return object{"commands": object{"Add": object{"emit": list{emit}}}} }
	for i, c := range []struct {
		body   object
		status int
		code   domain.Code
		where  string
	}{
		{object{"definition": without(counter, "category"), "events": list{}}, 400, domain.CodeInvalidRequest, "definition.category"},
		{object{"definition": changed(object{"category": "a b"}), "events": list{}}, 400, domain.CodeInvalidRequest, "stream"},
		{object{"definition": changed(object{"on": object{"A": "stat"}}), "events": list{}}, 422, domain.CodeInvalidDefinition, "definition.on.A"},
		{object{"definition": changed(command(object{"A": "comand"})), "events": list{}}, 422, domain.CodeInvalidDefinition, "definition.commands.Add.emit[0].A"},
		{object{"definition": changed(command(object{"A": "1", "B": "1"})), "events": list{}}, 422, domain.CodeInvalidDefinition, "definition.commands.Add"},
		{object{"definition": counter}, 400, domain.CodeInvalidRequest, "stream"},
		{object{"definition": counter, "stream": "order-1"}, 400, domain.CodeInvalidRequest, "stream"},
		{object{"definition": counter, "stream": "counter-9"}, 404, domain.CodeNotFound, "stream"},
		{object{"definition": counter, "events": list{}, "version": 1}, 400, domain.CodeInvalidRequest, "version"},
		{object{"definition": counter, "events": list{object{"stream": "counter", "type": "A", "data": 1}}}, 400, domain.CodeInvalidRequest, "events[0].stream"},
		{object{"definition": counter, "events": list{counted(1), object{"id": idOfNothing, "type": "A\n", "data": 1}}}, 400, domain.CodeInvalidRequest, "events[1].type"},
		{object{"definition": counter, "events": list{}, "command": object{"name": "None"}}, 404, domain.CodeNotFound, "command.name"},
		{object{"definition": counter, "events": list{}, "command": object{"name": "Add", "data": object{"n": "x"}}}, 400, domain.CodeInvalidRequest, "command.data"},
	} {
		got := a.post(aggregatePreview, c.body)
		if got.status != c.status {
			t.Errorf("case %d is answered %s", i, got.body)
			continue
		}
		got.wantProblem(c.status, c.code, c.where)
	}
}

// If the command cannot be decided, the steps are shown, with the problem.
func TestPreviewsShowWhyACommandFails(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	for emit, want := range map[string]struct{ where, says string }{
		"command.none": {"definition.commands.Add.emit[0].Added", "the command cannot be decided: "},
		"{}":           {"definition.on.Added", "the command's event Added cannot be folded"},
	} {
		definition := maps.Clone(counter)
		definition["commands"] = object{"Add": object{"emit": list{object{"Added": emit}}}}
		got := a.post(aggregatePreview, object{"definition": definition, "events": list{counted(3)}, "command": object{"name": "Add"}}).want(200)
		equal(t, "the states", list{got.at("steps", 0, "state"), got.at("state")}, list{object{"n": 3}, object{"n": 3}})
		if got.json()["outcome"] != nil || !strings.Contains(got.text("problem", "detail"), want.says) {
			t.Errorf("%s gives %s", emit, got.body)
		}
		equal(t, "the problem", list{got.at("problem", "status"), got.at("problem", "code"), got.at("problem", "where")}, list{409, string(domain.CodeFaulted), want.where})
	}
}
