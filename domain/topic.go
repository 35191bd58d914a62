package domain

// PublishTo returns the append that publishes events under a topic, which is a category. With a key all of them go to the
// stream topic-key, in their order; without one each goes to a stream of its own, topic-<the event's id>. Whatever version a
// stream has is accepted. Without a key events that have no id are given one, in the slice that was passed; what is published
// twice under the same id is in the log once.
func PublishTo(topic, key string, events []NewEvent) (Append, error) {
	if err := CheckCategory("topic", topic); err != nil {
		return Append{}, err
	}
	if key != "" {
		stream := topic + "-" + key
		if err := CheckStream("key", stream); err != nil {
			return Append{}, err
		}
		return Append{Streams: []StreamAppend{{Stream: stream, Expected: Any, Events: events}}}, nil
	}
	streams := make([]StreamAppend, len(events))
	for i := range events {
		if events[i].ID.IsZero() {
			events[i].ID = NewEventID()
		}
		streams[i] = StreamAppend{Stream: topic + "-" + events[i].ID.String(), Expected: Any, Events: events[i : i+1 : i+1]}
	}
	return Append{Streams: streams}, nil
}
