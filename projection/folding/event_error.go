package folding

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

// Limits of what is kept of a fault, in bytes. A fault may quote what clients sent.
const (
	maxFaultMessage    = 2000
	maxFaultExpression = 4000
	maxBefore          = 16 << 10
)

// MaxShown is how many bytes of an expression or a document a message shows.
const MaxShown = 500

// Blame returns the error of an event; where is the part of the definition that failed. The caller adds the document.
func (f *Fold) Blame(event *Event, where string, err error) *EventError {
	return &EventError{Event: *event.Event, Where: where, Expression: f.expression(where), Err: err}
}

// SetBefore adds the document before the event, unless it is too large.
func (e *EventError) SetBefore(document json.RawMessage) {
	if len(document) <= maxBefore {
		e.Before = document
	}
}

// Error describes the fault in one line. It names the event (position, id, type and stream), the part of the definition
// that failed, and the reason. It adds the expression and the document before the event, and cuts them off if they are
// long.
func (e *EventError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "event %d (%s, %s of %s) cannot be folded: %s: %s", e.Event.Position, e.Event.ID, e.Event.Type, e.Event.Stream, e.Where, e.Err)
	if e.DocumentID != "" {
		fmt.Fprintf(&b, "; document %q", Clip(e.DocumentID))
		if e.Before != nil {
			fmt.Fprintf(&b, ", before: %s", Cut(string(e.Before), MaxShown))
		}
	}
	if e.Expression != "" {
		fmt.Fprintf(&b, "; expression: %s", Cut(e.Expression, MaxShown))
	}
	return b.String()
}

// Unwrap returns the underlying error.
func (e *EventError) Unwrap() error { return e.Err }

// Failure returns the error as it is stored and shown: limited in size, and with text that a database can store.
func (e *EventError) Failure() domain.Failure {
	return domain.Failure{
		Stream: e.Event.Stream, EventType: e.Event.Type, DocumentID: e.DocumentID, Where: e.Where,
		Expression: Cut(e.Expression, maxFaultExpression), Message: Cut(e.Err.Error(), maxFaultMessage), Before: e.Before,
	}
}

// Cut shortens a text to about most bytes, in a form that a database can store: it removes invalid UTF-8 and replaces
// U+0000.
func Cut(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "\uFFFD")
}

// Clip shortens a client's text for an error message.
func Clip(text string) string {
	if len(text) <= 40 {
		return text
	}
	return strings.ToValidUTF8(text[:40], "") + "..."
}
