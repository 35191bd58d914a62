package projection

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// EventError says which event could not be folded, and why, with all that is needed to see it. The same events give the
// same error.
type EventError struct {
	Event      domain.Event
	DocumentID string          // whose document it was for; empty where the key could not be worked out
	Where      string          // the part of the definition, such as "on.ItemAdded" or "key"
	Expression string          // its text; empty where it is Go code
	Before     json.RawMessage // the document before the event; nil where there was none, or where it is larger than maxBefore
	Err        error           // with the place in the expression, where there is one
}

// Bounds of what is kept and shown of a fault, in bytes. It may quote what clients sent.
const (
	maxFaultMessage    = 2000
	maxFaultExpression = 4000
	maxBefore          = 16 << 10
	maxShown           = 500 // of expression and document, in one line
)

// blame makes the error of an event; whose document it was for is the caller's to add.
func (f *Fold) blame(event *Event, where string, err error) *EventError {
	return &EventError{Event: *event.Event, Where: where, Expression: f.expression(where), Err: err}
}

// tellBefore adds the document before the event, where it is not too large.
func (e *EventError) tellBefore(f *Fold, was *held) {
	if text, err := f.text(was); err == nil && len(text) <= maxBefore {
		e.Before = text
	}
}

// Error tells all of it in one line: the event by position, id, type and stream, the part of the definition that failed and
// why, and, cut off where they are long, the expression and the document before.
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

// Unwrap returns what went wrong.
func (e *EventError) Unwrap() error { return e.Err }

// Failure is the error as it is kept and shown: bounded, and in texts that a database can keep.
func (e *EventError) Failure() domain.Failure {
	return domain.Failure{
		Stream: e.Event.Stream, EventType: e.Event.Type, DocumentID: e.DocumentID, Where: e.Where,
		Expression: cut(e.Expression, maxFaultExpression), Message: cut(e.Err.Error(), maxFaultMessage), Before: e.Before,
	}
}

// Cut shortens a text to about so many bytes, in a form that a database can keep.
func Cut(text string, most int) string { return cut(text, most) }

// cut shortens a text to about so many bytes, and leaves out what is not UTF-8 or U+0000.
func cut(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "\uFFFD")
}
