package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// maxComparisons limits the subschemas that one comparison looks at. It takes some milliseconds.
const maxComparisons = 20_000

// compareSchemas says why wide does not accept every value that narrow accepts: up to maxViolations reasons, with their
// places in wide. It errs on the safe side: keywords that cannot be compared must be equal. It follows the lenient rule
// for open content: a property that narrow does not mention may get a schema in wide, although narrow accepts every
// value for it. wideName and narrowName are for people.
func compareSchemas(wide, narrow *Schema, wideName, narrowName string) []domain.Violation {
	return newComparer(wideName, narrowName, true).compare(wide, narrow)
}

func newComparer(wideName, narrowName string, lenient bool) *comparer {
	return &comparer{left: maxComparisons, lenient: lenient, wide: wideName, narrow: narrowName, assumed: make(map[string]bool), equal: make(map[[2]*node]bool)}
}

func (c *comparer) compare(wide, narrow *Schema) []domain.Violation {
	if !c.accepts(wide.root, []*node{narrow.root}) && len(c.found) == 0 {
		c.fail(wide.root, "", "simplify the schema", "the schemas are too complex to be compared")
	}
	return c.found
}

// comparer compares two schemas. A value of narrow satisfies every node of a list at once; the empty list means any
// value.
type comparer struct {
	left         int  // comparisons
	lenient      bool // see compareSchemas
	wide, narrow string
	assumed      map[string]bool   // comparisons made or under way, which hold until shown otherwise
	trail        []string          // the keys of assumed, in order
	equal        map[[2]*node]bool // the same for equality
	found        []domain.Violation
	silent       int // nesting of attempts whose reasons do not count
}

func (c *comparer) fail(at *node, rule, fix, format string, args ...any) bool {
	if c.silent == 0 && len(c.found) < maxViolations {
		pointer := at.pointer
		if rule != "" {
			pointer += "/" + rule
		}
		c.found = append(c.found, domain.Violation{
			Pointer: domain.Clip(pointer, 500), Rule: rule, Message: domain.Clip(fmt.Sprintf(format, args...), 500), Fix: fix,
		})
	}
	return false
}

// try reports whether a comparison holds, without recording reasons.
func (c *comparer) try(compare func() bool) bool {
	c.silent++
	defer func() { c.silent-- }()
	before := len(c.trail)
	if compare() {
		return true
	}
	for _, key := range c.trail[before:] { // what was assumed in it may not hold
		delete(c.assumed, key)
	}
	c.trail = c.trail[:before]
	return false
}

// maxConjuncts limits the subschemas that a value must satisfy at once.
const maxConjuncts = 100

// flatten adds the schemas that every value of a list's nodes must satisfy, too: those of $ref and allOf. It ends with
// maxConjuncts.
func flatten(list []*node) []*node {
	var all []*node
	for i := 0; i < len(list) && len(all) < maxConjuncts; i++ {
		n := list[i]
		if slices.Contains(all, n) {
			continue
		}
		all = append(all, n)
		list = append(list[:len(list):len(list)], n.allOf...)
		if n.ref != nil {
			list = append(list, n.ref)
		}
	}
	return all
}

// kindsOf returns the kinds of values that a flat list accepts.
func kindsOf(list []*node) kinds {
	set := anyKind
	for _, n := range list {
		if n.never {
			return 0
		}
		if n.types != 0 {
			set &= n.types
		}
	}
	return set
}

// values returns the only values that a flat list may accept; ok is false if there is no such list of values.
func values(list []*node) (all []string, ok bool) {
	for _, n := range list {
		if n.constant != nil {
			return []string{*n.constant}, true
		}
	}
	for _, n := range list {
		if n.enum != nil && (!ok || len(n.enumTexts) < len(all)) {
			all, ok = n.enumTexts, true
		}
	}
	return all, ok
}

// accepts reports whether w accepts every value of a list.
func (c *comparer) accepts(w *node, list []*node) bool {
	list = flatten(list)
	var key strings.Builder
	fmt.Fprintf(&key, "%p", w)
	for _, n := range list {
		fmt.Fprintf(&key, " %p", n)
	}
	if c.assumed[key.String()] {
		return true
	}
	if c.left -= 1 + len(list)/4; c.left < 0 || len(list) >= maxConjuncts {
		return c.fail(w, "", "simplify the schema, or split it", "the schemas are too complex to be compared")
	}
	c.assumed[key.String()] = true
	c.trail = append(c.trail, key.String())
	if slices.ContainsFunc(list, func(n *node) bool { return c.same(w, n) }) || kindsOf(list) == 0 {
		return true
	}
	if texts, ok := values(list); ok {
		return c.acceptsValues(w, list, texts)
	}
	at := slices.IndexFunc(list, func(n *node) bool { return n.anyOf != nil || n.oneOf != nil })
	if at < 0 || c.try(func() bool { return c.acceptsAll(w, list) }) {
		return at >= 0 || c.acceptsAll(w, list)
	}
	// Each alternative must be accepted.
	rest := *list[at]
	alternatives := rest.anyOf
	if rest.anyOf = nil; alternatives == nil {
		alternatives, rest.oneOf = rest.oneOf, nil
	}
	others := slices.Concat(list[:at], []*node{&rest}, list[at+1:])
	ok := true
	for _, alternative := range alternatives {
		ok = ok && c.accepts(w, slices.Concat(others, []*node{alternative}))
	}
	return ok
}

// stepsPerComparison is how many steps of an evaluation cost as much as a comparison.
const stepsPerComparison = 20

// acceptsValues checks a list that accepts some of these values only.
func (c *comparer) acceptsValues(w *node, list []*node, texts []string) bool {
	for _, text := range texts {
		value, err := parseValue([]byte(text))
		if err != nil {
			continue
		}
		e := &evaluator{left: max(0, c.left) * stepsPerComparison}
		possible := true
		for _, n := range list {
			possible = possible && (e.check(n, value, nil, false) || e.stopped)
		}
		refused := possible && !e.check(w, value, nil, false)
		c.left = e.left/stepsPerComparison - 1
		if refused {
			rule := ""
			if w.enum != nil {
				rule = "enum"
			}
			return c.fail(w, rule, "accept the value again", "%s accepts %s, %s does not", c.narrow, domain.Clip(text, 100), c.wide)
		}
	}
	return true
}

// acceptsAll compares keyword by keyword.
func (c *comparer) acceptsAll(w *node, list []*node) bool {
	if w.never {
		return c.fail(w, "", "remove the schema false", "%s accepts values here, %s accepts none", c.narrow, c.wide)
	}
	set := kindsOf(list)
	if missing := set &^ w.types; w.types != 0 && missing != 0 {
		return c.fail(w, "type", "accept these types again", "%s accepts %s, %s only %s",
			c.narrow, strings.Join(kindNames(set), ", "), c.wide, strings.Join(kindNames(w.types), ", "))
	}
	ok := true
	if w.enum != nil || w.constant != nil {
		rule := "enum"
		if w.constant != nil {
			rule = "const"
		}
		ok = c.fail(w, rule, "remove the list of values", "%s accepts more values than those listed in %s", c.narrow, c.wide)
	}
	if set&numberKind != 0 {
		ok = c.acceptsNumbers(w, list, set) && ok
	}
	if set&stringKind != 0 {
		ok = c.acceptsStrings(w, list) && ok
	}
	if set&arrayKind != 0 {
		ok = c.acceptsArrays(w, list) && ok
	}
	if set&objectKind != 0 {
		ok = c.acceptsObjects(w, list) && ok
	}
	return c.acceptsInPlace(w, list) && ok
}

// different reports that a keyword that cannot be compared differs.
func (c *comparer) different(w *node, rule string) bool {
	return c.fail(w, rule, "leave it as it is", "%s differs from %s in %s, which cannot be compared", c.wide, c.narrow, rule)
}

func (c *comparer) acceptsInPlace(w *node, list []*node) bool {
	ok := true
	if w.ref != nil {
		ok = c.accepts(w.ref, list)
	}
	for _, all := range w.allOf {
		ok = c.accepts(all, list) && ok
	}
	if w.anyOf != nil {
		ok = c.acceptsAlternative(w, "anyOf", w.anyOf, list) && ok
	}
	if w.oneOf != nil && !slices.ContainsFunc(list, func(n *node) bool { return c.sameLists(w.oneOf, n.oneOf) }) {
		if c.spend(100*len(w.oneOf)) && apart(w.oneOf) {
			ok = c.acceptsAlternative(w, "oneOf", w.oneOf, list) && ok
		} else {
			ok = c.different(w, "oneOf")
		}
	}
	if w.not != nil && !slices.ContainsFunc(list, func(n *node) bool { return c.same(w.not, n.not) }) {
		ok = c.different(w, "not")
	}
	if w.when != nil && !slices.ContainsFunc(list, func(n *node) bool {
		return c.same(w.when, n.when) && c.same(w.then, n.then) && c.same(w.otherwise, n.otherwise)
	}) {
		ok = c.different(w, "if")
	}
	return ok
}

// acceptsAlternative reports whether one of the alternatives accepts every value.
func (c *comparer) acceptsAlternative(w *node, rule string, alternatives, list []*node) bool {
	for _, alternative := range alternatives {
		if c.try(func() bool { return c.accepts(alternative, list) }) {
			return true
		}
	}
	return c.fail(w, rule, "keep the alternatives, or add new ones", "no alternative of %s accepts all values that %s accepts", c.wide, c.narrow)
}

// apart reports whether no value can match two of the alternatives: their kinds differ, or a required property has
// different values.
func apart(alternatives []*node) bool {
	if len(alternatives) > 50 {
		return false
	}
	flat := make([][]*node, len(alternatives))
	for i, alternative := range alternatives {
		flat[i] = flatten([]*node{alternative})
	}
	for i := range flat {
		for j := range i {
			if kindsOf(flat[i])&kindsOf(flat[j]) != 0 && !apartByProperty(flat[i], flat[j]) {
				return false
			}
		}
	}
	return true
}

func apartByProperty(one, other []*node) bool {
	if kindsOf(one)&kindsOf(other) != objectKind {
		return false
	}
	for _, n := range one {
		for name, property := range n.properties {
			if !requires(one, name) || !requires(other, name) {
				continue
			}
			mine, ok := values(flatten([]*node{property}))
			for _, m := range other {
				theirs, also := []string(nil), false
				if m.properties[name] != nil {
					theirs, also = values(flatten([]*node{m.properties[name]}))
				}
				if ok && also && !slices.ContainsFunc(mine, func(text string) bool { return slices.Contains(theirs, text) }) {
					return true
				}
			}
		}
	}
	return false
}

func requires(list []*node, name string) bool {
	return slices.ContainsFunc(list, func(n *node) bool { return slices.Contains(n.required, name) })
}

// atLeast reports whether a lower limit of wide follows from a limit of the list.
func (c *comparer) atLeast(w *node, rule string, wide *int, list []*node, of func(*node) *int) bool {
	if wide == nil || *wide == 0 || slices.ContainsFunc(list, func(n *node) bool { m := of(n); return m != nil && *m >= *wide }) {
		return true
	}
	return c.fail(w, rule, "lower it", "%s accepts less than %d, %s does not", c.narrow, *wide, c.wide)
}

// atMost is atLeast for an upper limit.
func (c *comparer) atMost(w *node, rule string, wide *int, list []*node, of func(*node) *int) bool {
	if wide == nil || slices.ContainsFunc(list, func(n *node) bool { m := of(n); return m != nil && *m <= *wide }) {
		return true
	}
	return c.fail(w, rule, "raise it", "%s accepts more than %d, %s does not", c.narrow, *wide, c.wide)
}

func (c *comparer) acceptsNumbers(w *node, list []*node, set kinds) bool {
	ok := true
	bound := func(rule string, limit *decimal, holds func(n *node) bool) {
		if limit != nil && !slices.ContainsFunc(list, holds) {
			ok = c.fail(w, rule, "remove or widen it", "%s accepts numbers that %s refuses because of %s %s", c.narrow, c.wide, rule, limit)
		}
	}
	beyond := func(limit, of *decimal, sign, least int) bool { return of != nil && sign*of.compare(limit) >= least }
	bound("minimum", w.minimum, func(n *node) bool {
		return beyond(w.minimum, n.minimum, 1, 0) || beyond(w.minimum, n.exclusiveMinimum, 1, 0)
	})
	bound("exclusiveMinimum", w.exclusiveMinimum, func(n *node) bool {
		return beyond(w.exclusiveMinimum, n.minimum, 1, 1) || beyond(w.exclusiveMinimum, n.exclusiveMinimum, 1, 0)
	})
	bound("maximum", w.maximum, func(n *node) bool {
		return beyond(w.maximum, n.maximum, -1, 0) || beyond(w.maximum, n.exclusiveMaximum, -1, 0)
	})
	bound("exclusiveMaximum", w.exclusiveMaximum, func(n *node) bool {
		return beyond(w.exclusiveMaximum, n.maximum, -1, 1) || beyond(w.exclusiveMaximum, n.exclusiveMaximum, -1, 0)
	})
	if one := (decimal{1, "1", 1}); w.multipleOf == nil || set&fractionKind == 0 && one.multipleOf(w.multipleOf) {
		return ok
	}
	bound("multipleOf", w.multipleOf, func(n *node) bool { return n.multipleOf != nil && n.multipleOf.multipleOf(w.multipleOf) })
	return ok
}

func (c *comparer) acceptsStrings(w *node, list []*node) bool {
	ok := c.atLeast(w, "minLength", w.minLength, list, func(n *node) *int { return n.minLength })
	ok = c.atMost(w, "maxLength", w.maxLength, list, func(n *node) *int { return n.maxLength }) && ok
	if w.pattern != nil && !slices.ContainsFunc(list, func(n *node) bool { return samePattern(w.pattern, n.pattern) }) {
		ok = c.fail(w, "pattern", "leave the pattern as it is, or remove it", "%s accepts strings that need not match the pattern of %s", c.narrow, c.wide)
	}
	if w.format != "" && !slices.ContainsFunc(list, func(n *node) bool { return n.format == w.format }) {
		ok = c.fail(w, "format", "remove it", "%s accepts strings that are no %s", c.narrow, w.format)
	}
	return ok
}

func (c *comparer) acceptsArrays(w *node, list []*node) bool {
	ok := c.atLeast(w, "minItems", w.minItems, list, func(n *node) *int { return n.minItems })
	ok = c.atMost(w, "maxItems", w.maxItems, list, func(n *node) *int { return n.maxItems }) && ok
	if w.uniqueItems && !slices.ContainsFunc(list, func(n *node) bool { return n.uniqueItems }) {
		ok = c.fail(w, "uniqueItems", "remove it", "%s accepts equal elements, %s does not", c.narrow, c.wide)
	}
	longest := len(w.prefixItems)
	for _, n := range list {
		longest = max(longest, len(n.prefixItems))
	}
	for i := range longest + 1 { // the last one represents all further elements
		element := w.items
		if i < len(w.prefixItems) {
			element = w.prefixItems[i]
		}
		if element == nil || slices.ContainsFunc(list, func(n *node) bool { return n.maxItems != nil && *n.maxItems <= i }) {
			continue
		}
		var elements []*node
		for _, n := range list {
			if i < len(n.prefixItems) {
				elements = append(elements, n.prefixItems[i])
			} else if n.items != nil {
				elements = append(elements, n.items)
			}
		}
		ok = c.accepts(element, elements) && ok
	}
	if w.contains != nil && !slices.ContainsFunc(list, func(n *node) bool {
		return c.same(w.contains, n.contains) && sameCount(w.minContains, n.minContains) && sameCount(w.maxContains, n.maxContains)
	}) {
		ok = c.different(w, "contains")
	}
	if w.unevaluatedItems != nil {
		ok = c.different(w, "unevaluatedItems")
	}
	return ok
}

func (c *comparer) acceptsObjects(w *node, list []*node) bool {
	ok := c.atLeast(w, "minProperties", w.minProperties, list, func(n *node) *int { return n.minProperties })
	ok = c.atMost(w, "maxProperties", w.maxProperties, list, func(n *node) *int { return n.maxProperties }) && ok
	for _, name := range w.required {
		if !requires(list, name) {
			ok = c.fail(w, "required", "make the property optional", "%s requires %q, %s does not", c.wide, domain.Clip(name, 100), c.narrow)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.dependentRequired)) {
		for _, other := range w.dependentRequired[name] {
			if !requires(list, other) && !slices.ContainsFunc(list, func(n *node) bool { return slices.Contains(n.dependentRequired[name], other) }) {
				ok = c.different(w, "dependentRequired")
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.dependentSchemas)) {
		if !slices.ContainsFunc(list, func(n *node) bool { return c.same(w.dependentSchemas[name], n.dependentSchemas[name]) }) {
			ok = c.different(w, "dependentSchemas")
		}
	}
	if w.propertyNames != nil && !slices.ContainsFunc(list, func(n *node) bool { return c.same(w.propertyNames, n.propertyNames) }) {
		ok = c.different(w, "propertyNames")
	}
	if w.unevaluatedProperties != nil {
		ok = c.different(w, "unevaluatedProperties")
	}
	return c.acceptsProperties(w, list) && ok
}

// acceptsProperties compares the schemas of properties.
func (c *comparer) acceptsProperties(w *node, list []*node) bool {
	ok := true
	for _, name := range slices.Sorted(maps.Keys(w.properties)) {
		if known := propertyOf(list, name); len(known) > 0 || !c.lenient {
			ok = c.accepts(w.properties[name], known) && ok
		}
	}
	names := make(map[string]bool)
	for _, n := range list {
		for name := range n.properties {
			names[name] = true
		}
	}
	others := rest(list)
	for i := range w.patternProperties {
		p := &w.patternProperties[i]
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if c.spend(len(name)) && p.pattern.MatchString(name) {
				ok = c.accepts(p.node, propertyOf(list, name)) && ok
			}
		}
		patterned := others
		for _, n := range list {
			for _, theirs := range n.patternProperties {
				if theirs.pattern.String() == p.pattern.String() {
					patterned = append(patterned[:len(patterned):len(patterned)], theirs.node)
				} else {
					ok = c.accepts(p.node, []*node{theirs.node}) && ok // a name may match both
				}
			}
		}
		if len(patterned) > 0 || !c.lenient {
			ok = c.accepts(p.node, patterned) && ok
		}
	}
	if w.additionalProperties == nil {
		return ok
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !mentions(w, name) {
			if !c.accepts(w.additionalProperties, propertyOf(list, name)) {
				ok = c.fail(w, "additionalProperties", "keep the property in the schema", "%s accepts the property %q, %s does not, or not with all values", c.narrow, domain.Clip(name, 100), c.wide)
			}
		}
	}
	for _, n := range list {
		for _, theirs := range n.patternProperties {
			if !slices.ContainsFunc(w.patternProperties, func(p patternProperty) bool { return p.pattern.String() == theirs.pattern.String() }) {
				ok = c.accepts(w.additionalProperties, []*node{theirs.node}) && ok
			}
		}
	}
	if !c.try(func() bool { return c.accepts(w.additionalProperties, others) }) {
		ok = c.fail(w, "additionalProperties", "allow additional properties again", "%s accepts properties that it does not mention, %s does not, or not with all values", c.narrow, c.wide)
	}
	return ok
}

func (c *comparer) spend(steps int) bool {
	c.left -= steps / 100
	return c.left >= 0
}

// mentions reports whether a schema has a subschema for a property, other than additionalProperties.
func mentions(n *node, name string) bool {
	return n.properties[name] != nil || slices.ContainsFunc(n.patternProperties, func(p patternProperty) bool { return p.pattern.MatchString(name) })
}

// propertyOf returns the schemas that a property's value must satisfy.
func propertyOf(list []*node, name string) []*node {
	var all []*node
	for _, n := range list {
		if n.properties[name] != nil {
			all = append(all, n.properties[name])
		}
		for i := range n.patternProperties {
			if n.patternProperties[i].pattern.MatchString(name) {
				all = append(all, n.patternProperties[i].node)
			}
		}
		if n.additionalProperties != nil && !n.additionalProperties.trivial && !mentions(n, name) {
			all = append(all, n.additionalProperties)
		}
	}
	return all
}

// rest returns the schemas that properties must satisfy that no schema of the list mentions.
func rest(list []*node) []*node {
	var all []*node
	for _, n := range list {
		if n.additionalProperties != nil {
			all = append(all, n.additionalProperties)
		}
	}
	return all
}

func samePattern(a, b *pattern) bool {
	return a == b || a != nil && b != nil && a.String() == b.String()
}

func sameCount(a, b *int) bool { return a == b || a != nil && b != nil && *a == *b }

func sameNumber(a, b *decimal) bool { return a == b || a != nil && b != nil && a.compare(b) == 0 }

// same reports whether two subschemas have the same keywords with the same values, annotations aside.
func (c *comparer) same(a, b *node) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	pair := [2]*node{a, b}
	if known, ok := c.equal[pair]; ok {
		return known
	}
	if c.left--; c.left < 0 {
		return false
	}
	c.equal[pair] = true // it holds unless a difference is found
	ok := a.never == b.never && a.types == b.types && a.format == b.format && a.uniqueItems == b.uniqueItems &&
		(a.constant == nil) == (b.constant == nil) && (a.constant == nil || *a.constant == *b.constant) && maps.Equal(a.enum, b.enum) &&
		sameNumber(a.multipleOf, b.multipleOf) && sameNumber(a.minimum, b.minimum) && sameNumber(a.maximum, b.maximum) &&
		sameNumber(a.exclusiveMinimum, b.exclusiveMinimum) && sameNumber(a.exclusiveMaximum, b.exclusiveMaximum) &&
		sameCount(a.minLength, b.minLength) && sameCount(a.maxLength, b.maxLength) && samePattern(a.pattern, b.pattern) &&
		sameCount(a.minItems, b.minItems) && sameCount(a.maxItems, b.maxItems) && sameCount(a.minContains, b.minContains) && sameCount(a.maxContains, b.maxContains) &&
		sameCount(a.minProperties, b.minProperties) && sameCount(a.maxProperties, b.maxProperties) &&
		sameNames(a.required, b.required) && maps.EqualFunc(a.dependentRequired, b.dependentRequired, sameNames) &&
		c.sameMaps(a.properties, b.properties) && c.sameMaps(a.dependentSchemas, b.dependentSchemas) &&
		slices.EqualFunc(a.patternProperties, b.patternProperties, func(p, q patternProperty) bool {
			return p.pattern.String() == q.pattern.String() && c.same(p.node, q.node)
		}) &&
		c.same(a.additionalProperties, b.additionalProperties) && c.same(a.propertyNames, b.propertyNames) && c.same(a.unevaluatedProperties, b.unevaluatedProperties) &&
		c.sameLists(a.prefixItems, b.prefixItems) && c.same(a.items, b.items) && c.same(a.contains, b.contains) && c.same(a.unevaluatedItems, b.unevaluatedItems) &&
		c.same(a.ref, b.ref) && c.sameLists(a.allOf, b.allOf) && c.sameLists(a.anyOf, b.anyOf) && c.sameLists(a.oneOf, b.oneOf) &&
		c.same(a.not, b.not) && c.same(a.when, b.when) && c.same(a.then, b.then) && c.same(a.otherwise, b.otherwise)
	if !ok {
		// What was concluded from the assumption may not hold.
		clear(c.equal)
		c.equal[pair] = false
	}
	return ok
}

func (c *comparer) sameLists(a, b []*node) bool { return slices.EqualFunc(a, b, c.same) }

func (c *comparer) sameMaps(a, b map[string]*node) bool { return maps.EqualFunc(a, b, c.same) }

func sameNames(a, b []string) bool {
	return len(a) == len(b) && slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// equalTexts reports whether two schemas are the same JSON value.
func equalTexts(a, b json.RawMessage) bool {
	one, err := parseValue(a)
	if err != nil {
		return false
	}
	other, err := parseValue(b)
	return err == nil && string(canonicalForm(nil, one, math.MaxInt)) == string(canonicalForm(nil, other, math.MaxInt))
}
