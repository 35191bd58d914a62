package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
)

// follower is one connection that follows a log. It reads only the position of a frame, and checks that there are no
// gaps or repeats. Only one goroutine may use it.
type follower struct {
	wire *wire
	in   *bufio.Reader
	next func() (kind frameKind, frame []byte, err error) // the frame is valid until the next call
	at   int64                                            // the last position; -1: nothing has arrived
}

// frameKind is the kind of a frame.
type frameKind int

const (
	eventFrame frameKind = iota
	caughtUpFrame
	checkpointFrame
)

// These are the transports of followers.
const (
	transportSocket = "ws"
	transportEvents = "sse"
	transportLines  = "ndjson"
)

// upgradeHeaders request a WebSocket.
const upgradeHeaders = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: bWFuaWZvbGQgYmVuY2htYQ==\r\n"

// errNoData is the error of a reader that does not wait when no data has arrived.
var errNoData = errors.New("no data has arrived")

// mostFrame is the largest size of a frame, in bytes.
const mostFrame = 64 << 10

// follow starts to follow the whole log from the given place. The run closes the follower at its end.
func (r *run) follow(transport, from string) (*follower, error) {
	w, err := r.dial(r.service.key)
	if err != nil {
		return nil, err
	}
	return follow(w, transport, from)
}

// follow starts to follow the whole log of a connection's tenant from the given place.
func follow(w *wire, transport, from string) (f *follower, err error) {
	path := "/v1/subscribe/$all?from=" + from
	f = &follower{wire: w, at: -1}
	switch transport {
	case transportSocket:
		err = w.open(path, upgradeHeaders, http.StatusSwitchingProtocols)
		f.in, f.next = bufio.NewReaderSize(w.in, mostFrame), f.message
	case transportEvents:
		err = w.open(path, "Accept: text/event-stream\r\n", http.StatusOK)
		f.in, f.next = bufio.NewReaderSize(w.chunks(), mostFrame), f.serverSent
	default:
		err = w.open(path, "Accept: application/x-ndjson\r\n", http.StatusOK)
		f.in, f.next = bufio.NewReaderSize(w.chunks(), mostFrame), f.line
	}
	if err != nil {
		return nil, fmt.Errorf("follow the log: %w", err)
	}
	return f, nil
}

// open sends a request whose answer does not end, and reads the answer's headers.
func (w *wire) open(path, headers string, expected int) error {
	if err := w.send("GET", path, headers, nil); err != nil {
		return err
	}
	status, length, err := w.header()
	if err != nil || status == expected {
		return err
	}
	answer := make([]byte, max(length, 0))
	_, err = io.ReadFull(w.in, answer)
	return cmp.Or(err, error(&statusError{status, string(answer)}))
}

// step reads the next frame. Events must arrive in order.
func (f *follower) step() (kind frameKind, frame []byte, err error) {
	if kind, frame, err = f.next(); err != nil {
		return 0, nil, err
	}
	position, ok := numberIn(frame, `"position":`)
	switch {
	case !ok:
		return 0, nil, fmt.Errorf("a frame has no position: %.200q", frame)
	case f.at < 0:
	case kind == eventFrame && position != f.at+1:
		return 0, nil, fmt.Errorf("position %d is followed by position %d", f.at, position)
	case kind != eventFrame && position != f.at:
		return 0, nil, fmt.Errorf("after position %d the service says that everything up to %d was sent", f.at, position)
	}
	f.at = position
	return kind, frame, nil
}

// numberIn returns the number after the first occurrence of a name in JSON.
func numberIn(text []byte, name string) (int64, bool) {
	begin := bytes.Index(text, []byte(name))
	if begin < 0 {
		return 0, false
	}
	var number int64
	digits := 0
	for _, c := range text[begin+len(name):] {
		switch {
		case c == ' ' && digits == 0:
		case c >= '0' && c <= '9':
			number = number*10 + int64(c-'0')
			digits++
		default:
			return number, digits > 0
		}
	}
	return number, digits > 0
}

// objectKind recognizes a frame's kind by the first bytes of its JSON.
func objectKind(frame []byte) (frameKind, error) {
	switch {
	case bytes.HasPrefix(frame, []byte(`{"event":`)):
		return eventFrame, nil
	case bytes.HasPrefix(frame, []byte(`{"caughtUp":`)):
		return caughtUpFrame, nil
	case bytes.HasPrefix(frame, []byte(`{"checkpoint":`)):
		return checkpointFrame, nil
	}
	return 0, fmt.Errorf("unknown frame: %.200q", frame)
}

// line reads a frame that is a line.
func (f *follower) line() (kind frameKind, frame []byte, err error) {
	if frame, err = f.in.ReadSlice('\n'); err != nil {
		return 0, nil, err
	}
	kind, err = objectKind(frame)
	return kind, frame, err
}

// serverSent reads a frame that is a server-sent event.
func (f *follower) serverSent() (kind frameKind, frame []byte, err error) {
	for {
		line, err := f.in.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		name, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(": "))
		switch {
		case string(name) == "event" && string(value) == "caught-up":
			kind = caughtUpFrame
		case string(name) == "event" && string(value) == "checkpoint":
			kind = checkpointFrame
		case string(name) == "event":
			kind = eventFrame
		case string(name) == "data":
			return kind, value, nil
		}
	}
}

// message reads a frame that is a WebSocket message. The service sends each message as one frame, without a mask.
func (f *follower) message() (kind frameKind, frame []byte, err error) {
	payload, err := f.text()
	if err != nil {
		return 0, nil, err
	}
	kind, err = objectKind(payload)
	return kind, payload, err
}

// text returns the next WebSocket message, and answers control frames.
func (f *follower) text() ([]byte, error) {
	for {
		opcode, payload, err := f.socketFrame()
		if err != nil {
			return nil, err
		}
		switch opcode {
		case 1:
			return payload, nil
		case 8:
			if len(payload) < 2 {
				return nil, errors.New("the service has closed the WebSocket")
			}
			return nil, fmt.Errorf("the service has closed the WebSocket with %d: %s", binary.BigEndian.Uint16(payload), payload[2:])
		case 9:
			// A client must mask what it sends, but a mask of zeroes changes nothing.
			pong := append([]byte{0x8a, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
			if _, err := f.wire.conn.Write(pong); err != nil {
				return nil, err
			}
		case 10:
		default:
			return nil, fmt.Errorf("a WebSocket frame has opcode %d", opcode)
		}
	}
}

// socketFrame reads a WebSocket frame. If the frame is incomplete and the reader does not wait, it reads
// nothing.
func (f *follower) socketFrame() (opcode byte, payload []byte, err error) {
	head, err := f.in.Peek(2)
	if err != nil {
		return 0, nil, err
	}
	if head[0]&0xf0 != 0x80 || head[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("a WebSocket frame begins with % x", head)
	}
	opcode = head[0] & 0x0f
	begin, size := 2, int(head[1])
	switch size {
	case 126:
		begin = 4
	case 127:
		begin = 10
	}
	if begin > 2 {
		if head, err = f.in.Peek(begin); err != nil {
			return 0, nil, err
		}
		size = 0
		for _, octet := range head[2:] {
			size = size<<8 | int(octet)
		}
	}
	if size > mostFrame-begin {
		return 0, nil, fmt.Errorf("a message has %d bytes", size)
	}
	frame, err := f.in.Peek(begin + size)
	if err != nil {
		return 0, nil, err
	}
	// Peeked bytes stay valid until the next read.
	_, err = f.in.Discard(begin + size)
	return opcode, frame[begin:], err
}

// makeNonBlocking makes a WebSocket follower non-blocking. If no data is buffered, step fails with errNoData. It looks
// for more data only after a call of the returned function.
func (f *follower) makeNonBlocking() (look func(), err error) {
	conn, ok := f.wire.conn.(*net.TCPConn)
	if !ok {
		return nil, errors.New("not a TCP connection")
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var rest []byte // bytes that were already read
	for _, in := range []*bufio.Reader{f.in, f.wire.in} {
		buffered, err := in.Peek(in.Buffered())
		if err != nil {
			return nil, err
		}
		rest = append(rest, buffered...)
	}
	source := &nonBlockingReader{raw: raw, rest: rest}
	f.wire.in = nil
	f.in = bufio.NewReaderSize(source, mostFrame/4)
	return func() { source.looked = false }, nil
}

// nonBlockingReader reads what a connection has received. It fails with errNoData if there is nothing.
type nonBlockingReader struct {
	raw    syscall.RawConn
	rest   []byte
	looked bool // nothing more has arrived
}

// Read implements io.Reader.
func (r *nonBlockingReader) Read(p []byte) (n int, err error) {
	if len(r.rest) > 0 {
		n = copy(p, r.rest)
		r.rest = r.rest[n:]
		return n, nil
	}
	if r.looked {
		return 0, errNoData
	}
	if err := r.raw.Read(func(fd uintptr) bool {
		for {
			if n, err = syscall.Read(int(fd), p); !errors.Is(err, syscall.EINTR) {
				return true
			}
		}
	}); err != nil {
		return 0, err
	}
	r.looked = n < len(p)
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return 0, errNoData
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// readToHead steps until it reaches the log's head.
func (f *follower) readToHead() error {
	for {
		if kind, _, err := f.step(); err != nil || kind == caughtUpFrame {
			return err
		}
	}
}

// textIn returns the text after a name in JSON, and the rest after that text. The text must not contain escaped
// characters.
func textIn(text []byte, name string) (value, rest []byte, ok bool) {
	_, after, found := bytes.Cut(text, []byte(name))
	if !found {
		return nil, nil, false
	}
	return bytes.Cut(after, []byte(`"`))
}
