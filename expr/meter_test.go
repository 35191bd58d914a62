package expr

import (
	"context"
	"errors"
	"testing"
)

// stoppedAt evaluates an expression in a context that ends when so many steps were taken.
func stoppedAt(t *testing.T, source string, most int) (taken int, err error) {
	t.Helper()
	program, compileErr := Compile(ScopeProjection, source)
	if compileErr != nil {
		t.Fatal(compileErr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	meter := MeterOf(WithSpend(ctx, func(steps int) {
		if taken += steps; taken >= most {
			cancel()
		}
	}))
	doc, event := sample()
	_, err = program.Eval(doc, NewEvent(&event).WithMeter(meter))
	return taken, err
}

func kindOf(err error) Kind {
	if fault, ok := errors.AsType[*EvalError](err); ok {
		return fault.Kind
	}
	return ""
}

func TestAnEvaluationEndsWithItsContext(t *testing.T) {
	t.Parallel()
	const most = 100_000
	for name, source := range map[string]string{
		"nested walks":   `lists.range(1000).all(x, lists.range(1000).all(y, x * y >= 0))`,
		"absorbed by ||": `lists.range(1000).all(x, lists.range(1000).all(y, x * y >= 0)) || true`,
		"sorting":        `lists.range(60000).map(x, -x).sort().size()`,
		"text":           `lists.range(100000).map(x, 'some text').join(', ').size()`,
		"patterns":       `lists.range(100000).all(x, 'some text'.matches('(x+x+)+y') == false)`,
	} {
		taken, err := stoppedAt(t, source, most)
		if kindOf(err) != KindStopped || taken < most || taken > 2*most {
			t.Errorf("%s: after %d steps it ends with %v", name, taken, err)
		}
	}
}

func TestAnEvaluationDoesNotBeginBehindItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	key, err := CompileKey("event.stream")
	if err != nil {
		t.Fatal(err)
	}
	_, event := sample()
	if _, _, err := key.Eval(NewEvent(&event).WithMeter(MeterOf(ctx))); kindOf(err) != KindStopped {
		t.Errorf("it gives %v", err)
	}
}

// A meter changes neither results nor where a budget ends.
func TestAMeterChangesNothingElse(t *testing.T) {
	t.Parallel()
	doc, event := sample()
	for name, source := range attacks() {
		program, err := Compile(ScopeProjection, source)
		if err != nil {
			t.Fatal(err)
		}
		_, plain := program.Eval(doc, NewEvent(&event))
		taken := 0
		meter := MeterOf(WithSpend(t.Context(), func(steps int) { taken += steps }))
		_, metered := program.Eval(doc, NewEvent(&event).WithMeter(meter))
		if kindOf(plain) != kindOf(metered) || plain == nil != (metered == nil) || plain != nil && plain.Error() != metered.Error() {
			t.Errorf("%s: without a meter %v, with one %v", name, plain, metered)
		}
		if taken == 0 {
			t.Errorf("%s: no steps are reported", name)
		}
	}
}
