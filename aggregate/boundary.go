package aggregate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// BoundaryDefinition says which events of the tenant, whatever their streams, a command depends on, and what they mean
// to it. Its expressions see the fold of these events as boundary.NAME.
type BoundaryDefinition struct {
	Query   []BoundaryItem    `json:"query"`             // an event matters if any item matches it
	Initial json.RawMessage   `json:"initial,omitempty"` // as in Definition
	On      map[string]string `json:"on"`                // as in Definition
}

// BoundaryItem matches the events that are of one of its types and have all of its tags.
type BoundaryItem struct {
	Types []string `json:"types,omitempty"` // none: those of On, or all if it has "*"
	Tags  string   `json:"tags"`            // expression -> list of at least one string; it may not read `boundary`
}

// Limits of boundaries.
const (
	maxBoundaries     = 8      // of a command
	maxBoundaryEvents = 10_000 // that are read for one
	maxBoundaryReads  = 20     // each looks at up to 100,000 events, of which few may match
	// boundaryAge is how long a boundary's state is continued. After that it is folded from the first event again, so
	// that events that retention has removed stop counting.
	boundaryAge = time.Minute
)

func (d *BoundaryDefinition) bytes() int {
	n := len(d.Initial)
	for _, item := range d.Query {
		n += len(item.Tags)
		for _, name := range item.Types {
			n += len(name)
		}
	}
	for name, source := range d.On {
		n += len(name) + len(source)
	}
	return n
}

// boundary is a compiled BoundaryDefinition with its name, or a boundary of a Decider. It is immutable.
type boundary struct {
	name  string
	where string // its place in the definition
	fold  *fold  // of a Decider's boundary: without the tenant's upcasters
	items []boundaryItem
	query func(Decision) (domain.Query, error) // instead of items, of a Decider's boundary
}

type boundaryItem struct {
	types []string
	tags  *expr.Decision
}

// compileBoundary compiles the boundary of a command, and calls wrong for each of its problems. compile compiles an
// expression.
func compileBoundary(
	meter *expr.Meter, where string, definitions map[string]BoundaryDefinition, upcasters *upcasting.Set,
	compile func(where string, scope expr.Scope, gives expr.Gives, source string) *expr.Decision, wrong func(where, format string, args ...any),
) ([]boundary, error) {
	if len(definitions) > maxBoundaries {
		wrong(where, "there are %d queries; at most %d are allowed", len(definitions), maxBoundaries)
		return nil, nil
	}
	var all []boundary
	items := 0
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		d, where := definitions[name], where+"."+name
		if err := domain.CheckAlphabet(where, "name", name, domain.MaxNameBytes, "_"); err != nil {
			wrong(where, "%s", domain.ClientMessage(err))
			continue
		}
		if len(d.On) == 0 {
			wrong(where+".on", "there is no event type in it; write at least one, such as {\"SeatTaken\": \"merge(state, {'taken': true})\"}")
		}
		if len(d.Query) == 0 {
			wrong(where+".query", "write at least one item, such as {\"tags\": \"['seat:' + command.seat]\"}")
		}
		if items += len(d.Query); items > domain.MaxQueryItems {
			wrong(where+".query", "the command's queries have more than %d items together", domain.MaxQueryItems)
			return nil, nil
		}
		b := boundary{name: name, where: where}
		for i, item := range d.Query {
			where := fmt.Sprintf("%s.query[%d]", where, i)
			types := item.Types
			if _, every := d.On[anyType]; len(types) == 0 && !every {
				types = slices.Sorted(maps.Keys(d.On))
			}
			if len(types) > domain.MaxItemTypes {
				wrong(where+".types", "the item is for %d types; at most %d are allowed: write another item for the others", len(types), domain.MaxItemTypes)
			}
			for _, eventType := range types {
				if err := domain.CheckType(where+".types", eventType); err != nil {
					wrong(where+".types", "%s", domain.ClientMessage(err))
				}
			}
			tags := compile(where+".tags", expr.ScopeCommand, expr.GivesList, item.Tags)
			if tags != nil && tags.Reads("boundary") {
				wrong(where+".tags", "the tags decide what is read for the boundary, so they cannot depend on it")
			}
			b.items = append(b.items, boundaryItem{types, tags})
		}
		var err error
		if b.fold, err = compileFold(meter, where+".", Definition{Initial: d.Initial, On: d.On}, upcasters, wrong); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// checkBoundaryNames calls wrong if an expression reads a boundary that the command does not have.
func (d *CommandDefinition) checkBoundaryNames(where string, compiled *expr.Decision, wrong func(where, format string, args ...any)) {
	if !compiled.Reads("boundary") {
		return
	}
	if len(d.Boundary) == 0 {
		wrong(where, "the command has no boundary; declare one")
	}
	for _, path := range compiled.Paths() {
		fields := path.Fields()
		if !strings.HasPrefix(path.String(), "boundary") || len(fields) == 0 || len(d.Boundary) == 0 {
			continue
		}
		if _, ok := d.Boundary[fields[0]]; !ok {
			names := slices.Sorted(maps.Keys(d.Boundary))
			wrong(where, "the boundary has no %q; it has %s", domain.Clip(fields[0], 60), domain.Clip(strings.Join(names, ", "), 300))
		}
	}
}

// bound is a boundary of one command: the events that match its query, folded.
type bound struct {
	*boundary
	query    domain.Query
	key      streamKey // in hotStates
	since    time.Time // when it was folded from its first event
	position int64     // all matching events up to here are folded
	state    *expr.Object

	after  *expr.Object // with the command's events
	folded bool         // after is known
}

// bounds returns the boundaries of a command, with their queries.
func (c *command) bounds(meter *expr.Meter, in expr.Inputs) ([]bound, error) {
	bounds := make([]bound, len(c.boundary))
	for i := range bounds {
		b := &bounds[i]
		b.boundary = &c.boundary[i]
		for j, item := range b.items {
			where := fmt.Sprintf("%s.query[%d].tags", b.where, j)
			tags, err := evalTags(meter, where, item.tags, &in)
			if err != nil {
				return nil, err
			}
			if len(tags) == 0 || len(tags) > domain.MaxItemTags {
				return nil, domain.Errorf(domain.CodeFaulted, where, "the command cannot be decided: there are %d tags; 1 to %d are possible", len(tags), domain.MaxItemTags)
			}
			b.query = append(b.query, domain.QueryItem{Types: item.types, Tags: tags})
		}
	}
	return bounds, nil
}

// evalTags evaluates an expression for tags. They are valid, sorted and without duplicates.
func evalTags(meter *expr.Meter, where string, expression *expr.Decision, in *expr.Inputs) ([]string, error) {
	value, err := expression.Eval(meter, in)
	if err != nil {
		return nil, undecided(where, err)
	}
	list := value.(expr.List)
	tags := make([]string, 0, min(list.Len(), domain.MaxTags+1))
	for i := range cap(tags) {
		tag, ok := list.At(i).(expr.String)
		if !ok {
			return nil, domain.Errorf(domain.CodeFaulted, where, "the command cannot be decided: tag %d is %s; tags are strings", i, expr.Describe(list.At(i)))
		}
		tags = append(tags, string(tag))
	}
	if tags, err = domain.CheckTags("", tags); err != nil {
		return nil, undecided(where, err)
	}
	return tags, nil
}

// boundaryValues returns what expressions see as `boundary`.
func boundaryValues(bounds []bound) *expr.Object {
	if len(bounds) == 0 {
		return nil
	}
	all := make(map[string]expr.Value, len(bounds))
	for i := range bounds {
		all[bounds[i].name] = cmp.Or(bounds[i].state, bounds[i].fold.initial)
	}
	return expr.NewObject(all)
}

// foldOwn folds a decision's events into the boundaries that they match, to know the states after the append, and to
// refuse events that could not be folded.
func foldOwn(meter *expr.Meter, bounds []bound, d *decision) error {
	for i := range bounds {
		b := &bounds[i]
		b.after, b.folded = b.state, true
		for _, e := range d.events {
			if !b.query.Matches(e.Type, e.Tags) {
				continue
			}
			if b.fold.dependsOnAppend(e.Type) || b.fold.uses(e.Type, "version") {
				b.folded = false
				break
			}
			var err error
			b.after, err = b.fold.nextAll(meter, b.after, []domain.Event{{Stream: e.Stream, Type: e.Type, Data: e.Data, Metadata: e.Metadata, Tags: e.Tags}})
			if problem, ok := unfolded(domain.Within(b.where, err), e); ok {
				return problem
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// bound completes what a command is decided on by its boundaries. newest asks for their states in the log.
func (s *sending) bound(ctx context.Context, on *known, newest bool) error {
	if on.program == nil || len(on.program.boundary) == 0 {
		return nil
	}
	var err error
	if on.program.inGo != nil {
		on.bounds, err = s.boundsInGo(on)
		if rejected, ok := errors.AsType[*Rejection](err); ok {
			on.reject = rejected
			return nil
		}
	} else {
		err = s.states.requests.Brief(ctx, s.tenant, commandAdvice, func(ctx context.Context) error {
			in, err := on.inputs(expr.MeterOf(ctx), &s.command, s.now, s.uuid)
			if err == nil {
				on.bounds, err = on.program.bounds(expr.MeterOf(ctx), in)
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	began := time.Now()
	for i := range on.bounds {
		b := &on.bounds[i]
		query, err := json.Marshal(b.query)
		if err != nil {
			return fmt.Errorf("write a query: %w", err)
		}
		// No stream has such a name.
		b.key, b.since = streamKey{s.tenant, "boundary " + b.fold.tag + string(query)}, began
		if hot, ok := s.hot.get(b.key, b.fold.tag); ok && began.Sub(hot.since) < boundaryAge {
			b.position, b.state, b.since = hot.version, hot.state, hot.since
		} else {
			newest = true
		}
	}
	if !newest {
		on.newest = false
		return nil
	}
	ctx, end, err := s.states.requests.Begin(ctx, s.tenant, "let the boundary match fewer events, by rarer tags, or simplify its fold")
	if err != nil {
		return err
	}
	defer end()
	head, err := s.states.events.Head(ctx, s.tenant)
	if err != nil {
		return budget.Cause(ctx, err)
	}
	for i := range on.bounds {
		b := &on.bounds[i]
		if err := s.states.readBoundary(ctx, s.tenant, b, head.Position); err != nil {
			return budget.Cause(ctx, err)
		}
		s.hot.put(b.key, hotState{tag: b.fold.tag, version: b.position, state: b.state, since: b.since})
	}
	return nil
}

// readBoundary folds the events that a boundary lacks, up to a position.
func (s *States) readBoundary(ctx context.Context, tenant domain.TenantID, b *bound, upTo int64) error {
	q := domain.MatchQuery{Query: b.query, After: b.position, Before: upTo + 1, Limit: sliceEvents, MaxBytes: sliceBytes}
	events := 0
	for reads := 0; q.After < upTo; reads++ {
		if events > maxBoundaryEvents || reads == maxBoundaryReads {
			return domain.Errorf(domain.CodeTooCostly, b.where, "too many events have to be read, %d of which match; at most %d may: use rarer tags", events, maxBoundaryEvents)
		}
		slice, next, err := s.events.ReadMatching(ctx, tenant, q)
		if err != nil {
			return err
		}
		if err := budget.Work(ctx, func() error { return b.foldSlice(expr.MeterOf(ctx), slice) }); err != nil {
			return err
		}
		events += len(slice)
		if q.After = next; next == 0 {
			break
		}
	}
	b.position = max(b.position, upTo)
	return nil
}

func (b *bound) foldSlice(meter *expr.Meter, events []domain.Event) error {
	for _, event := range events {
		if !meter.SpendBytes(len(event.Data) + len(event.Metadata)) {
			return nil // Work returns the reason
		}
		if event.Gap != nil {
			return domain.Errorf(domain.CodeFaulted, b.where, "event %d of %s is %s: %s", event.Version, event.Stream, event.Gap.Reason, event.Gap.Message)
		}
	}
	state, err := b.fold.nextAll(meter, b.state, events)
	if err != nil {
		return domain.Within(b.where, err)
	}
	b.state = state
	return nil
}

// lockBounds makes the command wait for others that have the same boundaries and came too late as well. Each command
// takes these locks after its stream's, in the order of their names, and at most once.
func (s *sending) lockBounds(ctx context.Context, bounds []bound) error {
	if len(s.unlock) > 0 {
		return nil
	}
	names := make([]string, len(bounds))
	for i := range bounds {
		names[i] = bounds[i].key.stream
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		unlock := s.locks.lock(ctx.Done(), streamKey{s.tenant, name})
		if unlock == nil {
			return fmt.Errorf("await the commands of the same boundary: %w", context.Cause(ctx))
		}
		s.unlock = append(s.unlock, unlock)
	}
	return nil
}

// conditions returns the conditions under which a decision on the boundaries still holds.
func conditions(bounds []bound) []domain.Condition {
	var all []domain.Condition
	for i := range bounds {
		all = append(all, domain.Condition{FailIfEventsMatch: bounds[i].query, After: bounds[i].position})
	}
	return all
}

// keepBounds remembers the states of the boundaries after an append.
func (s *sending) keepBounds(bounds []bound, position int64) {
	for i := range bounds {
		if b := &bounds[i]; b.folded {
			s.hot.put(b.key, hotState{tag: b.fold.tag, version: position, state: b.after, since: b.since})
		}
	}
}
