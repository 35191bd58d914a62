package domain

import "testing"

func TestFixed(t *testing.T) {
	t.Parallel()
	path, a, b := Path{"customer", "id"}, Scalar{Kind: ScalarText, Text: "a"}, Scalar{Kind: ScalarText, Text: "b"}
	is := func(comparison Comparison, value Scalar, path ...string) Predicate {
		return Compare{Path: path, Comparison: comparison, Value: value}
	}
	for name, c := range map[string]struct {
		where Predicate
		value Scalar
		ok    bool
	}{
		"nothing":       {nil, Scalar{}, false},
		"alone":         {is(Equal, a, "customer", "id"), a, true},
		"one of many":   {And{is(Greater, b, "total"), And{Has{Path: path}, is(Equal, a, "customer", "id")}, is(Equal, b, "x")}, a, true},
		"null":          {is(Equal, Scalar{}, "customer", "id"), Scalar{}, true},
		"another path":  {is(Equal, a, "customer.id"), Scalar{}, false},
		"a part of it":  {is(Equal, a, "customer"), Scalar{}, false},
		"not equal":     {is(NotEqual, a, "customer", "id"), Scalar{}, false},
		"at most":       {And{is(LessOrEqual, a, "customer", "id"), is(GreaterOrEqual, a, "customer", "id")}, Scalar{}, false},
		"one of two":    {Or{is(Equal, a, "customer", "id"), is(Equal, b, "customer", "id")}, Scalar{}, false},
		"no part":       {And{}, Scalar{}, false},
		"within one of": {And{Or{is(Equal, a, "customer", "id")}}, Scalar{}, false},
		"in a list":     {OneOf{Path: path, Values: []Scalar{a}}, Scalar{}, false},
	} {
		if value, ok := Fixed(c.where, path); ok != c.ok || value != c.value {
			t.Errorf("%s: Fixed gives %v, %t", name, value, ok)
		}
	}
}
