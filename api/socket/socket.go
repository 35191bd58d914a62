// Package socket is a WebSocket beneath messages: the handshake, frames, pings, and the end. Upgrade makes a Conn of a
// request, and AppendFramed makes the frames that Conn.Send sends. Ending ends the followers of a process that is about
// to stop.
package socket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/domain"
)

const (
	// CloseGrace limits the close handshake and the last messages of a WebSocket.
	CloseGrace = 2 * time.Second
	// waited is the minimum duration of a write that shows that the connection's buffers were full and the client has
	// read.
	waited = 50 * time.Millisecond
	// WrittenAtOnce is how many bytes a client has the stall time for, so that a slow reader is not treated as a silent
	// one.
	WrittenAtOnce = 64 << 10
	// maxIgnored is how many bytes a client may send where no messages are expected.
	maxIgnored = 4096
	// maxCloseReason is the maximum length of a close frame's reason in bytes.
	maxCloseReason = 123
)

// Reasons to end a WebSocket that the service would have kept open.
var (
	ErrGone   = errors.New("the client has gone")
	ErrSilent = errors.New("the client does not answer")
	errTalks  = domain.Errorf(domain.CodeInvalidRequest, "", "nothing is read on this socket; publish and acknowledge over /v1/ws")
)

// Requested reports whether a request asks for a WebSocket.
func Requested(request *http.Request) bool {
	return request.Method == http.MethodGet && strings.EqualFold(request.Header.Get("Upgrade"), "websocket")
}

// Conn is a WebSocket. The library does the handshake, reads what the client sends, and answers its pings and closes.
// Messages bypass it: each is one frame, made by AppendMessage, and one write can send any number of them
// (docs/decisions/0032-frames-past-the-library.md). send and ping are safe for concurrent use with reading.
type Conn struct {
	ws     *websocket.Conn
	conn   *netConn
	ending *Ending
	left   sync.Once // counted down
}

// Upgrade turns a request into a WebSocket, which the caller must close. An error is for the client, as a plain answer.
// After Upgrade has returned a socket, nothing may be written to the response, and the handler returns nil. Upgrade
// chooses the first of subprotocols that the client names, or none.
//
// Pages of any origin may open a WebSocket. The key or ticket in the request decides what it may do. A browser adds
// neither by itself, unlike cookies, which this service does not use.
func Upgrade(c echo.Context, ending *Ending, stall time.Duration, subprotocols ...string) (*Conn, error) {
	if !ending.opened() {
		return nil, Stopping()
	}
	handshake := &handshake{response: c.Response(), header: http.Header{}, stall: stall}
	ws, err := websocket.Accept(handshake, c.Request(), &websocket.AcceptOptions{InsecureSkipVerify: true, Subprotocols: subprotocols})
	if err != nil {
		ending.closed()
		if versions := handshake.header.Get("Sec-WebSocket-Version"); versions != "" {
			c.Response().Header().Set("Sec-WebSocket-Version", versions)
		}
		return nil, domain.Errorf(domain.CodeInvalidRequest, "Upgrade", "%s", err)
	}
	handshake.conn.heard.Store(time.Now().UnixNano())
	return &Conn{ws: ws, conn: handshake.conn, ending: ending}, nil
}

// Send writes messages made by AppendMessage. It returns when the connection has accepted them. It fails with ErrGone
// if the client has disconnected or has read nothing for the stall time.
func (w *Conn) Send(messages []byte) error {
	if err := w.conn.send(messages); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// Ping sends a ping, and fails with ErrSilent if nothing has arrived from the client for the stall time.
func (w *Conn) Ping() error {
	if silent := time.Since(time.Unix(0, w.conn.heard.Load())); silent > w.conn.stall {
		return ErrSilent
	}
	return w.Send([]byte{0x80 | opPing, 0})
}

// DiscardMessages reads from a client that is not expected to send messages, so that pongs and its close frame are
// noticed, until the socket is closed. It returns the reason: ErrGone, or errTalks if the client has sent more than
// maxIgnored bytes.
func (w *Conn) DiscardMessages() error {
	w.ws.SetReadLimit(-1) // limited below
	for left := int64(maxIgnored); left > 0; {
		_, message, err := w.ws.Reader(context.Background())
		if err != nil {
			return ErrGone
		}
		read, err := io.CopyN(io.Discard, message, left)
		if err != nil && err != io.EOF {
			return ErrGone
		}
		left -= read + 1 // empty messages count, too
	}
	return errTalks
}

// EndWith makes current and later writes end soon after ctx ends. The caller must call release.
func (w *Conn) EndWith(ctx context.Context) (release func()) {
	stop := context.AfterFunc(ctx, w.conn.hurry)
	return func() { stop() }
}

// Close closes the socket with a code and a reason, and returns when it is closed. It waits only briefly for a client
// that does not answer.
func (w *Conn) Close(code websocket.StatusCode, reason string) {
	w.conn.hurry()
	_ = w.conn.SetReadDeadline(time.Now().Add(CloseGrace))
	_ = w.ws.Close(code, strings.ToValidUTF8(reason[:min(len(reason), maxCloseReason)], ""))
	w.left.Do(w.ending.closed)
}

// Abandon closes the connection without a close frame, for a client that has disconnected or does not read. It does
// nothing if the socket is already closed.
func (w *Conn) Abandon() {
	_ = w.ws.CloseNow()
	w.left.Do(w.ending.closed)
}

// EndCause returns why work under ctx ended with err: the cause of ctx, if ctx has ended. Any end that the process
// itself causes becomes ErrStopping.
func EndCause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	cause := context.Cause(ctx)
	if _, known := errors.AsType[*domain.Error](cause); known || errors.Is(cause, ErrGone) || errors.Is(cause, ErrSilent) {
		return cause
	}
	return ErrStopping
}

// CloseFor closes the socket with the code and reason for the cause.
func (w *Conn) CloseFor(cause error) {
	switch {
	case errors.Is(cause, ErrGone), errors.Is(cause, ErrSilent):
		w.Abandon()
	case errors.Is(cause, ErrStopping):
		w.Close(websocket.StatusGoingAway, ErrStopping.Error())
	case errors.Is(cause, errTalks), problem.IsRefusal(cause):
		w.Close(websocket.StatusPolicyViolation, domain.ClientMessage(cause))
	default:
		w.Close(websocket.StatusInternalError, domain.ClientMessage(cause))
	}
}

// netConn is the connection beneath a WebSocket. The library writes control frames to it, and this package writes
// messages. Each Write contains whole frames.
type netConn struct {
	net.Conn
	stall time.Duration
	heard atomic.Int64 // when the client last sent something, in nanoseconds

	writing sync.Mutex // held by the writer
	ended   bool       // the close frame was sent, and nothing may follow it

	deadline sync.Mutex
	hurried  bool
}

// Read is called by the library. Any data shows that the client is alive.
func (c *netConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// Write is called by the library with one control frame.
func (c *netConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if len(p) > 0 && p[0]&0x0f == opClose {
		defer func() { c.ended = true }()
	}
	return c.write(p)
}

// send writes message frames.
func (c *netConn) send(frames []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.write(frames)
	return err
}

func (c *netConn) write(p []byte) (int, error) {
	if c.ended {
		return 0, net.ErrClosed
	}
	written := 0
	for {
		began := time.Now()
		c.deadline.Lock()
		if !c.hurried {
			_ = c.Conn.SetWriteDeadline(began.Add(c.stall))
		}
		c.deadline.Unlock()
		n, err := c.Conn.Write(p[written:min(len(p), written+WrittenAtOnce)])
		written += n
		if err != nil {
			c.ended = true // a frame may have been cut
			return written, err
		}
		if now := time.Now(); now.Sub(began) > waited {
			c.heard.Store(now.UnixNano())
		}
		if written == len(p) {
			return written, nil
		}
	}
}

// hurry gives the current write and all later ones at most closeGrace.
func (c *netConn) hurry() {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	if !c.hurried {
		c.hurried = true
		_ = c.Conn.SetWriteDeadline(time.Now().Add(CloseGrace))
	}
}

// handshake is the response to a WebSocket request, as the library sees it. It withholds the library's own error
// responses, since the service answers errors as problems.
type handshake struct {
	response *echo.Response
	header   http.Header
	stall    time.Duration
	conn     *netConn // once it is hijacked
}

// Header returns the headers that the library adds.
func (h *handshake) Header() http.Header { return h.header }

// Write discards the library's text for an error.
func (h *handshake) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader sends the header of a successful handshake.
func (h *handshake) WriteHeader(status int) {
	if status != http.StatusSwitchingProtocols {
		return
	}
	header := h.response.Header()
	for name, values := range h.header {
		header[name] = values
	}
	h.response.WriteHeader(status)
}

// Hijack takes the connection over from net/http, and removes net/http's deadlines.
func (h *handshake) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := h.response.Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	h.conn = &netConn{Conn: conn, stall: h.stall}
	// The library writes only control frames, which have at most 127 bytes.
	return h.conn, bufio.NewReadWriter(buffered.Reader, bufio.NewWriterSize(h.conn, 128)), nil
}

// ReadLimit sets the maximum size of a message.
func (w *Conn) ReadLimit(bytes int64) { w.ws.SetReadLimit(bytes) }

// Subprotocol returns the subprotocol that Upgrade has chosen.
func (w *Conn) Subprotocol() string { return w.ws.Subprotocol() }

// Reader returns the next message. The context must not end before the message was read, since the library would then
// cut the connection.
func (w *Conn) Reader() (websocket.MessageType, io.Reader, error) {
	return w.ws.Reader(context.Background())
}
