package expr

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func mustUpcaster(t testing.TB, source string) *Upcaster {
	t.Helper()
	upcaster, err := CompileUpcaster(source)
	if err != nil {
		t.Fatal(err)
	}
	return upcaster
}

func TestUpcaster(t *testing.T) {
	t.Parallel()
	_, event := sample()
	for source, want := range map[string]string{
		`merge(without(event.data, ['deep', 'nothing']), {'amount': event.data.price * event.data.qty})`: `{"amount":10,"price":2.5,"qty":4,"sku":"x"}`,
		`event.data.deep.list`:                         `[1,[2,3]]`,
		`{'at': event.occurredAt, 'type': event.type}`: `{"at":"2026-01-31T10:59:00.000000Z","type":"ItemAdded"}`,
		`event.data.sku`:                               `"x"`,
		`event.occurredAt`:                             `"2026-01-31T10:59:00.000000Z"`,
		`null`:                                         `null`,
		`event.data.qty > 3`:                           `true`,
		`event.metadata`:                               `null`,
	} {
		if data, err := mustUpcaster(t, source).Eval(NewEvent(&event)); err != nil || string(data) != want {
			t.Errorf("%s gives %s, %v; want %s", source, data, err, want)
		}
	}
	for source, want := range map[string]Kind{
		`event.data.?sku`: KindResult, `{'a': event.data.?sku}`: KindType, `type(1)`: KindType, `{'a': '\u0000'}`: KindResult,
		`event.data.nope`: KindMissingField, `event.data.qty / 0`: KindDivision,
		`cel.bind(a, '0123456789', [a, a, a].map(x, lists.range(1000).map(y, lists.range(1000))))`: KindCost,
	} {
		data, err := mustUpcaster(t, source).Eval(NewEvent(&event))
		if fault, ok := errors.AsType[*EvalError](err); !ok || fault.Kind != want {
			t.Errorf("%s gives %s, %v; want a fault of kind %s", source, data, err, want)
		}
	}
	for source, want := range map[string]string{
		`doc.total`: "doc", `state`: "state", ``: "empty", `event.nope`: "nope",
	} {
		_, err := CompileUpcaster(source)
		if failure, ok := errors.AsType[*CompileError](err); !ok || !strings.Contains(failure.Error(), want) {
			t.Errorf("%q compiles, or is refused as %v", source, err)
		}
	}
}

// What comes out is no larger and no deeper than what the log takes.
func TestUpcastDataCouldBeKeptInTheLog(t *testing.T) {
	t.Parallel()
	large := largeEvent()
	if data, err := mustUpcaster(t, `{'text': event.data.text.substring(0, 1000000)}`).Eval(large); err != nil || domain.CheckJSON(data) != nil {
		t.Errorf("a megabyte: %v", err)
	}
	nested := mustUpcaster(t, `{'inside': event.data}`)
	_, event := sample()
	for range domain.MaxJSONDepth {
		data, err := nested.Eval(NewEvent(&event))
		if fault, ok := errors.AsType[*EvalError](err); ok {
			if fault.Kind != KindResult || !strings.Contains(fault.Message, "deeper than 128") {
				t.Errorf("nested too deep: %v", err)
			}
			return
		}
		if err := domain.CheckJSON(data); err != nil {
			t.Fatalf("the log could not keep %.100s: %v", data, err)
		}
		event.Data = data
	}
	t.Error("it nests as deep as it likes")
	for _, source := range []string{`[event.data.text, event.data.text]`, `lists.range(40).map(x, event.data.text)`} {
		_, err := mustUpcaster(t, source).Eval(large)
		if fault, ok := errors.AsType[*EvalError](err); !ok || fault.Kind != KindMemory {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// FuzzUpcaster evaluates any expression on any event, twice: the data must be the same, and fit for the log.
func FuzzUpcaster(f *testing.F) {
	seeds(f, func(source string) { f.Add(source, []byte(`{"qty": 3, "sku": "SKU-1", "price": 12.35}`)) })
	f.Add(`merge(event.data, {"customer": {"id": event.data.customer}})`, []byte(`{"customer": "c-17"}`))
	f.Add(`event`, []byte(`1e308`))
	f.Fuzz(func(t *testing.T, source string, data []byte) {
		if !json.Valid(data) {
			return
		}
		upcaster, err := CompileUpcaster(source)
		checkInternal(t, source, err)
		if err != nil {
			return
		}
		_, event := sample()
		event.Data = data
		first, err := upcaster.Eval(NewEvent(&event))
		checkInternal(t, source, err)
		second, errSecond := upcaster.Eval(NewEvent(&event))
		if (err == nil) != (errSecond == nil) || err != nil && err.Error() != errSecond.Error() || string(first) != string(second) {
			t.Fatalf("%q gives %s, %v, then %s, %v", source, first, err, second, errSecond)
		}
		if err != nil {
			return
		}
		if err := domain.CheckJSON(first); err != nil {
			t.Fatalf("%q gives %s, which the log could not keep: %v", source, first, err)
		}
		if _, err := ParseJSON(first); err != nil {
			t.Fatalf("%q gives %s, which cannot be read: %v", source, first, err)
		}
	})
}
