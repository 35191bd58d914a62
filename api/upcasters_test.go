package api_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// testUpcasters runs the documented requests of upcasters. The tenant's aggregate is gone, but its projection exists.
func testUpcasters(t *testing.T, documented *documentation, a *actor) {
	t.Helper()
	documented.params["version"] = "1"
	documented.run(a, "previewUpcaster", 200)
	documented.run(a, "putUpcaster", 201)
	documented.run(a, "putUpcaster", 200)
	documented.run(a, "getUpcaster", 200)
	documented.run(a, "listUpcasters", 200)
	documented.run(a, "deleteUpcaster", 200)
}

const customerUpcaster = `{"customer": {"id": event.data.customer}}`

func TestUpcasters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	operator := w.operator()
	a, other := w.tenant("acme"), w.tenant("umbrella")
	const path = "/v1/upcasters/OrderPlaced/1"
	a.send("PUT", "/v1/aggregates/order", object{"on": object{"OrderPlaced": "merge(state, event.data)"}}).want(200)
	a.send("PUT", "/v1/aggregates/other", object{"on": object{"Else": "state"}}).want(200)
	a.post("/v1/projections", object{"name": "placed", "on": object{"OrderPlaced": "merge(doc, event.data)"}}).want(201)
	a.post("/v1/projections", object{"name": "all", "on": object{"*": "doc"}}).want(201)
	a.post("/v1/projections", object{"name": "else", "on": object{"Else": "doc"}}).want(201)
	operator.post("/v1/projections", object{"name": "everyones", "on": object{"OrderPlaced": "merge(doc, event.data)"}}).want(201)
	a.post("/v1/streams/order-1/events", list{object{"type": "OrderPlaced", "data": object{"customer": "c-1"}}}).want(201)

	a.get(path).wantProblem(404, domain.CodeNotFound, "")
	made := a.send("PUT", path, object{"expression": customerUpcaster}).want(201)
	equal(t, "what it touches", made.at("touches"), object{
		"projections": list{object{"name": "all", "shared": false}, object{"name": "placed", "shared": false}, object{"name": "everyones", "shared": true}},
		"aggregates":  list{"order"},
	})
	if made.at("upcaster", "shared") != false || made.number("upcaster", "revision") != 1 || !strings.HasPrefix(made.text("upcaster", "by"), "key ") {
		t.Errorf("made, it is %s", made.body)
	}
	again := a.send("PUT", path, object{"expression": customerUpcaster}).want(200)
	equal(t, "put again", again.at("upcaster"), made.at("upcaster"))
	equal(t, "got", a.get(path).want(200).json(), made.at("upcaster"))
	other.get(path).wantProblem(404, domain.CodeNotFound, "")
	operator.get(path).wantProblem(404, domain.CodeNotFound, "")
	equal(t, "the other's", other.get("/v1/upcasters").want(200).at("upcasters"), list{})

	state := func(of *actor) any { t.Helper(); return of.get("/v1/streams/order-1/state").want(200).at("state") }
	equal(t, "the state", state(a), object{"customer": object{"id": "c-1"}})
	events := a.get("/v1/streams/order-1").want(200)
	equal(t, "the event in the log", events.at("events", 0, "data"), object{"customer": "c-1"})

	// A shared upcaster is in force if the tenant has none for the type and version.
	shared := operator.send("PUT", path, object{"expression": `{"customer": {"id": "shared"}}`}).want(201)
	equal(t, "what the shared one touches", shared.at("touches"), object{"projections": list{object{"name": "everyones", "shared": true}}, "aggregates": list{}})
	if shared.at("upcaster", "shared") != true || shared.text("upcaster", "by") != "operator" {
		t.Errorf("the shared one is %s", shared.body)
	}
	equal(t, "the tenant's own", a.get(path).want(200).json(), made.at("upcaster"))
	equal(t, "the list", a.get("/v1/upcasters").want(200).at("upcasters"), list{made.at("upcaster"), shared.at("upcaster")})
	equal(t, "the other's", other.get(path).want(200).json(), shared.at("upcaster"))
	other.send("DELETE", path, nil).wantProblem(404, domain.CodeNotFound, "")
	equal(t, "the operator's list", operator.get("/v1/upcasters").want(200).at("upcasters"), list{shared.at("upcaster")})
	equal(t, "the state", state(a), object{"customer": object{"id": "c-1"}})
	a.send("DELETE", path, nil).want(200)
	equal(t, "the state", state(a), object{"customer": object{"id": "shared"}})
	operator.send("DELETE", path, nil).want(200)
	equal(t, "the state", state(a), object{"customer": "c-1"})
}

func TestAnUpcasterThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.send("PUT", "/v1/upcasters/OrderPlaced/1", object{"expression": "doc.total"}).wantProblem(422, domain.CodeInvalidDefinition, "expression")
	problem := a.send("PUT", "/v1/upcasters/OrderPlaced/1", object{"expression": "{'a':\n event.nope}"}).wantProblem(422, domain.CodeInvalidDefinition, "expression")
	if detail, _ := problem["detail"].(string); !strings.Contains(detail, "line 2, column 8") {
		t.Errorf("it says %q", detail)
	}
	a.send("PUT", "/v1/upcasters/OrderPlaced/0", object{"expression": "{}"}).wantProblem(400, domain.CodeInvalidRequest, "version")
	a.send("PUT", "/v1/upcasters/OrderPlaced/1000001", object{"expression": "{}"}).wantProblem(400, domain.CodeInvalidRequest, "version")
	a.send("PUT", "/v1/upcasters/Order%20Placed/1", object{"expression": "{}"}).wantProblem(400, domain.CodeInvalidRequest, "type")
	a.send("PUT", "/v1/upcasters/OrderPlaced/1", object{}).wantProblem(400, domain.CodeInvalidRequest, "expression")
	a.send("PUT", "/v1/upcasters/a%2Fb/1", object{"expression": "{}"}).want(201)
	a.get("/v1/upcasters/a%2Fb/1").want(200)
}

func TestPreviewOfUpcasters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.send("PUT", "/v1/upcasters/Placed/2", object{"expression": `merge(event.data, {"two": true})`}).want(201)
	a.post("/v1/streams/order-1/events", list{
		object{"type": "Placed", "data": object{"n": 1}},
		object{"type": "Else", "data": object{"n": 2}},
		object{"type": "Placed", "data": object{"n": 3}, "metadata": object{"schemaVersion": 2}},
		object{"type": "Placed", "data": list{}, "metadata": object{"schemaVersion": 2}},
	}).want(201)
	preview := func(body object) *answer { t.Helper(); return a.post("/v1/upcasters/preview", body).want(200) }
	steps := func(body object) (short list) {
		t.Helper()
		got := preview(body)
		for i := range got.at("steps").(list) {
			step := got.at("steps", i).(object)
			short = append(short, list{step["before"], step["versionBefore"], step["after"], step["versionAfter"], step["error"] != nil})
		}
		return short
	}
	one, two, three, four := object{"n": 1}, object{"n": 2}, object{"n": 3}, list{}
	equal(t, "a stream", steps(object{"source": object{"stream": "order-1"}}), list{
		list{one, 1, one, 1, false}, list{two, 1, two, 1, false}, list{three, 2, object{"n": 3, "two": true}, 3, false}, list{four, 2, nil, 2, true},
	})
	tried := object{"type": "Placed", "version": 1, "expression": `{"n": event.data.n + 10}`, "source": object{"last": 3}}
	equal(t, "the last ones, with another upcaster", steps(tried), list{
		list{one, 1, object{"n": 11, "two": true}, 3, false}, list{three, 2, object{"n": 3, "two": true}, 3, false}, list{four, 2, nil, 2, true},
	})
	tried["source"] = object{"last": 1}
	equal(t, "the last one", steps(tried), list{list{four, 2, nil, 2, true}})
	tried["version"], tried["expression"] = 2, `{"instead": size(event.data)}`
	equal(t, "in the place of another", steps(tried), list{list{four, 2, object{"instead": 0}, 3, false}})
	given := preview(object{"source": object{"events": list{
		object{"type": "Placed", "data": object{"a": "<b>"}, "metadata": object{"schemaVersion": 2}},
		object{"type": "Placed", "data": object{}, "metadata": object{"schemaVersion": "two"}},
	}}})
	if given.number("steps", 1, "versionBefore") != 0 || !strings.Contains(string(given.body), `"after":{"a":"<b>","two":true}`) {
		t.Errorf("given events: %s", given.body)
	}
	if text := preview(object{"source": object{"stream": "order-1"}}).text("steps", 3, "error"); !strings.Contains(text, "upcaster Placed/2: line 1, column 6: ") {
		t.Errorf("the error is %q", text)
	}

	// Nothing was stored, and errors say why.
	a.get("/v1/upcasters/Placed/1").wantProblem(404, domain.CodeNotFound, "")
	for _, c := range []struct {
		body   object
		status int
		code   domain.Code
		where  string
	}{
		{object{"source": object{"stream": "order-2"}}, 404, domain.CodeNotFound, "source.stream"},
		{object{"source": object{}}, 400, domain.CodeInvalidRequest, "source"},
		{object{"type": "Placed", "source": object{"last": 1}}, 400, domain.CodeInvalidRequest, "expression"},
		{object{"type": "Placed", "version": 1, "expression": "nope", "source": object{"last": 1}}, 422, domain.CodeInvalidDefinition, "expression"},
		{object{"source": object{"events": list{object{"type": "a b", "data": 1}}}}, 400, domain.CodeInvalidRequest, "source.events[0].type"},
		{object{"source": object{"events": list{object{"type": "Placed", "id": "x", "data": 1}}}}, 400, domain.CodeInvalidRequest, "source.events[0].id"},
	} {
		a.post("/v1/upcasters/preview", c.body).wantProblem(c.status, c.code, c.where)
	}
	operator := w.operator()
	operator.post("/v1/upcasters/preview", object{"source": object{"last": 1}}).wantProblem(400, domain.CodeInvalidRequest, "source")
	operator.post("/v1/upcasters/preview", object{"source": object{"events": list{object{"type": "Placed", "data": 1}}}}).want(200)
	writer := &actor{w, w.key(a.tenantID, auth.ScopeProjectionsWrite), a.tenantID}
	writer.post("/v1/upcasters/preview", object{"source": object{"stream": "order-1"}}).wantProblem(403, domain.CodeForbidden, "")
	writer.post("/v1/upcasters/preview", object{"source": object{"events": list{object{"type": "Placed", "data": 1}}}}).want(200)
}
func TestAChangedUpcasterRebuildsWhatItTouches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	operator := w.operator()
	a := w.tenant("acme")
	a.post("/v1/projections", object{"name": "placed", "on": object{"OrderPlaced": "merge(doc, event.data)"}}).want(201)
	operator.post("/v1/projections", object{"name": "everyones", "on": object{"OrderPlaced": "merge(doc, event.data)"}}).want(201)
	a.post("/v1/streams/order-1/events", list{object{"type": "OrderPlaced", "data": object{"customer": "c-1"}}}).want(201)
	document := func() any {
		t.Helper()
		return a.get("/v1/projections/placed/documents/order-1?minPosition=1&timeout=20").want(200).at("document")
	}
	equal(t, "the document", document(), object{"customer": "c-1"})

	changed := a.send("PUT", "/v1/upcasters/OrderPlaced/1", object{"expression": customerUpcaster, "rebuild": true}).want(201)
	equal(t, "what the operator rebuilds", changed.at("touches", "projections", 1), object{"name": "everyones", "shared": true})
	a.rebuilt("placed", changed.text("touches", "projections", 0, "rebuild"))
	equal(t, "the document", document(), object{"customer": object{"id": "c-1"}})
	// The same upcaster again, with a rebuild all the same. Then it is removed.
	same := a.send("PUT", "/v1/upcasters/OrderPlaced/1", object{"expression": customerUpcaster, "rebuild": true}).want(200)
	a.rebuilt("placed", same.text("touches", "projections", 0, "rebuild"))
	equal(t, "the document", document(), object{"customer": object{"id": "c-1"}})
	gone := a.send("DELETE", "/v1/upcasters/OrderPlaced/1?rebuild=true", nil).want(200)
	a.rebuilt("placed", gone.text("touches", "projections", 0, "rebuild"))
	equal(t, "the document", document(), object{"customer": "c-1"})
}

// rebuilt waits for the end of a rebuild.
func (a *actor) rebuilt(projection, id string) {
	a.t.Helper()
	path := "/v1/projections/" + projection + "/rebuilds/" + id
	for {
		answer := a.get(path).want(200)
		switch state := answer.text("state"); state {
		case "swapped":
			return
		case "failed", "cancelled":
			a.t.Fatalf("the rebuild is %s: %s", state, answer.body)
		}
	}
}
