package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/api/gateway"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// asyncContract is asyncapi.yaml, prepared for checking messages.
type asyncContract struct {
	doc      object
	compiler *jsonschema.Compiler
	messages map[string]*asyncMessage // by component name
	ops      map[string]*asyncMessage // messages from gateway clients, by op
	answers  map[string]string        // by op of the request: the name of the answer that is not ERR
	sent     map[string]string        // messages that the gateway sends unasked, by op: their names
	byName   map[string]object        // operations
}

type asyncMessage struct {
	name     string
	op       string // empty: none
	schema   *jsonschema.Schema
	fields   []string
	examples []object
}

func loadAsyncContract(t testing.TB) *asyncContract {
	t.Helper()
	text, err := yaml.YAMLToJSON(openapi.AsyncYAML)
	must(t, err)
	return readAsyncContract(t, text)
}

func readAsyncContract(t testing.TB, text []byte) *asyncContract {
	t.Helper()
	c := &asyncContract{
		messages: map[string]*asyncMessage{}, ops: map[string]*asyncMessage{}, answers: map[string]string{}, sent: map[string]string{},
		byName: map[string]object{}, compiler: jsonschema.NewCompiler(),
	}
	must(t, json.Unmarshal(text, &c.doc))
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)
	c.compiler.DefaultDraft(jsonschema.Draft7) // AsyncAPI's own draft is a superset of it
	c.compiler.AssertFormat()
	must(t, c.compiler.AddResource("asyncapi.json", plain))
	for name, m := range member(t, c.doc, "components", "messages") {
		message := &asyncMessage{name: name}
		place, payload := "asyncapi.json#/components/messages/"+name+"/payload", m.(object)["payload"].(object)
		if inner, ok := payload["schema"].(object); ok && payload["schemaFormat"] != nil {
			place, payload = place+"/schema", inner
		}
		message.schema, err = c.compiler.Compile(place)
		must(t, err)
		message.op, message.fields = fieldsOf(payload)
		examples, _ := m.(object)["examples"].(list)
		for _, example := range examples {
			message.examples = append(message.examples, example.(object)["payload"].(object))
		}
		c.messages[name] = message
	}
	for name, operation := range member(t, c.doc, "operations") {
		o := operation.(object)
		c.byName[name] = o
		if lastOf(o["channel"]) != "gateway" {
			continue
		}
		if o["action"] == "send" {
			for _, of := range o["messages"].(list) {
				m := c.messages[lastOf(of)]
				c.sent[m.op] = m.name
			}
			continue
		}
		m := c.messages[lastOf(o["messages"].(list)[0])]
		c.ops[m.op] = m
		for _, of := range member(t, o, "reply")["messages"].(list) {
			if answer := c.messages[lastOf(of)]; answer.op == "OK" {
				c.answers[m.op] = answer.name
			}
		}
	}
	return c
}

// fieldsOf returns an object's op, if it has one, and its fields.
func fieldsOf(schema object) (op string, fields []string) {
	alternatives, _ := schema["oneOf"].(list)
	for _, alternative := range append(alternatives, schema) {
		properties, _ := alternative.(object)["properties"].(object)
		for name, property := range properties {
			if text, ok := property.(object)["const"].(string); ok && name == "op" {
				op = text
			}
			fields = append(fields, name)
		}
	}
	return op, fields
}

// lastOf returns the last part of a reference.
func lastOf(reference any) string {
	path := reference.(object)["$ref"].(string)
	return path[strings.LastIndexByte(path, '/')+1:]
}

func member(t testing.TB, of object, path ...string) object {
	t.Helper()
	for _, name := range path {
		inner, ok := of[name].(object)
		if !ok {
			t.Fatalf("asyncapi.yaml: there is no object %s", strings.Join(path, "."))
		}
		of = inner
	}
	return of
}

// check checks a message against its schema. A message of the service must not have additional fields.
func (m *asyncMessage) check(text []byte, complete bool) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if err := m.schema.Validate(value); err != nil {
		return err
	}
	if complete {
		for name := range value.(object) {
			if !slices.Contains(m.fields, name) {
				return &json.UnmarshalTypeError{Field: name, Value: "a field that is not in asyncapi.yaml"}
			}
		}
	}
	return nil
}

// references returns all references of a document, each of which must lead somewhere.
func references(t testing.TB, doc object) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	var walk func(place string, value any)
	walk = func(place string, value any) {
		switch v := value.(type) {
		case object:
			if reference, ok := v["$ref"].(string); ok {
				used[reference] = true
				var here any = doc
				path, err := url.PathUnescape(strings.TrimPrefix(reference, "#/"))
				must(t, err)
				for part := range strings.SplitSeq(path, "/") {
					o, _ := here.(object)
					here = o[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
				}
				if here == nil {
					t.Errorf("%s: %s leads nowhere", place, reference)
				}
			}
			for name, inner := range v {
				if name != "const" { // a value, which may look like a reference
					walk(place+"."+name, inner)
				}
			}
		case list:
			for _, inner := range v {
				walk(place, inner)
			}
		}
	}
	walk("", doc)
	return used
}

// The contract is well-formed: references resolve, examples match their schemas, every definition is used, and the
// channels are those of openapi.yaml.
func TestAsyncContractIsValid(t *testing.T) {
	t.Parallel()
	c := loadAsyncContract(t)
	used := references(t, c.doc)
	for _, kind := range []string{"messages", "schemas", "securitySchemes", "correlationIds"} {
		for name := range member(t, c.doc, "components", kind) {
			if !used["#/components/"+kind+"/"+name] {
				t.Errorf("nothing refers to %s %s", kind, name)
			}
		}
	}
	for name, m := range c.messages {
		if len(m.examples) == 0 {
			t.Errorf("message %s has no example", name)
		}
		for _, example := range m.examples {
			text, err := json.Marshal(example)
			must(t, err)
			if err := m.check(text, true); err != nil {
				t.Errorf("an example of %s: %v", name, err)
			}
		}
	}
	spec := loadContract(t)
	for name, channel := range member(t, c.doc, "channels") {
		path := spec.Paths.Value(channel.(object)["address"].(string))
		if path == nil || path.Get == nil || path.Get.Responses.Status(101) == nil {
			t.Errorf("channel %s is no WebSocket of openapi.yaml", name)
		}
		for message := range channel.(object)["messages"].(object) {
			if reference := "#/channels/" + name + "/messages/" + message; name == "gateway" && !used[reference] {
				t.Errorf("no operation has the gateway's message %s", message)
			}
		}
	}
	for path, item := range spec.Paths.Map() {
		if item.Get != nil && item.Get.Responses.Status(101) != nil {
			if !strings.Contains(string(openapi.AsyncYAML), "address: "+path+"\n") {
				t.Errorf("asyncapi.yaml has no channel %s", path)
			}
		}
	}
	for name, o := range c.byName {
		if o["summary"] == "" {
			t.Errorf("operation %s has no summary", name)
		}
	}
	codes := member(t, c.doc, "components", "schemas", "Code")["enum"]
	equal(t, "the codes", codes, spec.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum)
	event := spec.Components.Schemas["Event"].Value
	equal(t, "an event's fields", slices.Sorted(maps.Keys(member(t, c.doc, "components", "schemas", "Event", "properties"))), slices.Sorted(maps.Keys(event.Properties)))
	equal(t, "a message's fields", slices.Sorted(maps.Keys(member(t, c.doc, "components", "schemas", "Message", "properties"))), slices.Sorted(maps.Keys(spec.Components.Schemas["Message"].Value.Properties)))
}

// The contract and the code have the same operations.
func TestAsyncContractHasTheCodesOperations(t *testing.T) {
	t.Parallel()
	c := loadAsyncContract(t)
	equal(t, "what clients may send", slices.Sorted(maps.Keys(c.ops)), gateway.OperationNames())
	equal(t, "what is answered", slices.Sorted(maps.Keys(c.answers)), gateway.OperationNames())
	sends := slices.Sorted(maps.Keys(c.sent))
	sends = append(sends, "OK")
	slices.Sort(sends)
	equal(t, "what the service sends", sends, slices.Sorted(slices.Values(gateway.SentOperations)))
	nobody := &actor{world: newWorld(t, nil)}
	if !bytes.Equal(nobody.get("/asyncapi.yaml").want(200).body, openapi.AsyncYAML) {
		t.Error("/asyncapi.yaml is not the contract")
	}
}

// Every kind of frame for WebSocket followers conforms to the contract.
func TestAsyncContractHasTheFrames(t *testing.T) {
	t.Parallel()
	a := newWorld(t, func(c *api.Config) { c.Heartbeat = 100 * time.Millisecond }).tenant("acme")
	a.append("order-1", 2)
	a.remove("order", 1)
	contract := loadAsyncContract(t)
	for name, channel := range member(t, contract.doc, "channels") {
		if name == "gateway" {
			continue
		}
		path := strings.NewReplacer("{streamId}", "order-1", "{category}", "order").Replace(channel.(object)["address"].(string))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		dial := func(subprotocols ...string) *websocket.Conn {
			ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(a.url, "http")+path, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + a.key}}, Subprotocols: subprotocols})
			must(t, err)
			return ws
		}
		ws, asCloudEvents := dial(), dial(cloudevents.Subprotocol)
		defer ws.CloseNow()
		defer asCloudEvents.CloseNow()
		for range 3 { // the event, and both kinds of positions
			_, text, err := asCloudEvents.Read(ctx)
			must(t, err)
			if err := contract.messages["cloudEvent"].check(text, true); err != nil {
				t.Errorf("%s: %s is not in the contract: %v", path, text, err)
			}
		}
		wanted := slices.DeleteFunc(slices.Sorted(maps.Keys(channel.(object)["messages"].(object))), func(name string) bool { return name == "cloudEvent" })
		for len(wanted) > 0 {
			_, text, err := ws.Read(ctx)
			must(t, err)
			known := false
			for message := range channel.(object)["messages"].(object) {
				if contract.messages[message].check(text, true) == nil {
					known = true
					wanted = slices.DeleteFunc(wanted, func(name string) bool { return name == message })
				}
			}
			if !known {
				t.Fatalf("%s: %s is not in the contract", path, text)
			}
		}
	}
}

// The document of a tenant's events is well-formed, and describes what followers get.
func TestEventContract(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a, other := w.tenant("acme"), w.tenant("umbrella")
	const path = "/v1/asyncapi.json"
	put := func(eventType string, schema any) {
		a.send("PUT", "/v1/schemas/"+url.PathEscape(eventType), object{"schema": schema, "compatibility": "none"}).want(201)
	}
	empty := a.get(path).want(200)
	equal(t, "the version without schemas", empty.at("info", "version"), "0")
	put("Placed", object{"type": "object", "required": list{"n"}, "properties": object{"n": object{"type": "integer"}}, "additionalProperties": false})
	put("Placed", object{
		"$id": "https://shop.example/placed", "type": "object", "required": list{"by"}, "additionalProperties": false,
		"properties": object{
			"by": object{"$ref": "#/$defs/a%20person~1who"}, "const": object{"$ref": "#now"}, "again": object{"$ref": "#"},
			"$ref": object{"const": object{"$ref": "#/nowhere"}},
		},
		"$defs": object{"a person/who": object{"$anchor": "now", "type": "string"}},
	})
	put("a/b", true)
	put("a:b", object{"type": "string"})
	put("a-b", object{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "null"})
	a.send("PUT", "/v1/schema-rules/order", object{"mode": "warn"}).want(200)
	got := a.get(path).want(200)
	tag := got.header.Get("ETag")
	a.get(path, "If-None-Match", tag).want(304)
	a.get(path, "If-None-Match", empty.header.Get("ETag")).want(200)
	if other.get(path).want(200).header.Get("ETag") == tag {
		t.Error("another tenant gets the same tag")
	}
	c := readAsyncContract(t, got.body)
	references(t, c.doc)
	equal(t, "the server", list{got.at("servers", "service", "host"), got.at("servers", "service", "protocol")}, list{strings.TrimPrefix(a.url, "http://"), "ws"})
	equal(t, "the categories", got.at("channels", "followCategory", "parameters", "category", "examples"), list{"order"})
	followed := slices.Sorted(maps.Keys(member(t, c.doc, "channels", "followAll", "messages")))
	equal(t, "the channel's messages", followed, []string{"caughtUp", "checkpoint", "cloudEvent", "event", "event.Placed", "event.a-b", "event.a-b-2", "event.a-b-3", "gap"})

	for _, event := range []struct {
		event object
		valid bool
	}{
		{object{"type": "Placed", "data": object{"n": 1}}, true},
		{object{"type": "Placed", "data": object{"by": "ann", "const": "x", "again": object{"by": "bob"}}}, true},
		{object{"type": "Placed", "data": object{"by": "ann", "$ref": object{"$ref": "#/nowhere"}}}, true},
		{object{"type": "Placed", "data": object{"by": "ann", "again": object{"by": 1}}}, false},
		{object{"type": "Placed", "data": object{"by": "ann", "const": 1}}, false},
		{object{"type": "Placed", "data": nil}, false},
	} {
		stored := a.post("/v1/streams/order-1/events", list{event.event}).want(201)
		text := a.get("/v1/events/" + stored.text("events", 0, "id")).want(200).body
		if err := c.messages["event.Placed"].check([]byte(`{"event":`+string(text)+`}`), true); (err == nil) != event.valid {
			t.Errorf("%v: %v", event.event, err)
		}
	}
	a.send("DELETE", "/v1/schemas/Placed", nil).want(204)
	changed := a.get(path, "If-None-Match", tag).want(200)
	if member(t, changed.json(), "components", "messages")["event.Placed"] != nil {
		t.Error("a removed type is still there")
	}
}

func TestEventContractIsBounded(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	reference := `{"$ref":"#"}`
	schema := `{"schema": {"prefixItems": [` + strings.Repeat(reference+",", 1900) + reference + `]}, "compatibility": "none"}`
	for i := range 30 {
		a.send("PUT", "/v1/schemas/"+strings.Repeat("x", 190)+strconv.Itoa(i), schema).want(201)
	}
	if err := a.get("/v1/asyncapi.json").wantProblem(413, domain.CodeTooLarge, ""); !strings.Contains(err["detail"].(string), "remove schemas") {
		t.Errorf("it is refused with %v", err)
	}
}
