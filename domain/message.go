package domain

import (
	"encoding/json"
	"fmt"
	"time"
)

// MaxSIDBytes limits the session id that a client gives for a message.
const MaxSIDBytes = 200

// Message is an event to publish, in the terms of a message bus. Its topic is the event's category. Its key is the part
// of the stream's name after the first "-".
type Message struct {
	Topic      string          // valid by CheckCategory
	Key        string          // of the stream topic-key; empty: a separate stream, topic-<the event's id>
	ID         EventID         // as in NewEvent
	Type       string          // empty: the topic
	Payload    json.RawMessage // valid by CheckJSON: the event's data
	Metadata   json.RawMessage // valid by CheckJSON, or nil: the event's
	Tags       []string        // as CheckTags returns them: the event's
	OccurredAt time.Time       // zero if none was given; kept to the microsecond
}

// Publication returns the append that publishes 1 to MaxRequestEvents messages in their order: all of them or none,
// whatever version their streams have. A message with neither key nor id is given an id, since its stream is named
// after it. A message that is published again under the same id is in the log once.
//
// Message i is event i of the append, counted over all of its streams. An error names the place as messages[3].key.
func Publication(messages []Message) (Append, error) {
	if len(messages) == 0 {
		return Append{}, Errorf(CodeInvalidRequest, "messages", "give at least one message")
	}
	if len(messages) > MaxRequestEvents {
		return Append{}, Errorf(CodeTooLarge, "messages", "the request has %d messages; it may have %d. Split it", len(messages), MaxRequestEvents)
	}
	events := make([]NewEvent, len(messages))
	streams := make([]StreamAppend, 0, len(messages))
	for i := range messages {
		message := &messages[i]
		events[i] = NewEvent{ID: message.ID, Type: message.Type, Data: message.Payload, Metadata: message.Metadata, Tags: message.Tags, OccurredAt: message.OccurredAt}
		event := &events[i]
		if event.Type == "" {
			event.Type = message.Topic
		}
		if message.Key == "" && event.ID.IsZero() {
			event.ID = NewEventID()
		}
		// Consecutive messages for the same stream share a StreamAppend. The first of them has checked the stream's
		// name.
		if i > 0 && message.Key != "" && message.Key == messages[i-1].Key && message.Topic == messages[i-1].Topic {
			last := &streams[len(streams)-1]
			last.Events = last.Events[:len(last.Events)+1]
		} else {
			stream, err := message.stream(event.ID)
			if err != nil {
				return Append{}, messageError(i, err)
			}
			streams = append(streams, StreamAppend{Stream: stream, Expected: Any, Events: events[i : i+1]})
		}
		if err := message.check(); err != nil {
			return Append{}, messageError(i, err)
		}
	}
	for i := range streams { // appending to one stream's events must not overwrite the next stream's
		streams[i].Events = streams[i].Events[:len(streams[i].Events):len(streams[i].Events)]
	}
	return Append{Streams: streams}, nil
}

// stream returns the name of the message's stream.
func (m *Message) stream(id EventID) (string, error) {
	if err := CheckCategory("topic", m.Topic); err != nil {
		return "", err
	}
	if m.Key == "" {
		return m.Topic + "-" + id.String(), nil
	}
	stream := m.Topic + "-" + m.Key
	return stream, CheckStream("key", stream)
}

func (m *Message) check() error {
	if m.Type != "" {
		if err := CheckType("type", m.Type); err != nil {
			return err
		}
	}
	if size := len(m.Payload) + len(m.Metadata); size > MaxEventBytes {
		return Errorf(CodeTooLarge, "payload", "the message has %d bytes; an event has at most %d, with its metadata", size, MaxEventBytes)
	}
	return nil
}

// messageError adds the message's index to an error's place.
func messageError(index int, err error) error {
	if e, ok := err.(*Error); ok {
		e.Where = fmt.Sprintf("messages[%d].%s", index, e.Where)
	}
	return err
}
