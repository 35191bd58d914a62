package domain

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What is published has its topic for a category, and its key, or its own id, for what follows; the events are the
// messages, in their order.
func TestPublicationKeepsMessages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		topic := rapid.OneOf(rapid.SampledFrom([]string{"a", "b"}), rapid.StringMatching(`[A-Za-z0-9_.]{1,20}`))
		key := rapid.OneOf(rapid.SampledFrom([]string{"", "1", "2"}), rapid.StringMatching(`[!$&'()*+,.0-9:;<=>@A-Z_a-z|~-]{1,30}`))
		messages := make([]Message, rapid.IntRange(1, 8).Draw(r, "messages"))
		for i := range messages {
			m := &messages[i]
			m.Topic, m.Key, m.Payload = topic.Draw(r, "topic"), key.Draw(r, "key"), json.RawMessage("1")
			if rapid.Bool().Draw(r, "has an id") {
				m.ID = NewEventID()
			}
			if rapid.Bool().Draw(r, "has a type") {
				m.Type = "Happened"
			}
		}
		request, err := Publication(messages)
		if err != nil {
			r.Fatal(err)
		}
		i := 0
		for _, stream := range request.Streams {
			if err := CheckStream("", stream.Stream); err != nil {
				r.Fatal(err)
			}
			if cap(stream.Events) != len(stream.Events) || stream.Expected != Any {
				r.Fatalf("the append has %+v", stream)
			}
			for _, event := range stream.Events {
				m := messages[i]
				wantedKey, wantedType := m.Key, m.Type
				if m.Key == "" {
					wantedKey = event.ID.String()
				}
				if m.Type == "" {
					wantedType = m.Topic
				}
				if Category(stream.Stream) != m.Topic || Key(stream.Stream) != wantedKey || event.Type != wantedType || !m.ID.IsZero() && event.ID != m.ID {
					r.Fatalf("message %d, %+v, is %+v in %s", i, m, event, stream.Stream)
				}
				i++
			}
		}
		if i != len(messages) {
			r.Fatalf("%d of %d messages are published", i, len(messages))
		}
	})
}

func TestPublicationRefuses(t *testing.T) {
	t.Parallel()
	long := json.RawMessage(`"` + strings.Repeat("x", MaxEventBytes) + `"`)
	for _, c := range []struct {
		message Message
		code    Code
		where   string
	}{
		{Message{}, CodeInvalidRequest, "messages[1].topic"},
		{Message{Topic: "order-1"}, CodeInvalidRequest, "messages[1].topic"},
		{Message{Topic: "order-1", Key: "2"}, CodeInvalidRequest, "messages[1].topic"},
		{Message{Topic: "or der"}, CodeInvalidRequest, "messages[1].topic"},
		{Message{Topic: strings.Repeat("a", MaxCategoryBytes+1)}, CodeInvalidRequest, "messages[1].topic"},
		{Message{Topic: "order", Key: "a b"}, CodeInvalidRequest, "messages[1].key"},
		{Message{Topic: "order", Key: "a/b"}, CodeInvalidRequest, "messages[1].key"},
		{Message{Topic: "order", Key: strings.Repeat("k", MaxStreamBytes)}, CodeInvalidRequest, "messages[1].key"},
		{Message{Topic: "order", Key: "1", Type: "a b"}, CodeInvalidRequest, "messages[1].type"},
		{Message{Topic: "order", Key: "1", Payload: long}, CodeTooLarge, "messages[1].payload"},
		{Message{Topic: "order", Payload: long[:MaxEventBytes-1], Metadata: json.RawMessage("{}")}, CodeTooLarge, "messages[1].payload"},
	} {
		_, err := Publication([]Message{{Topic: "order", Key: "1", Payload: json.RawMessage("1")}, c.message})
		problem, ok := errors.AsType[*Error](err)
		if !ok || problem.Code != c.code || problem.Where != c.where {
			t.Errorf("topic %.60q, key %.60q, type %q: %v", c.message.Topic, c.message.Key, c.message.Type, err)
		}
	}
	for count, code := range map[int]Code{0: CodeInvalidRequest, MaxRequestEvents + 1: CodeTooLarge} {
		problem, ok := errors.AsType[*Error](second(Publication(make([]Message, count))))
		if !ok || problem.Code != code || problem.Where != "messages" {
			t.Errorf("%d messages: %v", count, problem)
		}
	}
}

func second[T any](_ T, err error) error { return err }
