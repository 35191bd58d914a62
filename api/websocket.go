package api

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

	"github.com/manifold-es/manifold/domain"
)

const (
	// closeGrace bounds the last words between two ends of a WebSocket.
	closeGrace = 2 * time.Second
	// waited is how long a write must have taken at least to show that the connection's buffers had been full, and the client
	// has read.
	waited = 50 * time.Millisecond
	// writtenAtOnce is how many bytes a client has the stall time for: one that reads slowly is still one that reads.
	writtenAtOnce = 64 << 10
	// maxIgnored is how many bytes a client may send where nothing is wanted.
	maxIgnored = 4096
	// maxCloseReason is how many bytes the reason of a close frame may have.
	maxCloseReason = 123
)

// Why a WebSocket ends that the service would have kept.
var (
	errGone   = errors.New("the client has gone")
	errSilent = errors.New("the client does not answer")
	errTalks  = domain.Errorf(domain.CodeInvalidRequest, "", "nothing is read on this socket; publish and acknowledge over /v1/ws")
)

// wantsSocket says whether a request is to become a WebSocket.
func wantsSocket(request *http.Request) bool {
	return request.Method == http.MethodGet && strings.EqualFold(request.Header.Get("Upgrade"), "websocket")
}

// socket is a WebSocket. The library does the handshake, reads what the client sends, answers its pings and closes. Messages
// are sent past it: each is one frame, made by appendMessage, and any number of them go out in one write
// (docs/decisions/0032-frames-past-the-library.md). send and ping may be called concurrently with reading.
type socket struct {
	ws     *websocket.Conn
	conn   *socketConn
	server *Server
	left   sync.Once // counted down
}

// upgrade makes a request a WebSocket, which must be closed. An error is for the client, as a plain answer. Once it has
// returned nothing may be written to the response any more, and the handler returns nil. Of the subprotocols the first is chosen
// that the client names; none, where it names none of them.
//
// Any page may open one, whatever its origin: what it may do is said by the key or ticket that it sends, which a browser
// adds to no request by itself, as it does with cookies. There are none here.
func (s *Server) upgrade(c echo.Context, subprotocols ...string) (*socket, error) {
	if !s.ending.opened() {
		return nil, leaving()
	}
	handshake := &handshake{response: c.Response(), header: http.Header{}, stall: s.stallTimeout}
	ws, err := websocket.Accept(handshake, c.Request(), &websocket.AcceptOptions{InsecureSkipVerify: true, Subprotocols: subprotocols})
	if err != nil {
		s.ending.closed()
		if versions := handshake.header.Get("Sec-WebSocket-Version"); versions != "" {
			c.Response().Header().Set("Sec-WebSocket-Version", versions)
		}
		return nil, domain.Errorf(domain.CodeInvalidRequest, "Upgrade", "%s", strings.TrimPrefix(err.Error(), "failed to accept WebSocket connection: "))
	}
	handshake.conn.heard.Store(time.Now().UnixNano())
	return &socket{ws: ws, conn: handshake.conn, server: s}, nil
}

// send writes messages that appendMessage has made. It returns when the connection has taken them. It fails with errGone where
// the client has gone, or reads nothing for the stall time.
func (w *socket) send(messages []byte) error {
	if err := w.conn.send(messages); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// ping asks the client for a sign of life, and fails with errSilent where there was none for the stall time.
func (w *socket) ping() error {
	if silent := time.Since(time.Unix(0, w.conn.heard.Load())); silent > w.conn.stall {
		return errSilent
	}
	return w.send([]byte{0x80 | opPing, 0})
}

// mute reads what a client sends that has nothing to say, so that pongs and its close are heard, until the socket is closed.
// It returns why: errGone, or errTalks where the client has sent more than a few words.
func (w *socket) mute() error {
	w.ws.SetReadLimit(-1) // it is bounded below
	for left := int64(maxIgnored); left > 0; {
		_, message, err := w.ws.Reader(context.Background())
		if err != nil {
			return errGone
		}
		read, err := io.CopyN(io.Discard, message, left)
		if err != nil && err != io.EOF {
			return errGone
		}
		left -= read + 1 // an empty message counts, too
	}
	return errTalks
}

// endWith makes writes that are under way when ctx ends, and later ones, end soon. release must be called.
func (w *socket) endWith(ctx context.Context) (release func()) {
	stop := context.AfterFunc(ctx, w.conn.hurry)
	return func() { stop() }
}

// close closes the socket with a code and a reason, and returns when it is closed; a client that does not answer is waited
// for shortly.
func (w *socket) close(code websocket.StatusCode, reason string) {
	w.conn.hurry()
	_ = w.conn.SetReadDeadline(time.Now().Add(closeGrace))
	_ = w.ws.Close(code, strings.ToValidUTF8(reason[:min(len(reason), maxCloseReason)], ""))
	w.left.Do(w.server.ending.closed)
}

// abandon closes the connection without a word: for a client that has gone, or does not read. Of a socket that is closed it
// does nothing.
func (w *socket) abandon() {
	_ = w.ws.CloseNow()
	w.left.Do(w.server.ending.closed)
}

// whyEnded is why work under ctx has ended with err: ctx's cause, where that has ended. What the process has to say of its end
// is errStopping.
func whyEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	cause := context.Cause(ctx)
	if _, known := errors.AsType[*domain.Error](cause); known || errors.Is(cause, errGone) || errors.Is(cause, errSilent) {
		return cause
	}
	return errStopping
}

// leave closes the socket in the way that belongs to the cause.
func (w *socket) leave(cause error) {
	switch {
	case errors.Is(cause, errGone), errors.Is(cause, errSilent):
		w.abandon()
	case errors.Is(cause, errStopping):
		w.close(websocket.StatusGoingAway, errStopping.Error())
	case errors.Is(cause, errTalks), isRefusal(cause):
		w.close(websocket.StatusPolicyViolation, domain.ClientMessage(cause))
	default:
		w.close(websocket.StatusInternalError, domain.ClientMessage(cause))
	}
}

// socketConn is the connection below a WebSocket, to which the library writes its control frames, and we our messages:
// each Write has whole frames.
type socketConn struct {
	net.Conn
	stall time.Duration
	heard atomic.Int64 // when there was the last sign of life, in nanoseconds

	writing sync.Mutex // held by who writes
	ended   bool       // the close frame is out, behind which there is nothing

	deadline sync.Mutex
	hurried  bool
}

// Read is the library's. Whatever comes is a sign of life.
func (c *socketConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// Write is the library's. It has one control frame.
func (c *socketConn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if len(p) > 0 && p[0]&0x0f == opClose {
		defer func() { c.ended = true }()
	}
	return c.write(p)
}

// send writes frames of ours.
func (c *socketConn) send(frames []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.write(frames)
	return err
}

func (c *socketConn) write(p []byte) (int, error) {
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
		n, err := c.Conn.Write(p[written:min(len(p), written+writtenAtOnce)])
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

// hurry gives the write that is under way, and all later ones, no more than closeGrace.
func (c *socketConn) hurry() {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	if !c.hurried {
		c.hurried = true
		_ = c.Conn.SetWriteDeadline(time.Now().Add(closeGrace))
	}
}

// handshake is the response to a request that becomes a WebSocket, as the library sees it. What the library says of one that
// cannot is held back: that is answered as a problem.
type handshake struct {
	response *echo.Response
	header   http.Header
	stall    time.Duration
	conn     *socketConn // once it is ours
}

// Header has what the library adds.
func (h *handshake) Header() http.Header { return h.header }

// Write takes the library's own words for an error.
func (h *handshake) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader answers the handshake.
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

// Hijack takes the connection over from net/http, whose deadlines end here.
func (h *handshake) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := h.response.Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	h.conn = &socketConn{Conn: conn, stall: h.stall}
	// The library writes control frames only, which have 127 bytes at most.
	return h.conn, bufio.NewReadWriter(buffered.Reader, bufio.NewWriterSize(h.conn, 128)), nil
}
