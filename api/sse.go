package api

import (
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// serverSentFrames returns frames that are server-sent events. Their id is the position, so that an EventSource that
// reconnects continues after it.
func serverSentFrames() frames {
	var encoder eventEncoder
	return frames{
		event: inForm(serverSentForm, func(b []byte, event *domain.Event) []byte {
			b = appendServerSent(b, "event", event.Position)
			b = encoder.event(b, event) // stored JSON contains no line breaks
			return append(b, "\n\n"...)
		}),
		place: func(b []byte, kind placeKind, position int64) []byte {
			b = appendServerSent(b, kind.String(), position)
			b = appendPosition(b, position)
			return append(b, "\n\n"...)
		},
		gap: func(b []byte, gap *domain.Gap) []byte { return appendGapEvent(b, appendGap(nil, gap)) },
	}
}

// appendServerSent appends a server-sent event up to its data.
func appendServerSent(b []byte, name string, position int64) []byte {
	b = append(b, "id: "...)
	b = strconv.AppendInt(b, position, 10)
	b = append(b, "\nevent: "...)
	b = append(b, name...)
	return append(b, "\ndata: "...)
}
