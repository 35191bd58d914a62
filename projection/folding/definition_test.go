package folding_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/folding"
)

const exampleYAML = `# an example
name: order-summary
source: {categories: [order]}
initial: {total: 0, items: []}
on:
  OrderPlaced:  '{"status": "placed", "customer": event.data.customer, "total": 0, "items": []}'
  ItemAdded:    'merge(doc, {"total": doc.total + event.data.price * event.data.qty, "items": doc.items + [event.data.sku]})'
  OrderCancelled: 'null'       # removes the document
indexes: [status, customer]
`

const exampleJSON = `{"name": "order-summary", "database": "default", "source": {"categories": ["order"]}, "key": "event.stream",
	"initial": {"items": [], "total": 0.0},
	"on": {
		"OrderPlaced": "{\"status\": \"placed\", \"customer\": event.data.customer, \"total\": 0, \"items\": []}",
		"ItemAdded": "merge(doc, {\"total\": doc.total + event.data.price * event.data.qty, \"items\": doc.items + [event.data.sku]})",
		"OrderCancelled": "null"},
	"indexes": ["status", "customer"], "mode": "async", "onError": "stop"}`

// orders is what exampleYAML and exampleJSON define.
var orders = folding.WithDefaults(domain.Definition{
	Name:    "order-summary",
	Source:  domain.Source{Categories: []string{"order"}},
	Initial: json.RawMessage(`{"total": 0, "items": []}`),
	On: map[string]string{
		"OrderPlaced":    `{"status": "placed", "customer": event.data.customer, "total": 0, "items": []}`,
		"ItemAdded":      `merge(doc, {"total": doc.total + event.data.price * event.data.qty, "items": doc.items + [event.data.sku]})`,
		"OrderCancelled": `null`,
	},
	Indexes: []string{"status", "customer"},
})

func TestParseDefinition(t *testing.T) {
	t.Parallel()
	for form, text := range map[string]string{"YAML": exampleYAML, "JSON": exampleJSON} {
		d, err := folding.ParseDefinition([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if !folding.SameDefinition(d, orders) {
			t.Errorf("%s gives %+v, not %+v", form, d, orders)
		}
		if err := rules.Check(domain.ProjectionID{Name: "order-summary"}, d); err != nil {
			t.Errorf("%s: %v", form, err)
		}
	}
}

var manyFields = func() (text string) {
	for i := range 100 {
		text += fmt.Sprintf("c%d: 1\n", i)
	}
	return text
}()

func TestParseDefinitionKeepsValues(t *testing.T) {
	t.Parallel()
	d, err := folding.ParseDefinition([]byte("name: p\non: {'*': doc}\ninitial:\n  big: 9007199254740993\n  text: \"a\\u2028\\\"b\"\n  yes: true\n  none: null\n  nested: [1.5, {a: -2}]\n  1: one\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"1":"one","big":9007199254740993,"nested":[1.5,{"a":-2}],"none":null,"text":"a` + "\u2028" + `\"b","yes":true}`
	if got := canonical(t, d.Initial); got != want {
		t.Errorf("initial is %s, want %s", got, want)
	}
}

// Each problem is reported with its place and, where possible, a remedy.
func TestParseDefinitionRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                                    {"0 YAML documents"},
		"name: p\n---\nname: q\n":             {"2 YAML documents"},
		"- a\n- b\n":                          {"line 1", "expected an object, not a list"},
		"name: p\nnaem: q\n":                  {"line 2", `unknown field "naem"`, "known are aggregate, assert, database"},
		"name: p\non:\n  A: null\n":           {"on.A, line 3", "not null", "'null'"},
		"name: p\non: {A: {a: 1}}\n":          {"on.A, line 2", "not an object", "in YAML, quote it"},
		"name: 7\non: {A: doc}\n":             {"name, line 1", "not the number 7"},
		"name: p\nname: q\n":                  {"name"},
		"name: p\nkey: *x\n":                  {"line 2"},
		"name: &x p\nkey: *x\n":               {"line 1", "anchors"},
		"name: !!str p\n":                     {"line 1", "tags"},
		"name: p\ninitial: .inf\n":            {"line 2", ".inf"},
		"name: p\nindexes: status\n":          {"indexes, line 2", "a list of strings"},
		"name: p\nindexes: [a, 1]\n":          {"indexes[1], line 2", "not the number 1"},
		"name: p\n  on: {\n":                  {"line"},
		"name: \xff\n":                        {"UTF-8"},
		"{\n\"name\": \"p\",\n\"x\": 1}":      {"line 3", `unknown field "x"`},
		"{\"name\": \"p\",\n\"name\": \"q\"}": {"line 2", `"name" is given twice`},
		"{\"name\": \"p\",\n\n\"on\": }":      {"line 3", "not JSON"},
		"{\"name\": \"p\", \"initial\": {\"a\": \"\\u0000\"}}":     {"U+0000"},
		"{\"name\": 1, \"key\": 2, \"on\": []}":                    {"3 problems", "name, line 1", "key, line 1", "on, line 1"},
		"a: " + strings.Repeat("[", 10_000):                        {"line 1", "nested"},
		strings.Repeat("- ", 5_000):                                {"line 1", "nested"},
		"name: " + strings.Repeat("x", folding.MaxDefinitionBytes): {"at most 262144"},
		strings.Repeat("name: x\n", 9000):                          {"at most 65536"},
		"name: {" + strings.Repeat("a: 1,", 4000) + "}":            {"line 1", "at most 16384"},
		"a: 1\nb: 2\n" + manyFields:                                {"102 problems", "and 82 more"},
	} {
		_, err := folding.ParseDefinition([]byte(text))
		mustName(t, text, err, want)
	}
}

var rules = folding.Rules{Databases: []string{"default", "reports"}, LogDatabase: "default", Handlers: map[string]folding.Handler{"counter": folding.UsageHandler()}}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	id := domain.ProjectionID{Owner: domain.NewTenantID(), Name: "p"}
	for text, want := range map[string][]string{
		"name: q\non: {A: doc}": {"name", `"q"`, `"p"`},
		"name: P\non: {A: doc}": {"name", "lower-case"},
		"name: p":               {"on", "at least one event type"},
		"name: p\ndatabase: warehouse\non: {A: doc}":                                                           {"database", `"warehouse"`, "default, reports"},
		"name: p\nsource: {categories: [a-b]}\non: {A: doc}":                                                   {"source.categories[0]"},
		"name: p\nsource: {categories: [a, a]}\non: {A: doc}":                                                  {"source.categories[1]", "twice"},
		"name: p\nsource: {query: {items: [{tags: [a, 'b c']}]}}\non: {A: doc}":                                {"source.query.items[0].tags[1]"},
		"name: p\non: {'a b': doc}":                                                                            {"on.a b", "event type"},
		"name: p\non: {A: 'doc +', B: 'dco', C: doc}":                                                          {"2 problems", "on.A: line 1, column", "on.B: line 1, column 1"},
		"name: p\nkey: event.strem\non: {A: doc}":                                                              {"key: line 1, column"},
		"name: p\ninitial: []\non: {A: doc}":                                                                   {"initial", "object"},
		"name: p\nindexes: ['a b']\non: {A: doc}":                                                              {"indexes[0]"},
		"name: p\nindexes: [a, a]\non: {A: doc}":                                                               {"indexes[1]", "twice"},
		"name: p\nassert: ['doc.n >']\non: {A: doc}":                                                           {"assert[0]: line 1"},
		"name: p\nassert: ['event.id == 1']\non: {A: doc}":                                                     {"assert[0]: line 1, column 1"},
		"name: p\nonError: ignore\non: {A: doc}":                                                               {"onError", `"ignore"`},
		"name: p\nhandler: counter":                                                                            {"handler", "only shared"},
		"name: p\ntotals: {sum: [n]}\non: {A: doc}":                                                            {"totals", "only a shared"},
		"name: p\nmap: {}":                                                                                     {"map", "at least one event type"},
		"name: p\nmap: {A: doc}":                                                                               {"map.A: line 1, column 1"},
		"name: p\nmap: {A: event.data}\non: {A: doc}":                                                          {"map", "replaces initial and on"},
		"name: p\nmap: {'a b': event.data}":                                                                    {"map.a b", "event type"},
		"name: p\nmode: map\non: {A: doc}":                                                                     {"mode", "map is no mode"},
		"name: p\nmode: eager\non: {A: doc}":                                                                   {"mode", `"eager"`},
		"name: p\nmode: live\nonError: park\non: {A: doc}":                                                     {"onError", "nothing can be parked"},
		"name: p\nmode: live\npartitionBy: a\non: {A: doc}":                                                    {"partitionBy", "nothing to partition"},
		"name: p\nmode: inline\nonError: park\non: {A: doc}":                                                   {"onError", "is refused, so nothing is ever parked"},
		"name: p\npartitionBy: a b\non: {A: doc}":                                                              {"partitionBy", "not the path of a field"},
		"name: p.1\non: {A: doc}":                                                                              {"name", "a letter after each dot"},
		"name: p.\non: {A: doc}":                                                                               {"name", "a letter after each dot"},
		"name: p.q.R\non: {A: doc}":                                                                            {"name", "a letter after each dot"},
		"name: p\npublishChanges: true\non: {A: doc}":                                                          {"source.categories", "must name its categories"},
		"name: p-q\npublishChanges: true\nsource: {categories: [a, p-q.changed]}\non: {A: doc}":                {"publishChanges", `"p.q"`, "source.categories", "own changes"},
		"name: dlq.p\npublishChanges: true\nsource: {categories: [a]}\non: {A: doc}":                           {"publishChanges", "reserved for reports"},
		"name: p\npublishChanges: true\nmode: live\nsource: {categories: [a]}\non: {A: doc}":                   {"publishChanges", "nothing is stored"},
		"name: " + strings.Repeat("p", 93) + "\npublishChanges: true\nsource: {categories: [a]}\non: {A: doc}": {"publishChanges", "101 bytes"},
		"name: p\nmode: inline\nkey: string(event.recordedAt)\non: {A: '{\"at\": event.occurredAt}', '*': 'event'}": {"4 problems", "key: with mode inline", "on.A: ", "event.occurredAt", "on.*: "},
		"name: p\nmode: inline\nmap: {A: '{\"at\": event.recordedAt}'}":                                             {"map.A", "event.recordedAt"},
	} {
		d, err := folding.ParseDefinition([]byte(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		mustName(t, text, rules.Check(id, d), want)
	}
	for text, want := range map[string][2]string{
		"name: p\ndatabase: reports\nmode: inline\non: {A: doc}": {"mode", `must be in the log's database, "default"`},
	} {
		d, err := folding.ParseDefinition([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		refusal, ok := errors.AsType[*domain.Error](rules.Check(id, d))
		if !ok || refusal.Code != domain.CodeUnsupported || refusal.Where != want[0] || !strings.Contains(refusal.Message, want[1]) {
			t.Errorf("%q: %+v", text, refusal)
		}
	}
	for _, text := range []string{
		"name: p\nmode: inline\nkey: event.data.k\non: {A: '{\"at\": event.position, \"data\": event.data}'}",
		"name: p\nmode: live\non: {A: doc}", "name: p\nonError: park\npartitionBy: customer.id\non: {A: doc}",
		"name: p\nsource: {categories: [heartbeat.received]}\npublishChanges: true\non: {A: doc}",
		"name: p\nmap: {A: event.data}\nmode: live", "name: p\nmap: {'*': 'null'}\nkey: event.stream\nonError: park",
	} {
		d, err := folding.ParseDefinition([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := rules.Check(id, d); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	shared := domain.ProjectionID{Name: "p"}
	mustName(t, "an unknown handler", rules.Check(shared, domain.Definition{Name: "p", Handler: "conuter"}), []string{"handler", `"conuter"`})
	mustName(t, "handler and on", rules.Check(shared, domain.Definition{Name: "p", Handler: "counter", On: map[string]string{"A": "doc"}}), []string{"leave those out"})
}

func mustName(t *testing.T, text string, err error, want []string) {
	t.Helper()
	if len(text) > 60 {
		text = text[:60]
	}
	refusal, ok := errors.AsType[*domain.Error](err)
	if !ok || refusal.Code != domain.CodeInvalidDefinition && refusal.Code != domain.CodeTooLarge {
		t.Errorf("%q: %v", text, err)
		return
	}
	for _, part := range want {
		if !strings.Contains(refusal.Error(), part) {
			t.Errorf("%q: %q does not say %q", text, refusal.Error(), part)
		}
	}
}

func TestSameDefinition(t *testing.T) {
	t.Parallel()
	base := domain.Definition{Name: "p", Source: domain.Source{Categories: []string{"a", "b"}}, On: map[string]string{"A": "doc"}, Initial: []byte(`{"a": 1, "b": 2}`)}
	same := base
	same.Source.Categories, same.Initial, same.Database, same.Key = []string{"b", "a"}, []byte(`{"b":2.0,"a":1}`), "default", "event.stream"
	if !folding.SameDefinition(base, same) {
		t.Error("the same in other words is another definition")
	}
	for name, change := range map[string]func(*domain.Definition){
		"on":        func(d *domain.Definition) { d.On = map[string]string{"A": "null"} },
		"types":     func(d *domain.Definition) { d.On = map[string]string{"A": "doc", "B": "doc"} },
		"key":       func(d *domain.Definition) { d.Key = "event.key" },
		"initial":   func(d *domain.Definition) { d.Initial = []byte(`{"a": 1, "b": "2"}`) },
		"database":  func(d *domain.Definition) { d.Database = "other" },
		"source":    func(d *domain.Definition) { d.Source.Categories = []string{"a"} },
		"indexes":   func(d *domain.Definition) { d.Indexes = []string{"a"} },
		"assert":    func(d *domain.Definition) { d.Assert = []string{"true"} },
		"handler":   func(d *domain.Definition) { d.Handler = "h" },
		"map":       func(d *domain.Definition) { d.On, d.Initial, d.Map = nil, nil, map[string]string{"A": "event.data"} },
		"partition": func(d *domain.Definition) { d.PartitionBy = "a" },
		"onError":   func(d *domain.Definition) { d.OnError = domain.OnErrorPark },
	} {
		other := base
		change(&other)
		if folding.SameDefinition(base, other) {
			t.Errorf("another %s makes no difference", name)
		}
	}
}

func TestReadDefinitions(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("b.yaml", exampleYAML)
	write("a.json", `{"name": "p", "on": {"A": "doc"}}`)
	write("README.md", "no definition")
	write("a.test.yaml", "cases: []")
	definitions, err := folding.ReadDefinitions(folder)
	if err != nil || len(definitions) != 2 || definitions[0].Definition.Name != "p" || definitions[1].Definition.Name != "order-summary" {
		t.Fatalf("%+v, %v", definitions, err)
	}
	for field, line := range map[string]int{"name": 2, "on": 5, "on.ItemAdded": 7, "indexes[1]": 9, "source.categories": 3, "on.Other": 5, "key": 1} {
		if got := definitions[1].Line(field); got != line {
			t.Errorf("%s is said to be on line %d", field, got)
		}
	}
	write("c.yml", "name: p\non: {A: doc}")
	write("d.yml", "name: [")
	_, err = folding.ReadDefinitions(folder)
	if err == nil || !strings.Contains(err.Error(), "c.yml:1: projection \"p\" is defined in "+filepath.Join(folder, "a.json")) || !strings.Contains(err.Error(), "d.yml:1: not YAML") {
		t.Errorf("two files with one name, and a broken one: %v", err)
	}
	if _, err := folding.ReadDefinitions(filepath.Join(folder, "nowhere")); err == nil {
		t.Error("a folder that does not exist has definitions")
	}
}

// No text causes a panic. An accepted definition compiles or is refused with a code, and round-trips.
func FuzzParseDefinition(f *testing.F) {
	f.Add([]byte(exampleYAML))
	f.Add([]byte(exampleJSON))
	f.Add([]byte("name: p\non: {'*': 'doc'}\nassert: [\"doc.n > 0\"]\ninitial: {a: [1, -2.5e3, 0x1f, 0o7, 1_000]}"))
	f.Add([]byte("? a\n: b\n<<: {c: d}\ne: |\n  text\nf: >-\n  text\n"))
	f.Add([]byte("{\"name\": \"p\", \"on\": {\"A\": \"doc\"}, \"initial\": {\"a\": 1e400}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := folding.ParseDefinition(text)
		if err != nil {
			if _, ok := errors.AsType[*domain.Error](err); !ok {
				t.Fatalf("not an error for the client: %v", err)
			}
			return
		}
		if !folding.SameDefinition(d, folding.WithDefaults(d)) {
			t.Fatal("defaults make it another definition")
		}
		if err := rules.Check(domain.ProjectionID{}, d); err != nil {
			if _, ok := errors.AsType[*domain.Error](err); !ok {
				t.Fatalf("not an error for the client: %v", err)
			}
			return
		}
		if _, err := folding.CompileWith(d, rules.Handlers); err != nil {
			t.Fatalf("it passes the check, but: %v", err)
		}
	})
}

func canonical(t testing.TB, data []byte) string {
	t.Helper()
	v, err := expr.ParseJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	text, err := expr.AppendJSON(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A folder may define aggregates, too; what defines projections alone refuses them.
func TestReadFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "name: a\non: {A: doc}\n", "b.yml": "on:\n  B: state\ncategory: b\n", "b.test.yaml": "cases: []\n", "c.json": "{\"category\": \"c\",\n\"on\": {}}",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	projections, aggregates, err := folding.ReadFolder(folder)
	if err != nil || len(projections) != 1 || len(aggregates) != 2 {
		t.Fatal(projections, aggregates, err)
	}
	b, c := aggregates[0], aggregates[1]
	if b.Category != "b" || string(b.JSON) != `{"on":{"B":"state"},"category":"b"}` || b.Line("on.B") != 2 || b.Examples != filepath.Join(folder, "b.test.yaml") ||
		c.Category != "c" || c.Line("on.X") != 2 || c.Examples != "" {
		t.Errorf("got %+v", aggregates)
	}
	if examples, err := folding.ReadExamples(folder, b.Examples); err != nil || len(examples) != 0 {
		t.Errorf("the examples of projections are %v, %v", examples, err)
	}
	if _, err := folding.ReadDefinitions(folder); err == nil || !strings.Contains(err.Error(), "b.yml:3: it defines an aggregate") {
		t.Errorf("as projections: %v", err)
	}
}

func TestDefinitionsHaveQueries(t *testing.T) {
	t.Parallel()
	want := domain.Query{{Types: []string{"A"}, Tags: []string{"x:1", "y"}}, {Tags: []string{"z"}}}
	d, err := folding.ParseDefinition([]byte("name: p\nsource:\n  query:\n    items:\n      - {types: [A], tags: ['x:1', y]}\n      - tags: [z]\non: {A: doc}"))
	if err != nil || !d.Source.Query.Items.Equal(want) {
		t.Errorf("%+v, %v", d.Source, err)
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	again, err := folding.ParseDefinition(text)
	if err != nil || !folding.SameDefinition(d, again) {
		t.Errorf("%s is %+v, %v", text, again, err)
	}
	for text, wrong := range map[string]string{
		"query: []": "source.query", "query: {tags: [a]}": "tags", "query: {items: []}": "source.query.items", "query: {items: [{tag: a}]}": "tag", "query: {items: [{tags: a}]}": "source.query.items[0].tags",
	} {
		if _, err := folding.ParseDefinition([]byte("name: p\nsource: {" + text + "}\non: {A: doc}")); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
