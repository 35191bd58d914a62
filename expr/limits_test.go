package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// doubled binds a value and puts it together with itself, as often as times says.
func doubled(start, together string, times int, finish string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cel.bind(v0, %s, ", start)
	for i := 1; i <= times; i++ {
		fmt.Fprintf(&b, "cel.bind(v%d, %s, ", i, strings.ReplaceAll(together, "v", fmt.Sprintf("v%d", i-1)))
	}
	b.WriteString(strings.ReplaceAll(finish, "v", fmt.Sprintf("v%d", times)))
	b.WriteString(strings.Repeat(")", times+1))
	return b.String()
}

// attacks are expressions that would never end, or take all memory, without budgets.
func attacks() map[string]string {
	const big = "event.data.text" // 1 MB
	return map[string]string{
		"nested walks":              `lists.range(10000).map(x, lists.range(10000).map(y, x * y))`,
		"nested walks, no result":   `lists.range(10000).all(x, lists.range(10000).all(y, x * y >= 0))`,
		"absorbed by ||":            `lists.range(10000).all(x, lists.range(10000).all(y, x * y >= 0)) || true`,
		"absorbed by exists":        `[1, 2].exists(z, z == 2 || lists.range(10000).all(x, lists.range(10000).all(y, true)))`,
		"a huge range":              `lists.range(9223372036854775807)`,
		"a large range":             `lists.range(3000000).size()`,
		"text doubled":              doubled("'0123456789'", "v + v", 40, "v"),
		"list doubled":              doubled("[1]", "v + v", 40, "v"),
		"object doubled, compared":  doubled("{'k': 1}", "{'a': v, 'b': v}", 40, "v == merge(v, {'a': v.b})"),
		"object doubled, flattened": doubled("[1]", "[v, v]", 40, "v.flatten(100)"),
		"object doubled, as text":   doubled("[1]", "[v, v]", 40, "'%s'.format([v])"),
		"object doubled, searched":  doubled("[1]", "[v, v]", 40, "v in [0, v]"),
		"object doubled, distinct":  doubled("[1]", "[v, v]", 40, "[v, [v[0], v[1]]].distinct()"),
		"replace by large texts":    big + `.replace('', ` + big + `)`,
		"replace all":               big + `.replace('x', ` + big + `)`,
		"join large texts":          `lists.range(100000).map(x, ` + big + `).join(` + big + `)`,
		"join with a separator":     `lists.range(100000).map(x, '').join(` + big + `)`,
		"format large texts":        `lists.range(1000).map(x, '%s%s%s'.format([` + big + `, ` + big + `, ` + big + `]))`,
		"split many times":          `lists.range(1000).map(x, ` + big + `.split(''))`,
		"search many times":         `lists.range(100000).all(x, ` + big + `.contains('y') || true)`,
		"size many times":           `lists.range(100000).all(x, ` + big + `.size() > 0)`,
		"compare large texts":       `lists.range(100000).all(x, ` + big + ` == ` + big + `.substring(0))`,
		"order large texts":         `lists.range(100000).all(x, ` + big + ` <= ` + big + `.substring(0))`,
		"measure large texts":       `lists.range(100000).all(x, {'a': ` + big + `} != null)`,
		"merge large texts":         `lists.range(100000).all(x, merge({'a': ` + big + `}, {'a': ` + big + `}) != null)`,
		"look up a large text":      `cel.bind(o, {` + big + ` + 'a': 1}, lists.range(100000).all(x, o[` + big + ` + 'a'] == 1))`,
		"faults absorbed":           `lists.range(100000).all(x, double(` + big + `) > 0 || true)`,
		"times absorbed":            `lists.range(100000).all(x, duration(` + big + `) > duration('1s') || true)`,
		"texts of lists absorbed":   doubled("[1]", "[v, v]", 40, "lists.range(100000).all(x, '%s'.format([v]) == '' || true)"),
		"compare large keys":        `cel.bind(o, {` + big + `: 1}, lists.range(100000).all(x, o == o))`,
		"key of a large text":       `lists.range(100000).all(x, {` + big + `: 1} != null)`,
		"drop large texts":          `cel.bind(o, {'a': ` + big + `}, lists.range(100000).all(x, without(o, 'a') != null))`,
		"patterns":                  `lists.range(100000).all(x, ` + big + `.matches('(x+x+)+y') == false)`,
		"patterns made":             `lists.range(100000).all(x, 'a'.matches('a{' + string(x % 100) + '}') || true)`,
		"sort by large texts":       `lists.range(1000).map(x, ` + big + ` + string(x)).sort()`,
		"sort equal large texts":    `lists.range(20000).map(x, ` + big + `).sort()`,
		"distinct of objects":       `lists.range(20000).map(x, {'a': x}).distinct()`,
		"distinct of large texts":   `lists.range(100000).map(x, ` + big + `).distinct()`,
		"membership":                `cel.bind(l, lists.range(20000), l.all(x, x in l))`,
		"concatenate":               `cel.bind(l, lists.range(100000), lists.range(1000).map(x, l + l))`,
		"reverse":                   `lists.range(1000).map(x, ` + big + `.reverse())`,
		"numbers read":              `lists.range(100000).all(x, double(` + big + `.replace('x', '1')) > 0)`,
		"merge grown":               `lists.range(100000).transformMapEntry(i, x, {string(x): ` + big + `.substring(0, 1000) + string(x)})`,
		"dyn chain":                 `lists.range(3000000).map(x, dyn(dyn(dyn(x))))`,
		"whole events":              `lists.range(100000).map(x, {'e': event})`,
		"quoted":                    `lists.range(1000).map(x, strings.quote(` + big + `))`,
		"nested in the result":      doubled("[1]", "[v, v]", 40, "{'a': v}"),
	}
}

// largeEvent carries one megabyte of text.
func largeEvent() *Event {
	_, event := sample()
	event.Data = json.RawMessage(`{"text": "` + strings.Repeat("x", 1<<20-2) + `\n"}`)
	return NewEvent(&event)
}

func TestAttacksStopWithinTheirBudget(t *testing.T) {
	doc, _ := sample()
	for name, source := range attacks() {
		t.Run(name, func(t *testing.T) {
			fold, err := CompileFold(ScopeProjection, `{'result': `+source+`}`)
			if err != nil {
				t.Fatal(err)
			}
			event := largeEvent()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = fold.Eval(doc, event)
			runtime.ReadMemStats(&after)
			fault, ok := errors.AsType[*EvalError](err)
			if !ok || fault.Kind != KindCost && fault.Kind != KindMemory {
				t.Errorf("%v; want the budget to end it", err)
			}
			// Twice the budget, and what reading the event takes.
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 2*MaxMemory+16<<20 {
				t.Errorf("it took %d MiB", taken>>20)
			}
		})
	}
}

// A budget must not get in the way of honest work either.
func TestHonestWorkFitsIntoTheBudget(t *testing.T) {
	t.Parallel()
	lines := make([]Value, 10_000)
	for i := range lines {
		lines[i] = NewObject(map[string]Value{"sku": String(fmt.Sprintf("SKU-%d", i)), "qty": Int(i % 7), "price": Double(1.25)})
	}
	doc := NewObject(map[string]Value{"lines": NewList(lines...), "text": String(strings.Repeat("word ", 100_000))})
	_, event := sample()
	for source, want := range map[string]Value{
		`doc.lines.map(l, l.qty * l.price).sum()`:                                                           Double(37492.5),
		`doc.lines.filter(l, l.qty > 5).size()`:                                                             Int(1428),
		`doc.lines.sortBy(l, -l.qty).first().value().qty`:                                                   Int(6),
		`doc.lines.map(l, l.sku).distinct().size()`:                                                         Int(10_000),
		`(doc.lines + [{'sku': 'x', 'qty': 1}]).size()`:                                                     Int(10_001),
		`doc.lines.map(l, l.sku == 'SKU-77' ? merge(l, {'qty': l.qty + 1}) : l)[77].qty`:                    Int(1),
		`doc.lines.transformMapEntry(i, l, {l.sku: l.qty}).size()`:                                          Int(10_000),
		`doc.text.split(' ').size()`:                                                                        Int(100_001),
		`doc.text.upperAscii().contains('WORD WORD')`:                                                       Bool(true),
		`doc.text.matches('(word )+$')`:                                                                     Bool(true),
		`merge(doc, {'n': 1}).lines == doc.lines && doc.text.replace('word', 'other').size() == 6 * 100000`: Bool(true),
	} {
		program, err := Compile(ScopeProjection, source)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := program.Eval(doc, NewEvent(&event)); err != nil || got != want {
			t.Errorf("%s gives %v, %v; want %v", source, got, err, want)
		}
	}
}

func TestAnEventsDataIsReadOnlyWhenTouched(t *testing.T) {
	t.Parallel()
	broken := NewEvent(&domain.Event{Stream: "order-1", Type: "T", Data: json.RawMessage(`{"a":`)})
	doc, _ := sample()
	program, err := Compile(ScopeProjection, `event.type`)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := program.Eval(doc, broken); err != nil || v != String("T") {
		t.Errorf("the type of an event with broken data: %v, %v", v, err)
	}
	if program, err = Compile(ScopeProjection, `event.data.a`); err != nil {
		t.Fatal(err)
	}
	_, err = program.Eval(doc, broken)
	if fault, ok := errors.AsType[*EvalError](err); !ok || fault.Kind != KindInput || fault.Column != 7 {
		t.Errorf("touching broken data: %v", err)
	}
}
