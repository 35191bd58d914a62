package api

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
)

// The transports, as passed to Observer.Followed.
const (
	byWebSocket   = "websocket"
	byEventStream = "sse"
	byLines       = "ndjson"
)

// sendBytes is how much is collected before it is sent, unless no more is available.
const sendBytes = 64 << 10

func (s *Server) followAll(c echo.Context, caller caller) error {
	if err := caller.allow("", domain.ScopeEventsRead); err != nil {
		return err
	}
	return s.follow(c, caller, domain.Selection{})
}

func (s *Server) followStream(c echo.Context, caller caller) error {
	stream, err := pathParam(c, "streamId")
	if err != nil {
		return err
	}
	if err := domain.CheckStream("path streamId", stream); err != nil {
		return err
	}
	if err := caller.allow(domain.Category(stream), domain.ScopeEventsRead); err != nil {
		return inPlace("path streamId", err)
	}
	return s.follow(c, caller, domain.Selection{Stream: stream})
}

func (s *Server) followCategory(c echo.Context, caller caller) error {
	category, err := pathParam(c, "category")
	if err != nil {
		return err
	}
	if err := caller.allow(category, domain.ScopeEventsRead); err != nil {
		return inPlace("path category", err)
	}
	return s.follow(c, caller, domain.Selection{Categories: []string{category}})
}

// follow sends the events of a selection that the caller may read. It starts at a place in the log and continues as the
// log grows, until the client disconnects, its key is revoked, or the process stops. An invalid request is answered
// before anything is sent.
func (s *Server) follow(c echo.Context, caller caller, selection domain.Selection) error {
	request := c.Request()
	kind, cloud, err := followingKind(request)
	if err != nil {
		return err
	}
	wanted, err := followOf(c, selection)
	if err != nil {
		return err
	}
	if s.ending.stopping.Err() != nil {
		return leaving()
	}
	feed, err := s.config.Follower.Follow(request.Context(), caller.tenant, wanted)
	switch {
	case err != nil && errors.Is(context.Cause(request.Context()), errStopping):
		return leaving()
	case err != nil:
		return ofQuery(err)
	}
	defer feed.Close()
	if request.Method == http.MethodHead {
		beginStream(c, kind)
		return nil
	}
	d := delivery{server: s, feed: feed, kind: kind}
	if kind == byWebSocket {
		return d.bySocket(c)
	}
	d.frames = framesOf(kind, cloud)
	return d.byStream(c)
}

// followingKind returns the media type of the answer: the first supported one in Accept. cloud means that the client
// wants CloudEvents; for a WebSocket, the handshake decides that.
func followingKind(request *http.Request) (kind string, cloud bool, err error) {
	if wantsSocket(request) {
		return byWebSocket, false, nil
	}
	header := strings.Join(request.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return byLines, false, nil
	}
	for item := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(item, ";")
		switch name = strings.ToLower(strings.TrimSpace(name)); {
		case name == cloudevents.StructuredType:
			cloud = true
		case kind != "":
		case name == eventStream:
			kind = byEventStream
		case name == ndjson, name == "application/*", name == "*/*":
			kind = byLines
		}
	}
	switch {
	case kind != "":
		return kind, cloud, nil
	case cloud:
		return byLines, true, nil
	}
	return "", false, domain.Errorf(domain.CodeInvalidRequest, "Accept", "unsupported media type %q; it must be %s or %s, with %s for CloudEvents, or a WebSocket request", clip(header, 60), ndjson, eventStream, cloudevents.StructuredType)
}

// followOf reads the parameters, which are already checked against the contract.
func followOf(c echo.Context, selection domain.Selection) (domain.Follow, error) {
	query := c.QueryParams()
	selection.Filter = query.Get("filter")
	if types := query.Get("types"); types != "" {
		selection.Types = strings.Split(types, ",")
	}
	wanted := domain.Follow{Selection: selection}
	if seen := c.Request().Header.Get("Last-Event-ID"); seen != "" {
		position, err := strconv.ParseInt(seen, 10, 64)
		if err != nil {
			return wanted, domain.Errorf(domain.CodeInvalidRequest, "Last-Event-ID", "%q is not a position", clip(seen, 40))
		}
		wanted.From.Position = position + 1
		return wanted, nil
	}
	if from := query.Get("from"); from != "" {
		var err error
		wanted.From, err = domain.ParseFrom("query from", from)
		return wanted, err
	}
	return wanted, nil
}

// ofQuery adapts the place and the code of a selection's error to selections in a query.
func ofQuery(err error) error {
	e, ok := errors.AsType[*domain.Error](err)
	if !ok {
		return err
	}
	switch {
	case e.Where == "from":
		return domain.Errorf(e.Code, "query from", "%s", e.Message)
	case e.Where == "filter":
		return domain.Errorf(domain.CodeInvalidRequest, "query filter", "%s", e.Message)
	case strings.HasPrefix(e.Where, "types"):
		return domain.Errorf(e.Code, "query types", "%s", e.Message)
	case strings.HasPrefix(e.Where, "source.categories"):
		return domain.Errorf(e.Code, "path category", "%s", e.Message)
	}
	return err
}

// beginStream sends the header of an answer that is not a WebSocket.
func beginStream(c echo.Context, kind string) {
	header := c.Response().Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // some proxies buffer answers otherwise
	if kind == byEventStream {
		header.Set("Content-Type", eventStream)
	} else {
		header.Set("Content-Type", ndjson)
	}
	c.Response().WriteHeader(http.StatusOK)
}

// delivery sends a feed to one follower.
type delivery struct {
	server *Server
	feed   *tail.Feed
	kind   string
	frames frames
	send   func(frames []byte) error
	beat   func() error // checks that the client is alive; nil: no check
	told   int64        // the client knows that everything up to here was sent or skipped
}

// byStream delivers as one continuous answer.
func (d *delivery) byStream(c echo.Context) error {
	response := c.Response()
	beginStream(c, d.kind)
	control := http.NewResponseController(response)
	d.send = func(frames []byte) error {
		for {
			next := frames[:min(len(frames), writtenAtOnce)]
			_ = control.SetWriteDeadline(time.Now().Add(d.server.stallTimeout)) // writers of tests may have no deadlines
			if _, err := response.Write(next); err != nil {
				return fmt.Errorf("%w: %w", context.Canceled, err)
			}
			if err := control.Flush(); err != nil {
				return fmt.Errorf("%w: %w", context.Canceled, err)
			}
			if frames = frames[len(next):]; len(frames) == 0 {
				return nil
			}
		}
	}
	var first []byte
	if d.kind == byEventStream {
		// Spread the reconnects of the many clients of a process that stopped.
		first = fmt.Appendf(nil, "retry: %d\n\n", 1000+rand.IntN(2000))
	}
	if err := d.send(first); err != nil { // also sends the header, so that the client knows it is connected
		return err
	}
	ctx := c.Request().Context()
	err := d.run(ctx)
	if errors.Is(context.Cause(ctx), errStopping) {
		return nil // the answer ends normally: the client reconnects, and another process answers
	}
	return err
}

// bySocket delivers over a WebSocket.
func (d *delivery) bySocket(c echo.Context) error {
	socket, err := d.server.upgrade(c, cloudevents.Subprotocol)
	if err != nil {
		return err
	}
	d.frames = framesOf(byWebSocket, socket.ws.Subprotocol() == cloudevents.Subprotocol)
	defer socket.abandon() // in case of a panic, since nothing else would close it
	d.send, d.beat = socket.send, socket.ping
	ctx, cancel := context.WithCancelCause(c.Request().Context())
	release := socket.endWith(ctx)
	var reading sync.WaitGroup
	reading.Go(func() { cancel(guarded(socket.mute)) })
	cause := whyEnded(ctx, d.run(ctx))
	release()
	if _, fault := clientError(cause); fault && !errors.Is(cause, errGone) && !errors.Is(cause, errSilent) && !errors.Is(cause, errStopping) {
		d.server.log.Error("a WebSocket was cut off", "requestId", c.Response().Header().Get(headerRequestID), "route", c.Path(), "error", cause)
	}
	socket.leave(cause)
	reading.Wait()
	cancel(nil)
	return nil // the response must no longer be used
}

// buffers are reused to collect frames. A follower holds one only while it has something to send.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, sendBytes+sendBytes/4); return &b }}

// run delivers until ctx ends or an error occurs. Twice in each heartbeat it calls lookUp.
func (d *delivery) run(ctx context.Context) error {
	d.told = d.feed.Position()
	for {
		quiet, err := d.runFor(ctx, d.server.heartbeat/2)
		if err != nil {
			return err
		}
		if err := d.lookUp(quiet); err != nil {
			return err
		}
	}
}

// runFor delivers for a duration, with one timer for any number of slices. quiet means that it sent nothing.
func (d *delivery) runFor(ctx context.Context, long time.Duration) (quiet bool, err error) {
	window, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	quiet = true
	for window.Err() == nil {
		slice, err := d.feed.Next(window)
		switch {
		case ctx.Err() != nil:
			return quiet, ctx.Err()
		case err != nil && window.Err() != nil:
			return quiet, nil
		case err != nil:
			return quiet, err
		}
		if err := d.sendSlice(slice); err != nil {
			return false, err
		}
		d.told, quiet = slice.Position, false
	}
	return quiet, ctx.Err()
}

// lookUp checks the client, and sends the position if the client does not know it or nothing was sent for a while.
func (d *delivery) lookUp(quiet bool) error {
	if d.beat != nil {
		if err := d.beat(); err != nil {
			return err
		}
	}
	at := d.feed.Position()
	if !quiet && at == d.told {
		return nil
	}
	d.told = at
	return d.send(d.frames.place(nil, checkpoint, at))
}

// sendSlice sends a slice in few writes.
func (d *delivery) sendSlice(slice tail.Slice) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := (*buffer)[:0]
	if slice.Gap != nil {
		b = d.frames.gap(b, slice.Gap)
	}
	for _, entry := range slice.Entries {
		if len(b) >= sendBytes {
			if err := d.send(b); err != nil {
				return err
			}
			b = b[:0]
		}
		b = d.frames.event(b, entry)
	}
	switch {
	case slice.CaughtUp:
		b = d.frames.place(b, caughtUp, slice.Position)
	case len(slice.Entries) == 0:
		b = d.frames.place(b, checkpoint, slice.Position)
	}
	if cap(b) <= 4*sendBytes { // do not keep the memory of a large event
		*buffer = b
	}
	if err := d.send(b); err != nil {
		return err
	}
	if observe := d.server.config.Observer.Followed; observe != nil {
		observe(d.kind, len(slice.Entries))
	}
	return nil
}
