package wire

import (
	"strconv"
	"time"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// EventEncoder writes events as JSON without reflection: data and metadata are JSON already, and names contain no
// character that JSON escapes. It is for one goroutine.
type EventEncoder struct {
	recordedAt time.Time // shared by the events of one commit
	recorded   []byte
	cloud      cloudevents.Encoder
}

// CloudEvent appends an event in the form of reads for clients that ask for CloudEvents.
func (e *EventEncoder) CloudEvent(b []byte, event *domain.Event) []byte {
	return e.cloud.Append(b, event)
}

// Event appends an event in the form of reads.
func (e *EventEncoder) Event(b []byte, event *domain.Event) []byte {
	b = append(b, `{"id":"`...)
	b = event.ID.Append(b)
	b = append(b, `","stream":"`...)
	b = append(b, event.Stream...)
	b = append(b, `","version":`...)
	b = strconv.AppendInt(b, event.Version, 10)
	b = AppendNumber(b, "position", event.Position)
	b = append(b, `,"type":"`...)
	b = append(b, event.Type...)
	b = append(b, '"')
	b = content(b, event)
	if !event.OccurredAt.IsZero() {
		b = AppendTime(b, "occurredAt", event.OccurredAt)
	}
	return append(e.recordedAtField(b, event), '}')
}

// line appends an event in the form of export, which import accepts.
func (e *EventEncoder) line(b []byte, event *domain.Event) []byte {
	b = append(b, `{"stream":"`...)
	b = append(b, event.Stream...)
	b = append(b, `","id":"`...)
	b = event.ID.Append(b)
	b = append(b, `","type":"`...)
	b = append(b, event.Type...)
	b = append(b, '"')
	if !event.OccurredAt.IsZero() {
		b = AppendTime(b, "time", event.OccurredAt)
	}
	b = content(b, event)
	b = AppendNumber(b, "version", event.Version)
	b = AppendNumber(b, "position", event.Position)
	return append(e.recordedAtField(b, event), '}')
}

func content(b []byte, event *domain.Event) []byte {
	b = append(b, `,"data":`...)
	b = append(b, event.Data...)
	if event.Metadata != nil {
		b = append(b, `,"metadata":`...)
		b = append(b, event.Metadata...)
	}
	if event.Tags != nil {
		b = appendTags(append(b, `,"tags":`...), event.Tags)
	}
	if event.Gap != nil {
		b = event.Gap.Append(append(b, `,"gap":`...))
	}
	if event.Erased != nil {
		b = event.Erased.Append(append(b, `,"erased":`...))
	}
	return b
}

// appendTags appends tags as a JSON array. They have no character that JSON escapes.
func appendTags(b []byte, tags []string) []byte {
	for i, tag := range tags {
		if i == 0 {
			b = append(b, '[')
		} else {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), tag...), '"')
	}
	return append(b, ']')
}

func (e *EventEncoder) recordedAtField(b []byte, event *domain.Event) []byte {
	if e.recorded == nil || !event.RecordedAt.Equal(e.recordedAt) {
		e.recordedAt = event.RecordedAt
		e.recorded = append(e.recorded[:0], `,"recordedAt":"`...)
		e.recorded = domain.AppendTime(e.recorded, event.RecordedAt)
		e.recorded = append(e.recorded, '"')
	}
	return append(b, e.recorded...)
}
