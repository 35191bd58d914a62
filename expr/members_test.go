package expr_test

import (
	"fmt"
	"testing"

	"github.com/manifold-es/manifold/expr"
)

// What a fold can give its document is read off the expression where it shows, and only there.
func TestMembers(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`{'a': 1, 'b': {'c': 2}}`: "[a b] true",
		`{'a': 1, ?'b': doc.?b}`:  "[a b] true",
		`doc`:                     "[] true",
		`null`:                    "[] true",
		`merge(doc, {'a': doc.?a.orValue(0) + 1})`:            "[a] true",
		`without(merge(doc, {'a': 1}), 'b')`:                  "[a] true",
		`event.type == 'x' ? {'a': 1} : merge(doc, {'b': 1})`: "[a b] true",
		`event.data`:                                "[] false",
		`merge(doc, event.data)`:                    "[] false",
		`{event.type: 1, 'a': 2}`:                   "[a] false",
		`event.type == 'x' ? {'a': 1} : event.data`: "[a] false",
		`{'a': 1}.transformMap(k, v, v)`:            "[] false",
		`doc.?a.orValue({'b': 1})`:                  "[] false",
	} {
		fold, err := expr.CompileFold(expr.ScopeProjection, source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		names, known := fold.Members()
		if got := fmt.Sprint(names, known); got != want {
			t.Errorf("%s gives %s, want %s", source, got, want)
		}
	}
}
