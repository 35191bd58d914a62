package filter

import (
	"errors"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/expr/exprtest"
)

// checkInternal fails on an error that no input may cause.
func checkInternal(t *testing.T, source string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	failure, ok := errors.AsType[*expr.CompileError](err)
	if !ok || strings.Contains(failure.Message, "cannot be compiled") || failure.Line < 1 || failure.Column < 1 || failure.Message == "" {
		t.Fatalf("%q: %v", source, err)
	}
	_ = failure.Snippet()
}

// FuzzFilter compiles any text as a filter. What compiles must mean on any document what its evaluation gives.
func FuzzFilter(f *testing.F) {
	add := func(source string) {
		f.Add(source, []byte(`{"items": ["SKU-7", "SKU-9", "SKU-2"], "total": 104.5, "status": "placed", "customer": "c-77"}`))
	}
	for _, source := range exprtest.Expressions {
		add(source)
	}
	for _, source := range []string{
		`doc.status == "placed" && doc.total > 100 && "SKU-9" in doc.items`, `!(100 < doc.total || has(doc.a.b))`, `doc.total in [1, 104.5, 60 * 60]`, `doc.?a.?b.orValue(3) > 2`,
		`doc.flag ? doc.a == 1 : doc.b`, `"SKU-9" in doc.?items.orValue([])`, `doc["odd name"].startsWith("a" + "b") || doc.customer.endsWith("7")`, `"items" in doc`, `!(doc.x in {})`,
		`doc.customer.matches(r"^c-\d+$")`, `doc.?a.or(doc.?customer).orValue("x") == "c-77"`, `doc.?a.b[?"c"].hasValue(3)`, `(doc.total > 1 ? doc.status : 3) != null`, `.doc.total == 104.50`,
		`doc.?total.value() >= dyn(3)`, `{"a": 1} in doc`, `[doc.a][0] == 1`, `optional.of(doc).value() == 1`, `doc == doc`, `[1].exists(doc, doc == 1)`,
	} {
		add(source)
	}
	f.Fuzz(func(t *testing.T, source string, document []byte) {
		predicate, err := Compile(source)
		checkInternal(t, source, err)
		if err != nil {
			return
		}
		if err := wellFormed(predicate); err != nil {
			t.Fatalf("%q: %v", source, err)
		}
		program, err := expr.Compile(expr.ScopeDocument, source)
		if err != nil {
			t.Fatalf("%q is a filter and no expression: %v", source, err)
		}
		doc, err := expr.ParseDocument(document)
		if err != nil {
			return
		}
		_, err = program.Eval(doc, nil)
		if fault, ok := errors.AsType[*expr.EvalError](err); ok && (fault.Kind == expr.KindCost || fault.Kind == expr.KindMemory) {
			return // a database has no such limits
		}
		checkMatch(t, source, program, predicate, string(document))
	})
}

// FuzzOrder reads any text as an order and as fields; what is read is written as it can be read again.
func FuzzOrder(f *testing.F) {
	for _, source := range []string{`total desc,customer.name, ["odd name"] asc`, `a["\u00e4"]['b'] asc,b`, `doc.a`, `items[0]`, `["x`, `["x\`, "a\n,b", `a DESC`, `[ "a" ] . b`} {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		orders, err := CompileOrder(source)
		checkInternal(t, source, err)
		fields, errFields := CompileFields(source)
		checkInternal(t, source, errFields)
		for _, order := range orders {
			fields = append(fields, order.Path)
		}
		for _, path := range fields {
			text := path.String()
			predicate, err := Compile(text)
			if err != nil {
				t.Fatalf("%q has the path %s: %v", source, text, err)
			}
			if compare, ok := predicate.(domain.Compare); !ok || compare.Path.String() != text || strings.Contains(strings.Join(path, ""), "\x00") {
				t.Fatalf("%q has the path %s, which reads as %v", source, text, predicate)
			}
		}
	})
}
