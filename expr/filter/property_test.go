package filter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/expr/exprtest"
)

// filterWriter draws filters of everything that they may be made of.
type filterWriter struct{ t *rapid.T }

func (w filterWriter) pick(options ...string) string {
	return rapid.SampledFrom(options).Draw(w.t, "pick")
}

func (w filterWriter) condition(depth int) string {
	forms := []string{"compare", "compare", "order", "in", "contains", "has", "text", "matches", "bare", "known", "present"}
	if depth > 0 {
		forms = append(forms, "and", "and", "or", "or", "not", "not", "conditional")
	}
	inner := func() string { return "(" + w.condition(depth-1) + ")" }
	switch w.pick(forms...) {
	case "and":
		return inner() + " && " + inner()
	case "or":
		return inner() + " || " + inner()
	case "not":
		return "!" + inner()
	case "conditional":
		return inner() + " ? " + inner() + " : " + inner()
	case "compare":
		field, constant := w.operand(depth, w.constant), w.constant()
		return w.mirrored(field, w.pick("==", "!="), constant)
	case "order":
		constants := rapid.SampledFrom([]func() string{w.number, w.text, w.bool}).Draw(w.t, "of")
		return w.mirrored(w.operand(depth, constants), w.pick("<", "<=", ">", ">="), constants())
	case "in":
		if w.pick("list", "list", "object") == "object" {
			return w.operand(depth, w.constant) + ` in {"a": 1, "ä": 2}`
		}
		return w.operand(depth, w.constant) + " in " + w.list()
	case "contains":
		if w.pick("field", "field", "document") == "document" {
			return w.constant() + " in doc"
		}
		return w.constant() + " in " + w.operand(depth, w.list)
	case "has":
		return "has(" + w.path() + w.pick(".", ".?a.", ".?a.?b.") + w.pick("a", "b", "c") + ")"
	case "text":
		return w.operand(depth, w.text) + w.pick(".startsWith(", ".endsWith(", ".contains(") + w.text() + ")"
	case "matches":
		pattern := strconv.Quote(w.pick("a", "^a$", "^(a|ä)", "b?$", `[^a]`, `\\.`, `(?i)A`, "(?s)^.*$", "^.*$", `\pL`, ""))
		if w.pick("member", "function") == "function" {
			return "matches(" + w.operand(depth, w.text) + ", " + pattern + ")"
		}
		return w.operand(depth, w.text) + ".matches(" + pattern + ")"
	case "bare":
		return w.operand(depth, w.bool)
	case "present":
		return w.optional() + ".hasValue(" + w.pick("", w.constant()) + ")"
	}
	return w.pick("true", "false", "1 < 2", "'a' in ['b']", "[1, 2].exists(x, x > 1)")
}

// mirrored writes a comparison either way round.
func (w filterWriter) mirrored(left, operator, right string) string {
	if w.pick("written", "mirrored") == "mirrored" {
		left, right = right, left
	}
	return left + " " + operator + " " + right
}

// operand is a field, which may be optional or one of several; constants draws what may stand in its place.
func (w filterWriter) operand(depth int, constants func() string) string {
	forms := []string{"path", "path", "path", "orValue", "value"}
	if depth > 0 {
		forms = append(forms, "conditional", "alternative")
	}
	switch w.pick(forms...) {
	case "orValue":
		return w.optional() + ".orValue(" + constants() + ")"
	case "value":
		return w.optional() + ".value()"
	case "conditional":
		return "((" + w.condition(depth-1) + ") ? " + w.operand(depth-1, constants) + " : " + w.pick(constants(), w.path()) + ")"
	case "alternative":
		return w.optional() + ".or(" + w.optional() + ").orValue(" + w.operand(depth-1, constants) + ")"
	}
	return w.path()
}

func (w filterWriter) path() string {
	path := "doc"
	for range rapid.IntRange(1, 3).Draw(w.t, "names") {
		name := rapid.SampledFrom(exprtest.Names).Draw(w.t, "name")
		if len(name) == 1 && name >= "a" && name <= "c" && w.pick("point", "brackets") == "point" {
			path += "." + name
		} else {
			path += "[" + strconv.Quote(name) + "]"
		}
	}
	return path
}

func (w filterWriter) optional() string {
	out := w.pick("doc", "doc", w.path()) + w.pick(`.?a`, `.?b`, `[?"odd name"]`)
	for range rapid.IntRange(0, 2).Draw(w.t, "more") {
		out += w.pick(".?a", ".b", `["c"]`, `[?"ä"]`)
	}
	return out
}

func (w filterWriter) text() string { return strconv.Quote(w.pick(exprtest.Texts...)) }
func (w filterWriter) bool() string { return w.pick("true", "false", "!true") }

func (w filterWriter) number() string {
	number := w.pick(append(exprtest.Numbers, "0.5 + 0.5", "60 * 60", "-(1)")...)
	if strings.HasPrefix(number, "9223372036854775808") {
		number += ".0"
	}
	return number
}

func (w filterWriter) constant() string {
	return w.pick(w.text(), w.number(), w.bool(), "null", "'a' + 'b'")
}

func (w filterWriter) list() string {
	items := make([]string, rapid.IntRange(0, 4).Draw(w.t, "constants"))
	for i := range items {
		items[i] = w.constant()
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// A document matches a filter if and only if the filter, evaluated on the document, gives true.
func TestFiltersMeanWhatTheirEvaluationGives(t *testing.T) {
	t.Parallel()
	outcomes := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		source := filterWriter{t}.condition(3)
		predicate, err := Compile(source)
		if failure, ok := errors.AsType[*expr.CompileError](err); ok && (strings.Contains(failure.Message, "comparisons and tests") || strings.Contains(failure.Message, "nested deeper")) {
			t.Skip("too large")
		}
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		program, err := expr.Compile(expr.ScopeDocument, source)
		if err != nil {
			t.Fatal(err)
		}
		if err := wellFormed(predicate); err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		for range 20 {
			document := exprtest.Document().Draw(t, "document")
			outcomes[checkMatch(t, source, program, predicate, document)]++
		}
	})
	if outcomes["true"] == 0 || outcomes["false"] == 0 || outcomes["fault"] == 0 {
		t.Errorf("the drawn filters gave only %v", outcomes)
	}
}

// Every comparison and test of a field with every kind of constant, written both ways round, on every kind of value.
func TestEveryTestOfAFieldOnEveryKindOfValue(t *testing.T) {
	t.Parallel()
	texts := make([]string, len(exprtest.Texts))
	for i, text := range exprtest.Texts {
		texts[i] = strconv.Quote(text)
	}
	numbers := slices.Clone(exprtest.Numbers)
	for i, number := range numbers {
		if strings.HasPrefix(number, "9223372036854775808") {
			numbers[i] += ".0"
		}
	}
	values := slices.Concat(texts, numbers, []string{"null", "true", "false", "[]", "{}", `["a", 1, null, [1], true]`, `[[1], {"a": 1}]`, `{"a": 1, "": 2}`, `{"b": {"a": 1}}`})
	constants := slices.Concat(texts, numbers, []string{"null", "true", "false"})
	var sources []string
	for _, constant := range constants {
		sources = append(sources, "doc.x == "+constant, constant+" != doc.x", "doc.x in ["+constant+"]", "doc.x in ['a', 1, "+constant+"]", constant+" in doc.x", constant+" in doc",
			"doc.?x.hasValue("+constant+")", "doc.?x.orValue("+constant+") == 1")
		if constant == "null" {
			continue
		}
		for _, operator := range []string{"<", "<=", ">", ">="} {
			sources = append(sources, "doc.x "+operator+" "+constant, constant+" "+operator+" doc.x")
		}
	}
	for _, text := range texts {
		sources = append(sources, "doc.x.startsWith("+text+")", "doc.x.endsWith("+text+")", "doc.x.contains("+text+")")
	}
	sources = append(sources, "doc.x", "has(doc.x)", "has(doc.x.a)", "has(doc.?x.a)", "doc.x in []", "doc.x.matches('^a')", "doc.?x.?a.orValue(1) == 1", "doc.x.a == 1", "doc.x['0'] == 'a'", "doc.x.a.b == 1", "doc.?x.a.?b.hasValue()")
	for _, source := range sources {
		for _, source := range []string{source, "!(" + source + ")"} {
			program, err := expr.Compile(expr.ScopeDocument, source)
			if err != nil {
				t.Fatal(err)
			}
			predicate, err := Compile(source)
			if err != nil {
				t.Fatal(err)
			}
			checkMatch(t, source, program, predicate, "{}")
			for _, value := range values {
				checkMatch(t, source, program, predicate, `{"x": `+value+`}`)
			}
		}
	}
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkMatch returns what the evaluation gives: true, false, fault or another value.
func checkMatch(t failer, source string, program *expr.Program, predicate domain.Predicate, document string) string {
	t.Helper()
	matches, err := domain.Match(predicate, domain.Document{ID: "d", Data: []byte(document)})
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	doc, err := expr.ParseDocument([]byte(document))
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	value, fault := program.Eval(doc, nil)
	if want := fault == nil && value == expr.Bool(true); matches != want {
		t.Fatalf("%s\non %s\ngives %v, %v; as a predicate %v:\n%#v", source, document, value, fault, matches, predicate)
	}
	switch {
	case fault != nil:
		return "fault"
	case value == expr.Bool(true), value == expr.Bool(false):
		return fmt.Sprint(value)
	}
	return "other"
}

// wellFormed checks what drivers rely on beside the meaning.
func wellFormed(predicate domain.Predicate) error {
	if n := leaves(predicate); n > MaxLeaves {
		return fmt.Errorf("it has %d leaves", n)
	}
	parts := func(list []domain.Predicate) error {
		if len(list) == 1 {
			return errors.New("an And or Or has one part")
		}
		for _, part := range list {
			if err := wellFormed(part); err != nil {
				return err
			}
		}
		return nil
	}
	leaf := func(path domain.Path, place domain.Place) error {
		if len(path) == 0 || !strings.HasPrefix(string(place), "line ") {
			return fmt.Errorf("a leaf has the path %v and the place %q", path, place)
		}
		return nil
	}
	switch p := predicate.(type) {
	case domain.And:
		return parts(p)
	case domain.Or:
		return parts(p)
	case domain.Has:
		return leaf(p.Path, p.Place)
	case domain.Compare:
		return leaf(p.Path, p.Place)
	case domain.OneOf:
		if len(p.Values) == 0 {
			return errors.New("a OneOf has no values")
		}
		return leaf(p.Path, p.Place)
	case domain.Contains:
		return leaf(p.Path, p.Place)
	case domain.Text:
		return leaf(p.Path, p.Place)
	case domain.Matches:
		return leaf(p.Path, p.Place)
	}
	return fmt.Errorf("a %T is no predicate", predicate)
}
