package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// aggregateExample is a case of an aggregate's file of examples.
type aggregateExample struct {
	Name  string            `json:"name"`
	Given []json.RawMessage `json:"given"` // exampleEvent
	When  json.RawMessage   `json:"when"`  // exampleCommand
	Then  json.RawMessage   `json:"then"`  // a list of wantedEvent, or wantedEnd; needs When
	State json.RawMessage   `json:"state"` // expected after Given
}

type exampleEvent struct {
	Stream   string          `json:"stream"` // default: the command's
	Type     string          `json:"type"`
	Data     json.RawMessage `json:"data"`
	Metadata json.RawMessage `json:"metadata"`
	Tags     []string        `json:"tags"`
}

type exampleCommand struct {
	Command  string          `json:"command"`
	Data     json.RawMessage `json:"data"`
	Metadata json.RawMessage `json:"metadata"`
	ID       string          `json:"id"`   // of the stream; default 1
	Now      time.Time       `json:"now"`  // default exampleNow
	UUID     string          `json:"uuid"` // default exampleUUID
}

// wantedEnd is the expected end of a command that appends nothing.
type wantedEnd struct {
	Rejected string `json:"rejected"` // the rule's code
	Message  string `json:"message"`  // of the rejection; empty: not checked
	Nothing  bool   `json:"nothing"`
}

// wantedEvent is an expected event: {Withdrawn: {amount: 5}}, also with stream, metadata and tags.
type wantedEvent struct {
	kind           string
	data, metadata json.RawMessage // metadata: nil: not checked
	stream         string          // empty: that of the command
	tags           []string        // nil: not checked
}

// The variables of examples, unless they say otherwise. They are fixed, so that an example is decided alike on any day.
var exampleNow = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

const exampleUUID = "00000000-0000-7000-8000-000000000001"

// aggregate runs the examples of an aggregate.
func (e *exampleRun) aggregate(ctx context.Context, file folding.AggregateFile) error {
	if file.Examples == "" {
		return nil
	}
	definition, err := aggregate.ParseDefinition(file.JSON)
	if err != nil {
		return atLines(&file.File, err)
	}
	trial, err := aggregate.NewTrial(ctx, definition, nil)
	if err != nil {
		return atLines(&file.File, err)
	}
	examples, err := folding.ReadFile(file.Examples)
	if err != nil {
		return err
	}
	var content struct {
		Cases []json.RawMessage `json:"cases"`
	}
	x := aggregateExamples{File: examples, category: file.Category, trial: trial}
	if err := x.decode(examples.JSON, &content, ""); err != nil {
		return err
	}
	if len(content.Cases) == 0 {
		return &folding.FileError{Path: file.Examples, Line: examples.Line("cases"), Err: errors.New("there is no case; write cases: [{name: ..., given: [...], when: {...}, then: [...]}]")}
	}
	for i, text := range content.Cases {
		x.where, x.failures = fmt.Sprintf("cases[%d]", i), nil
		one := aggregateExample{}
		if err := x.decode(text, &one, x.where); err != nil {
			x.failures = append(x.failures, err)
		} else {
			x.run(ctx, &one)
		}
		report(e, file.Category, cmp.Or(one.Name, x.where), x.failures)
	}
	return nil
}

// atLines returns the errors of a definition with their lines in its file.
func atLines(file *folding.File, err error) error {
	var wrong []error
	for _, part := range folding.ErrorsOf(err) {
		wrong = append(wrong, &folding.FileError{Path: file.Path, Line: file.Line(part.Where), Err: part})
	}
	return errors.Join(wrong...)
}

// aggregateExamples runs the cases of a file, one after the other.
type aggregateExamples struct {
	folding.File
	category string
	trial    *aggregate.Trial
	where    string // the case
	failures []error
}

// fail records a failure of the case at a place in it, such as ".then[1]".
func (x *aggregateExamples) fail(place, format string, args ...any) {
	x.failures = append(x.failures, &folding.FileError{Path: x.Path, Line: x.Line(x.where + place), Err: fmt.Errorf(format, args...)})
}

// decode reads a part of the file, whose place is where. Unknown fields are errors.
func (x *aggregateExamples) decode(text json.RawMessage, into any, where string) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		return nil
	}
	at, message := where, strings.TrimPrefix(err.Error(), "json: ")
	if name, unknown := strings.CutPrefix(message, "unknown field "); unknown {
		at = strings.TrimPrefix(where+"."+strings.Trim(name, `"`), ".")
	} else if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at = strings.Trim(where+"."+wrong.Field, ".")
		message = strings.TrimPrefix(fmt.Sprintf("%s: expected %s, not %s", wrong.Field, wordsFor[wrong.Type.Kind()], wrong.Value), ": ")
	}
	return &folding.FileError{Path: x.Path, Line: x.Line(at), Err: errors.New(message)}
}

// wordsFor are words for the JSON that is read into a kind of Go value.
var wordsFor = map[reflect.Kind]string{
	reflect.Slice: "a list", reflect.String: "a string", reflect.Bool: "true or false", reflect.Struct: "an object", reflect.Map: "an object",
}

// run runs a case.
func (x *aggregateExamples) run(ctx context.Context, one *aggregateExample) {
	switch {
	case one.Name == "":
		x.fail("", "the case has no name")
	case one.Then == nil && one.State == nil:
		x.fail("", "the case expects nothing; give then, state, or both")
	case (one.When == nil) != (one.Then == nil):
		x.fail("", "when and then belong together; give both or neither")
	}
	id, command := "1", (*aggregate.TrialCommand)(nil)
	if one.When != nil {
		w := exampleCommand{ID: id, Now: exampleNow, UUID: exampleUUID}
		if err := x.decode(one.When, &w, x.where+".when"); err != nil {
			x.failures = append(x.failures, err)
		}
		id, command = w.ID, &aggregate.TrialCommand{Name: w.Command, Data: w.Data, Metadata: w.Metadata, Now: w.Now, UUID: w.UUID}
	}
	given := x.given(one.Given, x.category+"-"+id)
	if len(x.failures) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, exampleTimeout)
	defer cancel()
	result, err := x.trial.Run(ctx, id, given, command)
	if err != nil {
		x.fail(".when", "%w", err)
		return
	}
	if n := len(result.Steps); n > 0 && result.Steps[n-1].Fault != nil {
		x.fail(fmt.Sprintf(".given[%d]", n-1), "%w", result.Steps[n-1].Fault)
		return
	}
	if result.Failure != nil {
		x.fail(".when", "%w", result.Failure)
		return
	}
	if one.State != nil {
		for _, difference := range folding.Differences(result.State, one.State) {
			x.fail(".state", "state: %s", difference)
		}
	}
	if one.Then != nil {
		x.compare(one.Then, x.category+"-"+id, result.Outcome)
	}
}

// given returns the given events, those without a stream as of this one.
func (x *aggregateExamples) given(list []json.RawMessage, stream string) []domain.Event {
	events := make([]folding.GivenEvent, len(list))
	for i, text := range list {
		event := exampleEvent{Data: json.RawMessage("{}")}
		if err := x.decode(text, &event, fmt.Sprintf("%s.given[%d]", x.where, i)); err != nil {
			x.failures = append(x.failures, err)
		}
		events[i] = folding.GivenEvent{Stream: cmp.Or(event.Stream, stream), Type: event.Type, Data: event.Data, Metadata: event.Metadata, Tags: event.Tags, RecordedAt: exampleNow}
	}
	if len(events) == 0 || len(x.failures) > 0 {
		return nil
	}
	checked, err := folding.GivenEvents("given", events)
	if err != nil {
		place := ".given"
		if problem, ok := errors.AsType[*domain.Error](err); ok {
			place = "." + problem.Where
		}
		x.fail(place, "%w", err)
	}
	return checked
}

// compare compares an outcome with the expected one.
func (x *aggregateExamples) compare(then json.RawMessage, stream string, got *aggregate.Outcome) {
	if bytes.HasPrefix(then, []byte("[")) {
		x.compareEvents(then, stream, got)
		return
	}
	var want wantedEnd
	if err := x.decode(then, &want, x.where+".then"); err != nil {
		x.failures = append(x.failures, err)
		return
	}
	switch is := outcomeText(got); {
	case want.Nothing == (want.Rejected != ""):
		x.fail(".then", "expected a list of events, {rejected: CODE} or {nothing: true}")
	case want.Nothing && got.Kind != aggregate.Nothing:
		x.fail(".then", "the command %s; want that nothing is appended", is)
	case want.Nothing:
	case got.Kind != aggregate.Rejected || got.Rejected.Code != want.Rejected:
		x.fail(".then", "the command %s; want it rejected: %s", is, want.Rejected)
	case want.Message != "" && got.Rejected.Message != want.Message:
		x.fail(".then.message", "the message is %q, want %q", got.Rejected.Message, want.Message)
	}
}

func (x *aggregateExamples) compareEvents(then json.RawMessage, stream string, got *aggregate.Outcome) {
	var list []map[string]json.RawMessage
	if err := x.decode(then, &list, x.where+".then"); err != nil {
		x.failures = append(x.failures, err)
		return
	}
	wanted := make([]wantedEvent, len(list))
	for i, fields := range list {
		var err error
		if wanted[i], err = readWanted(fields); err != nil {
			x.fail(fmt.Sprintf(".then[%d]", i), "%w", err)
			return
		}
	}
	if got.Kind == aggregate.Rejected || len(got.Events) != len(wanted) {
		types := make([]string, len(wanted))
		for i, want := range wanted {
			types[i] = want.kind
		}
		x.fail(".then", "the command %s; want it to append %s", outcomeText(got), cmp.Or(strings.Join(types, ", "), "no events: {nothing: true}"))
		return
	}
	for i, want := range wanted {
		place, is := fmt.Sprintf(".then[%d]", i), got.Events[i]
		if is.Type != want.kind {
			x.fail(place, "event %d is %s, want %s", i, is.Type, want.kind)
			continue
		}
		if want := cmp.Or(want.stream, stream); is.Stream != want {
			x.fail(place, "event %d, %s, is for %s, want %s", i, is.Type, is.Stream, want)
		}
		if slices.Sort(want.tags); want.tags != nil && !slices.Equal(is.Tags, want.tags) {
			x.fail(place, "event %d, %s, has the tags %q, want %q", i, is.Type, is.Tags, want.tags)
		}
		for _, difference := range folding.Differences(is.Data, want.data) {
			x.fail(place, "event %d, %s: %s", i, is.Type, difference)
		}
		if want.metadata != nil {
			metadata := is.Metadata
			if metadata == nil {
				metadata = json.RawMessage("{}")
			}
			for _, difference := range folding.Differences(metadata, want.metadata) {
				x.fail(place, "event %d, %s: metadata: %s", i, is.Type, difference)
			}
		}
	}
}

// readWanted reads an expected event.
func readWanted(fields map[string]json.RawMessage) (want wantedEvent, err error) {
	for name, value := range fields {
		switch {
		case name == "stream":
			if json.Unmarshal(value, &want.stream) != nil {
				err = errors.New("stream: expected a string")
			}
		case name == "metadata":
			want.metadata = value
		case name == "tags":
			if json.Unmarshal(value, &want.tags) != nil {
				err = errors.New("tags: expected a list of strings")
			}
		case want.kind != "":
			return want, errors.New("it names several event types; expected one, such as {ItemAdded: {sku: A-1}}")
		default:
			want.kind, want.data = name, value
		}
	}
	if want.kind == "" {
		return want, errors.New("it names no event type; expected one, such as {ItemAdded: {sku: A-1}}")
	}
	return want, err
}

// outcomeText describes an outcome for people.
func outcomeText(o *aggregate.Outcome) string {
	switch o.Kind {
	case aggregate.Rejected:
		rule := o.Rules[len(o.Rules)-1]
		var values []string
		for _, value := range rule.Values {
			values = append(values, fmt.Sprintf("%s is %s", value.Path, folding.Cut(string(value.Value), folding.MaxShown)))
		}
		for _, path := range rule.Missing {
			values = append(values, path+" is missing")
		}
		message := ""
		if o.Rejected.Message != "" {
			message = fmt.Sprintf(", %q", o.Rejected.Message)
		}
		return fmt.Sprintf("is rejected: %s%s, by rule %d, %s (%s)", o.Rejected.Code, message, rule.Rule, strings.Join(strings.Fields(rule.If), " "), strings.Join(values, ", "))
	case aggregate.Accepted:
		types := make([]string, len(o.Events))
		for i, event := range o.Events {
			types[i] = event.Type
		}
		return "appends " + strings.Join(types, ", ")
	}
	return "appends nothing"
}
