package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// maxViolations is how many violations are reported of a request.
const maxViolations = 10

// Costs, in steps. A step takes about 50 to 100 ns, see TestEvaluationIsBounded.
const (
	bytesPerStep          = 16 // of text that is only read
	canonicalBytesPerStep = 2  // of a canonical form
	stepsPerReport        = 50
	stepsPerTime          = 3 // of a string that must be a time
	stepsPerMatch         = 5 // of a pattern, besides those for its size
	stepsPerSeen          = 8 // of a property or element that is noted as evaluated
	// stepsBetweenChecks is how many steps are taken before the meter is asked.
	stepsBetweenChecks = 4000
)

// errTooCostly ends an evaluation that has spent its steps.
var errTooCostly = errors.New("the evaluation takes too many steps")

// evaluator checks values against schemas. It is for one goroutine.
type evaluator struct {
	left      int         // steps
	unmetered int         // steps taken since the meter was asked
	meter     *expr.Meter // nil: nothing ends the evaluation but left
	stopped   bool        // there are no steps left, or the meter ended the evaluation
	path      []string    // of the value being checked; only while violations are reported
	found     []domain.Violation
}

// evaluate reports whether a value satisfies a schema. If it does not, the violations are added to those found, up to
// maxViolations. An error means that the result is unknown.
func (e *evaluator) evaluate(s *Schema, value any) (ok bool, err error) {
	if ok = e.check(s.root, value, nil, false); !ok && !e.stopped {
		e.path = e.path[:0]
		e.check(s.root, value, nil, true)
	}
	if e.stopped {
		return false, errTooCostly
	}
	return ok, nil
}

// spend takes steps. It returns false if the evaluation must stop.
func (e *evaluator) spend(steps int) bool {
	if e.stopped {
		return false
	}
	e.unmetered += steps
	if e.left -= steps; e.left < 0 {
		e.stopped = true
		return false
	}
	if e.unmetered >= stepsBetweenChecks {
		e.stopped = !e.meter.Spend(e.unmetered)
		e.unmetered = 0
	}
	return !e.stopped
}

// fail records a violation at the current value. It returns false.
func (e *evaluator) fail(rule, fix, format string, args ...any) bool {
	if !e.stopped && len(e.found) < maxViolations && e.spend(stepsPerReport) {
		var pointer strings.Builder
		for _, token := range e.path {
			pointer.WriteString("/" + escape(token))
		}
		e.found = append(e.found, domain.Violation{
			Pointer: domain.Clip(pointer.String(), 500), Rule: rule, Message: domain.Clip(fmt.Sprintf(format, args...), 500), Fix: domain.Clip(fix, 500),
		})
	}
	return false
}

// evaluated is which parts of a value subschemas have looked at, for unevaluatedProperties and unevaluatedItems.
type evaluated struct {
	properties map[string]struct{}
	items      map[int]struct{}
}

func (a *evaluated) property(name string) {
	if a.properties == nil {
		a.properties = make(map[string]struct{})
	}
	a.properties[name] = struct{}{}
}

func (a *evaluated) item(index int) {
	if a != nil {
		if a.items == nil {
			a.items = make(map[int]struct{})
		}
		a.items[index] = struct{}{}
	}
}

// add adds what another subschema has looked at.
func (e *evaluator) add(to, from *evaluated) {
	if to == nil || from == nil || !e.spend(stepsPerSeen*(len(from.properties)+len(from.items))) {
		return
	}
	for name := range from.properties {
		to.property(name)
	}
	for index := range from.items {
		to.item(index)
	}
}

// check reports whether a value satisfies a subschema. Without report it ends at the first violation. If seen is not
// nil, it receives what the subschema has looked at. The result is meaningless once the evaluation was stopped.
func (e *evaluator) check(n *node, value any, seen *evaluated, report bool) bool {
	if !e.spend(1) || report && len(e.found) >= maxViolations {
		return false
	}
	if n.never {
		if !report {
			return false
		}
		return e.fail("false", "remove it", "the schema allows no value here")
	}
	kind := kindOf(value)
	if n.types != 0 && n.types&kind == 0 {
		if !report {
			return false
		}
		expected := strings.Join(kindNames(n.types), " or ")
		return e.fail("type", "give a value of type "+expected, "expected %s, found %s", expected, kindName(kind))
	}
	mine := seen
	if n.unevaluatedProperties != nil || n.unevaluatedItems != nil {
		mine = &evaluated{}
	}
	ok := e.checkValues(n, value, report)
	if !ok && !report {
		return false
	}
	switch value := value.(type) {
	case string:
		ok = e.checkString(n, value, report) && ok
	case json.Number:
		ok = e.checkNumber(n, string(value), report) && ok
	case []any:
		ok = e.checkArray(n, value, mine, report) && ok
	case map[string]any:
		ok = e.checkObject(n, value, mine, report) && ok
	}
	if !ok && !report {
		return false
	}
	ok = e.checkInPlace(n, value, mine, report) && ok
	if mine != seen && (ok || report) {
		ok = e.checkUnevaluated(n, value, mine, report) && ok
		e.add(seen, mine)
	}
	return ok && !e.stopped
}

func kindName(kind kinds) string {
	if kind == fractionKind {
		return "number"
	}
	return kindNames(kind)[0]
}

// checkValues checks const and enum.
func (e *evaluator) checkValues(n *node, value any, report bool) bool {
	if n.constant == nil && n.enum == nil {
		return true
	}
	if kind := kindOf(value); n.constantKinds&kind == 0 {
		if !report {
			return false
		}
		rule, allowed := "enum", strings.Join(n.enumTexts, ", ")
		if n.constant != nil {
			rule, allowed = "const", *n.constant
		}
		return e.fail(rule, "give "+domain.Clip(allowed, 200), "expected %s, found a value of type %s", domain.Clip(allowed, 200), kindName(kind))
	}
	canonical := canonicalForm(nil, value, n.longestConstant)
	if !e.spend(1 + len(canonical)/canonicalBytesPerStep) {
		return false
	}
	ok := true
	if n.constant != nil && *n.constant != string(canonical) {
		if !report {
			return false
		}
		ok = e.fail("const", "give "+domain.Clip(*n.constant, 100), "expected %s, found %s", domain.Clip(*n.constant, 100), domain.Clip(string(canonical), 100))
	}
	if n.enum != nil {
		if _, found := n.enum[string(canonical)]; !found {
			if !report {
				return false
			}
			allowed := domain.Clip(strings.Join(n.enumTexts, ", "), 200)
			ok = e.fail("enum", "give one of "+allowed, "%s is none of %s", domain.Clip(string(canonical), 100), allowed)
		}
	}
	return ok
}

func (e *evaluator) checkString(n *node, text string, report bool) bool {
	if n.minLength == nil && n.maxLength == nil && n.pattern == nil && n.format == "" {
		return true
	}
	if !e.spend(len(text) / bytesPerStep) {
		return false
	}
	ok := true
	if n.minLength != nil || n.maxLength != nil {
		length := utf8.RuneCountInString(text)
		if n.minLength != nil && length < *n.minLength {
			if !report {
				return false
			}
			ok = e.fail("minLength", fmt.Sprintf("give at least %d characters", *n.minLength), "the string has %d characters, at least %d are required", length, *n.minLength)
		}
		if n.maxLength != nil && length > *n.maxLength {
			if !report {
				return false
			}
			ok = e.fail("maxLength", fmt.Sprintf("give at most %d characters", *n.maxLength), "the string has %d characters, at most %d are allowed", length, *n.maxLength)
		}
	}
	if n.pattern != nil && !e.matches(n.pattern, text) {
		if !report {
			return false
		}
		ok = e.fail("pattern", "change it to match the pattern", "%q does not match %s", domain.Clip(text, 100), domain.Clip(n.pattern.String(), 200))
	}
	if n.format != "" && e.spend(stepsPerTime) && !hasFormat(n.format, text) {
		if !report {
			return false
		}
		ok = e.fail("format", "give a value such as "+formatExamples[n.format], "%q is not a %s", domain.Clip(text, 100), n.format)
	}
	return ok
}

// matches matches a text if there are steps for it: a pattern takes time in proportion to its parts and the text.
func (e *evaluator) matches(p *pattern, text string) bool {
	return e.spend(stepsPerMatch+len(text)*p.parts) && p.MatchString(text)
}

// formatExamples has the formats that are checked. All others are annotations.
var formatExamples = map[string]string{
	"date-time": "2026-03-01T09:30:00Z", "date": "2026-03-01", "uuid": "0190d3a4-5b6c-7def-8123-456789abcde0",
}

func checksFormat(name string) bool { return formatExamples[name] != "" }

func hasFormat(name, text string) bool {
	var err error
	switch name {
	case "date-time":
		_, err = time.Parse(time.RFC3339Nano, strings.ToUpper(text))
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "uuid":
		_, err = domain.ParseUUID(strings.ToLower(text))
	}
	return err == nil
}

func (e *evaluator) checkNumber(n *node, text string, report bool) bool {
	if n.minimum == nil && n.maximum == nil && n.exclusiveMinimum == nil && n.exclusiveMaximum == nil && n.multipleOf == nil {
		return true
	}
	d := parseDecimal(text)
	if !e.spend(1 + len(text)/bytesPerStep) {
		return false
	}
	shown := domain.Clip(text, 40)
	ok := true
	if m := n.minimum; m != nil && d.compare(m) < 0 {
		if !report {
			return false
		}
		ok = e.fail("minimum", "give at least "+m.String(), "%s is less than %s", shown, m)
	}
	if m := n.exclusiveMinimum; m != nil && d.compare(m) <= 0 {
		if !report {
			return false
		}
		ok = e.fail("exclusiveMinimum", "give more than "+m.String(), "%s is not more than %s", shown, m)
	}
	if m := n.maximum; m != nil && d.compare(m) > 0 {
		if !report {
			return false
		}
		ok = e.fail("maximum", "give at most "+m.String(), "%s is more than %s", shown, m)
	}
	if m := n.exclusiveMaximum; m != nil && d.compare(m) >= 0 {
		if !report {
			return false
		}
		ok = e.fail("exclusiveMaximum", "give less than "+m.String(), "%s is not less than %s", shown, m)
	}
	if m := n.multipleOf; m != nil && e.spend(len(text)+min(max(d.exponent, 0), 200_000)/4) && !d.multipleOf(m) {
		if !report {
			return false
		}
		ok = e.fail("multipleOf", "give a multiple of "+m.String(), "%s is not a multiple of %s", shown, m)
	}
	return ok
}

// within checks a part of the current value.
func (e *evaluator) within(n *node, token string, value any, report bool) bool {
	if !report {
		return e.check(n, value, nil, false)
	}
	e.path = append(e.path, token)
	ok := e.check(n, value, nil, true)
	e.path = e.path[:len(e.path)-1]
	return ok
}

func (e *evaluator) element(n *node, index int, value any, report bool) bool {
	if !report {
		return e.check(n, value, nil, false)
	}
	return e.within(n, strconv.Itoa(index), value, true)
}

func (e *evaluator) checkArray(n *node, array []any, seen *evaluated, report bool) bool {
	ok := true
	if n.minItems != nil && len(array) < *n.minItems {
		if !report {
			return false
		}
		ok = e.fail("minItems", "add elements", "the array has %d elements, at least %d are required", len(array), *n.minItems)
	}
	if n.maxItems != nil && len(array) > *n.maxItems {
		if !report {
			return false
		}
		ok = e.fail("maxItems", "remove elements", "the array has %d elements, at most %d are allowed", len(array), *n.maxItems)
	}
	if n.uniqueItems && (ok || report) {
		ok = e.checkUnique(array, report) && ok
	}
	for i, element := range array {
		if !ok && !report || e.stopped {
			return false
		}
		switch {
		case i < len(n.prefixItems):
			ok = e.element(n.prefixItems[i], i, element, report) && ok
			seen.item(i)
		case n.items != nil:
			ok = e.element(n.items, i, element, report) && ok
			seen.item(i)
		}
	}
	if n.contains == nil {
		return ok
	}
	matching := 0
	for i, element := range array {
		if e.stopped {
			return false
		}
		if e.check(n.contains, element, nil, false) {
			matching++
			seen.item(i)
		}
	}
	least := 1
	if n.minContains != nil {
		least = *n.minContains
	}
	if matching < least {
		if !report {
			return false
		}
		ok = e.fail("contains", "add matching elements", "%d elements match contains, at least %d must", matching, least)
	}
	if n.maxContains != nil && matching > *n.maxContains {
		if !report {
			return false
		}
		ok = e.fail("maxContains", "remove matching elements", "%d elements match contains, at most %d may", matching, *n.maxContains)
	}
	return ok
}

func (e *evaluator) checkUnique(array []any, report bool) bool {
	places := make(map[string]int, len(array))
	var canonical []byte
	for i, element := range array {
		canonical = canonicalForm(canonical[:0], element, math.MaxInt)
		if !e.spend(4 + len(canonical)/canonicalBytesPerStep) {
			return false
		}
		if first, twice := places[string(canonical)]; twice {
			if !report {
				return false
			}
			return e.fail("uniqueItems", "remove one of them", "the elements %d and %d are equal", first, i)
		}
		places[string(canonical)] = i
	}
	return true
}

func (e *evaluator) checkObject(n *node, object map[string]any, seen *evaluated, report bool) bool {
	ok := true
	if n.minProperties != nil && len(object) < *n.minProperties {
		if !report {
			return false
		}
		ok = e.fail("minProperties", "add properties", "the object has %d properties, at least %d are required", len(object), *n.minProperties)
	}
	if n.maxProperties != nil && len(object) > *n.maxProperties {
		if !report {
			return false
		}
		ok = e.fail("maxProperties", "remove properties", "the object has %d properties, at most %d are allowed", len(object), *n.maxProperties)
	}
	ok = e.checkRequired(object, n.required, "required", report) && ok
	for name, others := range n.dependentRequired {
		if _, there := object[name]; there && (ok || report) {
			ok = e.checkRequired(object, others, "dependentRequired", report) && ok
		}
	}
	if n.properties == nil && n.patternProperties == nil && n.additionalProperties == nil && n.propertyNames == nil {
		return ok
	}
	if !report {
		for name, value := range object {
			if !ok || !e.checkProperty(n, name, value, seen, false) {
				return false
			}
		}
		return ok
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		ok = e.checkProperty(n, name, object[name], seen, true) && ok
	}
	return ok
}

func (e *evaluator) checkRequired(object map[string]any, names []string, rule string, report bool) bool {
	if !e.spend(len(names) / 4) {
		return false
	}
	ok := true
	for _, name := range names {
		if _, there := object[name]; !there {
			if !report {
				return false
			}
			ok = e.fail(rule, "add it", "the property %q is missing", domain.Clip(name, 100))
		}
	}
	return ok
}

func (e *evaluator) checkProperty(n *node, name string, value any, seen *evaluated, report bool) bool {
	ok, known := true, false
	if property := n.properties[name]; property != nil {
		known = true
		ok = e.within(property, name, value, report)
	}
	for i := range n.patternProperties {
		if p := &n.patternProperties[i]; (ok || report) && e.matches(&p.pattern, name) {
			known = true
			ok = e.within(p.node, name, value, report) && ok
		}
	}
	if additional := n.additionalProperties; !known && additional != nil {
		known = true
		if additional.never {
			if !report {
				return false
			}
			ok = e.fail("additionalProperties", "remove it, or add it to the schema", "the property %q is unknown", domain.Clip(name, 100))
		} else {
			ok = e.within(additional, name, value, report) && ok
		}
	}
	if n.propertyNames != nil && (ok || report) && !e.check(n.propertyNames, name, nil, false) {
		if !report {
			return false
		}
		ok = e.fail("propertyNames", "rename it", "the name %q is not allowed", domain.Clip(name, 100))
	}
	if known && seen != nil && e.spend(stepsPerSeen) {
		seen.property(name)
	}
	return ok
}

// inside checks the same value against another subschema.
func (e *evaluator) inside(n *node, value any, seen *evaluated, report bool) bool {
	if seen == nil {
		return e.check(n, value, nil, report)
	}
	inner := &evaluated{}
	ok := e.check(n, value, inner, report)
	if ok {
		e.add(seen, inner)
	}
	return ok
}

// checkInPlace checks the subschemas that apply to the same value.
func (e *evaluator) checkInPlace(n *node, value any, seen *evaluated, report bool) bool {
	ok := true
	if n.ref != nil {
		ok = e.inside(n.ref, value, seen, report)
	}
	for _, all := range n.allOf {
		if !ok && !report {
			return false
		}
		ok = e.inside(all, value, seen, report) && ok
	}
	if n.anyOf != nil && (ok || report) {
		matching := e.count(n.anyOf, value, seen, 1)
		if matching == 0 {
			if !report {
				return false
			}
			ok = e.fail("anyOf", "change it to match one of them", "the value matches none of the %d alternatives", len(n.anyOf))
		}
	}
	if n.oneOf != nil && (ok || report) {
		switch matching := e.count(n.oneOf, value, seen, 2); {
		case matching == 0:
			if !report {
				return false
			}
			ok = e.fail("oneOf", "change it to match one of them", "the value matches none of the %d alternatives", len(n.oneOf))
		case matching > 1:
			if !report {
				return false
			}
			ok = e.fail("oneOf", "change it to match only one of them", "the value matches more than one of the %d alternatives", len(n.oneOf))
		}
	}
	if n.not != nil && (ok || report) && e.check(n.not, value, nil, false) {
		if !report {
			return false
		}
		ok = e.fail("not", "change it", "the value matches a schema that it must not match")
	}
	if n.when != nil && (ok || report) {
		branch := n.otherwise
		if e.inside(n.when, value, seen, false) {
			branch = n.then
		}
		if branch != nil {
			ok = e.inside(branch, value, seen, report) && ok
		}
	}
	if object, isObject := value.(map[string]any); isObject {
		for name, dependent := range n.dependentSchemas {
			if _, there := object[name]; there && (ok || report) {
				ok = e.inside(dependent, value, seen, report) && ok
			}
		}
	}
	return ok
}

// count returns how many alternatives the value matches, or enough if there are at least as many.
func (e *evaluator) count(alternatives []*node, value any, seen *evaluated, enough int) int {
	matching := 0
	for _, alternative := range alternatives {
		if e.stopped {
			return 0
		}
		if e.inside(alternative, value, seen, false) {
			// Later alternatives may look at other parts.
			if matching++; matching >= enough && (seen == nil || enough > 1) {
				return matching
			}
		}
	}
	return matching
}

func (e *evaluator) checkUnevaluated(n *node, value any, seen *evaluated, report bool) bool {
	ok := true
	switch value := value.(type) {
	case map[string]any:
		if n.unevaluatedProperties == nil {
			return true
		}
		if !e.spend(stepsPerSeen * len(value)) {
			return false
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if _, known := seen.properties[name]; known || !ok && !report {
				continue
			}
			if n.unevaluatedProperties.never {
				if !report {
					return false
				}
				ok = e.fail("unevaluatedProperties", "remove it, or add it to the schema", "the property %q is unknown", domain.Clip(name, 100))
			} else {
				ok = e.within(n.unevaluatedProperties, name, value[name], report) && ok
			}
			seen.property(name)
		}
	case []any:
		if n.unevaluatedItems == nil {
			return true
		}
		for i, element := range value {
			if _, known := seen.items[i]; !known && (ok || report) {
				ok = e.element(n.unevaluatedItems, i, element, report) && ok
				seen.item(i)
			}
		}
	}
	return ok
}
