package socket

import "encoding/binary"

// The opcodes of WebSocket frames that this package sends or checks (RFC 6455, section 5.2).
const (
	opText  = 1
	opClose = 8
	opPing  = 9
)

// AppendMessage appends a text message as one WebSocket frame.
func AppendMessage(b, text []byte) []byte {
	return AppendFramed(b, func(b []byte) []byte { return append(b, text...) })
}

// AppendFramed appends a text message whose text appendText appends.
func AppendFramed(b []byte, appendText func(b []byte) []byte) []byte {
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
