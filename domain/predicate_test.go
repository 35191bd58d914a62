package domain_test

import (
	"encoding/json"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// A leaf, its opposite, and which of the two match. Package expr holds all of them against expressions; these are the
// cases that one would get wrong.
func TestMatch(t *testing.T) {
	t.Parallel()
	path := domain.Path{"a", "b"}
	pattern, err := domain.ParsePattern("^x")
	if err != nil {
		t.Fatal(err)
	}
	has := [2]domain.Predicate{domain.Has{Path: path}, domain.Has{Path: path, Not: true}}
	equal := func(value domain.Scalar) [2]domain.Predicate {
		return [2]domain.Predicate{domain.Compare{Path: path, Comparison: domain.Equal, Value: value}, domain.Compare{Path: path, Comparison: domain.NotEqual, Value: value}}
	}
	less := func(value domain.Scalar) [2]domain.Predicate {
		return [2]domain.Predicate{domain.Compare{Path: path, Comparison: domain.Less, Value: value}, domain.Compare{Path: path, Comparison: domain.GreaterOrEqual, Value: value}}
	}
	oneOf := func(values ...domain.Scalar) [2]domain.Predicate {
		return [2]domain.Predicate{domain.OneOf{Path: path, Values: values}, domain.OneOf{Path: path, Values: values, Not: true}}
	}
	contains := func(value domain.Scalar) [2]domain.Predicate {
		return [2]domain.Predicate{domain.Contains{Path: path, Value: value}, domain.Contains{Path: path, Value: value, Not: true}}
	}
	starts := [2]domain.Predicate{domain.Text{Path: path, Test: domain.StartsWith, Text: "x"}, domain.Text{Path: path, Test: domain.StartsWith, Text: "x", Not: true}}
	matches := [2]domain.Predicate{domain.Matches{Path: path, Pattern: pattern}, domain.Matches{Path: path, Pattern: pattern, Not: true}}
	const yes, no, neither = "yes", "no", "neither"
	for _, c := range []struct {
		leaf [2]domain.Predicate
		data string
		want string
	}{
		{has, `{"a": {"b": null}}`, yes}, {has, `{"a": {}}`, no}, {has, `{"a": null}`, no}, {has, `{}`, neither}, {has, `{"a": [{"b": 1}]}`, neither}, {has, `{"a": "b"}`, neither},
		{equal(whole(1)), `{"a": {"b": 1.0}}`, yes}, {equal(whole(1)), `{"a": {"b": "1"}}`, no}, {equal(whole(1)), `{"a": {"b": [1]}}`, no}, {equal(whole(1)), `{"a": {"b": null}}`, no},
		{equal(whole(1)), `{"a": {}}`, neither}, {equal(whole(1)), `{"a": [{"b": 1}]}`, neither}, {equal(domain.Scalar{}), `{"a": {"b": null}}`, yes}, {equal(domain.Scalar{}), `{"a": {"b": {}}}`, no},
		{equal(whole(1<<53 + 1)), `{"a": {"b": 9007199254740992}}`, no}, {equal(text("a")), `{"a": {"b": "a "}}`, no}, {equal(text("ä")), `{"a": {"b": "a\u0308"}}`, no},
		{less(whole(1)), `{"a": {"b": 0.5}}`, yes}, {less(whole(1)), `{"a": {"b": 1}}`, no}, {less(whole(1)), `{"a": {"b": "0"}}`, neither}, {less(whole(1)), `{"a": {"b": null}}`, neither},
		{less(domain.Scalar{}), `{"a": {"b": null}}`, neither}, {less(truth(true)), `{"a": {"b": false}}`, yes}, {less(text("\U0001F600")), `{"a": {"b": "\uFFFD"}}`, yes},
		{oneOf(whole(1), domain.Scalar{}), `{"a": {"b": null}}`, yes}, {oneOf(whole(1)), `{"a": {"b": []}}`, no}, {oneOf(), `{"a": {"b": 1}}`, no}, {oneOf(), `{"a": {}}`, neither},
		{contains(text("x")), `{"a": {"b": ["x", 1]}}`, yes}, {contains(text("x")), `{"a": {"b": [["x"]]}}`, no}, {contains(text("x")), `{"a": {"b": {"x": null}}}`, yes}, {contains(text("x")), `{"a": {"b": "xyz"}}`, neither},
		{contains(whole(1)), `{"a": {"b": {"1": 1}}}`, no}, {contains(domain.Scalar{}), `{"a": {"b": {"": 1}}}`, no}, {contains(domain.Scalar{}), `{"a": {"b": [null]}}`, yes}, {contains(text("x")), `{"a": {"b": null}}`, neither},
		{starts, `{"a": {"b": "xyz"}}`, yes}, {starts, `{"a": {"b": "Xyz"}}`, no}, {starts, `{"a": {"b": ["x"]}}`, neither}, {starts, `{"a": {}}`, neither},
		{matches, `{"a": {"b": "xyz"}}`, yes}, {matches, `{"a": {"b": "y\nx"}}`, no}, {matches, `{"a": {"b": 1}}`, neither},
	} {
		document := domain.Document{ID: "d", Data: json.RawMessage(c.data)}
		leaf, err := domain.Match(c.leaf[0], document)
		opposite, errOpposite := domain.Match(c.leaf[1], document)
		if err != nil || errOpposite != nil || leaf != (c.want == yes) || opposite != (c.want == no) {
			t.Errorf("%#v on %s: %v, its opposite %v (%v, %v); want %s", c.leaf[0], c.data, leaf, opposite, err, errOpposite, c.want)
		}
	}
}

func TestMatchOfCombinations(t *testing.T) {
	t.Parallel()
	yes, no := domain.Has{Path: domain.Path{"a"}}, domain.Has{Path: domain.Path{"b"}}
	for _, c := range []struct {
		predicate domain.Predicate
		want      bool
	}{
		{nil, true}, {domain.And{}, true}, {domain.Or{}, false}, {domain.And{yes, no}, false}, {domain.And{yes, domain.Or{no, yes}}, true}, {domain.Or{no, domain.And{yes, no}}, false},
	} {
		if got, err := domain.Match(c.predicate, domain.Document{Data: json.RawMessage(`{"a": 1}`)}); err != nil || got != c.want {
			t.Errorf("%v: %v, %v; want %v", c.predicate, got, err, c.want)
		}
	}
	for _, data := range []string{`[1]`, `null`, `"a"`, ``} {
		if _, err := domain.Match(yes, domain.Document{Data: json.RawMessage(data)}); err == nil {
			t.Errorf("%q was taken for a document", data)
		}
	}
}

func TestPathsAreWrittenAsInExpressions(t *testing.T) {
	t.Parallel()
	path := domain.Path{"customer", "zip code", "in", "_1", "2", "", `"`, "ä"}
	if want := `doc.customer["zip code"]["in"]._1["2"][""]["\""]["ä"]`; path.String() != want {
		t.Errorf("the path is written %s; want %s", path, want)
	}
}
