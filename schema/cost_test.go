package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// expensive has schemas and values that make an evaluation as expensive as they can.
func expensive() map[string][2]string {
	repeat := func(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text, n), ",") }
	object := func(n int, value string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%x":%s`, i, value)
		}
		return "{" + b.String()[1:] + "}"
	}
	var doubling strings.Builder
	for i := range 18 {
		fmt.Fprintf(&doubling, `"s%d": {"anyOf": [{"$ref": "#/$defs/s%d"}, {"$ref": "#/$defs/s%[2]d"}, {"$ref": "#/$defs/s%[2]d"}]},`, i, i+1)
	}
	deep := strings.Repeat("[", domain.MaxJSONDepth-1) + repeat("1,", 400_000) + strings.Repeat("]", domain.MaxJSONDepth-1)
	return map[string][2]string{
		"doubling":        {`{"$ref": "#/$defs/s0", "$defs": {` + doubling.String() + `"s18": {"type": "string"}}}`, `1`},
		"long pattern":    {`{"pattern": "` + repeat("(a|b|c|d|e|f)*", 60) + `x"}`, `"` + strings.Repeat("abcdef", 150_000) + `"`},
		"many patterns":   {`{"items": {"pattern": "^([a-c]*[b-d]*){200}$"}}`, `[` + repeat(`"abcabcabcdbcdbcdbcd",`, 40_000) + `]`},
		"patternNames":    {`{"patternProperties": {` + patternNames() + `}}`, object(60_000, `1`)},
		"unique":          {`{"$ref": "#/$defs/a", "$defs": {"a": {"uniqueItems": true, "items": {"$ref": "#/$defs/a"}}}}`, deep},
		"enums":           {`{"items": {"anyOf": [` + repeat(`{"enum": [1, 2]},`, 1900) + `]}}`, `[` + repeat(`"abc",`, 100_000) + `]`},
		"large constants": {`{"anyOf": [` + repeat(`{"const": [1]},`, 1900) + `]}`, `[` + repeat(`1.5,`, 250_000) + `]`},
		"contains":        {`{"allOf": [` + repeat(`{"contains": {"minimum": 2}},`, 900) + `]}`, `[` + repeat(`1,`, 400_000) + `]`},
		"unevaluated":     {`{"allOf": [` + repeat(`{"anyOf": [{"properties": {"a": true}}, {"unevaluatedProperties": true}]},`, 300) + `], "unevaluatedProperties": false}`, object(80_000, `1`)},
		"multipleOf":      {`{"items": {"multipleOf": 7}}`, `[` + repeat(`1e100000,`, 8) + `]`},
		"decimals":        {`{"items": {"allOf": [` + repeat(`{"minimum": 0.1, "maximum": 1e9, "multipleOf": 0.00000000000000007},`, 600) + `]}}`, `[` + repeat(`12345.678901234567890123456789,`, 30_000) + `]`},
		"required":        {`{"items": {"required": [` + names(2000) + `]}}`, `[` + repeat(`{},`, 300_000) + `]`},
		"violations":      {`{"items": {"type": "string"}}`, `[` + repeat(`1,`, 500_000) + `]`},
		"large strings":   {`{"items": {"allOf": [` + repeat(`{"minLength": 1},`, 1900) + `]}}`, `["` + strings.Repeat("a", 1_000_000) + `"]`},
		"large enum":      {`{"enum": [` + names(4000) + `]}`, `"` + strings.Repeat("a", 1_000_000) + `"`},
		"dates":           {`{"items": {"allOf": [` + repeat(`{"format": "date-time"},`, 1900) + `]}}`, `[` + repeat(`"2026-03-01T09:30:00.123456789+01:00",`, 20_000) + `]`},
	}
}

func names(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"n%d"`, i)
	}
	return strings.Join(all, ",")
}

func patternNames() string {
	all := make([]string, 300)
	for i := range all {
		all[i] = fmt.Sprintf(`"%d(a|b)*$": true`, i)
	}
	return strings.Join(all, ",")
}

// Whatever a schema and an event contain, checking the event ends after some tens of milliseconds.
func TestEvaluationIsBounded(t *testing.T) {
	for name, test := range expensive() {
		compiling := time.Now()
		compiled, err := Compile([]byte(test[0]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		value, err := parseValue([]byte(test[1]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		compile := time.Since(compiling)
		began := time.Now()
		e := &evaluator{left: maxSteps}
		_, err = e.evaluate(compiled, value)
		took := time.Since(began)
		t.Logf("%-16s %8s for %7d steps, %v; compiled and parsed in %s", name, took.Round(time.Microsecond), maxSteps-e.left, err, compile.Round(time.Microsecond))
		if err != nil && !errors.Is(err, errTooCostly) {
			t.Errorf("%s: %v", name, err)
		}
		if took > 2*time.Second { // a machine under load is slow
			t.Errorf("%s took %s", name, took)
		}
	}
}

// order is a schema of 20 fields, and an event that satisfies it.
const (
	orderSchema = `{"type": "object", "additionalProperties": false, "required": ["id", "customer", "currency", "total", "items"], "properties": {
		"id": {"type": "string", "format": "uuid"}, "customer": {"type": "string", "pattern": "^c-[0-9]+$"}, "currency": {"enum": ["EUR", "USD", "GBP"]},
		"total": {"type": "number", "minimum": 0}, "tax": {"type": "number", "minimum": 0}, "discount": {"type": "number", "minimum": 0, "maximum": 100},
		"placedAt": {"type": "string", "format": "date-time"}, "note": {"type": ["string", "null"], "maxLength": 500}, "channel": {"enum": ["web", "shop", "phone"]},
		"priority": {"type": "integer", "minimum": 0, "maximum": 9}, "gift": {"type": "boolean"}, "street": {"type": "string", "minLength": 1},
		"city": {"type": "string", "minLength": 1}, "postcode": {"type": "string", "maxLength": 12}, "country": {"type": "string", "minLength": 2, "maxLength": 2},
		"email": {"type": "string", "maxLength": 200}, "phone": {"type": "string", "maxLength": 40}, "weight": {"type": "number", "exclusiveMinimum": 0},
		"tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}, "items": {"type": "integer", "minimum": 1}}}`
	orderEvent = `{"id": "0190d3a4-5b6c-7def-8123-456789abcde0", "customer": "c-1001", "currency": "EUR", "total": 129.90, "tax": 20.74, "discount": 5,
		"placedAt": "2026-03-01T09:30:00Z", "note": null, "channel": "web", "priority": 3, "gift": false, "street": "High Street 1", "city": "Springfield", "postcode": "12345",
		"country": "DE", "email": "someone@example.com", "phone": "+49 30 1234567", "weight": 2.5, "tags": ["new", "vip"], "items": 3}`
)

func BenchmarkValidate(b *testing.B) {
	compiled, err := Compile([]byte(orderSchema))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		value, err := parseValue([]byte(orderEvent))
		if err != nil {
			b.Fatal(err)
		}
		e := &evaluator{left: stepsWithoutTurn}
		if ok, err := e.evaluate(compiled, value); !ok || err != nil {
			b.Fatal(ok, err, e.found)
		}
	}
}
