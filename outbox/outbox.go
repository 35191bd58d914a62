// Package outbox publishes the events that a producer's own transactions have written: exactly those, in order, and
// once. Start with Event, Drainer and Store.
//
// A producer that changes its database and then publishes loses the message if it dies in between. A producer that
// publishes first may announce a change that never happens. So it adds the event to an outbox, a table or a collection
// in its own database, in the transaction that makes the change: see packages outbox/postgres, outbox/sqlite and
// outbox/mongo. A Drainer takes events from there and publishes them to Manifold, and retries until the service
// confirms them. An event's id is sent with it, so a repeat is harmless. Events of one topic and key are published in
// the order in which they were added. Producers in other languages insert the rows themselves, and run `manifold outbox
// drain`.
//
// Any number of drainers, in any number of processes, may work on an outbox. They lease what they take: when a drainer
// dies, its lease expires and another drainer takes the rows.
package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
)

// Event is a message to publish, as POST /v1/publish accepts it.
type Event struct {
	ID         string            `json:"id"`                // a UUID; empty: a new one, as NewID makes it
	Topic      string            `json:"topic"`             // the event's category
	Key        string            `json:"key,omitempty"`     // with the topic, the stream; empty: a stream of one event
	Type       string            `json:"type,omitempty"`    // empty: the topic
	Payload    json.RawMessage   `json:"payload"`           // any JSON
	Headers    map[string]string `json:"headers,omitempty"` // kept in the event's metadata, as the next three
	Tags       []string          `json:"tags,omitempty"`
	CausedBy   Causes            `json:"caused_by,omitempty"` // the ids of the events that caused this one; each becomes a tag
	SID        string            `json:"sid,omitempty"`       // the session that it belongs to
	OccurredAt time.Time         `json:"ts,omitzero"`
}

// Causes are ids of events. In JSON, one of them is a string.
type Causes []string

// MarshalJSON returns a string, or an array of strings.
func (c Causes) MarshalJSON() ([]byte, error) {
	if len(c) == 1 {
		return json.Marshal(c[0])
	}
	return json.Marshal([]string(c))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Causes) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil && one != "" {
		*c = Causes{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(c))
}

// NewID returns a new, time-ordered id, for producers that need it before they add the event.
func NewID() string { return domain.NewEventID().String() }

// Row is an event as an outbox stores it.
type Row struct {
	ID       string          // the event's
	Stream   string          // topic-key, or topic-id: rows of one stream are published in their order
	Message  json.RawMessage // the event as POST /v1/publish accepts it. A producer that inserts rows itself may leave out its id
	Attempts int             // how often it was refused so far
	AddedAt  time.Time       // by the clock of the producer's database, or of the producer if the database has none
}

// RowOf returns the row for an event to be added. It refuses an event that would never be accepted, with a
// *domain.Error that names the field. Then the producer's transaction can end at once, and the event does not block
// later ones.
func RowOf(event Event) (Row, error) {
	if event.ID == "" {
		event.ID = NewID()
	}
	id, err := domain.ParseEventID(event.ID)
	if err != nil || id.IsZero() {
		return Row{}, domain.Errorf(domain.CodeInvalidRequest, "id", "%q is not a valid event id (a UUID)", event.ID)
	}
	event.ID = id.String()
	event.OccurredAt = event.OccurredAt.UTC() // RFC 3339 has no seconds in a zone
	message := domain.Message{Topic: event.Topic, Key: event.Key, ID: id, Type: event.Type, Payload: event.Payload, OccurredAt: event.OccurredAt}
	if len(event.Payload) == 0 {
		return Row{}, domain.Errorf(domain.CodeInvalidRequest, "payload", "required, but missing; null is also a payload")
	}
	if err := domain.CheckJSON(event.Payload); err != nil {
		return Row{}, domain.Errorf(domain.CodeInvalidJSON, "payload", "%s", err)
	}
	// It is published within an object in an array, which count toward the nesting limit.
	if err := domain.CheckJSON(slices.Concat([]byte("[["), event.Payload, []byte("]]"))); err != nil {
		return Row{}, domain.Errorf(domain.CodeInvalidJSON, "payload", "%s", err)
	}
	if len(event.SID) > domain.MaxSIDBytes {
		return Row{}, domain.Errorf(domain.CodeInvalidRequest, "sid", "it has %d bytes; it may have %d", len(event.SID), domain.MaxSIDBytes)
	}
	if err := event.checkTexts(); err != nil {
		return Row{}, err
	}
	if year := event.OccurredAt.Year(); !event.OccurredAt.IsZero() && (year < 2 || year > 9999) {
		return Row{}, domain.Errorf(domain.CodeInvalidRequest, "ts", "times lie in the years 2 to 9999")
	}
	text, err := encode(event)
	if err != nil {
		return Row{}, err
	}
	// The fields beside the payload become metadata, and count toward its limit.
	if message.Metadata, err = encode(Event{Headers: event.Headers, Tags: event.Tags, CausedBy: event.CausedBy, SID: event.SID}); err != nil {
		return Row{}, err
	}
	batch, err := domain.Publication([]domain.Message{message})
	if err != nil {
		return Row{}, inEvent(err)
	}
	return Row{ID: event.ID, Stream: batch.Streams[0].Stream, Message: text}, nil
}

// checkTexts refuses texts that the log cannot store, in the fields that accept any text.
func (e *Event) checkTexts() error {
	tags, err := domain.CheckTags("tags", slices.Clone(e.Tags))
	if err != nil {
		return err
	}
	var causes []domain.EventID
	for _, text := range e.CausedBy {
		cause, err := domain.ParseEventID(text)
		if err != nil || cause.IsZero() {
			return domain.Errorf(domain.CodeInvalidRequest, "caused_by", "%q is not a valid event id (a UUID)", text)
		}
		causes = append(causes, cause)
	}
	if _, err := domain.TagCauses("caused_by", tags, causes...); err != nil {
		return err
	}
	where := ""
	for name, value := range e.Headers {
		if !storable(name) || !storable(value) {
			where = "headers"
		}
	}
	if !storable(e.SID) {
		where = "sid"
	}
	if where != "" {
		return domain.Errorf(domain.CodeInvalidRequest, where, "it is not UTF-8, or has U+0000, which cannot be stored")
	}
	return nil
}

func storable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

func encode(event Event) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(event); err != nil {
		return nil, fmt.Errorf("encode the event %s: %w", event.ID, err)
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

// inEvent removes the position in a list of messages from an error.
func inEvent(err error) error {
	if e, ok := err.(*domain.Error); ok {
		_, field, _ := bytes.Cut([]byte(e.Where), []byte("]."))
		e.Where = string(field)
	}
	return err
}
