package expr

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func pathTexts(d *Decision) string {
	var texts []string
	for i := range d.Paths() {
		texts = append(texts, d.Paths()[i].String())
	}
	return strings.Join(texts, " ")
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`true`:       ``,
		`state.open`: `state.open`,
		`state.a.b == command.a && now > timestamp("2026-01-01T00:00:00Z")`:    `state.a.b command.a now`,
		`state.a > 1 || state.a < 0`:                                           `state.a`,
		`has(state.a.b) && state.a.b.c > 1`:                                    `state.a.b state.a.b.c`,
		`state.?a.b.orValue(1) == 1`:                                           `state.a.b`,
		`state["a b"].c == metadata["user"]`:                                   `state["a b"].c metadata.user`,
		`state[?"a"].hasValue()`:                                               `state.a`,
		`state[command.key] == id`:                                             `state command.key id`,
		`state.items[0].price > 1`:                                             `state.items`,
		`"a" in state`:                                                         `state`,
		`state.items.all(i, i.price < command.max)`:                            `state.items command.max`,
		`state.items.all(command, command.max < 3)`:                            `state.items`,
		`state.items.exists(state, state.n == .state.n) && state.m`:            `state.items state.n state.m`,
		`state.items.map(id, {"id": id, "of": [uuid]}).size() > 1 && id == ""`: `state.items uuid id`,
		`cel.bind(state, command, state.x > 1)`:                                `command`,
		`merge(state, {"a": command.b}).size() > 1`:                            `state command.b`,
		`(state.open ? command.a : command.b).c > 1`:                           `state.open command.a command.b`,
	} {
		d, err := CompileDecision(ScopeCommand, GivesBool, source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got := pathTexts(d); got != want {
			t.Errorf("%s reads %s, want %s", source, got, want)
		}
	}
}

func TestPathsAreBounded(t *testing.T) {
	t.Parallel()
	var terms []string
	for i := range 3 * MaxPaths {
		terms = append(terms, fmt.Sprintf("state.f%d", i))
	}
	d, err := CompileDecision(ScopeCommand, GivesBool, "["+strings.Join(terms, ", ")+"].size() > 1")
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Paths(); len(got) != MaxPaths || got[MaxPaths-1].String() != fmt.Sprintf("state.f%d", MaxPaths-1) {
		t.Errorf("got %s", pathTexts(d))
	}
}

// A path, evaluated as an expression, gives what Find finds, and fails if Find finds nothing.
func TestPathsFindWhatTheirExpressionsGive(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom([]string{"a", "b", "c d", "1"})
	compiled := map[string]*Decision{}
	rapid.Check(t, func(r *rapid.T) {
		in := Inputs{
			State: drawObject(r, names, 3), Command: drawObject(r, names, 2), Metadata: NewObject(nil), Now: time.Unix(0, 0), ID: "i", UUID: "u", Item: drawObject(r, names, 2),
		}
		source := rapid.SampledFrom(ScopeItem.variables()).Draw(r, "variable")
		for _, name := range rapid.SliceOfN(names, 0, 3).Draw(r, "fields") {
			source += fmt.Sprintf("[%q]", name)
		}
		d := compiled[source]
		if d == nil {
			var err error
			if d, err = CompileDecision(ScopeItem, GivesValue, source); err != nil {
				return // such as now["a"]
			}
			compiled[source] = d
		}
		want, err := d.Eval(nil, &in)
		if len(d.Paths()) != 1 {
			r.Fatalf("%s reads %s", source, pathTexts(d))
		}
		got, found := d.Paths()[0].Find(&in)
		if found != (err == nil) {
			r.Fatalf("%s: found is %t, but the expression gives %v, %v", source, found, want, err)
		}
		if found {
			one, _ := AppendJSON(nil, got)
			other, _ := AppendJSON(nil, want)
			if string(one) != string(other) {
				r.Fatalf("%s: found %s, but the expression gives %s", source, one, other)
			}
		}
	})
}

func drawObject(r *rapid.T, names *rapid.Generator[string], depth int) *Object {
	object := map[string]Value{}
	for _, name := range rapid.SliceOfNDistinct(names, 0, 3, rapid.ID).Draw(r, "names") {
		switch kind := rapid.IntRange(0, 3).Draw(r, "kind"); {
		case kind == 0 && depth > 0:
			object[name] = drawObject(r, names, depth-1)
		case kind == 1:
			object[name] = Null{}
		case kind == 2:
			object[name] = NewList(Int(1))
		default:
			object[name] = String(name)
		}
	}
	return NewObject(object)
}
