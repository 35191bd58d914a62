package api

import (
	"encoding/binary"
	"strconv"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/subscription"
)

// placeKind is a frame that says no more than a position.
type placeKind int

const (
	caughtUp   placeKind = iota // everything up to the head has been sent
	checkpoint                  // everything up to here has been sent or passed over
)

// String is the name of its server-sent events.
func (k placeKind) String() string {
	if k == caughtUp {
		return "caught-up"
	}
	return "checkpoint"
}

// The forms of events that entries keep for all followers who get them.
const (
	lineForm subscription.Form = iota
	serverSentForm
	socketForm
	objectForm
	cloudEventForm
)

// frames is how frames look in one answer, for one goroutine. Its functions append one to what is to be sent.
type frames struct {
	event func(b []byte, entry *subscription.Entry) []byte
	place func(b []byte, kind placeKind, position int64) []byte
	gap   func(b []byte, gap *domain.Gap) []byte
}

// inForm appends entries' events in a form of the frames' own.
func inForm(form subscription.Form, encode func(b []byte, event *domain.Event) []byte) func([]byte, *subscription.Entry) []byte {
	return func(b []byte, entry *subscription.Entry) []byte { return entry.AppendTo(b, form, encode) }
}

// lineFrames are lines of JSON.
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

// socketFrames are messages of a WebSocket.
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

// appendEntryEvent appends an entry's event as JSON, for who makes a frame of its own around it.
func appendEntryEvent(b []byte, entry *subscription.Entry) []byte {
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

// The opcodes of a WebSocket's frames that are made or looked at here (RFC 6455, section 5.2).
const (
	opText  = 1
	opClose = 8
	opPing  = 9
)

// appendMessage appends a text message, one frame of a WebSocket.
func appendMessage(b, text []byte) []byte {
	return appendFramed(b, func(b []byte) []byte { return append(b, text...) })
}

// appendFramed is appendMessage with a text that append appends.
func appendFramed(b []byte, appendText func(b []byte) []byte) []byte {
	// Most messages need this header; the others are moved.
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
