package expr

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// sample is what the expressions of these tests are evaluated on.
func sample() (*Object, domain.Event) {
	doc, err := ParseDocument([]byte(`{"total": 3, "rate": 0.5, "name": "Ann", "items": [3, 1, 2.5], "lines": [{"sku": "b", "qty": 2}, {"sku": "a", "qty": 5}],
		"open": true, "none": null, "tags": {"x": 1, "y": 2}, "big": 9007199254740993, "at": "2026-01-31T12:00:00Z"}`))
	if err != nil {
		panic(err)
	}
	return doc, domain.Event{
		ID: domain.EventID{0x01, 15: 0xff}, Stream: "order-42-b", Version: 7, Position: 1234, Type: "ItemAdded",
		Data:       json.RawMessage(`{"price": 2.5, "qty": 4, "sku": "x", "nothing": null, "deep": {"list": [1, [2, 3]]}}`),
		OccurredAt: time.Date(2026, 1, 31, 11, 59, 0, 0, time.FixedZone("", 3600)),
		RecordedAt: time.Date(2026, 1, 31, 12, 0, 0, 123456000, time.UTC),
	}
}

// evaluate gives an expression's result on the sample as JSON.
func evaluate(source string) (string, error) {
	program, err := Compile(ScopeProjection, source)
	if err != nil {
		return "", err
	}
	doc, event := sample()
	v, err := program.Eval(doc, NewEvent(&event))
	if err != nil {
		return "", err
	}
	text, err := AppendJSON(nil, v)
	return string(text), err
}

func TestMeaning(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		// numbers
		`1 + 2.5`: `3.5`, `1 + 2.0`: `3`, `2 * 1.5`: `3`, `7 / 2`: `3.5`, `6 / 2`: `3`, `-7 / 2`: `-3.5`, `div(7, 2)`: `3`, `div(-7, 2)`: `-3`, `div(7.5, 2)`: `3`,
		`7 % 3`: `1`, `-7 % 3`: `-1`, `7.0 % 3`: `1`, `math.round(6.6) % 2`: `1`, `-doc.rate`: `-0.5`, `doc.total + 1`: `4`, `doc.total * doc.rate`: `1.5`, `0.1 + 0.2`: `0.30000000000000004`,
		`9007199254740993 + 0`: `9007199254740993`, `doc.big + 1`: `9007199254740994`, `9223372036854775807.0`: `9223372036854776000`, `1e3`: `1000`, `0x1F`: `31`,
		`-9223372036854775808`: `-9223372036854775808`, `9223372036854775807 / -1`: `-9223372036854775807`,
		// comparison across kinds, exact above 2^53
		`1 == 1.0`: `true`, `doc.big == 9007199254740992.0`: `false`, `doc.big > 9007199254740992.0`: `true`, `9007199254740992 == 9007199254740992.0`: `true`,
		`9223372036854775807 < 9223372036854775808.0`: `true`, `1 < 1.5`: `true`, `1.5 <= 1`: `false`, `2 >= 2.0`: `true`, `doc.items == [3.0, 1, 2.5]`: `true`,
		`1 in [1.0, 2]`: `true`, `2.5 in doc.items`: `true`, `1 == '1'`: `false`, `null == 0`: `false`, `doc.none == null`: `true`, `{'a': [1]} == {'a': [1.0]}`: `true`, `{'a': 1} == {'b': 1}`: `false`,
		`[1, 2] != [1]`: `true`, `false < true`: `true`, `'a' < 'b'`: `true`, `'Z' < 'a'`: `true`, `type(2.0) == int`: `true`, `type(2.5) == double`: `true`, `true ? 1 : 2.5`: `1`,
		// conversions
		`int(2.9)`: `2`, `int(-2.9)`: `-2`, `int('12')`: `12`, `double('1.50')`: `1.5`, `double(3)`: `3`, `string(1.0)`: `"1"`, `string(0.1)`: `"0.1"`, `string(1e21)`: `"1e+21"`, `string(true)`: `"true"`,
		`bool('true')`: `true`, `string(type('a'))`: `"string"`, `string(type(doc))`: `"map"`, `string(type(doc.none))`: `"null_type"`, `type([]) == list`: `true`, `int(timestamp('1970-01-01T00:01:00Z'))`: `60`,
		// logic
		`doc.nope > 1 || true`: `true`, `true || doc.nope > 1`: `true`, `doc.nope && false`: `false`, `!has(doc.nope) || doc.nope > 0`: `true`, `!false`: `true`,
		// objects
		`merge(doc.tags, {'y': 3, 'z': 4})`: `{"x":1,"y":3,"z":4}`, `merge({'b': 1}, {'a': 2}, {'b': 3})`: `{"a":2,"b":3}`, `without(doc.tags, 'x')`: `{"y":2}`, `without(doc.tags, ['y', 'x', 'q'])`: `{}`,
		`has(doc.tags.x)`: `true`, `has(doc.nope)`: `false`, `has(doc.none)`: `true`, `'x' in doc.tags`: `true`, `1 in doc.tags`: `false`, `doc.tags['x']`: `1`, `doc['total']`: `3`, `size(doc.tags)`: `2`, `doc.tags.size()`: `2`,
		`{'b': 1, 'a': 2}`: `{"a":2,"b":1}`, `{event.type: 1}`: `{"ItemAdded":1}`, `{string(1): 1}`: `{"1":1}`, `merge(doc.tags, {event.data.sku: 9})`: `{"x":9,"y":2}`,
		`{event.data.sku: 1, 'x': 2}`: `{"x":2}`,
		// optional
		`doc.?total.orValue(0)`: `3`, `doc.?nope.orValue(0)`: `0`, `doc.?nope.?a.?b.orValue('-')`: `"-"`, `doc.?none.?a.orValue(1)`: `1`, `doc.?tags.x.orValue(7)`: `1`, `doc.?nope.x.y.orValue(7)`: `7`,
		`doc.?none.orValue(1)`: `null`, `doc.tags[?'q'].orValue(5)`: `5`, `doc.items[?9].orValue(5)`: `5`, `doc.items[?0].orValue(5)`: `3`, `{?'a': doc.?nope, ?'b': doc.?total}`: `{"b":3}`, `[?doc.?nope, 1]`: `[1]`,
		`doc.?total.optMap(v, v * 2).orValue(0)`: `6`, `doc.?nope.optMap(v, v * 2).hasValue()`: `false`, `doc.?tags.optFlatMap(v, v.?x).orValue(0)`: `1`, `doc.?total.hasValue()`: `true`, `doc.?total.hasValue(3.0)`: `true`, `doc.?nope.or(doc.?total).value()`: `3`,
		`doc.?total.or(doc.?nope).value()`: `3`, `optional.of(1) == optional.of(1.0)`: `true`, `optional.none() == doc.?nope`: `true`, `optional.ofNonZeroValue(0).orValue(9)`: `9`, `optional.unwrap([doc.?total, doc.?nope])`: `[3]`, `[doc.?total].unwrapOpt()`: `[3]`,
		`doc.?nope.orValue({})`: `{}`, `doc.?tags['x'].orValue(0)`: `1`,
		// texts
		`'a' + 'b'`: `"ab"`, `size('äö')`: `2`, `'äöü'.charAt(1)`: `"ö"`, `'äöü'.substring(1)`: `"öü"`, `'äöü'.substring(0, 2)`: `"äö"`, `'abc'.substring(3)`: `""`, `'abcabc'.indexOf('c')`: `2`, `'abcabc'.indexOf('c', 3)`: `5`, `'äbäb'.indexOf('b')`: `1`,
		`'abc'.indexOf('x')`: `-1`, `'abcabc'.lastIndexOf('b')`: `4`, `'a-b-c'.replace('-', '+')`: `"a+b+c"`, `'a-b-c'.replace('-', '+', 1)`: `"a+b-c"`, `'a,b'.split(',')`: `["a","b"]`, `'a,b,c'.split(',', 2)`: `["a","b,c"]`, `'ab'.split('')`: `["a","b"]`, `'a'.split(',', 0)`: `[]`,
		`['a', 'b'].join()`: `"ab"`, `['a', 'b'].join(', ')`: `"a, b"`, `' a '.trim()`: `"a"`, `'aB'.upperAscii()`: `"AB"`, `'AÄ'.lowerAscii()`: `"aÄ"`, `'abc'.reverse()`: `"cba"`, `strings.quote('a"b')`: `"\"a\\\"b\""`,
		`'abc'.contains('b')`: `true`, `'abc'.startsWith('a')`: `true`, `'abc'.endsWith('a')`: `false`, `'abc'.matches('^a.c$')`: `true`, `matches(doc.name, 'n+')`: `true`, `doc.name.matches('[' + 'A' + ']')`: `true`, `'abc'.charAt(3)`: `""`,
		`'%s: %d, %.2f, %x, %X, %o, %b, %e, %%'.format(['a', 3, 2.5, 255, 255, 8, 5, 1500])`: `"a: 3, 2.50, ff, FF, 10, 101, 1.500000e+03, %"`, `'%s'.format([[1, {'a': null}]])`: `"[1,{\"a\":null}]"`, `'%f'.format([2])`: `"2.000000"`,
		`event.type + '/' + string(event.version)`: `"ItemAdded/7"`,
		// lists
		`doc.items + [4]`: `[3,1,2.5,4]`, `[1] + ['a']`: `[1,"a"]`, `doc.items[1]`: `1`, `doc.items.size()`: `3`, `doc.items.sort()`: `[1,2.5,3]`, `doc.items.reverse()`: `[2.5,1,3]`, `doc.items.slice(1, 3)`: `[1,2.5]`, `doc.items.sum()`: `6.5`, `[].sum()`: `0`,
		`[1, 1.0, 'a', 'a', [1], [1.0], null, null].distinct()`: `[1,"a",[1],null]`, `[[1], [2, [3]]].flatten()`: `[1,2,[3]]`, `[[1], [2, [3]]].flatten(2)`: `[1,2,3]`, `lists.range(3)`: `[0,1,2]`, `doc.items.first().orValue(0)`: `3`, `[].last().orValue(0)`: `0`,
		`doc.lines.sortBy(l, l.sku).map(l, l.sku)`: `["a","b"]`, `doc.lines.sortBy(l, -l.qty).map(l, l.qty)`: `[5,2]`, `doc.lines.map(l, l.sku == 'a', l.qty)`: `[5]`, `doc.lines.filter(l, l.qty > 2).size()`: `1`, `doc.lines.map(l, l.qty).sum()`: `7`,
		`doc.lines.exists(l, l.qty > 2)`: `true`, `doc.lines.all(l, l.qty > 2)`: `false`, `doc.lines.exists_one(l, l.qty > 2)`: `true`, `doc.items.transformList(i, x, x * i)`: `[0,1,5]`, `doc.items.transformList(i, x, i > 0, x)`: `[1,2.5]`, `doc.items.all(i, x, x >= 1 || i < 0)`: `true`,
		`doc.items.existsOne(i, x, i == 0)`: `true`, `doc.items.exists(i, x, i == 2 && x == 2.5)`: `true`, `doc.tags.map(k, k)`: `["x","y"]`, `doc.tags.map(k, doc.tags[k])`: `[1,2]`, `doc.tags.transformMap(k, v, v + 1)`: `{"x":2,"y":3}`, `doc.tags.transformMap(k, v, v > 1, v)`: `{"y":2}`,
		`doc.tags.transformMapEntry(k, v, {k + '!': v})`: `{"x!":1,"y!":2}`, `doc.lines.transformMapEntry(i, l, {l.sku: l.qty})`: `{"a":5,"b":2}`, `doc.tags.exists(k, v, v == 2)`: `true`, `[1, 2].map(x, [10, 20].map(y, x * y))`: `[[10,20],[20,40]]`,
		`[1, 2].map(x, [x].map(x, x * 10)[0] + x)`: `[11,22]`, `[[3, 1], [2]].map(l, l.sort())`: `[[1,3],[2]]`, `[1, 'a', 2].exists(x, x == 'a')`: `true`, `[0, 1].exists(x, 1 / x == 1)`: `true`, `[3, 1].sortBy(x, x) == [1, 3]`: `true`,
		`doc.items.transformMap(i, x, x)`:   `{"0":3,"1":1,"2":2.5}`,
		`cel.bind(a, doc.total + 1, a * a)`: `16`, `cel.bind(doc, 5, doc + 1)`: `6`, `cel.bind(a, 1, cel.bind(b, a + 1, a + b))`: `3`,
		// mathematics
		`math.greatest(1, 2.5, 2)`: `2.5`, `math.least(doc.items)`: `1`, `math.ceil(1.2)`: `2`, `math.floor(-1.2)`: `-2`, `math.trunc(-1.7)`: `-1`, `math.round(2.5)`: `3`, `math.round(-2.5)`: `-3`, `math.round(2.675, 2)`: `2.68`, `math.round(5, 2)`: `5`, `math.abs(-3)`: `3`,
		`math.abs(-1.5)`: `1.5`, `math.sign(-0.5)`: `-1`, `math.sqrt(16)`: `4`, `math.bitAnd(6, 3)`: `2`, `math.bitOr(6, 3)`: `7`, `math.bitXor(6, 3)`: `5`, `math.ceil(event.data.qty)`: `4`,
		// times
		`event.occurredAt`: `"2026-01-31T10:59:00.000000Z"`, `event.recordedAt`: `"2026-01-31T12:00:00.123456Z"`, `event.recordedAt - event.occurredAt`: `"3660.123456s"`, `event.occurredAt + duration('1h')`: `"2026-01-31T11:59:00.000000Z"`, `event.occurredAt < event.recordedAt`: `true`,
		`timestamp(doc.at) > event.occurredAt`: `true`, `timestamp('2026-01-31T12:00:00+02:00')`: `"2026-01-31T10:00:00.000000Z"`, `event.occurredAt.getFullYear()`: `2026`, `event.occurredAt.getMonth()`: `0`, `event.occurredAt.getDate()`: `31`, `event.occurredAt.getDayOfMonth()`: `30`,
		`event.occurredAt.getHours('+02:00')`: `12`, `event.occurredAt.getHours('-05:30')`: `5`, `event.occurredAt.getDayOfWeek()`: `6`, `event.occurredAt.getDayOfYear()`: `30`, `event.recordedAt.getMilliseconds()`: `123`, `duration('90m').getHours()`: `1`, `duration('90m').getMinutes()`: `90`,
		`duration('1.5s')`: `"1.5s"`, `-duration('1m')`: `"-60s"`, `duration('1h') + duration('1s') - duration('1m')`: `"3541s"`, `timestamp(60)`: `"1970-01-01T00:01:00.000000Z"`,
		`timestamp('2026-01-31T12:00:00.1234567Z')`: `"2026-01-31T12:00:00.123456Z"`, `timestamp('2026-01-31T12:00:00.1234567Z') == timestamp('2026-01-31T12:00:00.123456Z')`: `true`,
		`event.recordedAt.format('%Y-%m-%d %H:%M:%S.%f %-d.%-m. %j %z 100%%')`: `"2026-01-31 12:00:00.123456 31.1. 031 +0000 100%"`, `event.recordedAt.format('%d.%m. %H:%M%:z %L', '+14:00')`: `"01.02. 02:00+14:00 123"`, `event.recordedAt.format('')`: `""`,
		`string(event.occurredAt) < string(event.occurredAt + duration('500ms'))`: `true`, `string(duration('1m'))`: `"60s"`, `duration('1m') == duration('60s')`: `true`, `duration('1500ms').getMilliseconds()`: `500`,
		`timestamp('2026-01-31T23:30:00Z').getDate('+01:00')`: `1`,
		// event
		`event.stream`: `"order-42-b"`, `event.category`: `"order"`, `event.key`: `"42-b"`, `event.id`: `"01000000-0000-0000-0000-0000000000ff"`, `event.position + event.version`: `1241`, `event.metadata`: `null`, `has(event.metadata)`: `false`, `has(event.data)`: `true`,
		`has(event.metadata.user)`: `false`, `event.metadata.?user.orValue('-')`: `"-"`, `event.?metadata.?user.orValue('-')`: `"-"`, `event.data.deep.list[1][0]`: `2`, `dyn(event).type`: `"ItemAdded"`, `dyn(event)['type']`: `"ItemAdded"`, `dyn(event).map(k, k).size()`: `12`, `event.tags`: `[]`, `dyn(event) == dyn(event)`: `true`,
		`[event].map(e, e.type)`: `["ItemAdded"]`,
	} {
		got, err := evaluate(source)
		if err != nil || got != want {
			t.Errorf("%s\n  gives %s, %v\n  want  %s", source, got, err, want)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source  string
		kind    Kind
		column  int
		message string // part of it
		hint    string // part of it
	}{
		{`doc.nope`, KindMissingField, 5, `doc has no field "nope"`, "doc.?nope.orValue"},
		{`doc.tags.q.r`, KindMissingField, 10, `doc.tags has no field "q"`, "doc.tags.?q"},
		{`event.data.cents + 1`, KindMissingField, 12, `event.data has no field "cents"`, "has(event.data.cents)"},
		{`event.metadata.user`, KindMissingField, 16, "event.metadata is null", "event.metadata.?user"},
		{`doc.name.first`, KindType, 10, "doc.name is a string", ""},
		{`doc.tags['q']`, KindMissingField, 9, `no field "q"`, "doc.tags[?key]"},
		{`has(doc.nope.x)`, KindMissingField, 9, `doc has no field "nope"`, ""},
		{`doc.items[3]`, KindIndex, 10, "3 elements, none at place 3", "[?i]"},
		{`doc.items[-1]`, KindIndex, 10, "none at place -1", ""},
		{`doc.items[0.5]`, KindType, 10, "not by a double", ""},
		{`doc.none + 1`, KindType, 10, "+ does not take null and an int", "null"},
		{`doc.name + 1`, KindType, 10, "+ does not take a string and an int", "string(x)"},
		{`doc.tags + doc.tags`, KindType, 10, "an object", "merge(a, b)"},
		{`doc.items + 4`, KindType, 11, "a list and an int", "[element]"},
		{`doc.name < 1`, KindType, 10, "cannot compare a string with an int", ""},
		{`doc.total && true`, KindType, 11, "take bools", "compare it"},
		{`doc.total ? 1 : 2`, KindType, 11, "is a bool, not an int", ""},
		{`!doc.name`, KindType, 1, "takes a bool", ""},
		{`-doc.name`, KindType, 1, "number or duration", ""},
		{`1 / 0`, KindDivision, 3, "division by zero", "b == 0"},
		{`1.5 / 0`, KindDivision, 5, "division by zero", ""},
		{`doc.total % 0`, KindDivision, 11, "division by zero", ""},
		{`div(1, 0)`, KindDivision, 4, "division by zero", ""},
		{`doc.rate % 2`, KindType, 10, "whole numbers", "div(a, b)"},
		{`9223372036854775807 + 1`, KindOverflow, 21, "64 bits", ""},
		{`-9223372036854775808 - 1`, KindOverflow, 22, "64 bits", ""},
		{`9223372036854775807 * 2`, KindOverflow, 21, "64 bits", ""},
		{`-(-9223372036854775808)`, KindOverflow, 1, "64 bits", ""},
		{`math.abs(-9223372036854775808)`, KindOverflow, 9, "64 bits", ""},
		{`1e308 * 10`, KindOverflow, 7, "too large", ""},
		{`int(1e30)`, KindOverflow, 4, "64 bits", ""},
		{`int('1.5')`, KindValue, 4, `"1.5" is not a whole number`, ""},
		{`double('inf')`, KindValue, 7, "not a number", ""},
		{`double('0x10')`, KindValue, 7, "not a number", ""},
		{`timestamp('yesterday')`, KindValue, 10, "not a time", "2026-01-31T12:00:00Z"},
		{`timestamp(60).format('%E')`, KindValue, 21, "does not begin with a clause", "strftime"}, {`timestamp(60).format('100%')`, KindValue, 21, "does not begin with a clause", "strftime"}, {`timestamp(60).format('%H', 'CET')`, KindValue, 21, "time zone", "+01:00"},
		{`duration('1 day')`, KindValue, 9, "not a duration", "1h30m"},
		{`timestamp('9999-12-31T23:00:00Z') + duration('2h')`, KindOverflow, 35, "1 to 9999", ""},
		{`timestamp(9223372036854775807)`, KindOverflow, 10, "1 to 9999", ""},
		{`duration('2000000h') + duration('2000000h')`, KindOverflow, 22, "292 years", ""},
		{`event.occurredAt.getHours('Europe/Berlin')`, KindValue, 26, "Europe/Berlin", "+01:00"},
		{`'abc'.substring(4)`, KindIndex, 16, "no place 4", ""},
		{`'abc'.substring(2, 1)`, KindIndex, 16, "before", ""},
		{`doc.name.matches(doc.name + '(')`, KindValue, 17, "regular expression", ""},
		{`'%d'.format([1.5])`, KindType, 12, "%d needs an int", ""},
		{`'%s'.format([])`, KindIndex, 12, "more % clauses", ""},
		{`'%q'.format([1])`, KindValue, 12, "%'q'", ""},
		{`'%.999f'.format([1])`, KindValue, 16, "precision", ""},
		{`doc.items.join(',')`, KindType, 15, "place 0", "string(x)"},
		{`[1, 'a'].sort()`, KindType, 14, "have no order", ""},
		{`[doc.name].map(x, x * 2)`, KindType, 21, "* does not take", ""},
		{`doc.name.map(x, x)`, KindType, 13, "only lists and objects", ""},
		{`doc.none.map(x, x)`, KindType, 13, "is null", ""},
		{`doc.?nope.value()`, KindMissingField, 16, "missing", "orValue"},
		{`doc.total.orValue(1)`, KindType, 18, "orValue does not take an int", "x.?field.orValue"},
		{`[?doc.total]`, KindType, 1, "optional", "x.?field"},
		{`{event.data.qty: 1}`, KindType, 1, "keys of an object are strings", "string(...)"},
		{`math.greatest([])`, KindIndex, 14, "empty", ""},
		{`math.sqrt(-1)`, KindValue, 10, "square root", ""},
		{`merge(doc, doc.total)`, KindType, 6, "merge does not take an object, an int", "merge(object"},
		{`doc.items.transformMapEntry(i, x, {'a': x})`, KindValue, 28, "same key", ""},
		{`doc.tags.x.size()`, KindType, 16, "size does not take an int", ""},
		{`'x' in doc.name`, KindType, 5, "`in` looks into", "contains"},
	} {
		got, err := evaluate(c.source)
		fault, ok := errors.AsType[*EvalError](err)
		if !ok {
			t.Errorf("%s gives %s, %v; want a fault", c.source, got, err)
			continue
		}
		if fault.Kind != c.kind || fault.Line != 1 || fault.Column != c.column || !strings.Contains(fault.Message, c.message) || !strings.Contains(fault.Hint, c.hint) {
			t.Errorf("%s\n  fails with %s, column %d: %s; %s\n  want       %s, column %d: ...%s...; ...%s...", c.source, fault.Kind, fault.Column, fault.Message, fault.Hint, c.kind, c.column, c.message, c.hint)
		}
	}
}
