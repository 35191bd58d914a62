package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
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
	c := &asyncContract{
		messages: map[string]*asyncMessage{}, ops: map[string]*asyncMessage{}, answers: map[string]string{}, sent: map[string]string{},
		byName: map[string]object{}, compiler: jsonschema.NewCompiler(),
	}
	text, err := yaml.YAMLToJSON(openapi.AsyncYAML)
	must(t, err)
	must(t, json.Unmarshal(text, &c.doc))
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)
	c.compiler.DefaultDraft(jsonschema.Draft7) // AsyncAPI's own draft is a superset of it
	c.compiler.AssertFormat()
	must(t, c.compiler.AddResource("asyncapi.json", plain))
	for name, m := range member(t, c.doc, "components", "messages") {
		message := &asyncMessage{name: name}
		message.schema, err = c.compiler.Compile("asyncapi.json#/components/messages/" + name + "/payload")
		must(t, err)
		message.op, message.fields = fieldsOf(m.(object)["payload"].(object))
		for _, example := range objects(m.(object)["examples"]) {
			message.examples = append(message.examples, example["payload"].(object))
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

// The contract is well-formed: references resolve, examples match their schemas, every definition is used, and the
// channels are those of openapi.yaml.
func TestAsyncContractIsValid(t *testing.T) {
	t.Parallel()
	c := loadAsyncContract(t)
	var walk func(place string, value any)
	used := map[string]bool{}
	walk = func(place string, value any) {
		switch v := value.(type) {
		case object:
			if reference, ok := v["$ref"].(string); ok {
				used[reference] = true
				var here any = c.doc
				for part := range strings.SplitSeq(strings.TrimPrefix(reference, "#/"), "/") {
					o, _ := here.(object)
					here = o[part]
				}
				if here == nil {
					t.Errorf("%s: %s leads nowhere", place, reference)
				}
			}
			for name, inner := range v {
				walk(place+"."+name, inner)
			}
		case list:
			for _, inner := range v {
				walk(place, inner)
			}
		}
	}
	walk("", c.doc)
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
