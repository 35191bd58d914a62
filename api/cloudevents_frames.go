package api

import (
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/subscription"
)

// framesOf are the frames of a kind of answer. Where CloudEvents are asked for each frame is one, also those that say a place.
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
func appendEntryCloudEvent(b []byte, entry *subscription.Entry) []byte {
	return entry.AppendTo(b, cloudEventForm, func(b []byte, event *domain.Event) []byte {
		var encoder cloudevents.Encoder
		return encoder.Append(b, event)
	})
}

// appendCloudGap appends a gap as a structured CloudEvent, whose data it is.
func appendCloudGap(b []byte, gap *domain.Gap) []byte {
	return cloudevents.AppendGap(b, gap.From, gap.To, appendGap(nil, gap))
}

// cloudLineFrames are lines of JSON.
func cloudLineFrames() frames {
	return frames{
		event: func(b []byte, entry *subscription.Entry) []byte {
			return append(appendEntryCloudEvent(b, entry), '\n')
		},
		place: func(b []byte, kind placeKind, position int64) []byte {
			return append(cloudevents.AppendPlace(b, kind.String(), position), '\n')
		},
		gap: func(b []byte, gap *domain.Gap) []byte { return append(appendCloudGap(b, gap), '\n') },
	}
}

// cloudServerSentFrames are server-sent events, named and numbered as others are.
func cloudServerSentFrames() frames {
	return frames{
		event: func(b []byte, entry *subscription.Entry) []byte {
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

// cloudSocketFrames are messages of a WebSocket.
func cloudSocketFrames() frames {
	return frames{
		event: func(b []byte, entry *subscription.Entry) []byte {
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
