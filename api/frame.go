package api

import (
	"encoding/binary"
	"strconv"

	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
)

// placeKind is a kind of frame that contains only a position.
type placeKind int

const (
	caughtUp   placeKind = iota // everything up to the head was sent
	checkpoint                  // everything up to here was sent or skipped
)

// String returns the name of the server-sent event.
func (k placeKind) String() string {
	if k == caughtUp {
		return "caught-up"
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

// frames encodes the frames of one answer, for one goroutine. Each function appends one frame.
type frames struct {
	event func(b []byte, entry *tail.Entry) []byte
	place func(b []byte, kind placeKind, position int64) []byte
	gap   func(b []byte, gap *domain.Gap) []byte
}

// inForm returns a function that appends an entry's event in a form. It encodes the event only if the entry does not
// have it in that form yet.
func inForm(form tail.Form, encode func(b []byte, event *domain.Event) []byte) func([]byte, *tail.Entry) []byte {
	return func(b []byte, entry *tail.Entry) []byte { return entry.AppendTo(b, form, encode) }
}

// lineFrames returns frames that are lines of JSON.
func lineFrames() frames {
	var encoder eventEncoder
	return frames{
		event: inForm(lineForm, func(b []byte, event *domain.Event) []byte {
			return append(appendEventObject(b, &encoder, event), '\n')
		}),
		place: func(b []byte, kind placeKind, position int64) []byte {
			return append(appendPlaceObject(b, kind, position), '\n')
		},
		gap: func(b []byte, gap *domain.Gap) []byte { return append(appendGapObject(b, gap), '\n') },
	}
}

// socketFrames returns frames that are messages of a WebSocket.
func socketFrames() frames {
	var encoder eventEncoder
	return frames{
		event: inForm(socketForm, func(b []byte, event *domain.Event) []byte {
			return appendFramed(b, func(b []byte) []byte { return appendEventObject(b, &encoder, event) })
		}),
		place: func(b []byte, kind placeKind, position int64) []byte {
			return appendFramed(b, func(b []byte) []byte { return appendPlaceObject(b, kind, position) })
		},
		gap: func(b []byte, gap *domain.Gap) []byte {
			return appendFramed(b, func(b []byte) []byte { return appendGapObject(b, gap) })
		},
	}
}

// appendEntryEvent appends an entry's event as JSON, for callers that build their own frame.
func appendEntryEvent(b []byte, entry *tail.Entry) []byte {
	return entry.AppendTo(b, objectForm, func(b []byte, event *domain.Event) []byte {
		var encoder eventEncoder
		return encoder.event(b, event)
	})
}

// appendEventObject appends {"event":{...}}.
func appendEventObject(b []byte, encoder *eventEncoder, event *domain.Event) []byte {
	b = append(b, `{"event":`...)
	b = encoder.event(b, event)
	return append(b, '}')
}

// appendPlaceObject appends {"caughtUp":{"position":n}} or {"checkpoint":{"position":n}}.
func appendPlaceObject(b []byte, kind placeKind, position int64) []byte {
	if kind == caughtUp {
		b = append(b, `{"caughtUp":`...)
	} else {
		b = append(b, `{"checkpoint":`...)
	}
	return append(appendPosition(b, position), '}')
}

// appendPosition appends {"position":n}.
func appendPosition(b []byte, position int64) []byte {
	b = append(b, `{"position":`...)
	b = strconv.AppendInt(b, position, 10)
	return append(b, '}')
}

// The opcodes of WebSocket frames that this package sends or checks (RFC 6455, section 5.2).
const (
	opText  = 1
	opClose = 8
	opPing  = 9
)

// appendMessage appends a text message as one WebSocket frame.
func appendMessage(b, text []byte) []byte {
	return appendFramed(b, func(b []byte) []byte { return append(b, text...) })
}

// appendFramed appends a text message whose text appendText appends.
func appendFramed(b []byte, appendText func(b []byte) []byte) []byte {
	// Most messages need this header size; others are moved.
	const usual = 4
	start := len(b)
	b = appendText(append(b, 0x80|opText, 126, 0, 0))
	size := len(b) - start - usual
	switch {
	case size < 126:
		b[start+1] = byte(size)
		copy(b[start+2:], b[start+usual:])
		return b[:len(b)-2]
	case size < 1<<16:
		binary.BigEndian.PutUint16(b[start+2:], uint16(size))
		return b
	}
	b = append(b, 0, 0, 0, 0, 0, 0)
	copy(b[start+10:], b[start+usual:start+usual+size])
	b[start+1] = 127
	binary.BigEndian.PutUint64(b[start+2:], uint64(size))
	return b
}
