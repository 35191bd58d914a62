package expr

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr/exprtest"
)

// What documents can have is read off the expression where it shows, and only there.
func TestShape(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`{'a': 1, 'b': {'c': 2}}`: "{a b{c}}",
		`{'a': 1, ?'b': doc.?b}`:  "{a b}",
		`doc`:                     "",
		`null`:                    "",
		`merge(doc, {'a': doc.?a.orValue(0) + 1})`:                             "{a*}",
		`merge(doc, {'a': merge(doc.?a.orValue({'c': 1}), {'b': null})})`:      "{a{b c}}",
		`{'a': event.type == 'x' ? doc.a : {'b': without(doc.a.b, 'c')}}`:      "{a{b}}",
		`{'a': merge(doc.a, {'b': doc['a']['b']}), 'c': doc[?'c'].orValue(1)}`: "{a{b} c}",
		`without(merge(doc, {'a': 1}), 'b')`:                                   "{a}",
		`event.type == 'x' ? {'a': 1} : merge(doc, {'b': 1})`:                  "{a b}",
		`{'a': {'b': event.data, 'c': [{'d': 1}]}}`:                            "{a{b* c*}}",
		`event.data`:                                         "*",
		`merge(doc, event.data)`:                             "*",
		`{event.type: 1, 'a': 2}`:                            "*",
		`event.type == 'x' ? {'a': 1} : event.data`:          "*",
		`{'a': 1}.transformMap(k, v, v)`:                     "*",
		`doc.?a.orValue({'b': 1})`:                           "*",
		`cel.bind(doc, event.data, merge(doc, {}))`:          "*",
		`{'a': doc.b, 'b': event.data.?c.orValue({'d': 1})}`: "{a* b*}",
		`{'a': doc, 'b': has(doc.a)}`:                        "{a* b*}",
		`{'a': merge(doc.a, event.data), 'b': {'c': 1}}`:     "{a* b{c}}",
	} {
		if got := mustFold(t, source).Shape().text(); got != want {
			t.Errorf("%s gives %s, want %s", source, got, want)
		}
	}
	shape := mustFold(t, `{'a': {'b': 1}, 'c': event.data}`).Shape()
	for path, want := range map[string]string{"a": "0 []", "a.b": "0 []", "c.x.y": "0 []", "x.y": "1 [a c]", "a.x.y": "2 [b]", "a.b.x": "3 []"} {
		if names, known := shape.Lacks(strings.Split(path, ".")); fmt.Sprint(names, " ", known) != want {
			t.Errorf("of %s %d names are lacking, beside %v; want %s", path, names, known, want)
		}
	}
}

// text is the shape for people: * where it is open.
func (s *Shape) text() string {
	if s.open {
		return "*"
	}
	var members []string
	for name, member := range s.members {
		members = append(members, name+member.text())
	}
	if slices.Sort(members); members == nil {
		return ""
	}
	return "{" + strings.Join(members, " ") + "}"
}

// shapeWriter draws expressions of objects.
type shapeWriter struct{ t *rapid.T }

func (w shapeWriter) value(depth int, path string) string {
	forms := []string{path, path, `dyn(1)`, `event.data`, `event.data.?a.orValue({'b': 1})`, `doc`, `doc.?a.orValue({})`, `doc.?b.?a.orValue({'a': 1})`}
	if depth == 0 {
		return rapid.SampledFrom(forms).Draw(w.t, "value")
	}
	switch form := rapid.SampledFrom(append(forms, "object", "object", "merge", "merge", "without", "conditional", "bind")).Draw(w.t, "value"); form {
	case "object":
		return w.object(depth, path)
	case "merge":
		return "merge(" + w.value(depth-1, path) + ", " + w.object(depth-1, path) + ")"
	case "without":
		return "without(" + w.value(depth-1, path) + ", 'a')"
	case "conditional":
		return "(event.data.n > 5 ? " + w.value(depth-1, path) + " : " + w.value(depth-1, path) + ")"
	case "bind":
		return "cel.bind(doc, event.data, " + w.value(depth-1, path) + ")"
	default:
		return form
	}
}

func (w shapeWriter) object(depth int, path string) string {
	var members []string
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "odd name"}), 0, 3, rapid.ID[string]).Draw(w.t, "names") {
		if name = strconv.Quote(name); depth > 0 {
			members = append(members, name+": "+w.value(depth-1, path+"[?"+name+"].orValue({})"))
		} else {
			members = append(members, name+": 1")
		}
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// Whatever a document has is not among what it is said to lack, however it has come there.
func TestShapesHaveWhatDocumentsHave(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		initial := exprtest.Document().Draw(t, "initial")
		doc, err := ParseDocument([]byte(initial))
		if err != nil {
			t.Fatal(err)
		}
		shape := new(Shape)
		shape.AddJSON(json.RawMessage(initial))
		folds := make([]*Fold, rapid.IntRange(1, 3).Draw(t, "expressions"))
		for i := range folds {
			if folds[i], err = CompileFold(ScopeProjection, shapeWriter{t}.value(3, "doc")); err != nil {
				t.Fatal(err)
			}
			shape.Add(folds[i].Shape())
		}
		var look func(path domain.Path, v Value)
		look = func(path domain.Path, v Value) {
			if names, _ := shape.Lacks(path); names > 0 {
				t.Fatalf("%q is said to be lacking, by %s", path, folds[0].Source())
			}
			if object, ok := v.(*Object); ok {
				for i := range object.Len() {
					name, value := object.Entry(i)
					look(append(path[:len(path):len(path)], name), value)
				}
			}
		}
		for range 6 {
			look(nil, doc)
			data := fmt.Sprintf(`{"n": %d, "a": %s}`, rapid.IntRange(0, 10).Draw(t, "n"), exprtest.Object(t, 2))
			fold := rapid.SampledFrom(folds).Draw(t, "fold")
			event := &domain.Event{Type: "x", Data: json.RawMessage(data)}
			if next, err := fold.Eval(doc, NewEvent(event)); err == nil && next != nil {
				doc = next
			}
		}
	})
}
