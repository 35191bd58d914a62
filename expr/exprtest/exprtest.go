// Package exprtest draws documents for the property tests of package expr and its filters.
package exprtest

import (
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// Expressions are the texts from which fuzzers make others.
var Expressions = []string{
	`doc.?a.?b.orValue(0)`, `doc.lines.map(l, l.qty).sum()`, `doc.lines.sortBy(l, -l.qty)`, `doc.tags.transformMap(k, v, v + 1)`, `cel.bind(a, doc.total, a * a)`,
	`'%s %d %.2f'.format([doc.name, 3, 2.5])`, `'abc'.substring(1, 2).matches('b+')`, `event.occurredAt.getHours('+01:00')`, `timestamp('2026-01-31T12:00:00Z') - event.recordedAt`,
	`{?'a': doc.?x, event.type: [?doc.?y, 1]}`, `doc.items.exists(x, x > 2) && !has(doc.nope) || doc.total % 2 == 0`, `math.greatest(1, 2.5, doc.total)`, `without(doc, ['a', 'b'])`,
	`doc.items.slice(0, 2) + [[1], [2]].flatten()`, `type(doc.total) == int ? 1 : 'a'`, `doc["a"][0][?"b"]`, `-9223372036854775808 / -1`, `5u + b'a'`, `.doc.a`, `Foo{a: 1}`, `optional.of(1).or(optional.none())`,
	`lists.range(3).transformMapEntry(i, x, {string(i): x})`, "1 //\n + \"\\u00e4\"", `"""a\n"""`, "r'\\'", `doc.__result__`, `[1].map(__result__, 1)`, `x.y.z()`, `doc.map(`, `1e400`, `0xfffffffffffffffff`,
}

// Names are the names of drawn fields. They are few, so that filters meet them. Some are not identifiers, one is a
// number, one is empty.
var Names = []string{"a", "b", "c", "odd name", "0", "ä", ""}

// Texts and Numbers lie close to one another, in all the ways that JSON can write them.
var (
	Texts   = []string{"", "a", "ab", "b", "A", "a ", "ä", "a\u0308", "\U0001F600", "\uFFFD", "%", "_", `\`, "'", "a\nb", "1", "true"}
	Numbers = []string{"0", "-0", "1", "1.0", "1e0", "10e-1", "-1", "0.5", "0.1", "0.30000000000000004", "9007199254740992", "9007199254740993", "9007199254740993.0",
		"9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e19", "1e300", "-1e300", "1e-300", "3"}
)

// Document draws an object of all the kinds of JSON.
func Document() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string { return Object(t, 3) })
}

// Object draws an object that is nested no deeper than depth.
func Object(t *rapid.T, depth int) string {
	members := make([]string, 0, 4)
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(Names), 0, 5, rapid.ID[string]).Draw(t, "names") {
		members = append(members, strconv.Quote(name)+":"+value(t, depth-1))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func value(t *rapid.T, depth int) string {
	kinds := []string{"text", "number", "null", "bool"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "list")
	}
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "object":
		return Object(t, depth)
	case "list":
		items := make([]string, rapid.IntRange(0, 4).Draw(t, "length"))
		for i := range items {
			items[i] = value(t, depth-1)
		}
		return "[" + strings.Join(items, ",") + "]"
	case "text":
		return domain.Scalar{Kind: domain.ScalarText, Text: rapid.SampledFrom(Texts).Draw(t, "text")}.JSON()
	case "number":
		return rapid.SampledFrom(Numbers).Draw(t, "number")
	case "bool":
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "bool")
	}
	return "null"
}
