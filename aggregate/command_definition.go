package aggregate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/upcasting"
)

// CommandDefinition says what a command decides: whether it is accepted, and which events it appends. Its expressions
// have the variables of expr.Inputs.
type CommandDefinition struct {
	Description string                        `json:"description,omitempty"`
	Input       json.RawMessage               `json:"input,omitempty"`    // a JSON Schema that the command's data must satisfy; none: any object
	Boundary    map[string]BoundaryDefinition `json:"boundary,omitempty"` // other events that the command depends on, by name
	Require     []Requirement                 `json:"require,omitempty"`  // in this order; the first that does not hold rejects the command
	Emit        []Emission                    `json:"emit"`               // in this order
}

// Requirement is a condition of a command.
type Requirement struct {
	If      string `json:"if"`                // expression -> bool: what must hold
	Reject  string `json:"reject"`            // the code of the rejection otherwise
	Message string `json:"message,omitempty"` // expression -> string, for people
}

// Emission makes events. As JSON it is an object whose only member with a name other than those below is the event's
// type: {"if": "...", "ItemAdded": "..."}.
type Emission struct {
	Type     string // of the event
	Data     string // expression -> the event's data; null: no event
	If       string // expression -> bool; empty: always
	Each     string // expression -> list; one event for each of its items, the variable `item`. Empty: one event without item
	Stream   string // expression -> the name of another stream; empty: the command's
	Metadata string // expression -> object, added to the request's metadata; empty: nothing is added
	Tags     string // expression -> list of strings, the event's tags; empty: none
}

// Limits of commands.
const (
	MaxCommands           = 100 // of a category
	maxRules              = 100 // requirements, and emissions, of one command
	maxDescriptionBytes   = 1000
	maxRejectCodeBytes    = 100
	maxRejectMessageBytes = 1000
)

// members are the JSON members of an emission but that of its type.
func (e *Emission) members() map[string]*string {
	return map[string]*string{"if": &e.If, "each": &e.Each, "stream": &e.Stream, "metadata": &e.Metadata, "tags": &e.Tags}
}

// MarshalJSON writes the form described at Emission.
func (e Emission) MarshalJSON() ([]byte, error) {
	all := map[string]string{e.Type: e.Data}
	for name, value := range e.members() {
		if *value != "" {
			all[name] = *value
		}
	}
	return marshal(all)
}

// UnmarshalJSON reads the form described at Emission.
func (e *Emission) UnmarshalJSON(text []byte) error {
	var all map[string]string
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*e = Emission{}
	known := e.members()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch value := known[name]; {
		case value != nil:
			*value = all[name]
		case e.Type != "":
			return fmt.Errorf("it names two event types, %s and %s; write an entry of the list for each", domain.Clip(e.Type, 60), domain.Clip(name, 60))
		default:
			e.Type, e.Data = name, all[name]
		}
	}
	return nil
}

// MarshalCommands writes commands as JSON, as ParseCommands reads them.
func MarshalCommands(commands map[string]CommandDefinition) (json.RawMessage, error) {
	return marshal(commands)
}

// marshal writes a value as JSON in which expressions stay legible: without \u0026 for &.
func marshal(value any) (json.RawMessage, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// ParseCommands reads the commands of a definition from JSON; nothing gives none. The error is a *domain.Error with
// domain.CodeInvalidDefinition.
func ParseCommands(text json.RawMessage) (map[string]CommandDefinition, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, domain.Errorf(domain.CodeInvalidDefinition, "commands", "%s", err)
	}
	commands := make(map[string]CommandDefinition, len(raw))
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		var d CommandDefinition
		if err := unmarshal(raw[name], &d); err != nil {
			return nil, domain.Errorf(domain.CodeInvalidDefinition, "commands."+domain.Clip(name, 100), "%s", err)
		}
		commands[name] = d
	}
	return commands, nil
}

// bytes is the size of a command's expressions and schema.
func (d *CommandDefinition) bytes() int {
	n := len(d.Description) + len(d.Input)
	for _, r := range d.Require {
		n += len(r.If) + len(r.Reject) + len(r.Message)
	}
	for _, e := range d.Emit {
		n += len(e.Type) + len(e.Data) + len(e.If) + len(e.Each) + len(e.Stream) + len(e.Metadata) + len(e.Tags)
	}
	for name, b := range d.Boundary {
		n += len(name) + b.bytes()
	}
	return n
}

// command is a compiled command, or one that a Decider decides. It is immutable.
type command struct {
	inGo       Decider        // instead of input, require and emit
	input      *schema.Schema // nil: any object
	boundary   []boundary     // by name
	readsState bool
	apart      bool // the command is stateless, and each event names its stream
	require    []requirement
	emit       []emission
}

// stateless reports whether the command depends on its boundary and not on the state of its stream.
func (c *command) stateless() bool { return len(c.boundary) > 0 && !c.readsState }

type requirement struct {
	Requirement
	holds, message *expr.Decision // message may be nil
}

// emission has nil for what its definition leaves out.
type emission struct {
	Emission
	when, each, stream, data, metadata, tags *expr.Decision
}

// compileCommand compiles a command, and calls wrong for each of its problems. The result is meaningless if there are
// any, or if the meter ended it.
func compileCommand(meter *expr.Meter, where string, d CommandDefinition, upcasters *upcasting.Set, wrong func(where, format string, args ...any)) (*command, error) {
	c := &command{}
	var failure error
	compile := func(where string, scope expr.Scope, gives expr.Gives, source string) *expr.Decision {
		if failure != nil || !meter.SpendSource(len(source)) {
			return nil
		}
		compiled, err := expr.CompileDecision(scope, gives, source)
		if _, ok := errors.AsType[*expr.CompileError](err); ok {
			wrong(where, "%s", err)
		} else if err != nil {
			failure = fmt.Errorf("compile %s: %w", where, err)
		} else {
			c.readsState = c.readsState || compiled.Reads("state")
			d.checkBoundaryNames(where, compiled, wrong)
		}
		return compiled
	}
	optional := func(where string, scope expr.Scope, gives expr.Gives, source string) *expr.Decision {
		if source == "" {
			return nil
		}
		return compile(where, scope, gives, source)
	}
	if len(d.Description) > maxDescriptionBytes {
		wrong(where+".description", "it has %d bytes; at most %d are allowed", len(d.Description), maxDescriptionBytes)
	}
	if len(d.Input) > 0 && meter.SpendSource(len(d.Input)) {
		var err error
		if c.input, err = schema.Compile(d.Input); err != nil {
			wrong(where+".input", "%s", err)
		}
	}
	if len(d.Boundary) > 0 {
		var err error
		if c.boundary, err = compileBoundary(meter, where+".boundary", d.Boundary, upcasters, compile, wrong); err != nil {
			return nil, err
		}
	}
	if len(d.Require) > maxRules {
		wrong(where+".require", "there are %d conditions; at most %d are allowed", len(d.Require), maxRules)
		return c, nil
	}
	switch {
	case len(d.Emit) == 0:
		wrong(where+".emit", "the command appends nothing; write at least one event, such as {\"OrderPlaced\": \"command\"}")
	case len(d.Emit) > maxRules:
		wrong(where+".emit", "there are %d entries; at most %d are allowed", len(d.Emit), maxRules)
		return c, nil
	}
	for i, r := range d.Require {
		where := fmt.Sprintf("%s.require[%d]", where, i)
		if err := domain.CheckAlphabet(where+".reject", "code", r.Reject, maxRejectCodeBytes, "-_."); err != nil {
			wrong(where+".reject", "%s", domain.ClientMessage(err))
		}
		c.require = append(c.require, requirement{
			r, compile(where+".if", expr.ScopeCommand, expr.GivesBool, r.If), optional(where+".message", expr.ScopeCommand, expr.GivesText, r.Message),
		})
	}
	for i, e := range d.Emit {
		where := fmt.Sprintf("%s.emit[%d]", where, i)
		if e.Type == "" {
			wrong(where, "it names no event type; write {\"OrderPlaced\": \"command\"}, for example")
			continue
		}
		if err := domain.CheckType(where, e.Type); err != nil {
			wrong(where, "%s", domain.ClientMessage(err))
			continue
		}
		scope := expr.ScopeCommand
		if e.Each != "" {
			scope = expr.ScopeItem
		}
		c.emit = append(c.emit, emission{
			Emission: e,
			when:     optional(where+".if", scope, expr.GivesBool, e.If),
			each:     optional(where+".each", expr.ScopeCommand, expr.GivesList, e.Each),
			stream:   optional(where+".stream", scope, expr.GivesText, e.Stream),
			data:     compile(where+"."+e.Type, scope, expr.GivesValue, e.Data),
			metadata: optional(where+".metadata", scope, expr.GivesObject, e.Metadata),
			tags:     optional(where+".tags", scope, expr.GivesList, e.Tags),
		})
	}
	c.apart = c.stateless() && !slices.ContainsFunc(d.Emit, func(e Emission) bool { return e.Stream == "" })
	return c, failure
}

// compileCommands compiles a definition's commands, as compileCommand does.
func compileCommands(meter *expr.Meter, definition Definition, upcasters *upcasting.Set, wrong func(where, format string, args ...any)) (map[string]*command, error) {
	if len(definition.Commands) > MaxCommands {
		wrong("commands", "there are %d commands; at most %d are allowed", len(definition.Commands), MaxCommands)
		return nil, nil
	}
	commands := make(map[string]*command, len(definition.Commands))
	for _, name := range slices.Sorted(maps.Keys(definition.Commands)) {
		where := "commands." + name
		if err := CheckCommand(where, name); err != nil {
			wrong(where, "%s", domain.ClientMessage(err))
			continue
		}
		c, err := compileCommand(meter, where, definition.Commands[name], upcasters, wrong)
		if err != nil {
			return nil, err
		}
		commands[name] = c
	}
	return commands, nil
}

// CheckCommand returns an error unless name is a valid name of a command: 1 to domain.MaxNameBytes of letters, digits,
// and "_.-".
func CheckCommand(where, name string) error {
	return domain.CheckAlphabet(where, "command's name", name, domain.MaxNameBytes, "_.-")
}
