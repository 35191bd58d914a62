package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// Limits of a trial, in addition to those of a request that folds events.
const (
	MaxTrialEvents = 1000
	maxTrialBytes  = 8 << 20 // of the events' data, of the states after each event, and of what the command decides
)

const trialAdvice = "use fewer events, or simplify the definition's expressions"

// Trial is a definition to be tried on given events, without a log. It is safe for concurrent use.
type Trial struct {
	category string
	fold     *fold
	requests *budget.Requests
}

// TrialCommand is a command that a Trial decides.
type TrialCommand struct {
	Name     string
	Data     json.RawMessage // a JSON object; empty: {}
	Metadata json.RawMessage // a JSON object; empty: {}
	Now      time.Time
	UUID     string
}

// TrialStep is the effect of one event.
type TrialStep struct {
	Event domain.Event    // as expressions see it
	State json.RawMessage // after the event, a JSON object or null; nil with a Fault, and for events of other streams
	Fault *domain.Error   // the event cannot be folded
}

// TrialResult is what a Trial made of events and a command.
type TrialResult struct {
	Steps   []TrialStep     // one per event, in order; none after the first fault
	State   json.RawMessage // after all events, or after the last before a fault
	Outcome *Outcome        // of the command, with its rules; nil without a command, and after a fault or failure
	Failure *domain.Error   // why the command cannot be decided: a fault, or a limit that it exceeds
}

// NewTrial checks and compiles a definition; upcasters may be nil. Errors are those of States.Put.
func NewTrial(ctx context.Context, definition Definition, upcasters *upcasting.Set) (*Trial, error) {
	t := &Trial{category: definition.Category, requests: budget.New(budget.Limits{})}
	err := t.work(ctx, func(meter *expr.Meter) (err error) {
		if err := check(meter, definition); err != nil {
			return err
		}
		t.fold, err = compile(meter, definition, upcasters)
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Run folds the events of the stream with an id, and decides the command (nil: none) on their state. Events of other
// streams matter to the command's boundary only. Within a request that folds events, it counts against that request's
// limits. The error is domain.CodeInvalidRequest for too many events, domain.CodeTooLarge for too large ones, or one of
// Commands.Send for the command. A rejection is an outcome; domain.CodeFaulted, domain.CodeTooCostly and
// domain.CodeTooLarge of the command are a failure.
func (t *Trial) Run(ctx context.Context, id string, events []domain.Event, command *TrialCommand) (TrialResult, error) {
	return t.run(ctx, id, events, command, func(ctx context.Context, b *bound) error {
		return budget.Work(ctx, func() error {
			return b.foldSlice(expr.MeterOf(ctx), slices.DeleteFunc(slices.Clone(events), func(e domain.Event) bool { return !b.query.Matches(e.Type, e.Tags) }))
		})
	})
}

// run is Run; read reads and folds the events of a boundary.
func (t *Trial) run(ctx context.Context, id string, events []domain.Event, command *TrialCommand, read func(ctx context.Context, b *bound) error) (result TrialResult, err error) {
	stream := t.category + "-" + id
	if err := domain.CheckStream("id", stream); err != nil {
		return TrialResult{}, err
	}
	if len(events) > MaxTrialEvents {
		return TrialResult{}, domain.Errorf(domain.CodeInvalidRequest, "given", "there are %d events; at most %d are allowed", len(events), MaxTrialEvents)
	}
	ctx, end, err := t.requests.Begin(ctx, domain.TenantID{}, trialAdvice)
	if err != nil {
		return TrialResult{}, err
	}
	defer end()
	meter, on, size := expr.MeterOf(ctx), known{fold: t.fold}, 0
	if command != nil {
		on.program = t.fold.commands[command.Name]
	}
	err = budget.Work(ctx, func() (err error) {
		size, err = t.foldAll(meter, stream, events, &on, &result)
		return err
	})
	if err != nil {
		return TrialResult{}, err
	}
	if command == nil || len(result.Steps) > 0 && result.Steps[len(result.Steps)-1].Fault != nil {
		return result, nil
	}
	outcome, err := t.decide(ctx, stream, &on, command, size, read)
	if failure, ok := errors.AsType[*domain.Error](err); ok && slices.Contains(failureCodes, failure.Code) {
		result.Failure = failure
		return result, nil
	}
	if err != nil {
		return TrialResult{}, err
	}
	result.Outcome = &outcome
	return result, nil
}

// failureCodes are the codes of errors that say something of a command, and not of the request.
var failureCodes = []domain.Code{domain.CodeFaulted, domain.CodeTooCostly, domain.CodeTooLarge}

// decide decides a command on what is known. size is that of the steps before it.
func (t *Trial) decide(ctx context.Context, stream string, on *known, command *TrialCommand, size int, read func(ctx context.Context, b *bound) error) (outcome Outcome, err error) {
	meter := expr.MeterOf(ctx)
	sent := Command{Stream: stream, Name: command.Name, Data: command.Data, Metadata: command.Metadata, DryRun: true, Explain: true, Expected: domain.Any}
	err = budget.Work(ctx, func() error {
		in, err := on.inputs(meter, &sent, command.Now, command.UUID)
		if err == nil {
			on.bounds, err = on.program.bounds(meter, in)
		}
		return err
	})
	for i := 0; err == nil && i < len(on.bounds); i++ {
		err = read(ctx, &on.bounds[i])
	}
	if err != nil {
		return Outcome{}, err
	}
	err = budget.Work(ctx, func() error {
		d, err := on.decide(meter, &sent, command.Now, command.UUID)
		if err != nil {
			return err
		}
		if size+d.bytes+len(d.data) > maxTrialBytes {
			return domain.Errorf(domain.CodeTooLarge, "given", "the events, their states and the command's outcome exceed %d bytes; use fewer events", maxTrialBytes)
		}
		outcome = d.untaken(stream, on.version)
		return nil
	})
	return outcome, err
}

// foldAll folds a stream's events up to the first that cannot be folded. on gets its state and version. size is that of
// the steps.
func (t *Trial) foldAll(meter *expr.Meter, stream string, events []domain.Event, on *known, result *TrialResult) (size int, err error) {
	on.state = t.fold.initial
	if result.State, err = encode(on.state); err != nil {
		return 0, err
	}
	for _, event := range events {
		if !meter.SpendBytes(len(event.Data) + len(event.Metadata)) {
			return size, nil // Work returns the reason
		}
		step := TrialStep{Event: event}
		if event.Stream != stream {
			size += len(event.Data)
			result.Steps = append(result.Steps, step)
			continue
		}
		after, err := t.fold.next(meter, on.state, &step.Event)
		if err == nil {
			meter.SpendBytes(expr.Size(value(after)))
			step.State, err = encode(after)
			if errors.Is(err, expr.ErrTooLarge) {
				err = domain.Errorf(domain.CodeFaulted, "state", "the state after event %d cannot be kept: %s", event.Version, err)
			}
		}
		if fault, ok := errors.AsType[*domain.Error](err); ok {
			step.Fault = fault
			result.Steps = append(result.Steps, step)
			return size, nil
		} else if err != nil {
			return 0, err
		}
		if size += len(step.Event.Data) + len(step.State); size > maxTrialBytes {
			return 0, domain.Errorf(domain.CodeTooLarge, "given", "at event %d the events and their states exceed %d bytes; use fewer events", event.Version, maxTrialBytes)
		}
		on.state, on.version, result.State = after, event.Version, step.State
		result.Steps = append(result.Steps, step)
	}
	return size, nil
}

// work computes within the limits of a request.
func (t *Trial) work(ctx context.Context, compute func(meter *expr.Meter) error) error {
	ctx, end, err := t.requests.Begin(ctx, domain.TenantID{}, trialAdvice)
	if err != nil {
		return err
	}
	defer end()
	return budget.Work(ctx, func() error { return compute(expr.MeterOf(ctx)) })
}
