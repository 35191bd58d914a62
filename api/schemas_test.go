package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// testSchemas runs the documented requests of schemas.
func testSchemas(t *testing.T, documented *documentation, a *actor) {
	t.Helper()
	documented.params["version"] = "1"
	documented.run(a, "putSchema", 201)
	documented.run(a, "putSchema", 200)
	documented.run(a, "putSchemaRule", 200)
	documented.run(a, "getSchema", 200)
	documented.run(a, "getSchemaVersion", 200)
	documented.run(a, "listSchemas", 200)
	documented.run(a, "eventContract", 200)
	documented.run(a, "checkSchema", 200)
	a.send("PUT", "/v1/schema-rules/order", object{"mode": "off"}).want(200)
	documented.run(a, "deleteSchema", 204)
}

// A CloudEvent names the version of its schema in its metadata. Its dataschema is only kept.
func TestCloudEventsNameTheVersionOfTheirSchema(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.send("PUT", schemaPath, object{"schema": object{"type": "integer"}}).want(201)
	a.send("PUT", schemaPath, object{"schema": object{"type": "string"}, "upcaster": object{"expression": "string(event.data)"}}).want(201)
	a.send("PUT", "/v1/schema-rules/order", object{"mode": "enforce"}).want(200)
	event := object{"specversion": "1.0", "id": "1", "source": "/shop", "type": "OrderPlaced", "data": "x", "dataschema": "https://shop.example/v1/schemas/OrderPlaced/versions/2"}
	a.post("/v1/publish?topic=order", event, "Content-Type", "application/cloudevents+json").wantProblem(422, domain.CodeSchemaViolation, "data")
	event["manifoldmetadata"] = `{"schemaVersion": 2}`
	stored := a.post("/v1/publish?topic=order", event, "Content-Type", "application/cloudevents+json").want(201)
	got := a.get("/v1/events/"+stored.text("events", 0, "id"), "Accept", "application/cloudevents+json").want(200)
	equal(t, "the data's schema", got.at("dataschema"), event["dataschema"])
}

// A schema and its upcaster are stored together, or not at all.
func TestASchemaIsPutWithItsUpcaster(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	a.send("PUT", "/v1/projections/placed", object{"on": object{"OrderPlaced": "merge(doc, event.data)"}}).want(201, 202)
	a.send("PUT", "/v1/projections/other", object{"on": object{"Other": "merge(doc, event.data)"}}).want(201, 202)
	a.send("PUT", "/v1/aggregates/order", object{"initial": object{}, "on": object{"OrderPlaced": "merge(state, event.data)"}}).want(200, 201)
	renamed := func(expression string) object {
		body := placed(func(s object) {
			s["required"], s["properties"] = list{"buyer"}, object{"buyer": object{"type": "string"}}
		})
		body["upcaster"] = object{"expression": expression}
		return body
	}
	const expression = `{"buyer": event.data.customer}`
	upcasters := func() list { return a.get("/v1/upcasters").want(200).at("upcasters").(list) }

	a.send("PUT", schemaPath, renamed(expression)).wantProblem(400, domain.CodeInvalidRequest, "upcaster")
	a.get(schemaPath).wantProblem(404, domain.CodeNotFound, "")
	first := a.send("PUT", schemaPath, placed(nil)).want(201)
	equal(t, "without an upcaster, nothing is touched", first.json()["touches"], nil)
	a.send("PUT", schemaPath, renamed("event.")).wantProblem(422, domain.CodeInvalidDefinition, "upcaster.expression")
	refused := renamed(expression)
	refused["schema"] = object{"type": "none"}
	a.send("PUT", schemaPath, refused).wantProblem(422, domain.CodeInvalidDefinition, "schema/type")
	equal(t, "after refused ones", list{a.get(schemaPath).want(200).at("version"), len(upcasters())}, list{1, 0})

	second := a.send("PUT", schemaPath, renamed(expression)).want(201)
	equal(t, "the version", list{second.at("version"), second.at("default"), second.at("versions", 1, "breaking")}, list{2, 1, true})
	equal(t, "what it touches", second.at("touches"), object{"projections": list{object{"name": "placed", "shared": false}}, "aggregates": list{"order"}})
	stored := upcasters()
	equal(t, "the upcaster", list{len(stored), stored[0].(object)["version"], stored[0].(object)["expression"]}, list{1, 1, expression})

	again := renamed(expression)
	again["upcaster"].(object)["rebuild"] = true
	repeated := a.send("PUT", schemaPath, again).want(200)
	equal(t, "a repeat", list{repeated.at("version"), len(upcasters())}, list{2, 1})
	if repeated.text("touches", "projections", 0, "rebuild") == "" {
		t.Errorf("no rebuild was started: %s", repeated.body)
	}
	const other = `{"buyer": "?"}`
	a.send("PUT", schemaPath, renamed(other)).want(200)
	equal(t, "a changed upcaster", upcasters()[0].(object)["expression"], other)

	// A compatible version stays one: events that name no version have its form.
	a.send("PUT", "/v1/schemas/Wide", object{"schema": object{"type": "null"}}).want(201)
	a.send("PUT", "/v1/schemas/Wide", object{"schema": true}).want(201)
	a.send("PUT", "/v1/schemas/Wide", object{"schema": true, "upcaster": object{"expression": "null"}}).wantProblem(409, domain.CodeConflict, "upcaster")

	// An older version has its own personal fields.
	wide := a.send("PUT", "/v1/schemas/Wide", object{"version": 1, "personal": list{"/a"}}).want(200)
	equal(t, "personal fields of version 1", wide.at("versions", 0, "personal"), list{"/a"})
	equal(t, "those of version 2", wide.at("versions", 1, "personal"), nil)
	a.send("PUT", "/v1/schemas/Wide", object{"version": 3, "personal": list{"/a"}}).wantProblem(404, domain.CodeNotFound, "version")
	a.send("PUT", "/v1/schemas/Wide", object{"version": 1}).wantProblem(400, domain.CodeInvalidRequest, "version")

	// If the tables of upcasters refuse, there is no version either.
	for i := range 30 {
		a.send("PUT", fmt.Sprintf("/v1/upcasters/Full/%d", i+2), object{"expression": "event.data"}).want(201)
	}
	a.send("PUT", "/v1/schemas/Full", object{"schema": object{"type": "string"}}).want(201)
	a.send("PUT", "/v1/schemas/Full", object{"schema": object{"type": "null"}, "upcaster": object{"expression": "null"}}).wantProblem(400, domain.CodeInvalidRequest, "")
	equal(t, "the version without room for its upcaster", a.get("/v1/schemas/Full").want(200).at("version"), 1)
}

const schemaPath = "/v1/schemas/OrderPlaced"

// placed is a schema that requires a customer.
func placed(change func(schema object)) object {
	schema := object{"type": "object", "required": list{"customer"}, "properties": object{"customer": object{"type": "string", "minLength": 1}, "total": object{"type": "number"}}}
	if change != nil {
		change(schema)
	}
	return object{"schema": schema}
}

func TestSchemasAreVersioned(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a, other := w.tenant("acme"), w.tenant("umbrella")
	a.get(schemaPath).wantProblem(404, domain.CodeNotFound, "")
	first := a.send("PUT", schemaPath, placed(nil)).want(201)
	equal(t, "the first version", list{first.at("version"), first.at("compatibility"), first.at("default")}, list{1, "backward", 1})
	a.send("PUT", schemaPath, placed(nil)).want(200)
	other.get(schemaPath).wantProblem(404, domain.CodeNotFound, "")

	refused := a.send("PUT", schemaPath, placed(func(s object) { s["required"] = list{"customer", "total"} })).wantProblem(409, domain.CodeConflict, "schema")
	violation := refused["violations"].(list)[0].(object)
	equal(t, "the violation", list{violation["pointer"], violation["rule"]}, list{"/required", "required"})
	second := a.send("PUT", schemaPath, placed(func(s object) { s["properties"].(object)["note"] = object{"type": "string"} })).want(201)
	equal(t, "an optional property", list{second.at("version"), second.at("default")}, list{2, 2})

	// An upcaster makes a breaking change possible. Events that name no version keep to the version before.
	renamed := placed(func(s object) {
		s["required"], s["properties"] = list{"buyer"}, object{"buyer": object{"type": "string"}}
	})
	a.send("PUT", schemaPath, renamed).wantProblem(409, domain.CodeConflict, "schema")
	a.send("PUT", "/v1/upcasters/OrderPlaced/2", object{"expression": `{"buyer": event.data.customer}`}).want(201)
	check := object{"schema": renamed["schema"]}
	equal(t, "a check says that it may be put", a.post(schemaPath+"/check", check).want(200).at("breaking"), true)
	third := a.send("PUT", schemaPath, renamed).want(201)
	equal(t, "a breaking version", list{third.at("version"), third.at("default"), third.at("versions", 2, "breaking")}, list{3, 2, true})
	a.send("PUT", "/v1/schema-rules/order", object{"mode": "enforce"}).want(200)
	a.post("/v1/streams/order-1/events", list{object{"type": "OrderPlaced", "data": object{"customer": "c"}}}).want(201)
	a.post("/v1/streams/order-1/events", list{object{"type": "OrderPlaced", "data": object{"buyer": "c"}}}).wantProblem(422, domain.CodeSchemaViolation, "events[0].data")
	a.post("/v1/streams/order-1/events", list{object{"type": "OrderPlaced", "data": object{"buyer": "c"}, "metadata": object{"schemaVersion": 3}}}).want(201)
	a.post("/v1/streams/order-1/events", list{object{"type": "OrderPlaced", "data": object{"customer": "c"}, "metadata": object{"schemaVersion": 3}}}).wantProblem(422, domain.CodeSchemaViolation, "events[0].data")
	a.post("/v1/streams/order-1/events", `[{"type": "OrderPlaced", "data": {"customer": "c"}, "metadata": {"schema\u0056ersion": 4}}]`).wantProblem(422, domain.CodeSchemaViolation, "events[0].metadata")
	equal(t, "the first version's schema", a.get(schemaPath+"/versions/1").want(200).json(), placed(nil)["schema"])
	a.get(schemaPath+"/versions/4").wantProblem(404, domain.CodeNotFound, "")

	a.send("PUT", "/v1/schemas/Other", object{"schema": object{"type": "string"}, "compatibility": "none"}).want(201)
	a.send("PUT", "/v1/schemas/Other", object{"schema": object{"type": "integer"}}).want(201)
	a.send("PUT", "/v1/schemas/Other", object{"schema": object{"type": "integer"}, "compatibility": "full-transitive"}).want(200)
	a.send("PUT", "/v1/schemas/Other", object{"schema": object{"type": "number"}}).wantProblem(409, domain.CodeConflict, "schema")
	a.send("PUT", "/v1/schemas/Other", object{"schema": object{"$ref": "https://example.com/"}}).wantProblem(422, domain.CodeInvalidDefinition, "schema/$ref")
	listed := a.get("/v1/schemas").want(200)
	equal(t, "the types", list{listed.at("schemas", 0, "type"), listed.at("schemas", 1, "type"), listed.at("schemas", 1, "compatibility"), listed.at("rules", 0, "mode")},
		list{"OrderPlaced", "Other", "full-transitive", "enforce"})
}

// A check of stored events shows their data, whatever their category. So it is closed to a key for one category, which
// may check made-up events.
func TestChecksOfStoredEventsNeedAllCategories(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.send("PUT", schemaPath, placed(nil)).want(201)
	a.post("/v1/streams/order-1/events", list{object{"type": "OrderPlaced", "data": object{"secret": 1}}}).want(201)
	for _, source := range []object{{"last": 1}, {"from": 1}} {
		check := object{"source": source}
		equal(t, "the invalid events", a.post(schemaPath+"/check", check).want(200).at("invalid"), 1)
		for _, grants := range [][]string{{"projections:write"}, {"projections:write", "events:read:order"}} {
			some := &actor{w, w.keyOf(a.tenantID, grants...), a.tenantID}
			if got := some.post(schemaPath+"/check", check); got.status != 403 || strings.Contains(string(got.body), "secret") {
				t.Errorf("with %v it is answered %d %s", grants, got.status, got.body)
			}
			made := object{"source": object{"events": list{object{"customer": 1}}}}
			equal(t, "a check of made-up events", some.post(schemaPath+"/check", made).want(200).at("invalid"), 1)
		}
	}
}

// Validation covers every way to append. What is refused leaves no trace.
func TestSchemasAreEnforced(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.send("PUT", schemaPath, placed(nil)).want(201)
	a.send("PUT", "/v1/schema-rules/order", object{"mode": "enforce"}).want(200)
	good, bad := object{"type": "OrderPlaced", "data": object{"customer": "c"}}, object{"type": "OrderPlaced", "data": object{"customer": "", "total": "1"}}
	problem := a.post("/v1/streams/order-1/events", list{good, bad}).wantProblem(422, domain.CodeSchemaViolation, "events[1].data")
	violations := problem["violations"].(list)
	for i, want := range []list{{"/customer", "minLength"}, {"/total", "type"}} {
		violation := violations[i].(object)
		equal(t, "a violation", list{violation["where"], violation["pointer"], violation["rule"]}, list{"events[1].data", want[0], want[1]})
		if violation["fix"] == "" {
			t.Errorf("%v has no fix", violation)
		}
	}
	a.get("/v1/streams/order-1").want(404)
	a.post("/v1/streams/other-1/events", list{bad}).want(201)
	a.post("/v1/append", object{"streams": list{object{"stream": "order-1", "events": list{good}}, object{"stream": "order-2", "events": list{bad}}}}).
		wantProblem(422, domain.CodeSchemaViolation, "streams[1].events[0].data")
	problem = a.post("/v1/publish", list{object{"topic": "order", "type": "OrderPlaced", "payload": good["data"]}, object{"topic": "order", "type": "OrderPlaced", "payload": bad["data"]}}).
		wantProblem(422, domain.CodeSchemaViolation, "messages[1].payload")
	equal(t, "the place of a violation", problem["violations"].(list)[0].(object)["where"], "messages[1].payload")
	a.post("/v1/streams/order-1/events", `{"specversion":"1.0","id":"1","source":"s","type":"OrderPlaced","data":{}}`, "Content-Type", "application/cloudevents+json").
		wantProblem(422, domain.CodeSchemaViolation, "data")
	lines := "{\"stream\":\"order-1\",\"type\":\"OrderPlaced\",\"data\":{\"customer\":\"c\"}}\n{\"stream\":\"order-1\",\"type\":\"OrderPlaced\",\"data\":{}}\n"
	for _, query := range []string{"?name=a&check=true", "?name=a&strict=false"} {
		report := a.importLines(query, lines)
		equal(t, "the bad lines", report["badLines"], 1)
		if reason := report["bad"].(list)[0].(object)["reason"].(string); !strings.HasPrefix(reason, "schema-violation: ") {
			t.Errorf("the reason is %q", reason)
		}
	}
	equal(t, "the appended line", len(objects(a.get("/v1/streams/order-1").want(200).at("events"))), 1)

	// Unknown types are a matter of the rule.
	unknown := list{object{"type": "OrderPaid", "data": 1}}
	a.post("/v1/streams/order-3/events", unknown).want(201)
	a.send("PUT", "/v1/schema-rules/order", object{"mode": "enforce", "unknownTypes": "refuse"}).want(200)
	a.post("/v1/streams/order-3/events", unknown).wantProblem(422, domain.CodeSchemaViolation, "events[0].type")

	// An append that was accepted can be repeated although its schema is narrower now.
	id := "0190d3a4-5b6c-7def-8123-456789abcde0"
	accepted := list{object{"id": id, "type": "OrderPlaced", "data": object{"customer": "c", "more": 1}}}
	a.post("/v1/streams/order-4/events", accepted).want(201)
	a.send("PUT", schemaPath, object{"schema": placed(func(s object) { s["additionalProperties"] = false })["schema"], "compatibility": "none"}).want(201)
	a.post("/v1/streams/order-4/events", accepted).want(200)
	a.post("/v1/streams/order-4/events", list{object{"type": "OrderPlaced", "data": object{"customer": "c", "more": 1}}}).wantProblem(422, domain.CodeSchemaViolation, "events[0].data")

	// With warn, the events are appended and counted.
	a.send("PUT", "/v1/schema-rules/order", object{"mode": "warn", "unknownTypes": "refuse"}).want(200)
	equal(t, "the events that violate", a.post("/v1/streams/order-5/events", list{bad, unknown[0]}).want(201).header.Get("Schema-Violations"), "2")
	checked := a.post(schemaPath+"/check", object{"source": object{"last": 100}}).want(200)
	equal(t, "the invalid events", list{checked.at("events"), checked.at("invalid")}, list{4, 3})
	from := a.post(schemaPath+"/check", object{"source": object{"from": 1}, "version": 1}).want(200)
	equal(t, "the invalid events of version 1", list{from.at("events"), from.at("invalid"), from.at("examples", 0, "violations", 0, "pointer")}, list{4, 2, "/customer"})
	a.send("PUT", "/v1/schema-rules/order", object{"mode": "off"}).want(200)
	equal(t, "without a rule", a.post("/v1/streams/order-6/events", list{bad}).want(201).header.Get("Schema-Violations"), "")
	a.post(schemaPath+"/check", object{"source": object{"last": 1, "from": 1}}).wantProblem(400, domain.CodeInvalidRequest, "source")
	(&actor{w, w.keyOf(a.tenantID, "projections:write"), a.tenantID}).post(schemaPath+"/check", object{"source": object{"last": 1}}).want(403)
}

func TestListOfSchemasWithTexts(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.send("PUT", "/v1/schemas/A", object{"schema": object{"type": "integer"}}).want(201)
	a.send("PUT", "/v1/schemas/B", object{"schema": object{"const": "<&>"}}).want(201)
	a.send("PUT", "/v1/schemas/B", object{"schema": object{}}).want(201)
	texts := func(query string) (all list) {
		t.Helper()
		for _, of := range a.get("/v1/schemas" + query).want(200).at("schemas").(list) {
			all = append(all, of.(object)["texts"])
		}
		return all
	}
	newest := object{"version": 2, "schema": object{}}
	integer := list{object{"version": 1, "schema": object{"type": "integer"}}}
	equal(t, "without texts", texts(""), list{nil, nil})
	equal(t, "the newest", texts("?texts=newest"), list{integer, list{newest}})
	equal(t, "all", texts("?texts=all"), list{integer, list{object{"version": 1, "schema": object{"const": "<&>"}}, newest}})
	a.get("/v1/schemas?texts=some").wantProblem(400, domain.CodeInvalidRequest, "query texts")
}

// Events get the tags that their type's schema derives, however they are appended.
func TestSchemasDeriveTags(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a, other := w.tenant("acme"), w.tenant("umbrella")
	const expression = `'customer:' + event.data.customer`
	a.send("PUT", schemaPath, object{"tags": expression}).wantProblem(404, domain.CodeNotFound, "")
	a.send("PUT", schemaPath, object{}).wantProblem(400, domain.CodeInvalidRequest, "schema")
	a.send("PUT", schemaPath, object{"schema": true, "tags": "event.position"}).wantProblem(422, domain.CodeInvalidDefinition, "tags")
	a.send("PUT", schemaPath, object{"schema": true}).want(201)
	a.send("PUT", "/v1/projections/ann", object{"source": object{"query": object{"items": list{object{"types": list{"OrderPlaced"}, "tags": list{"customer:ann"}}}}}, "on": object{"OrderPlaced": "merge(doc, event.data)"}}).want(201, 202)
	a.send("PUT", "/v1/projections/all", object{"on": object{"OrderPlaced": "merge(doc, event.data)"}}).want(201, 202)
	a.send("PUT", "/v1/subscriptions/ann", object{"query": object{"items": list{object{"tags": list{"customer:ann"}}}}}).want(201)
	put := a.send("PUT", schemaPath, object{"tags": expression}).want(200)
	equal(t, "the type", list{put.at("tags"), put.at("version"), put.at("retagging", "state")}, list{expression, 1, "waiting"})
	equal(t, "who reads by tags", put.at("tagReaders"), object{"projections": list{"ann"}, "groups": list{"ann"}})
	equal(t, "the list", a.get("/v1/schemas").want(200).at("schemas", 0, "retagging", "position"), 0)
	equal(t, "another tenant's list", other.get("/v1/schemas").want(200).at("schemas"), list{})
	few := &actor{w, w.key(a.tenantID, auth.ScopeEventsAppend), a.tenantID}
	few.send("PUT", schemaPath, object{"tags": ""}).wantProblem(403, domain.CodeForbidden, "")

	tagsOf := func(what string, id string, want ...any) {
		t.Helper()
		equal(t, what, a.get("/v1/events/" + id).want(200).json()["tags"], list(want))
	}
	placed := object{"type": "OrderPlaced", "data": object{"customer": "ann"}}
	appended := a.post("/v1/streams/order-1/events", list{object{"type": "OrderPlaced", "data": object{"customer": "ann"}, "tags": list{"z"}}}).want(201)
	tagsOf("an append", appended.text("events", 0, "id"), "customer:ann", "z")
	published := a.post("/v1/publish", list{object{"topic": "order", "type": "OrderPlaced", "payload": object{"customer": "ann"}}}).want(201)
	tagsOf("a message", published.text("events", 0, "id"), "customer:ann")
	cloud := a.post("/v1/publish?topic=order", object{"specversion": "1.0", "id": "1", "source": "/shop", "type": "OrderPlaced", "data": object{"customer": "bob"}}, "Content-Type", "application/cloudevents+json").want(201)
	tagsOf("a CloudEvent", cloud.text("events", 0, "id"), "customer:bob")
	a.post("/v1/append", object{
		"streams":   list{object{"stream": "order-2", "events": list{placed}}},
		"condition": object{"failIfEventsMatch": object{"items": list{object{"types": list{"OrderPlaced"}, "tags": list{"customer:ann"}}}}},
	}).wantProblem(409, domain.CodeConditionFailed, "condition")
	refused := a.post("/v1/streams/order-1/events", list{placed, object{"type": "OrderPlaced", "data": object{}}}).wantProblem(422, domain.CodeSchemaViolation, "events[1].data")
	equal(t, "the violation", refused["violations"].(list)[0].(object)["rule"], "tags")

	checked := a.post(schemaPath+"/check", object{"tags": "event.data.customer == 'bob' ? 'b' : event.data.nope", "source": object{"last": 10}}).want(200)
	equal(t, "what is checked", list{checked.at("events"), checked.at("invalid"), checked.at("derived", 0, "tags"), checked.at("derived", 0, "position"), checked.at("examples", 0, "violations", 0, "rule")},
		list{3, 2, list{"b"}, 3, "tags"})
	a.post(schemaPath+"/check", object{"tags": "event."}).wantProblem(422, domain.CodeInvalidDefinition, "tags")
}

// A command's boundary sees the tags that schemas derive for all commands' events, also its own.
func TestBoundariesSeeDerivedTags(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.send("PUT", "/v1/schemas/Registered", object{"schema": true, "tags": `'name:' + event.data.name`}).want(201)
	a.send("PUT", "/v1/aggregates/user", object{"initial": object{}, "on": object{"Registered": "state"}, "commands": object{"Register": object{
		"boundary": object{"names": object{"query": list{object{"tags": "['name:' + command.name]"}}, "initial": object{"taken": false}, "on": object{"Registered": "{'taken': true}"}}},
		"require":  list{object{"if": "!boundary.names.taken", "reject": "taken"}},
		"emit":     list{object{"Registered": "{'name': command.name}"}},
	}}}).want(200, 201)
	register := func(id, query string) *answer {
		return a.post("/v1/aggregates/user/"+id+"/commands/Register"+query, object{"data": object{"name": "ann"}})
	}
	equal(t, "a dry run", register("1", "?dryRun=true").want(200).at("events", 0, "tags"), list{"name:ann"})
	equal(t, "the command", register("1", "").want(200).at("events", 0, "tags"), list{"name:ann"})
	register("1", "").wantProblem(422, domain.CodeRejected, "")
	register("2", "").wantProblem(422, domain.CodeRejected, "")
	register("2", "?dryRun=true").want(200)
}
