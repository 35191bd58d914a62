package expr

// Scope is the purpose of an expression, which determines its variables.
type Scope int

const (
	// ScopeProjection is a projection's fold: `doc` and `event`.
	ScopeProjection Scope = iota
	// ScopeAggregate is an aggregate's fold: `state` and `event`.
	ScopeAggregate
	// ScopeEvent is an expression of an event alone, such as a projection's key: `event`.
	ScopeEvent
	// ScopeDocument is an expression of a document alone, such as a projection's assertion: `doc`.
	ScopeDocument
)

// subject returns the variable other than `event`; empty if there is none.
func (s Scope) subject() string {
	switch s {
	case ScopeProjection, ScopeDocument:
		return "doc"
	case ScopeAggregate:
		return "state"
	}
	return ""
}

// event reports whether the scope has an event.
func (s Scope) event() bool { return s != ScopeDocument }

// variables lists the scope's variables by slot.
func (s Scope) variables() []string {
	var names []string
	if s.event() {
		names = append(names, "event")
	}
	if subject := s.subject(); subject != "" {
		names = append(names, subject)
	}
	return names
}
