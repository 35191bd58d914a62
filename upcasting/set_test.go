package upcasting

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

func up(owner domain.TenantID, eventType string, version int64, expression string) domain.Upcaster {
	return domain.Upcaster{Owner: owner, Type: eventType, Version: version, Expression: expression}
}

// setOf makes a set of layers, the one in force first.
func setOf(layers ...[]domain.Upcaster) *Set {
	set := &Set{}
	for _, upcasters := range layers {
		set.layers = append(set.layers, newLayer(upcasters, 1))
	}
	return set
}

func event(eventType, data, metadata string) domain.Event {
	e := domain.Event{Stream: "order-1", Version: 1, Position: 1, Type: eventType, Data: json.RawMessage(data)}
	if metadata != "" {
		e.Metadata = json.RawMessage(metadata)
	}
	return e
}

func TestAChainUpcastsToTheNewestVersion(t *testing.T) {
	t.Parallel()
	tenant := domain.NewTenantID()
	set := setOf(
		[]domain.Upcaster{up(tenant, "Placed", 2, `merge(event.data, {'second': 'own'})`)},
		[]domain.Upcaster{
			up(domain.Everyone, "Placed", 1, `{'customer': {'id': event.data.customer}, 'from': event.metadata.?schemaVersion.orValue(0)}`),
			up(domain.Everyone, "Placed", 2, `merge(event.data, {'second': 'shared'})`),
			up(domain.Everyone, "Placed", 4, `{'never': true}`),
			up(domain.Everyone, "Placed", 7, `merge(event.data, {'seen': event.metadata.schemaVersion})`),
			up(domain.Everyone, "Paid", 1, `event.data + 1`),
		},
	)
	for _, c := range []struct{ name, eventType, data, metadata, wantData, wantMetadata string }{
		{"from the first, by own and shared ones, up to the gap", "Placed", `{"customer":"c"}`, ``,
			`{"customer":{"id":"c"},"from":0,"second":"own"}`, `{"schemaVersion":3}`},
		{"metadata that says nothing of it", "Placed", `{"customer":"c"}`, `{"by": "x", "at": 1e2}`,
			`{"customer":{"id":"c"},"from":0,"second":"own"}`, `{"by":"x","at":1e2,"schemaVersion":3}`},
		{"a null is no version", "Placed", `{"customer":"c"}`, `{"schemaVersion": null}`,
			`{"customer":{"id":"c"},"from":null,"second":"own"}`, `{"schemaVersion":3}`},
		{"no metadata, as null", "Placed", `{"customer":"c"}`, `null`, `{"customer":{"id":"c"},"from":0,"second":"own"}`, `{"schemaVersion":3}`},
		{"from the middle", "Placed", `{"a": 1}`, `{"schemaVersion": 2.0}`, `{"a":1,"second":"own"}`, `{"schemaVersion":3}`},
		{"behind the gap", "Placed", `{}`, `{"schemaVersion":4}`, `{"never":true}`, `{"schemaVersion":5}`},
		{"each step sees the version that it is at", "Placed", `{}`, `{"schemaVersion":7,"x":"é\""}`, `{"seen":7}`, `{"x":"é\"","schemaVersion":8}`},
		{"metadata that has no place for it", "Paid", `1`, `["x"]`, `2`, `["x"]`},
		{"data that is no object", "Paid", `1`, ``, `2`, `{"schemaVersion":2}`},
		{"at the end of the chain", "Placed", `{ "a":1 }`, `{ "schemaVersion" : 3 }`, `{ "a":1 }`, `{ "schemaVersion" : 3 }`},
		{"another type", "Shipped", `{ "a":1 }`, `{ }`, `{ "a":1 }`, `{ }`},
		{"a version that is none", "Placed", `{ }`, `{"schemaVersion": "1"}`, `{ }`, `{"schemaVersion": "1"}`},
		{"a version below the first", "Placed", `{ }`, `{"schemaVersion": 0}`, `{ }`, `{"schemaVersion": 0}`},
		{"half a version", "Placed", `{ }`, `{"schemaVersion": 1.5}`, `{ }`, `{"schemaVersion": 1.5}`},
	} {
		e := event(c.eventType, c.data, c.metadata)
		before := e
		if err := set.Upcast(nil, &e); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if string(e.Data) != c.wantData || string(e.Metadata) != c.wantMetadata {
			t.Errorf("%s: it becomes %s with %s; want %s with %s", c.name, e.Data, e.Metadata, c.wantData, c.wantMetadata)
		}
		if string(before.Data) != c.data || string(before.Metadata) != c.metadata {
			t.Errorf("%s: what was read was written into", c.name)
		}
	}
	names := ""
	for _, one := range set.Upcasters(func(eventType string) bool { return eventType == "Placed" }) {
		names += fmt.Sprintf("%s by %v, ", one.Name(), one.Owner == tenant)
	}
	if want := "upcaster Placed/1 by false, upcaster Placed/2 by true, upcaster Placed/4 by false, upcaster Placed/7 by false, "; names != want {
		t.Errorf("in force are %s; want %s", names, want)
	}
	var none *Set
	e := event("Placed", `{}`, ``)
	if err := none.Upcast(nil, &e); err != nil || none.Concerns("Placed") || none.Upcasters(func(string) bool { return true }) != nil {
		t.Error("no set does something")
	}
}

func TestAFaultNamesTheUpcasterAndLeavesTheEvent(t *testing.T) {
	t.Parallel()
	set := setOf([]domain.Upcaster{
		up(domain.Everyone, "Placed", 1, `{'a': 1}`),
		up(domain.Everyone, "Placed", 2, "{'b':\n event.data.nope}"),
		up(domain.Everyone, "Paid", 1, `doc.total`),
	})
	e := event("Placed", `{}`, ``)
	err := set.Upcast(nil, &e)
	if err == nil || err.Upcaster.Name() != "upcaster Placed/2" || !strings.Contains(err.Error(), "upcaster Placed/2: line 2, column 13: ") {
		t.Fatalf("it gives %v", err)
	}
	if cause, ok := errors.AsType[*expr.EvalError](err); !ok || cause.Kind != expr.KindMissingField {
		t.Errorf("the cause is %v", err)
	}
	if string(e.Data) != `{}` || e.Metadata != nil {
		t.Errorf("the event is %s with %s", e.Data, e.Metadata)
	}
	// An upcaster that this release no longer accepts.
	e = event("Paid", `{}`, ``)
	if fault := set.Upcast(nil, &e); fault == nil || fault.Upcaster.Name() != "upcaster Paid/1" {
		t.Errorf("what does not compile gives %v", fault)
	}
}

// A chain is the composition of its steps; an event that none of them is for stays byte for byte as it is; and what has
// been upcast is upcast no further.
func TestAChainIsTheCompositionOfItsSteps(t *testing.T) {
	t.Parallel()
	expressions := []string{
		`merge(event.data, {'n': event.data.?n.orValue(0) + 1})`, `{'inside': event.data}`, `[event.data, event.metadata]`,
		`event.type`, `null`, `event.data`, `event.data.n`, `event.data == null ? {'n': 7} : event.data`,
	}
	metadata := []string{``, `{}`, `null`, `{"a": [1, 2.50], "b\u00e9": null}`, `[1]`, `"text"`}
	rapid.Check(t, func(t *rapid.T) {
		tenant := domain.NewTenantID()
		layers := [2][]domain.Upcaster{}
		inForce := map[int64]string{}
		for version := int64(1); version <= 6; version++ {
			for i, owner := range []domain.TenantID{tenant, domain.Everyone} {
				if rapid.Bool().Draw(t, "there") {
					expression := rapid.SampledFrom(expressions).Draw(t, "expression")
					layers[i] = append(layers[i], up(owner, "Placed", version, expression))
					if i == 0 || inForce[version] == "" {
						inForce[version] = expression
					}
				}
			}
		}
		set := setOf(layers[0], layers[1])
		e := event(rapid.SampledFrom([]string{"Placed", "Paid"}).Draw(t, "type"),
			rapid.SampledFrom([]string{`{"n": 1}`, `{ }`, `[ 1.0 ]`, `null`}).Draw(t, "data"), rapid.SampledFrom(metadata).Draw(t, "metadata"))
		version := int64(1)
		if rapid.Bool().Draw(t, "versioned") {
			version = rapid.Int64Range(1, 8).Draw(t, "version")
			e.Metadata = json.RawMessage(fmt.Sprintf(`{"schemaVersion": %d, "z": true}`, version))
		}
		keeps := len(e.Metadata) == 0 || e.Metadata[0] == '{' || string(e.Metadata) == "null"

		want, reached, failed := e, version, false
		for e.Type == "Placed" && inForce[reached] != "" && !failed {
			compiled, err := expr.CompileUpcaster(inForce[reached])
			if err != nil {
				t.Fatal(err)
			}
			data, err := compiled.Eval(expr.NewEvent(&want))
			if failed = err != nil; failed {
				want = e
				break
			}
			reached++
			want.Data = data
			if keeps {
				var members map[string]json.RawMessage
				if len(want.Metadata) > 0 {
					if err := json.Unmarshal(want.Metadata, &members); err != nil {
						t.Fatal(err)
					}
				}
				if members == nil {
					members = map[string]json.RawMessage{}
				}
				members["schemaVersion"] = json.RawMessage(fmt.Sprint(reached))
				if want.Metadata, err = json.Marshal(members); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := e
		err := set.Upcast(nil, &got)
		if (err != nil) != failed {
			t.Fatalf("it gives %v; the steps one by one fail: %v", err, failed)
		}
		if string(got.Data) != string(want.Data) || !equalJSON(t, got.Metadata, want.Metadata) {
			t.Fatalf("it becomes %s with %s; step by step %s with %s", got.Data, got.Metadata, want.Data, want.Metadata)
		}
		if reached == version && (string(got.Data) != string(e.Data) || string(got.Metadata) != string(e.Metadata)) {
			t.Fatalf("no step is for it, and it becomes %s with %s", got.Data, got.Metadata)
		}
		if err == nil && keeps && set.Concerns(e.Type) {
			again := got
			if err := set.Upcast(nil, &again); err != nil || string(again.Data) != string(got.Data) || string(again.Metadata) != string(got.Metadata) {
				t.Fatalf("once more it becomes %s with %s, %v", again.Data, again.Metadata, err)
			}
		}
	})
}

func equalJSON(t *rapid.T, a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	x, errX := expr.ParseJSON(a)
	y, errY := expr.ParseJSON(b)
	if errX != nil || errY != nil {
		t.Fatalf("%s: %v; %s: %v", a, errX, b, errY)
	}
	one, _ := expr.AppendJSON(nil, x)
	other, _ := expr.AppendJSON(nil, y)
	return string(one) == string(other)
}

// Whatever the metadata is, an event is upcast or stays as it is; its metadata stays what the log could keep.
func FuzzMetadata(f *testing.F) {
	for _, text := range []string{`{}`, `{"schemaVersion": 1}`, `{"schemaVersion":1,"schemaVersion":2}`, `{"\u0073chemaVersion": 2, "a": {"schemaVersion": 1}}`,
		`{"schemaVersion": 1e0}`, `{"schemaVersion": 99999999999999999999}`, `[]`, ` {}`, ``, `{"a`} {
		f.Add([]byte(text))
	}
	set := setOf([]domain.Upcaster{up(domain.Everyone, "Placed", 1, `{'two': event.metadata}`), up(domain.Everyone, "Placed", 2, `{'three': event.metadata}`)})
	f.Fuzz(func(t *testing.T, metadata []byte) {
		if len(metadata) > 0 && domain.CheckJSON(metadata) != nil {
			return
		}
		e := domain.Event{Stream: "order-1", Type: "Placed", Data: json.RawMessage(`{}`), Metadata: metadata}
		text := string(metadata)
		err := set.Upcast(nil, &e)
		if string(metadata) != text {
			t.Fatalf("%q was written into", text)
		}
		if len(e.Metadata) > 0 && domain.CheckJSON(e.Metadata) != nil {
			t.Fatalf("%q becomes %q", text, e.Metadata)
		}
		if err == nil && string(e.Data) != `{}` && len(e.Metadata) > 0 && e.Metadata[0] == '{' && !strings.HasSuffix(string(e.Metadata), `"schemaVersion":3}`) {
			t.Fatalf("%q becomes %q", text, e.Metadata)
		}
	})
}
