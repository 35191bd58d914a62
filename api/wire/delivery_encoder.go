package wire

import (
	"strconv"
	"time"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// DeliveryEncoder writes deliveries as JSON, as EventEncoder writes their events. It is for one goroutine.
type DeliveryEncoder struct {
	Group    string
	Cloud    bool // events are structured CloudEvents
	events   EventEncoder
	deadline time.Time // shared by the deliveries of one receive
	text     []byte
}

// Deliveries appends the whole answer of a receive that was to acknowledge acked. partitions means that the group has
// partitions.
func (e *DeliveryEncoder) Deliveries(
	b []byte, received *group.Received, acked []domain.Attempt, partitions bool,
) []byte {
	b = append(b, `{"deliveries":[`...)
	for i := range received.Deliveries {
		if i > 0 {
			b = append(b, ',')
		}
		b = e.Delivery(b, &received.Deliveries[i], partitions)
	}
	b = append(b, ']')
	if received.Searching {
		b = append(b, `,"searching":true`...)
	}
	before := `,"unacknowledged":[`
	for i, outcome := range received.Outcomes {
		if outcome != domain.OutcomeDone {
			b = appendAnswer(append(b, before...), acked[i], outcome)
			before = ","
		}
	}
	if before == "," {
		b = append(b, ']')
	}
	return append(b, "}\n"...)
}

// CloudEvents appends the whole answer as a batch of CloudEvents, with the fields of the deliveries as extensions.
func (e *DeliveryEncoder) CloudEvents(b []byte, all []domain.Delivery, partitions bool) []byte {
	b = append(b, '[')
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		d := &all[i]
		b = e.events.CloudEvent(b, &d.Event)
		b = b[:len(b)-1] // reopens the object
		b = AppendNumber(b, cloudevents.ExtensionAttempt, int64(d.Attempt))
		b = AppendNumber(b, cloudevents.ExtensionAttempts, int64(d.Attempts()))
		b = AppendNumber(b, cloudevents.ExtensionMaxAttempts, int64(d.MaxAttempts))
		b = domain.AppendText(append(b, `,"`+cloudevents.ExtensionGroup+`":`...), e.Group)
		b = append(strconv.AppendInt(append(b, `,"`+cloudevents.ExtensionCursor+`":"`...), d.Cursor, 10), '"')
		b = AppendTime(b, cloudevents.ExtensionAckDeadline, d.AckDeadline)
		if partitions {
			b = AppendNumber(b, cloudevents.ExtensionPartition, int64(d.Partition))
		}
		if d.Replays > 0 {
			b = AppendNumber(b, cloudevents.ExtensionReplays, int64(d.Replays))
		}
		if d.Gap != nil {
			b = append(b, `,"`+cloudevents.ExtensionRemovedTo+`":"`...)
			b = append(strconv.AppendInt(b, d.Gap.To, 10), '"')
		}
		b = append(b, '}')
	}
	return append(b, "]\n"...)
}

func (e *DeliveryEncoder) Delivery(b []byte, d *domain.Delivery, partitions bool) []byte {
	b = append(b, `{"event":`...)
	if e.Cloud {
		b = e.events.CloudEvent(b, &d.Event)
	} else {
		b = e.events.Event(b, &d.Event)
	}
	b = AppendNumber(b, "attempt", int64(d.Attempt))
	if e.text == nil || !d.AckDeadline.Equal(e.deadline) {
		e.deadline = d.AckDeadline
		e.text = append(e.text[:0], `,"ackDeadline":"`...)
		e.text = domain.AppendTime(e.text, d.AckDeadline)
		e.text = append(e.text, '"')
	}
	b = append(b, e.text...)
	b = AppendNumber(b, "attempts", int64(d.Attempts()))
	b = AppendNumber(b, "maxAttempts", int64(d.MaxAttempts))
	b = domain.AppendText(append(b, `,"group":`...), e.Group)
	b = AppendNumber(b, "cursor", d.Cursor)
	if partitions {
		b = AppendNumber(b, "partition", int64(d.Partition))
	}
	if d.Replays > 0 {
		b = AppendNumber(b, "replays", int64(d.Replays))
	}
	if d.Gap != nil {
		b = AppendGap(append(b, `,"gap":`...), d.Gap)
	}
	return append(b, '}')
}
