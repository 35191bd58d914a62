package domain

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What is published has its topic for a category, and its key, or its own id, for what follows.
func TestPublishToKeepsTopicAndKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		topic := rapid.StringMatching(`[A-Za-z0-9_.]{1,20}`).Draw(r, "topic")
		key := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[!$&'()*+,.0-9:;<=>@A-Z_a-z|~-]{1,30}`)).Draw(r, "key")
		events := make([]NewEvent, rapid.IntRange(1, 5).Draw(r, "events"))
		for i := range events {
			events[i].Type = "Happened"
			if rapid.Bool().Draw(r, "has an id") {
				events[i].ID = NewEventID()
			}
		}
		request, err := PublishTo(topic, key, events)
		if err != nil {
			r.Fatal(err)
		}
		count := 0
		for _, stream := range request.Streams {
			if err := CheckStream("", stream.Stream); err != nil {
				r.Fatal(err)
			}
			if Category(stream.Stream) != topic || stream.Expected != Any {
				r.Fatalf("%q goes to %+v", topic, stream)
			}
			for _, event := range stream.Events {
				wanted := key
				if key == "" {
					wanted = event.ID.String()
				}
				if Key(stream.Stream) != wanted || event.ID != events[count].ID {
					r.Fatalf("event %d with the key %q is %+v in %s", count, key, event, stream.Stream)
				}
				count++
			}
		}
		if count != len(events) {
			r.Fatalf("%d of %d events are published", count, len(events))
		}
	})
}

func TestPublishToRefusesWhatIsNoTopicOrKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ topic, key, where string }{
		{"", "1", "topic"}, {"order-1", "", "topic"}, {"order-1", "2", "topic"}, {"or der", "", "topic"}, {strings.Repeat("a", MaxCategoryBytes+1), "", "topic"},
		{"order", "a b", "key"}, {"order", "a/b", "key"}, {"order", strings.Repeat("k", MaxStreamBytes), "key"},
	} {
		_, err := PublishTo(c.topic, c.key, []NewEvent{{Type: "Happened"}})
		problem, ok := errors.AsType[*Error](err)
		if !ok || problem.Code != CodeInvalidRequest || problem.Where != c.where {
			t.Errorf("topic %q, key %q: %v", c.topic, c.key, err)
		}
	}
}
