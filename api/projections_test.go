package api_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

func TestPreviewTellsNoEventsWithoutTheScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("a")
	a.post("/v1/streams/order-1/events", list{object{"type": "Placed", "data": object{"secret": "s3cret"}}}).want(201)
	writer := &actor{w, w.key(a.tenantID, auth.ScopeProjectionsWrite), a.tenantID}
	definition := object{"on": object{"*": "{'data': event.data}"}}
	for _, source := range []object{{"stream": "order-1"}, {"last": 5}} {
		refused := writer.post("/v1/projections/preview", object{"definition": definition, "source": source}).want(403)
		if strings.Contains(string(refused.body), "s3cret") {
			t.Errorf("it tells %s", refused.body)
		}
		got := a.post("/v1/projections/preview", object{"definition": definition, "source": source}).want(200)
		equal(t, "the document", got.at("documents", 0, "document"), object{"data": object{"secret": "s3cret"}})
	}
	given := object{"definition": definition, "source": object{"events": list{object{"type": "Placed", "data": 1}}}}
	for _, who := range []*actor{writer, w.operator()} {
		got := who.post("/v1/projections/preview", given).want(200)
		equal(t, "the document", got.at("documents", 0, "document"), object{"data": 1})
	}
	refused := w.operator().post("/v1/projections/preview", object{"definition": definition, "source": object{"last": 1}}).want(400)
	equal(t, "the place", refused.at("where"), "source")
}

func TestPreviewAnswers(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("a")
	preview := func(definition, source object) *answer {
		return a.post("/v1/projections/preview", object{"definition": definition, "source": source})
	}
	event := func(data any) object { return object{"stream": "order-1", "type": "Added", "data": data} }
	wrong := preview(object{"on": object{"Added": "doc.", "Other": "dok"}, "database": "nowhere"}, object{"events": list{event(1)}}).want(422)
	equal(t, "the code", wrong.at("code"), "invalid-definition")
	if !strings.Contains(string(wrong.body), "nowhere") {
		t.Errorf("a definition that is wrong is answered %s", wrong.body)
	}
	got := preview(object{"initial": object{"n": 0}, "on": object{"Added": "{'n': doc.n + event.data.n, 'text': '<&>'}", "Gone": "null"}}, object{"events": list{
		event(object{"n": 1}), object{"stream": "order-1", "type": "Gone", "data": object{}}, event(object{"n": 2}), event(object{"m": 1}), event(object{"n": 3}),
	}}).want(200)
	if !strings.Contains(string(got.body), "<&>") {
		t.Errorf("texts are not as they are in %s", got.body)
	}
	equal(t, "the second document", got.at("steps", 1, "document"), nil)
	if _, there := got.at("steps", 1).(object)["document"]; !there {
		t.Error("a document that is removed is not null but missing")
	}
	equal(t, "the steps", len(got.at("steps").(list)), 4)
	several := preview(object{"key": "[event.stream, {'id': 'all', 'item': event.data}]", "on": object{"Added": "{'key': key, 'item': item}"}}, object{"events": list{event(7)}}).want(200)
	equal(t, "the documents of an event", list{several.at("steps", 0, "documentId"), several.at("steps", 1, "documentId"), several.at("steps", 1, "item")}, list{"order-1", "all", 7})
	equal(t, "the second of these", several.at("steps", 1, "document"), object{"key": "all", "item": 7})
	fault := got.at("steps", 3, "fault").(object)
	equal(t, "where", fault["where"], "on.Added")
	equal(t, "the document before", fault["before"], object{"n": 2, "text": "<&>"})
	equal(t, "whose", fault["documentId"], "order-1")
	if !strings.Contains(fault["expression"].(string), "doc.n + event.data.n") {
		t.Errorf("the fault is %v", fault)
	}
	for _, source := range []object{{}, {"stream": "order-1", "last": 2}, {"last": 0}, {"events": list{}}} {
		preview(object{"on": object{"*": "doc"}}, source).want(400)
	}
	preview(object{"on": object{"*": "doc"}}, object{"stream": "order-7"}).want(404)
}

// A definition with If-Match does not overwrite a change that was made since it was read.
func TestDefinitionsOfARevision(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("a")
	put := func(onError string, headers ...string) *answer {
		return a.send("PUT", "/v1/projections/orders", object{"on": object{"*": "doc"}, "onError": onError}, headers...)
	}
	put("stop", "If-Match", `"1"`).wantProblem(412, domain.CodePreconditionFailed, "")
	put("stop", "If-None-Match", "*").want(201)
	put("park", "If-None-Match", "*").wantProblem(412, domain.CodePreconditionFailed, "")
	read := a.get("/v1/projections/orders").want(200).header.Get("ETag")
	put("park", "If-Match", read).want(200)
	put("park", "If-Match", read).want(200) // repeated
	put("stop", "If-Match", read).wantProblem(412, domain.CodePreconditionFailed, "")
	put("stop", "If-Match", read, "If-None-Match", "*").wantProblem(400, domain.CodeInvalidRequest, "If-Match")
	put("stop", "If-Match", "*").wantProblem(400, domain.CodeInvalidRequest, "")
	put("stop", "If-Match", a.get("/v1/projections/orders").want(200).header.Get("ETag")).want(200)
}

// A definition that leaves the documents unchanged takes effect at once, and each version names its author.
// A plan shows the errors with which the definition would be refused.
func TestPlansShowErrors(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("a")
	a.send("PUT", "/v1/projections/orders", object{"on": object{"*": "doc"}}).want(201)
	for name, definition := range map[string]object{
		"a syntax error":       {"on": object{"*": "doc +"}},
		"a type error":         {"on": object{"*": "1 + 'a'"}},
		"an unknown field":     {"on": object{"*": "event.dat"}},
		"a key":                {"on": object{"*": "doc"}, "key": "event.stream +"},
		"an inline projection": {"on": object{"*": "doc"}, "key": "event.dat", "mode": "inline"},
		"an assertion":         {"on": object{"*": "doc"}, "assert": list{"doc."}},
		"a map":                {"map": object{"*": "{"}},
		"an unknown database":  {"on": object{"*": "doc"}, "database": "none"},
	} {
		for _, projection := range []string{"orders", "others"} {
			definition["name"] = projection
			refused := a.send("PUT", "/v1/projections/"+projection, definition).want(422)
			planned := a.post("/v1/projections/plan", object{"definitions": list{definition}}).want(200).at("changes", 0, "errors").(list)
			equal(t, name+" of "+projection, planned[0], object{"field": refused.text("where"), "message": refused.text("detail")})
		}
	}
	for _, definition := range []object{
		{"on": object{"Placed": "doc +"}},
		{"on": object{"Placed": "state"}, "commands": object{"Place": object{"emit": list{object{"Placed": "command."}}}}},
	} {
		refused := a.send("PUT", "/v1/aggregates/order", definition).want(422)
		definition["category"] = "order"
		a.post("/v1/projections/plan", object{"definitions": list{}, "aggregates": list{definition}}).
			wantProblem(422, domain.CodeInvalidDefinition, "aggregates[0]."+refused.text("where"))
	}
}

func TestVersionsSayWho(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("a")
	put := func(onError string) *answer {
		return a.send("PUT", "/v1/projections/orders", object{"on": object{"*": "doc"}, "onError": onError})
	}
	put("stop").want(201)
	put("park").want(200)
	put("park").want(200)
	plan := a.post("/v1/projections/plan", object{"definitions": list{object{"name": "orders", "on": object{"*": "doc"}}}}).want(200)
	equal(t, "the plan", plan.at("changes", 0), object{"name": "orders", "action": "change", "changes": list{object{"field": "onError", "before": "park", "after": "stop"}}})
	versions := a.get("/v1/projections/orders/versions").want(200)
	equal(t, "how many", len(versions.at("versions").(list)), 2)
	equal(t, "the change", versions.at("versions", 0, "changes"), list{object{"field": "onError", "before": "stop", "after": "park"}})
	if by := versions.text("versions", 0, "by"); !strings.HasPrefix(by, "key ") || !strings.HasSuffix(by, " (test)") {
		t.Errorf("it is by %s", by)
	}
	a.send("DELETE", "/v1/projections/orders", nil).want(204)
	removed := a.get("/v1/projections/orders/versions").want(200)
	equal(t, "the last", removed.at("versions", 0, "cause"), "removed")
	w.tenant("b").get("/v1/projections/orders/versions").want(404)
}
