package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestCondition(t *testing.T) {
	t.Parallel()
	event := func() *Event {
		return NewEvent(&domain.Event{
			Stream: "order-7", Version: 2, Position: 9, Type: "Paid",
			Data: []byte(`{"total": 12.5, "express": true, "tags": ["a", "b"], "note": "x"}`),
		})
	}
	for source, want := range map[string]bool{
		`event.type == "Paid"`:                               true,
		`event.data.total > 100`:                             false,
		`event.data.express`:                                 true, // what it gives is known only then
		`event.category == "order" && event.version > 1`:     true,
		`"b" in event.data.tags`:                             true,
		`has(event.data.missing)`:                            false,
		`event.data.?missing.orValue(false)`:                 false,
		`event.data.total > 10 ? event.data.express : false`: true,
		`event.data.missing > 1 || event.type == "Paid"`:     true, // as in CEL, a fault beside a true does not count
	} {
		condition, err := CompileCondition(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if condition.Source() != source {
			t.Errorf("the source of %s is %s", source, condition.Source())
		}
		if got, err := condition.Eval(event()); err != nil || got != want {
			t.Errorf("%s gives %t, %v; want %t", source, got, err, want)
		}
	}
	for source, kind := range map[string]Kind{
		`event.data.missing > 1`:   KindMissingField,
		`event.data.note > 1`:      KindType,
		`event.data.total`:         KindResult,
		`event.metadata.by == "a"`: KindMissingField,
	} {
		condition, err := CompileCondition(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		fault, ok := errors.AsType[*EvalError](func() error { _, err := condition.Eval(event()); return err }())
		if !ok || fault.Kind != kind {
			t.Errorf("%s faults by %v; want kind %s", source, fault, kind)
		}
	}
}

func TestConditionRefuses(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		` `:                   "line 1, column 1: the filter is empty",
		`event.type`:          "line 1, column 7: a filter gives true or false; this one gives string",
		"1 +\n  2":            "this one gives int",
		`{"a": true}`:         "this one gives map",
		`event.data.?express`: "this one gives an optional value; unwrap it",
		`[event]`:             "this one gives list",
		`event.typ == "Paid"`: `an event has no field "typ"; its fields are category, data`,
		`doc.total > 1`:       `doc`,
		`event.type ==`:       "line 1",
	} {
		_, err := CompileCondition(source)
		if failure, ok := errors.AsType[*CompileError](err); !ok || !strings.Contains(failure.Error(), want) {
			t.Errorf("%q is refused with %v; want %q", source, err, want)
		}
	}
}

// A condition is asked of every event by everybody who follows: what takes long in it is a fault.
func TestConditionsAreBounded(t *testing.T) {
	t.Parallel()
	list := "[0" + strings.Repeat(",0", 99) + "]"
	for source, want := range map[string]string{
		list + `.all(x, ` + list + `.all(y, x + y == 0))`:                          "",
		list + `.all(x, ` + list + `.all(y, ` + list + `.all(z, x + y + z == 0)))`: fmt.Sprintf("more than %d steps", MaxConditionCost),
	} {
		condition, err := CompileCondition(source)
		if err != nil {
			t.Fatal(err)
		}
		holds, err := condition.Eval(NewEvent(&domain.Event{Data: []byte("1")}))
		if want == "" && (err != nil || !holds) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s gives %t, %v", source, holds, err)
		}
	}
}
