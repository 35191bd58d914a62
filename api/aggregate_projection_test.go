package api_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// rebuildToEnd starts a rebuild and returns it when it has ended.
func rebuildToEnd(t *testing.T, a *actor, projection string, request object) *answer {
	t.Helper()
	return rebuilt(t, a, a.post("/v1/projections/"+projection+"/rebuilds", request).want(202))
}

// rebuilt returns a rebuild when it has ended.
func rebuilt(t *testing.T, a *actor, started *answer) *answer {
	t.Helper()
	path := "/v1/projections/" + started.text("projection") + "/rebuilds/" + started.text("id")
	events(t, a.open("GET", path+"/progress", nil), func(event) {})
	return a.get(path).want(200)
}

// A projection that names an aggregate has the states of its streams. It has the aggregate's rules as they were when it
// was put, and its rebuilds begin from the aggregate's snapshots.
func TestAProjectionOfAnAggregate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a, operator := w.tenant("acme"), w.operator()
	a.send("PUT", "/v1/aggregates/order", `{"initial": {"b":[ ], "aa" : 1.0}, "on": {"Happened": "merge(state, {'n': state.?n.orValue(0) + event.data.n})"}}`).want(200)
	a.append("order-1", 15)
	a.append("order-2", 3)
	a.post("/v1/snapshots/order-1", nil).want(201)
	a.append("order-1", 2)
	a.append("invoice-1", 2)

	created := a.post("/v1/projections", object{"name": "states", "aggregate": "order", "indexes": list{"n"}}).want(201)
	definition := object{"name": "states", "aggregate": "order", "database": "default", "indexes": list{"n"}, "mode": "async", "onError": "stop"}
	equal(t, "the definition", created.at("definition"), definition)
	same := func() {
		t.Helper()
		for stream, version := range map[string]int{"order-1": 20, "order-2": 18} {
			document := a.get("/v1/projections/states/documents/" + stream + "?minPosition=22&timeout=20").want(200)
			equal(t, "the document of "+stream, document.at("document"), a.get("/v1/streams/"+stream+"/state").want(200).at("state"))
			equal(t, "its version", document.number("position"), version)
		}
		a.get("/v1/projections/states/documents/invoice-1").wantProblem(404, domain.CodeNotFound, "")
	}
	same()
	equal(t, "put again", a.send("PUT", "/v1/projections/states", definition).want(200).at("version"), 1.)

	first := rebuildToEnd(t, a, "states", object{})
	equal(t, "its documents that began from snapshots", first.number("seeded"), 1)
	equal(t, "its events", []int{first.number("eventsDone"), first.number("eventsTotal")}, []int{20, 20})
	same()
	fromLog := rebuildToEnd(t, a, "states", object{"fromLog": true, "dryRun": true})
	if _, seeded := fromLog.json()["seeded"]; seeded || fromLog.at("fromLog") != true {
		t.Errorf("from the log: %s", fromLog.body)
	}
	equal(t, "the difference", fromLog.at("difference"), object{"new": 0., "gone": 0., "changed": 0., "same": 2., "examples": list{}})

	changed := object{"on": object{"Happened": "{'events': event.version}"}}
	tried := object{"definitions": list{definition}, "aggregates": list{object{"category": "order", "on": changed["on"]}}}
	equal(t, "a plan with the aggregate", a.post("/v1/projections/plan", tried).want(200).at("changes", 0, "action"), "rebuild")
	plan := func() *answer {
		return a.post("/v1/projections/plan", object{"definitions": list{definition}}).want(200)
	}
	equal(t, "a plan", plan().at("changes", 0, "action"), "none")
	a.send("PUT", "/v1/aggregates/order", changed).want(200)
	equal(t, "a plan", plan().at("changes", 0, "action"), "rebuild")
	equal(t, "what differs", plan().at("changes", 0, "changes", 0, "field"), "on.Happened")
	equal(t, "a document", a.get("/v1/projections/states/documents/order-2").want(200).at("document", "n"), 3.)
	rebuilt(t, a, a.send("PUT", "/v1/projections/states", definition).want(202))
	same()
	a.send("DELETE", "/v1/aggregates/order", nil).want(204)
	equal(t, "without the aggregate", rebuildToEnd(t, a, "states", object{}).at("state"), "swapped")
	equal(t, "a document", a.get("/v1/projections/states/documents/order-2").want(200).at("document"), object{"events": 3.})

	a.send("PUT", "/v1/projections/states", definition).wantProblem(422, domain.CodeInvalidDefinition, "aggregate")
	equal(t, "a plan", plan().at("changes", 0, "errors", 0, "field"), "aggregate")
	a.send("PUT", "/v1/aggregates/order", changed).want(200)
	for field, value := range map[string]any{
		"on": object{"A": "doc"}, "map": object{"A": "{}"}, "key": "event.id", "initial": object{}, "source": object{"categories": list{"order"}}, "handler": "h",
	} {
		a.post("/v1/projections", object{"name": "other", "aggregate": "order", field: value}).wantProblem(422, domain.CodeInvalidDefinition, field)
	}
	operator.post("/v1/projections", object{"name": "other", "aggregate": "order"}).wantProblem(422, domain.CodeInvalidDefinition, "aggregate")
	preview := object{"definition": object{"aggregate": "order"}, "source": object{"stream": "order-2"}}
	equal(t, "a preview", a.post("/v1/projections/preview", preview).want(200).at("documents", 0, "document"), object{"events": 3.})
}
