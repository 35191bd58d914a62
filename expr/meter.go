package expr

import "context"

// stepsBetweenChecks is how many steps an evaluation takes before it asks its meter whether to continue. They take well
// below a millisecond, yet asking has no measurable cost. A single expensive step, such as matching a long string, is
// finished first.
const stepsBetweenChecks = 4_000

// stepsBeforeTurn is the number of steps after which an evaluation waits for a turn, if there are turns. They take half
// a millisecond, which small folds never reach.
const stepsBeforeTurn = 5 * stepsBetweenChecks

// Meter ends evaluations when a context ends, and counts the steps that they take together. It is safe for concurrent
// use. A nil Meter never ends anything.
type Meter struct {
	ctx   context.Context
	spend func(steps int)
	turns func() Turn
}

// Turn is an evaluation's turn on a processor. GoOn is called now and then, and may wait while others have their turn;
// End is called once.
type Turn struct{ GoOn, End func() }

type (
	spendKey struct{}
	turnsKey struct{}
)

// WithTurns returns a context in which an evaluation that takes many steps waits for a turn. begin returns when it has
// one, or when the context ends. Several goroutines may call begin at once.
func WithTurns(ctx context.Context, begin func() Turn) context.Context {
	return context.WithValue(ctx, turnsKey{}, begin)
}

// WithSpend returns a context whose meters report the steps taken to spend. spend is called during an evaluation, and
// may wait: the evaluation continues when it returns, unless the context has ended. Several goroutines may call spend
// at once.
func WithSpend(ctx context.Context, spend func(steps int)) context.Context {
	return context.WithValue(ctx, spendKey{}, spend)
}

// MeterOf returns a meter that ends evaluations when ctx ends.
func MeterOf(ctx context.Context) *Meter {
	spend, _ := ctx.Value(spendKey{}).(func(steps int))
	turns, _ := ctx.Value(turnsKey{}).(func() Turn)
	return &Meter{ctx: ctx, spend: spend, turns: turns}
}

// Spend counts steps of other work than evaluation, such as reading and writing JSON. It returns false if the work must
// stop, because the context has ended.
func (m *Meter) Spend(steps int) bool {
	switch {
	case m == nil:
		return true
	case m.spend != nil:
		m.spend(steps)
	}
	return m.ctx.Err() == nil
}

// bytesPerStep is about how many bytes of JSON are read or written in the time of a step.
const bytesPerStep = 16

// SpendBytes is Spend for reading or writing JSON of that length.
func (m *Meter) SpendBytes(length int) bool { return m.Spend(1 + length/bytesPerStep) }

// stepsPerSourceByte is how many steps compiling takes per byte of an expression: more for some, less for most.
const stepsPerSourceByte = 100

// SpendSource is Spend for compiling an expression of that length. Compiling cannot be interrupted.
func (m *Meter) SpendSource(length int) bool { return m.Spend(stepsPerSourceByte * length) }

// Counts reports whether the meter reports its steps to a function of WithSpend.
func (m *Meter) Counts() bool { return m != nil && m.spend != nil }

// stopped returns the fault of an evaluation that its meter ended.
func stopped() *EvalError {
	return &EvalError{Kind: KindStopped, Message: "the evaluation was stopped"}
}
