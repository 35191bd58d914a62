package projection

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// EventError says which event could not be folded and why, with everything needed to understand it. The same events
// give the same error.
type EventError struct {
	Event      domain.Event
	DocumentID string          // the event's document; empty if the key could not be computed
	Where      string          // the part of the definition, such as "on.ItemAdded" or "key"
	Expression string          // its text; empty for Go code
	Before     json.RawMessage // the document before the event; nil if there was none, or if it exceeds maxBefore
	Err        error           // with the place in the expression, if known
}

// Limits of what is kept and shown of a fault, in bytes. A fault may quote what clients sent.
const (
	maxFaultMessage    = 2000
	maxFaultExpression = 4000
	maxBefore          = 16 << 10
	maxShown           = 500 // of expression and document, in one line
)

// blame returns the error of an event. The caller adds the document.
func (f *Fold) blame(event *Event, where string, err error) *EventError {
	return &EventError{Event: *event.Event, Where: where, Expression: f.expression(where), Err: err}
}

// tellBefore adds the document before the event, unless it is too large.
func (e *EventError) tellBefore(f *Fold, was *held) {
	if text, err := f.text(was); err == nil && len(text) <= maxBefore {
		e.Before = text
	}
}

// Error describes the fault in one line. It names the event (position, id, type and stream), the part of the definition
// that failed, and the reason. It adds the expression and the document before the event, and cuts them off if they are
// long.
func (e *EventError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "event %d (%s, %s of %s) cannot be folded: %s: %s", e.Event.Position, e.Event.ID, e.Event.Type, e.Event.Stream, e.Where, e.Err)
	if e.DocumentID != "" {
		fmt.Fprintf(&b, "; document %q", clip(e.DocumentID))
		if e.Before != nil {
			fmt.Fprintf(&b, ", before: %s", cut(string(e.Before), maxShown))
		}
	}
	if e.Expression != "" {
		fmt.Fprintf(&b, "; expression: %s", cut(e.Expression, maxShown))
	}
	return b.String()
}

// Unwrap returns the underlying error.
func (e *EventError) Unwrap() error { return e.Err }

// Failure returns the error as it is stored and shown: limited in size, and with text that a database can store.
func (e *EventError) Failure() domain.Failure {
	return domain.Failure{
		Stream: e.Event.Stream, EventType: e.Event.Type, DocumentID: e.DocumentID, Where: e.Where,
		Expression: cut(e.Expression, maxFaultExpression), Message: cut(e.Err.Error(), maxFaultMessage), Before: e.Before,
	}
}

// Cut shortens a text to about most bytes, in a form that a database can store.
func Cut(text string, most int) string { return cut(text, most) }

// cut shortens a text to about most bytes. It removes invalid UTF-8 and replaces U+0000.
func cut(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "\uFFFD")
}
