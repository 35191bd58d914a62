package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"pgregory.net/rapid"
)

func mustFold(t testing.TB, source string) *Fold {
	t.Helper()
	fold, err := CompileFold(ScopeProjection, source)
	if err != nil {
		t.Fatal(err)
	}
	return fold
}

func TestFold(t *testing.T) {
	t.Parallel()
	doc, event := sample()
	fold := mustFold(t, `{
		'total': doc.total + event.data.price * event.data.qty, 'at': event.occurredAt, 'by': event.metadata}`)
	folded, err := fold.Eval(doc, NewEvent(&event))
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := folded.Get("at"); !ok || at != String("2026-01-31T10:59:00.000000Z") {
		t.Errorf("a time is kept as %v (%T)", at, at)
	}
	if text, err := AppendJSON(nil, folded); err != nil || string(text) != `{"at":"2026-01-31T10:59:00.000000Z","by":null,"total":13}` {
		t.Errorf("the document is %s, %v", text, err)
	}
	if folded, err := mustFold(t, `null`).Eval(doc, NewEvent(&event)); folded != nil || err != nil {
		t.Errorf("null gives %v, %v; want no document", folded, err)
	}
	if folded, err := mustFold(t, `doc`).Eval(doc, NewEvent(&event)); folded != doc || err != nil {
		t.Errorf("doc gives %v, %v; want the same document", folded, err)
	}
	for source, want := range map[string]Kind{
		`1`: KindResult, `[doc]`: KindResult, `'text'`: KindResult, `event.occurredAt`: KindResult, `doc.?total`: KindResult,
		`{'a': doc.?total}`: KindType, `{'a': type(1)}`: KindType, `{'a': '\u0000'}`: KindResult, `{'\u0000': 1}`: KindResult, `{'a': [[{'b': '\u0000'}]]}`: KindResult,
		`doc.nope`: KindMissingField,
	} {
		folded, err := mustFold(t, source).Eval(doc, NewEvent(&event))
		if fault, ok := errors.AsType[*EvalError](err); !ok || fault.Kind != want {
			t.Errorf("%s gives %v, %v; want a fault of kind %s", source, folded, err, want)
		}
	}
	state, err := CompileFold(ScopeAggregate, `merge(state, {'n': state.?n.orValue(0) + 1})`)
	if err != nil {
		t.Fatal(err)
	}
	if folded, err := state.Eval(NewObject(nil), NewEvent(&event)); err != nil || folded.Len() != 1 {
		t.Errorf("an aggregate's fold gives %v, %v", folded, err)
	}
}

func TestADocumentThatGrowsTooLargeIsAFault(t *testing.T) {
	t.Parallel()
	fold := mustFold(t, `merge(doc, {'list': doc.?list.orValue([]) + [event.data.text]})`)
	doc, event := NewObject(nil), largeEvent()
	for range 15 {
		var err error
		if doc, err = fold.Eval(doc, event); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := AppendJSON(nil, doc); err != nil || len(text) > MaxDocumentBytes || len(text) < 15<<20 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	_, err := fold.Eval(doc, event)
	if fault, ok := errors.AsType[*EvalError](err); !ok || fault.Kind != KindMemory {
		t.Errorf("the sixteenth megabyte: %v", err)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	_, event := sample()
	for source, want := range map[string]string{
		`event.stream`: "order-42-b", `event.key`: "42-b", `event.data.sku + '/' + string(event.data.qty)`: "x/4", `event.data.qty > 3 ? 'many' : null`: "many",
	} {
		key, err := CompileKey(source)
		if err != nil {
			t.Fatal(err)
		}
		if id, ok, err := key.Eval(NewEvent(&event)); id != want || !ok || err != nil {
			t.Errorf("%s gives %q, %v, %v; want %q", source, id, ok, err, want)
		}
	}
	for source, want := range map[string]string{
		`null`: "", `''`: "empty", `1`: "a key is a string", `lists.range(513).map(x, 'a').join()`: "513 bytes", `'\u0000'`: "U+0000", `event.data.nope`: "no field",
	} {
		key, err := CompileKey(source)
		if err != nil {
			t.Fatal(err)
		}
		id, ok, err := key.Eval(NewEvent(&event))
		switch {
		case ok:
			t.Errorf("%s gives %q", source, id)
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s fails with %v; want %q", source, err, want)
		}
	}
}

// folds are expressions that touch all kinds of values and run on any document.
func folds(t testing.TB) []*Fold {
	var out []*Fold
	for _, source := range []string{
		`merge(doc, {'n': doc.?n.orValue(0) + event.data.a})`,
		`merge(doc, {'n': doc.?n.orValue(1) * 1.5, 'at': event.occurredAt})`,
		`merge(doc, {'list': doc.?list.orValue([]) + [event.data.b], 'took': event.recordedAt - event.occurredAt})`,
		`merge(doc, {'seen': merge(doc.?seen.orValue({}), {event.data.c: doc.?seen[?event.data.c].orValue(0) + 1})})`,
		`merge(doc, {'list': doc.?list.orValue([]).map(x, {'was': x}), 'keys': doc.map(k, k)})`,
		`without(doc, doc.map(k, k).filter(k, k.size() == 1))`,
		`{'copy': doc.transformMap(k, v, [v]), 'event': event}`,
		`{'n': doc.?n.orValue(1) / 3, 'text': string(doc.?n.orValue(1)), 'half': doc.?half.orValue(10) / 2}`,
		`merge(doc, {'n': doc.?n.orValue(0) + doc.?half.orValue(0)})`,
		`merge(doc, {'list': [], 'copy': 0})`,
		`without(doc, ['list', 'seen'])`,
	} {
		out = append(out, mustFold(t, source))
	}
	return out
}

// Folding on from a document in memory must be the same as folding on from one that was stored in between: batches end
// anywhere, and a rebuild ends them elsewhere.
func TestFoldingDoesNotDependOnWhereDocumentsAreStored(t *testing.T) {
	t.Parallel()
	all := folds(t)
	rapid.Check(t, func(t *rapid.T) {
		inMemory, stored := NewObject(nil), NewObject(nil)
		for i := range rapid.IntRange(1, 12).Draw(t, "events") {
			data, err := AppendJSON(nil, NewObject(map[string]Value{
				"a": numberValues().Draw(t, "a"), "b": jsonValues(2).Draw(t, "b"), "c": String(rapid.StringMatching(`[a-c]{1,2}`).Draw(t, "c")),
			}))
			if err != nil {
				t.Fatal(err)
			}
			event := domain.Event{Stream: "s-1", Version: int64(i), Position: int64(i), Type: "T", Data: data, OccurredAt: time.Unix(int64(i), 500).UTC(), RecordedAt: time.Unix(int64(2*i), 0).UTC()}
			fold := rapid.SampledFrom(all).Draw(t, "fold")
			a, errA := fold.Eval(inMemory, NewEvent(&event))
			b, errB := fold.Eval(stored, NewEvent(&event))
			if fmt.Sprint(errA) != fmt.Sprint(errB) {
				t.Fatalf("%s: %v in memory, %v from the store", fold.Source(), errA, errB)
			}
			if errA != nil {
				continue
			}
			if !identical(a, b) {
				t.Fatalf("%s gives\n%v in memory, and\n%v from the store", fold.Source(), a, b)
			}
			text, err := AppendJSON(nil, a)
			if err != nil {
				t.Fatalf("%s gives what cannot be stored: %v", fold.Source(), err)
			}
			inMemory = a
			if stored, err = ParseDocument(text); err != nil {
				t.Fatal(err)
			}
			if again, err := AppendJSON(nil, stored); err != nil || !bytes.Equal(again, text) {
				t.Fatalf("%s is stored as %s, %v", text, again, err)
			}
		}
	})
}

func TestProgramsAreForManyGoroutines(t *testing.T) {
	t.Parallel()
	all := folds(t)
	doc, err := ParseDocument([]byte(`{"n": 3, "list": [1, "a", {"b": 2.5}], "seen": {"x": 1}, "half": 7}`))
	if err != nil {
		t.Fatal(err)
	}
	event := domain.Event{Stream: "s-1", Type: "T", Data: json.RawMessage(`{"a": 1, "b": [2], "c": "x"}`), OccurredAt: time.Unix(1, 0), RecordedAt: time.Unix(2, 0)}
	want := make([]string, len(all))
	for i, fold := range all {
		want[i] = foldText(t, fold, doc, event)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				for i, fold := range all {
					if got := foldText(t, fold, doc, event); got != want[i] {
						t.Errorf("%s gives %s, and alone %s", fold.Source(), got, want[i])
					}
				}
			}
		})
	}
	group.Wait()
}

func foldText(t *testing.T, fold *Fold, doc *Object, event domain.Event) string {
	folded, err := fold.Eval(doc, NewEvent(&event))
	if err != nil {
		t.Errorf("%s: %v", fold.Source(), err)
		return ""
	}
	text, err := AppendJSON(nil, folded)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
