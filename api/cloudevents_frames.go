package api

import (
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
)

// framesOf returns the frames for a kind of answer. With cloud, every frame is a CloudEvent, including those that
// report a position.
func framesOf(kind string, cloud bool) frames {
	switch {
	case kind == byWebSocket && cloud:
		return cloudSocketFrames()
	case kind == byWebSocket:
		return socketFrames()
	case kind == byEventStream && cloud:
		return cloudServerSentFrames()
	case kind == byEventStream:
		return serverSentFrames()
	case cloud:
		return cloudLineFrames()
	}
	return lineFrames()
}

// appendEntryCloudEvent appends an entry's event as a structured CloudEvent.
func appendEntryCloudEvent(b []byte, entry *tail.Entry) []byte {
	return entry.AppendTo(b, cloudEventForm, func(b []byte, event *domain.Event) []byte {
		var encoder cloudevents.Encoder
		return encoder.Append(b, event)
	})
}

// appendCloudGap appends a structured CloudEvent with the gap as its data.
func appendCloudGap(b []byte, gap *domain.Gap) []byte {
	return cloudevents.AppendGap(b, gap.From, gap.To, appendGap(nil, gap))
}

// cloudLineFrames returns frames that are lines of JSON.
func cloudLineFrames() frames {
	return frames{
		event: func(b []byte, entry *tail.Entry) []byte {
			return append(appendEntryCloudEvent(b, entry), '\n')
		},
		place: func(b []byte, kind placeKind, position int64) []byte {
			return append(cloudevents.AppendPlace(b, kind.String(), position), '\n')
		},
		gap: func(b []byte, gap *domain.Gap) []byte { return append(appendCloudGap(b, gap), '\n') },
	}
}

// cloudServerSentFrames returns frames that are server-sent events, with the same names and ids as other server-sent
// events.
func cloudServerSentFrames() frames {
	return frames{
		event: func(b []byte, entry *tail.Entry) []byte {
			b = appendServerSent(b, "event", entry.Event.Position)
			return append(appendEntryCloudEvent(b, entry), "\n\n"...)
		},
		place: func(b []byte, kind placeKind, position int64) []byte {
			b = appendServerSent(b, kind.String(), position)
			return append(cloudevents.AppendPlace(b, kind.String(), position), "\n\n"...)
		},
		gap: func(b []byte, gap *domain.Gap) []byte { return appendGapEvent(b, appendCloudGap(nil, gap)) },
	}
}

// cloudSocketFrames returns frames that are messages of a WebSocket.
func cloudSocketFrames() frames {
	return frames{
		event: func(b []byte, entry *tail.Entry) []byte {
			return appendFramed(b, func(b []byte) []byte { return appendEntryCloudEvent(b, entry) })
		},
		place: func(b []byte, kind placeKind, position int64) []byte {
			return appendFramed(b, func(b []byte) []byte { return cloudevents.AppendPlace(b, kind.String(), position) })
		},
		gap: func(b []byte, gap *domain.Gap) []byte {
			return appendFramed(b, func(b []byte) []byte { return appendCloudGap(b, gap) })
		},
	}
}
