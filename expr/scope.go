package expr

import "slices"

// Scope is the purpose of an expression, which determines its variables.
type Scope int

const (
	// ScopeProjection is a projection's fold: `doc` and `event`, with the `key` and `item` of the document.
	ScopeProjection Scope = iota
	// ScopeAggregate is an aggregate's fold: `state` and `event`.
	ScopeAggregate
	// ScopeEvent is an expression of an event alone, such as a projection's key: `event`.
	ScopeEvent
	// ScopeDocument is an expression of a document alone, such as a projection's assertion: `doc`.
	ScopeDocument
	// ScopeCommand is an expression of a command, with the variables of Inputs but Item.
	ScopeCommand
	// ScopeItem is ScopeCommand with `item`, an element of a list of the command's.
	ScopeItem
	// ScopeRecord is a projection's map: `event`, with the `key` and `item` of the record.
	ScopeRecord
)

// decides reports whether the scope is one of a command.
func (s Scope) decides() bool { return s == ScopeCommand || s == ScopeItem }

// subject returns the variable other than `event`; empty if there is none.
func (s Scope) subject() string {
	switch s {
	case ScopeProjection, ScopeDocument:
		return "doc"
	case ScopeAggregate, ScopeCommand, ScopeItem:
		return "state"
	}
	return ""
}

// target reports whether the scope has the `key` and `item` of the document that the event is folded into.
func (s Scope) target() bool { return s == ScopeProjection || s == ScopeRecord }

// event reports whether the scope has an event.
func (s Scope) event() bool { return s != ScopeDocument && !s.decides() }

// variables lists the scope's variables by slot.
func (s Scope) variables() []string {
	switch s {
	case ScopeCommand:
		return commandVariables
	case ScopeItem:
		return append(slices.Clone(commandVariables), "item")
	}
	var names []string
	if s.event() {
		names = append(names, "event")
	}
	if subject := s.subject(); subject != "" {
		names = append(names, subject)
	}
	if s.target() {
		names = append(names, targetNames...)
	}
	return names
}

// commandVariables are the variables of ScopeCommand, in the order of Inputs.
var commandVariables = []string{"state", "command", "metadata", "now", "id", "uuid", "boundary"}
