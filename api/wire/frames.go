// Package wire has the forms that events have in requests and answers: JSON of the contract, and CloudEvents.
//
// Decoders (DecodeEvents, DecodeAppend, CloudForm, PublicationOf, ParseImportLine) keep data and metadata as the bytes
// that came in. Encoders (EventEncoder, DeliveryEncoder, Frames) write JSON without reflection. Neither reads or writes
// connections.
package wire

import (
	"strconv"

	"github.com/manifold-es/manifold/api/socket"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
)

// The transports, as passed to Observer.Followed.
const (
	ByWebSocket   = "websocket"
	ByEventStream = "sse"
	ByLines       = "ndjson"
)

// placeKind is a kind of frame that contains only a position.
type placeKind int

const (
	CaughtUp   placeKind = iota // everything up to the head was sent
	Checkpoint                  // everything up to here was sent or skipped
)

// String returns the name of the server-sent event.
func (k placeKind) String() string {
	if k == CaughtUp {
		return "caught-up"
	}
	return "checkpoint"
}

// field returns the name of the field in JSON.
func (k placeKind) field() string {
	if k == CaughtUp {
		return "caughtUp"
	}
	return "checkpoint"
}

// The encoded forms of events that entries cache for all their followers.
const (
	lineForm tail.Form = iota
	serverSentForm
	socketForm
	objectForm
	cloudEventForm
)

// EventStream is the media type of server-sent events.
const EventStream = "text/event-stream"

// Frames encodes the frames of one answer, for one goroutine. Each method appends one frame: a line of JSON, a
// server-sent event, or a message of a WebSocket.
type Frames struct {
	transport string
	cloud     bool // every frame is a CloudEvent
	form      tail.Form
	encode    func(b []byte, event *domain.Event) []byte // in that form
}

// NewFrames returns the frames for a transport. With cloud, every frame is a CloudEvent, including those that report a
// position.
func NewFrames(transport string, cloud bool) *Frames {
	f := &Frames{transport: transport, cloud: cloud, form: lineForm}
	switch transport {
	case ByWebSocket:
		f.form = socketForm
	case ByEventStream:
		f.form = serverSentForm
	}
	var encoder EventEncoder
	f.encode = func(b []byte, event *domain.Event) []byte {
		return f.frame(b, "event", event.Position, func(b []byte) []byte {
			return f.object(b, "event", func(b []byte) []byte { return encoder.Event(b, event) })
		})
	}
	return f
}

// Event appends an entry's event. It encodes the event only if the entry does not have it in this form yet.
func (f *Frames) Event(b []byte, entry *tail.Entry) []byte {
	if f.cloud {
		return f.frame(b, "event", entry.Event.Position, func(b []byte) []byte { return AppendEntryCloudEvent(b, entry) })
	}
	return entry.AppendTo(b, f.form, f.encode)
}

// Place appends a position.
func (f *Frames) Place(b []byte, kind placeKind, position int64) []byte {
	return f.frame(b, kind.String(), position, func(b []byte) []byte {
		if f.cloud {
			return cloudevents.AppendPlace(b, kind.String(), position)
		}
		return f.object(b, kind.field(), func(b []byte) []byte {
			return append(strconv.AppendInt(append(b, `{"position":`...), position, 10), '}')
		})
	})
}

// Gap appends a gap. It has no id, because clients cannot resume from a gap.
func (f *Frames) Gap(b []byte, gap *domain.Gap) []byte {
	return f.frame(b, "gap", -1, func(b []byte) []byte {
		if f.cloud {
			return cloudevents.AppendGap(b, gap.From, gap.To, AppendGap(nil, gap))
		}
		return f.object(b, "gap", func(b []byte) []byte { return AppendGap(b, gap) })
	})
}

// frame appends a frame. A server-sent event has the name, and the id unless it is negative: an EventSource that
// reconnects continues after it.
func (f *Frames) frame(b []byte, name string, id int64, content func(b []byte) []byte) []byte {
	switch f.transport {
	case ByWebSocket:
		return socket.AppendFramed(b, content)
	case ByEventStream:
		if id >= 0 {
			b = append(strconv.AppendInt(append(b, "id: "...), id, 10), '\n')
		}
		b = append(append(append(b, "event: "...), name...), "\ndata: "...)
		return append(content(b), "\n\n"...) // stored JSON contains no line breaks
	}
	return append(content(b), '\n')
}

// object appends {"name":content}. Server-sent events have their name elsewhere.
func (f *Frames) object(b []byte, name string, content func(b []byte) []byte) []byte {
	if f.transport == ByEventStream {
		return content(b)
	}
	b = append(append(append(b, `{"`...), name...), `":`...)
	return append(content(b), '}')
}

// AppendEntryEvent appends an entry's event as JSON, for callers that build their own frame.
func AppendEntryEvent(b []byte, entry *tail.Entry) []byte {
	return entry.AppendTo(b, objectForm, func(b []byte, event *domain.Event) []byte {
		var encoder EventEncoder
		return encoder.Event(b, event)
	})
}

// AppendEntryCloudEvent appends an entry's event as a structured CloudEvent.
func AppendEntryCloudEvent(b []byte, entry *tail.Entry) []byte {
	return entry.AppendTo(b, cloudEventForm, func(b []byte, event *domain.Event) []byte {
		var encoder cloudevents.Encoder
		return encoder.Append(b, event)
	})
}
