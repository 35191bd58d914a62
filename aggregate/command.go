package aggregate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/schema"
)

// Appender appends events. Commands append through the same one as all other requests.
type Appender interface {
	Append(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error)
}

// Commands decides commands. All methods may be called concurrently.
//
// A command is decided on the newest state of its stream, and its events are appended only if the stream still has that
// version. The states of recently used streams stay in memory, so that a command usually costs one append and no read.
type Commands struct {
	states  *States
	appends Appender
	observe func(outcome string, retries int, took time.Duration)
	hot     *hotStates
	locks   streamLocks

	deciders map[deciderKey]*command
}

// NewCommands returns Commands for the definitions of states. observe is called after each command that was decided,
// with the kind of its outcome, and how often it was decided again because of a conflict; nil: nothing is observed.
func NewCommands(states *States, appends Appender, observe func(outcome string, retries int, took time.Duration)) *Commands {
	if observe == nil {
		observe = func(string, int, time.Duration) {}
	}
	return &Commands{states: states, appends: appends, observe: observe, hot: states.hot}
}

// Command is a request to decide and to append what was decided.
type Command struct {
	Stream   string          // category-id
	Name     string          // a command of the category's definition
	Data     json.RawMessage // a JSON object; empty: {}
	Metadata json.RawMessage // a JSON object, for the metadata of each event; empty: {}
	Expected domain.Expected // the version that the stream must have
	Key      string          // of idempotency: commands with the same key, stream and name have one outcome; empty: none
	DryRun   bool            // decide, and append nothing, whatever an earlier command with the key has resulted in
	Explain  bool            // in a dry run: add the rules

	// MinPosition is a position that the tenant's log must have reached; 0: none.
	MinPosition int64

	// Allow returns an error if the sender may not append to a category other than the stream's; nil: it may.
	Allow func(category string) error
}

// Outcome is what became of a command. A rejection is an Outcome only in a dry run, and otherwise an error.
type Outcome struct {
	Kind      OutcomeKind
	Stream    string
	Version   int64           // of the stream after the command; 0 if the command does not depend on it
	Position  int64           // Accepted: of the last event; in a dry run 0
	Events    []DecidedEvent  // Accepted
	State     json.RawMessage // of the stream after the command, a JSON object or null; nil: it can no longer be loaded, or the command does not depend on it
	Rejected  *Rejection      // Rejected
	Duplicate bool            // an earlier command with the same key had this outcome
	Rules     []DecidedRule   // with Command.Explain: the rules up to the first that does not hold
}

// OutcomeKind is the kind of an Outcome.
type OutcomeKind string

// The kinds of outcomes.
const (
	Accepted OutcomeKind = "accepted" // events were appended
	Nothing  OutcomeKind = "nothing"  // no rule failed, and there was nothing to append
	Rejected OutcomeKind = "rejected" // a rule failed
)

// DecidedEvent is an event that a command has appended or, in a dry run, would append: without ID, version and
// position.
type DecidedEvent struct {
	NewEvent // without Data and Metadata if the outcome is a duplicate
	domain.AppendedEvent
}

const (
	// definitionAge is how old a process's knowledge of a definition may be when a command is decided.
	definitionAge = time.Second
	// maxConflicts is how often a command is decided again because others append to its stream or its boundary.
	maxConflicts = 20
)

const (
	commandAdvice = "give the command fewer and simpler expressions, or less data"
	loadAdvice    = "take snapshots of the category more often, or simplify its fold"

	definitionAdvice = "give the definition fewer and shorter expressions"
)

// Send decides a command and appends its events. If the stream changes meanwhile, it decides again, unless the command
// expects a version. It returns these errors, besides those of an append and of States.Load:
//
//   - domain.CodeNotFound: the category has no definition, or the definition no such command
//   - domain.CodeRejected: a rule does not hold; Reason is its code
//   - domain.CodeInvalidRequest: data or metadata is not what the command takes
//   - domain.CodeFaulted: an expression of the command failed, or an event that it decided cannot be folded
//   - domain.CodeVersionConflict: the stream does not have the expected version, or it changed too often
//   - domain.CodeConditionFailed: events of the boundary were appended too often meanwhile
//   - domain.CodeTooCostly: the boundary has too many events
//   - domain.CodeNotCaughtUp: the log ends before MinPosition
//
// After an error nothing was appended, unless the code is domain.CodeOutcomeUnknown, or an earlier command with the
// same key was accepted.
func (c *Commands) Send(ctx context.Context, tenant domain.TenantID, command Command) (Outcome, error) {
	began := time.Now()
	if err := domain.CheckStream("stream", command.Stream); err != nil {
		return Outcome{}, err
	}
	if err := CheckCommand("command", command.Name); err != nil {
		return Outcome{}, err
	}
	if err := c.reached(ctx, tenant, command.MinPosition); err != nil {
		return Outcome{}, err
	}
	s := sending{Commands: c, tenant: tenant, command: command, key: streamKey{tenant, command.Stream}, now: began.UTC().Truncate(time.Microsecond)}
	if s.uuid = domain.NewEventID().String(); command.Key != "" {
		s.uuid = domain.DeriveEventID("command", command.Key, command.Stream, command.Name, "uuid").String()
	}
	outcome, err := s.send(ctx)
	if s.decided && !command.DryRun {
		c.observe(observed(outcome, err), s.conflicts, time.Since(began))
	}
	return outcome, err
}

// reached returns an error if the tenant's log does not have a position (0: none is asked for).
func (c *Commands) reached(ctx context.Context, tenant domain.TenantID, position int64) error {
	if position == 0 {
		return nil
	}
	head, err := c.states.events.Head(ctx, tenant)
	if err == nil && head.Position < position {
		err = domain.Errorf(domain.CodeNotCaughtUp, "query minPosition", "the log ends at position %d", head.Position)
	}
	return err
}

// observed names how a command ended: by its outcome, with a conflict, or with another error.
func observed(outcome Outcome, err error) string {
	switch {
	case err == nil:
		return string(outcome.Kind)
	case domain.IsCode(err, domain.CodeRejected):
		return string(Rejected)
	case domain.IsCode(err, domain.CodeVersionConflict), domain.IsCode(err, domain.CodeConditionFailed):
		return "conflict"
	}
	return "failed"
}

// sending is a command on its way.
type sending struct {
	*Commands
	tenant    domain.TenantID
	command   Command
	key       streamKey
	now       time.Time
	uuid      string
	decided   bool
	together  bool     // read the stream in any case
	unlock    []func() // of the boundary's locks
	conflicts int      // decisions whose append came too late
}

// known is the state that a command is decided on.
type known struct {
	fold    *fold
	program *command // nil: there is no such command
	version int64
	state   *expr.Object
	bounds  []bound
	reject  *Rejection // by the query of a Decider's boundary; then bounds are unknown
	newest  bool       // it was read for this decision; else it may be old
	apart   bool       // the command does not depend on its stream, whose version and state are unknown here
}

func (s *sending) send(ctx context.Context) (Outcome, error) {
	if !s.command.DryRun {
		unlock := s.locks.lock(ctx.Done(), s.key)
		if unlock == nil {
			return Outcome{}, fmt.Errorf("await the commands of the same stream: %w", context.Cause(ctx))
		}
		defer unlock()
		// Look under the lock: the command before may have been this one, sent twice.
		if s.command.Key != "" {
			outcome, found, err := s.earlier(ctx)
			if err != nil || found {
				return outcome, err
			}
		}
		defer func() {
			for _, unlock := range s.unlock {
				unlock()
			}
		}()
	}
	for newest := s.command.DryRun; ; newest = true {
		on, err := s.current(ctx, newest)
		if err == nil {
			on.program = s.program(on.fold)
			old := !on.newest
			if err = s.bound(ctx, &on, newest); err != nil && old && ctx.Err() == nil {
				continue // the query may depend on the state
			}
		}
		if err != nil {
			return Outcome{}, err
		}
		if !s.command.Expected.Holds(on.version) {
			if !on.newest {
				continue
			}
			return Outcome{}, s.conflict(on.version)
		}
		s.decided = on.program != nil
		d, err := s.decide(ctx, on)
		if (err != nil || len(d.events) == 0) && !on.newest && ctx.Err() == nil {
			continue // only an append shows that the state was the newest
		}
		if err == nil && on.apart && !slices.ContainsFunc(d.events, func(e NewEvent) bool { return e.Stream != s.command.Stream }) {
			s.together = true // the outcome has the stream's version and state
			continue
		}
		if err != nil {
			return Outcome{}, err
		}
		if len(d.events) == 0 || s.command.DryRun {
			return s.withoutAppend(ctx, on, d)
		}
		appended, err := s.appends.Append(ctx, s.tenant, d.request(s.command.Stream, on, s.eventID))
		switch {
		case err == nil && appended.Duplicate, s.command.Key != "" && (domain.IsCode(err, domain.CodeEventIDConflict) || domain.IsCode(err, domain.CodePartialDuplicate)):
			// The same command was sent twice at the same time.
			outcome, found, findErr := s.earlier(ctx)
			if findErr == nil && !found {
				findErr = cmp.Or(err, errors.New("the events of a duplicate command are missing"))
			}
			return outcome, findErr
		case domain.IsCode(err, domain.CodeVersionConflict) && s.conflicts < maxConflicts:
			s.conflicts++
			continue
		case (domain.IsCode(err, domain.CodeConditionFailed) || !on.newest && domain.IsCode(err, domain.CodeTooCostly)) && s.conflicts < maxConflicts:
			s.conflicts++
			if err := s.lockBounds(ctx, on.bounds); err != nil {
				return Outcome{}, err
			}
			continue
		case err != nil:
			s.hot.drop(s.key)
			return Outcome{}, ofEvents(err)
		}
		return s.accepted(ctx, on, d, appended)
	}
}

// current returns the state to decide on. newest asks for the one in the log.
func (s *sending) current(ctx context.Context, newest bool) (known, error) {
	if !newest {
		f, err := s.definition(ctx)
		if err != nil {
			return known{}, err
		}
		if s.apart(f) {
			return known{fold: f, newest: true, apart: true}, nil
		}
		if hot, ok := s.hot.get(s.key, f.tag); ok {
			return known{fold: f, version: hot.version, state: hot.state}, nil
		}
		if !s.hot.isLong(s.key, f.tag) {
			if on, ok, err := s.loadBriefly(ctx, f); ok || err != nil {
				return on, err
			}
			s.hot.put(s.key, hotState{tag: f.tag, long: true}) // so that later commands do not read in vain
		}
	}
	ctx, end, err := s.states.requests.Begin(ctx, s.tenant, loadAdvice)
	if err != nil {
		return known{}, err
	}
	defer end()
	f, snapshot, err := s.states.start(ctx, s.tenant, s.command.Stream, 0)
	if err != nil {
		return known{}, budget.Cause(ctx, err)
	}
	if s.apart(f) {
		return known{fold: f, newest: true, apart: true}, nil
	}
	l := loading{States: s.states, tenant: s.tenant, fold: f, at: At{orNew: true}, snapshot: snapshot, loaded: State{Stream: s.command.Stream, tag: f.tag}}
	if hot, ok := s.hot.get(s.key, f.tag); ok {
		l.state, l.decoded, l.loaded.Version, l.loaded.Snapshot, l.loaded.last = hot.state, true, hot.version, hot.version, hot.last
	}
	loaded, err := l.run(ctx)
	if err != nil {
		return known{}, budget.Cause(ctx, err)
	}
	s.hot.put(s.key, hotState{tag: f.tag, version: loaded.Version, last: loaded.last, state: loaded.object})
	return known{fold: f, version: loaded.Version, state: loaded.object, newest: true}, nil
}

// definition returns the fold of the category's definition, at most definitionAge old. If it is older, one command asks
// the database, and the others wait for it. An unchanged or small definition needs no place.
func (s *sending) definition(ctx context.Context) (f *fold, err error) {
	category := domain.Category(s.command.Stream)
	if f, ok := s.states.recentFold(s.tenant, category); ok {
		return f, nil
	}
	unlock := s.locks.lock(ctx.Done(), streamKey{s.tenant, category}) // a stream's name is longer
	if unlock == nil {
		return nil, fmt.Errorf("await the definition: %w", context.Cause(ctx))
	}
	defer unlock()
	if f, ok := s.states.recentFold(s.tenant, category); ok {
		return f, nil
	}
	found, err := s.states.store.readStart(ctx, s.tenant, category, "", 0)
	if err != nil {
		return nil, err
	}
	err = s.states.requests.Brief(ctx, s.tenant, definitionAdvice, func(ctx context.Context) error {
		f, err = s.states.compiled(ctx, s.tenant, category, found)
		return err
	})
	return f, err
}

// Limits of a stream that loadBriefly loads.
const (
	briefEvents = 10
	briefBytes  = 16 << 10 // of the events
)

// loadBriefly loads the state of a stream with few and small events, such as a new one. It needs one read, which waits
// for its turn among the tenant's reads, and a brief computation. So the command need not wait for a place. ok is false
// for any other stream.
func (s *sending) loadBriefly(ctx context.Context, f *fold) (on known, ok bool, err error) {
	slice, err := s.states.events.StreamSlice(ctx, s.tenant, s.command.Stream, domain.StreamQuery{From: 1, Limit: briefEvents, MaxBytes: briefBytes})
	if err != nil || slice.Floor > 0 {
		return known{}, false, err
	}
	if _, more := nextVersion(slice.Events, 0, briefEvents, briefBytes); more {
		return known{}, false, nil
	}
	for i := range slice.Events {
		if slice.Events[i].Version != int64(i+1) || slice.Events[i].Gap != nil {
			return known{}, false, nil // a snapshot may have what is missing
		}
	}
	var loaded State
	err = s.states.requests.Brief(ctx, s.tenant, loadAdvice, func(ctx context.Context) error {
		l := loading{States: s.states, fold: f, state: f.initial, decoded: true, loaded: State{Stream: s.command.Stream}}
		err := l.foldSlice(expr.MeterOf(ctx), slice.Events, true)
		loaded = l.loaded
		return err
	})
	if err != nil {
		return known{}, false, err
	}
	s.hot.put(s.key, hotState{tag: f.tag, version: loaded.Version, last: loaded.last, state: loaded.object})
	return known{fold: f, version: loaded.Version, state: loaded.object, newest: true}, true, nil
}

// apart reports whether the command depends on its boundary alone, and has nothing to do with its stream.
func (s *sending) apart(f *fold) bool {
	program := s.program(f)
	return program != nil && program.apart && s.command.Expected == domain.Any && !s.command.DryRun && !s.together
}

// decide evaluates the command on a state.
func (s *sending) decide(ctx context.Context, on known) (d decision, err error) {
	var inGo *decision
	if on.reject != nil {
		inGo = &decision{rejected: on.reject}
	} else if on.program != nil && on.program.inGo != nil {
		decided, err := s.decideInGo(ctx, on)
		if err != nil {
			return decision{}, err
		}
		inGo = &decided
	}
	tagged, err := s.states.tagger(ctx, s.tenant)
	if err != nil {
		return decision{}, err
	}
	brief := func(do func(meter *expr.Meter) error) error {
		return s.states.requests.Brief(ctx, s.tenant, commandAdvice, func(ctx context.Context) error { return do(expr.MeterOf(ctx)) })
	}
	if tagged == nil {
		err = brief(func(meter *expr.Meter) error {
			if inGo != nil {
				d = *inGo
				return on.complete(meter, &s.command, &d)
			}
			d, err = on.decide(meter, &s.command, s.now, s.uuid)
			return err
		})
		return d, err
	}
	if inGo != nil {
		d = *inGo
	} else {
		err = brief(func(meter *expr.Meter) error {
			d, err = on.emit(meter, &s.command, s.now, s.uuid)
			return err
		})
		if err != nil {
			return decision{}, err
		}
	}
	// Which events a boundary matches, and what they mean, may depend on derived tags.
	if err := s.deriveTags(ctx, tagged, on, &d); err != nil {
		return decision{}, err
	}
	emitted := d
	err = brief(func(meter *expr.Meter) error {
		d = emitted
		return on.complete(meter, &s.command, &d)
	})
	return d, err
}

// program returns the command of a definition, or else the one that a Decider decides; nil if there is neither.
func (s *sending) program(f *fold) *command {
	if program := f.commands[s.command.Name]; program != nil {
		return program
	}
	return s.deciders[deciderKey{domain.Category(s.command.Stream), s.command.Name}]
}

// deriveTags adds the tags that the schemas of the events' types derive.
func (s *sending) deriveTags(ctx context.Context, tagged schema.Tagger, on known, d *decision) error {
	if len(d.events) == 0 {
		return nil
	}
	request, err := tagged(ctx, d.request(s.command.Stream, on, s.eventID))
	if err != nil {
		return ofEvents(err)
	}
	n := 0
	for _, stream := range request.Streams {
		for _, event := range stream.Events {
			d.events[n].Tags, d.events[n].Derived = event.Tags, event.Derived
			n++
		}
	}
	return nil
}

// decide evaluates a command, and folds its events. The result is meaningless if the meter ended it.
func (on *known) decide(meter *expr.Meter, command *Command, now time.Time, uuid string) (d decision, err error) {
	if d, err = on.emit(meter, command, now, uuid); err != nil {
		return decision{}, err
	}
	err = on.complete(meter, command, &d)
	return d, err
}

// emit evaluates a command. The result is meaningless if the meter ended it.
func (on *known) emit(meter *expr.Meter, command *Command, now time.Time, uuid string) (d decision, err error) {
	in, err := on.inputs(meter, command, now, uuid)
	if err != nil {
		return decision{}, err
	}
	return on.program.decide(meter, command.Name, command.Stream, in, command.Explain)
}

// inputs checks a command's data, and returns the variables of its expressions.
func (on *known) inputs(meter *expr.Meter, command *Command, now time.Time, uuid string) (in expr.Inputs, err error) {
	if on.program == nil {
		return expr.Inputs{}, on.fold.noCommand(command)
	}
	meter.SpendBytes(2*len(command.Data) + 2*len(command.Metadata))
	in = expr.Inputs{State: cmp.Or(on.state, on.fold.initial), Now: now, ID: domain.Key(command.Stream), UUID: uuid, Boundary: boundaryValues(on.bounds)}
	if in.Command, err = object("data", command.Data); err != nil {
		return expr.Inputs{}, err
	}
	if in.Metadata, err = object("metadata", command.Metadata); err != nil {
		return expr.Inputs{}, err
	}
	if on.program.input != nil {
		data := command.Data
		if len(data) == 0 {
			data = json.RawMessage("{}")
		}
		err = on.program.input.Check(meter, "data", data)
	}
	return in, err
}

// complete checks a decision, and adds the states after its events.
func (on *known) complete(meter *expr.Meter, command *Command, d *decision) (err error) {
	if err := command.checkStreams(d, on.program.stateless() && command.Expected == domain.Any); err != nil {
		return err
	}
	if err := foldOwn(meter, on.bounds, d); err != nil || on.apart {
		return err
	}
	if err := on.fold.fold(meter, command.Stream, on.version, on.state, d); err != nil || !d.folded {
		return err
	}
	meter.SpendBytes(expr.Size(value(d.state)))
	if d.data, err = encode(d.state); errors.Is(err, expr.ErrTooLarge) {
		return domain.Errorf(domain.CodeFaulted, "state", "the state after the command cannot be kept: %s", err)
	}
	return err
}

// checkStreams returns an error if the sender may not append to a stream of the decision, or if the decision would not
// be checked against the state that it was made on. stateless says that it did not depend on the stream's state.
func (c *Command) checkStreams(d *decision, stateless bool) error {
	own, others := len(d.events) == 0 || stateless, map[string]struct{}{}
	for _, e := range d.events {
		if e.Stream == c.Stream {
			own = true
		} else if category := domain.Category(e.Stream); category != domain.Category(c.Stream) {
			others[category] = struct{}{}
		}
	}
	if !own {
		return domain.Errorf(domain.CodeFaulted, "commands."+c.Name+".emit",
			"all events are for other streams; append at least one to the command's stream, by which concurrent commands notice each other, and an expected version holds")
	}
	if c.Allow != nil {
		for _, category := range slices.Sorted(maps.Keys(others)) {
			if err := c.Allow(category); err != nil {
				return err
			}
		}
	}
	return nil
}

// accepted returns the outcome of appended events.
func (s *sending) accepted(ctx context.Context, on known, d decision, appended domain.Appended) (Outcome, error) {
	outcome := Outcome{Kind: Accepted, Stream: s.command.Stream, Version: on.version, Position: appended.Position, State: d.data}
	s.keepBounds(on.bounds, appended.Position)
	var last domain.EventID
	for _, stream := range appended.Streams {
		if stream.Stream == s.command.Stream {
			outcome.Version, last = stream.Version, stream.Events[len(stream.Events)-1].ID
		}
		for _, event := range stream.Events {
			outcome.Events = append(outcome.Events, DecidedEvent{d.events[len(outcome.Events)], event})
		}
	}
	if on.apart {
		return outcome, nil
	}
	if d.folded {
		s.hot.put(s.key, hotState{tag: on.fold.tag, version: outcome.Version, last: last, state: d.state})
		return outcome, nil
	}
	state, err := s.states.Load(ctx, s.tenant, s.command.Stream, At{Version: outcome.Version})
	if err != nil {
		// The events are in the log, so an error would tell the client the opposite.
		s.states.log.Warn("the state after a command could not be loaded", "tenant", s.tenant.String(), "stream", s.command.Stream, "error", err)
		return outcome, nil
	}
	s.hot.put(s.key, hotState{tag: state.tag, version: state.Version, last: state.last, state: state.object})
	outcome.State = state.Data
	return outcome, nil
}

// withoutAppend returns the outcome of a decision that appends nothing, and keeps it if the command has a key.
func (s *sending) withoutAppend(ctx context.Context, on known, d decision) (Outcome, error) {
	if s.command.DryRun {
		return d.untaken(s.command.Stream, on.version), nil
	}
	if s.command.Key != "" {
		kept, err := s.states.store.keepOutcome(ctx, s.tenant, s.eventID(0), keptOutcome{Rejected: d.rejected, Version: on.version})
		if err != nil {
			return Outcome{}, err
		}
		if kept != nil {
			return s.kept(ctx, *kept)
		}
	}
	if d.rejected != nil {
		return Outcome{}, rejection(d.rejected)
	}
	return d.untaken(s.command.Stream, on.version), nil
}

// untaken returns the outcome of a decision at a version of its stream, of which nothing is appended.
func (d *decision) untaken(stream string, version int64) Outcome {
	outcome := Outcome{Kind: Nothing, Stream: stream, Version: version, State: d.data, Rules: d.rules}
	if d.rejected != nil {
		outcome.Kind, outcome.Rejected = Rejected, d.rejected
	}
	for _, e := range d.events {
		outcome.Kind = Accepted
		outcome.Events = append(outcome.Events, DecidedEvent{NewEvent: e})
		if e.Stream == stream {
			outcome.Version++
		}
	}
	return outcome
}

// earlier returns the outcome of an earlier command with the same key.
func (s *sending) earlier(ctx context.Context) (outcome Outcome, found bool, err error) {
	kept, position, err := s.states.store.earlierOutcome(ctx, s.tenant, s.eventID(0))
	switch {
	case err != nil:
		return Outcome{}, false, err
	case kept != nil:
		outcome, err = s.kept(ctx, *kept)
		return outcome, true, err
	case position == 0:
		return Outcome{}, false, nil
	}
	outcome = Outcome{Kind: Accepted, Stream: s.command.Stream, Duplicate: true}
	// The events of an append are consecutive. Most commands make few.
	for limit := 10; len(outcome.Events) < domain.MaxRequestEvents; limit = domain.MaxRequestEvents {
		from := position + int64(len(outcome.Events))
		events, err := s.states.events.ReadLog(ctx, s.tenant, domain.LogQuery{From: from, Limit: limit, MaxBytes: 2 * domain.MaxRequestBytes})
		if err != nil {
			return Outcome{}, false, err
		}
		before := len(outcome.Events)
		for _, event := range events {
			if event.ID != s.eventID(len(outcome.Events)) {
				break
			}
			outcome.Events = append(outcome.Events, DecidedEvent{
				NewEvent{Stream: event.Stream, Type: event.Type, Tags: event.Tags}, domain.AppendedEvent{ID: event.ID, Version: event.Version, Position: event.Position},
			})
			outcome.Position = event.Position
			if event.Stream == s.command.Stream {
				outcome.Version = event.Version
			}
		}
		if len(events) == 0 || len(outcome.Events) < before+len(events) {
			break
		}
	}
	if err := s.states.events.AwaitCommits(ctx, s.tenant); err != nil {
		return Outcome{}, false, err
	}
	outcome.State = s.stateAt(ctx, outcome.Version)
	return outcome, true, nil
}

// kept returns a kept outcome as that of this command.
func (s *sending) kept(ctx context.Context, kept keptOutcome) (Outcome, error) {
	if kept.Rejected != nil {
		return Outcome{}, rejection(kept.Rejected)
	}
	return Outcome{Kind: Nothing, Stream: s.command.Stream, Version: kept.Version, State: s.stateAt(ctx, kept.Version), Duplicate: true}, nil
}

// stateAt returns the state at a version, or nil if it cannot be loaded: since then, the definition may have been
// removed, or retention may have removed events. An error would deny the outcome.
func (s *sending) stateAt(ctx context.Context, version int64) json.RawMessage {
	if version == 0 {
		return nil
	}
	state, err := s.states.Load(ctx, s.tenant, s.command.Stream, At{Version: version})
	if err != nil {
		return nil
	}
	return state.Data
}

// eventID returns the id of the command's event with a number: derived from the key, or zero for the log to choose.
func (s *sending) eventID(n int) domain.EventID {
	if s.command.Key == "" {
		return domain.EventID{}
	}
	return domain.DeriveEventID("command", s.command.Key, s.command.Stream, s.command.Name, strconv.Itoa(n))
}
