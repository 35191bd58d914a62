package expr

import "context"

// stepsBetweenChecks is how many steps an evaluation takes until it asks its meter whether it may go on: well below a
// millisecond's worth, so that asking costs nothing that can be measured. A single step that costs more, such as matching a
// long text, comes to its end first.
const stepsBetweenChecks = 4_000

// stepsBeforeTurn is from how many steps on an evaluation waits for a turn, where there are turns: half a millisecond's worth,
// which folds that do little never come to.
const stepsBeforeTurn = 5 * stepsBetweenChecks

// Meter ends evaluations when a context ends, and counts the steps that they take together. It may be used by any number
// of goroutines at once. A nil Meter never ends anything.
type Meter struct {
	ctx   context.Context
	spend func(steps int)
	turns func() Turn
}

// Turn is an evaluation's turn on a processor. GoOn is called every now and then, and may wait as long as others have their
// turn; End is called once.
type Turn struct{ GoOn, End func() }

type (
	spendKey struct{}
	turnsKey struct{}
)

// WithTurns returns a context in which an evaluation that takes many steps waits for a turn: begin returns when it has one, or
// when the context ends. It may be called by several goroutines at once.
func WithTurns(ctx context.Context, begin func() Turn) context.Context {
	return context.WithValue(ctx, turnsKey{}, begin)
}

// WithSpend returns a context whose meters report each number of steps taken to spend. It is called while an evaluation is
// under way, and may wait: the evaluation goes on when it returns, unless the context has ended by then. It may be called by
// several goroutines at once.
func WithSpend(ctx context.Context, spend func(steps int)) context.Context {
	return context.WithValue(ctx, spendKey{}, spend)
}

// MeterOf returns a meter that ends evaluations when ctx ends.
func MeterOf(ctx context.Context) *Meter {
	spend, _ := ctx.Value(spendKey{}).(func(steps int))
	turns, _ := ctx.Value(turnsKey{}).(func() Turn)
	return &Meter{ctx: ctx, spend: spend, turns: turns}
}

// Spend counts steps of work that is no evaluation, such as reading and writing JSON, and reports whether the work may go
// on. Where it may not, the context has ended.
func (m *Meter) Spend(steps int) bool {
	switch {
	case m == nil:
		return true
	case m.spend != nil:
		m.spend(steps)
	}
	return m.ctx.Err() == nil
}

// bytesAStep is how many bytes of JSON are read or written in the time that a step takes, about.
const bytesAStep = 16

// SpendBytes is Spend for JSON of that length that is read or written.
func (m *Meter) SpendBytes(length int) bool { return m.Spend(1 + length/bytesAStep) }

// stepsASourceByte is how many steps compiling takes for each byte of an expression's text: more for some, less for most.
const stepsASourceByte = 100

// SpendSource is Spend for an expression of that length that is compiled. Compiling one cannot be stopped.
func (m *Meter) SpendSource(length int) bool { return m.Spend(stepsASourceByte * length) }

// Counts reports whether the meter reports its steps to a function of WithSpend.
func (m *Meter) Counts() bool { return m != nil && m.spend != nil }

// stopped is the fault of an evaluation that its meter ended.
func stopped() *EvalError {
	return &EvalError{Kind: KindStopped, Message: "the evaluation was stopped"}
}
