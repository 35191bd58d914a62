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

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/socket"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// sendBytes is how much is collected before it is sent, unless no more is available.
const sendBytes = 64 << 10

func (s *Server) followAll(c echo.Context, caller access.Caller) error {
	if err := caller.Allow("", auth.ScopeEventsRead); err != nil {
		return err
	}
	return s.follow(c, caller, domain.Selection{})
}

func (s *Server) followStream(c echo.Context, caller access.Caller) error {
	stream := c.Param("streamId")
	if err := caller.AllowStream(stream, auth.ScopeEventsRead); err != nil {
		return err
	}
	return s.follow(c, caller, domain.Selection{Stream: stream})
}

func (s *Server) followCategory(c echo.Context, caller access.Caller) error {
	category := c.Param("category")
	if err := caller.Allow(category, auth.ScopeEventsRead); err != nil {
		return problem.At("path category", err)
	}
	return s.follow(c, caller, domain.Selection{Categories: []string{category}})
}

// follow sends the events of a selection that the caller may read. It starts at a place in the log and continues as the
// log grows, until the client disconnects, its key is revoked, or the process stops. An invalid request is answered
// before anything is sent.
func (s *Server) follow(c echo.Context, caller access.Caller, selection domain.Selection) error {
	request := c.Request()
	kind, cloud, err := followingKind(request)
	if err != nil {
		return err
	}
	wanted, err := followOf(c, selection)
	if err != nil {
		return err
	}
	select {
	case <-s.ending.Stopped():
		return socket.Stopping()
	default:
	}
	feed, err := s.config.Follower.Follow(request.Context(), caller.Tenant, wanted)
	switch {
	case err != nil && errors.Is(context.Cause(request.Context()), socket.ErrStopping):
		return socket.Stopping()
	case err != nil:
		return ofQuery(err)
	}
	defer feed.Close()
	if request.Method == http.MethodHead {
		beginStream(c, kind)
		return nil
	}
	d := delivery{server: s, tenant: caller.Tenant, feed: feed, kind: kind}
	if kind == wire.ByWebSocket {
		return d.bySocket(c)
	}
	d.frames = wire.NewFrames(kind, cloud)
	return d.byStream(c)
}

// followingKind returns the media type of the answer: the first supported one in Accept. cloud means that the client
// wants CloudEvents; for a WebSocket, the handshake decides that.
func followingKind(request *http.Request) (kind string, cloud bool, err error) {
	if socket.Requested(request) {
		return wire.ByWebSocket, false, nil
	}
	header := strings.Join(request.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return wire.ByLines, false, nil
	}
	for item := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(item, ";")
		switch name = strings.ToLower(strings.TrimSpace(name)); {
		case name == cloudevents.StructuredType:
			cloud = true
		case kind != "":
		case name == wire.EventStream:
			kind = wire.ByEventStream
		case name == wire.Ndjson, name == "application/*", name == "*/*":
			kind = wire.ByLines
		}
	}
	switch {
	case kind != "":
		return kind, cloud, nil
	case cloud:
		return wire.ByLines, true, nil
	}
	return "", false, domain.Errorf(domain.CodeInvalidRequest, "Accept", "unsupported media type %q; it must be %s or %s, with %s for CloudEvents, or a WebSocket request", domain.Clip(header, 60), wire.Ndjson, wire.EventStream, cloudevents.StructuredType)
}

// followOf reads the parameters, which are already checked against the contract.
func followOf(c echo.Context, selection domain.Selection) (domain.Follow, error) {
	query := c.QueryParams()
	selection.Filter = query.Get("filter")
	if types := query.Get("types"); types != "" {
		selection.Types = strings.Split(types, ",")
	}
	if given := query.Get("query"); given != "" {
		var err error
		if selection.Query, err = wire.DecodeSourceQuery("query query", []byte(given)); err != nil {
			return domain.Follow{}, err
		}
	}
	wanted := domain.Follow{Selection: selection}
	if seen := c.Request().Header.Get("Last-Event-ID"); seen != "" {
		position, err := strconv.ParseInt(seen, 10, 64)
		if err != nil {
			return wanted, domain.Errorf(domain.CodeInvalidRequest, "Last-Event-ID", "%q is not a position", domain.Clip(seen, 40))
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
	if kind == wire.ByEventStream {
		header.Set("Content-Type", wire.EventStream)
	} else {
		header.Set("Content-Type", wire.Ndjson)
	}
	c.Response().WriteHeader(http.StatusOK)
}

// delivery sends a feed to one follower.
type delivery struct {
	server        *Server
	tenant        domain.TenantID
	feed          *tail.Feed
	kind          string
	frames        *wire.Frames
	send          func(frames []byte) error
	beat          func() error // checks that the client is alive; nil: no check
	knownPosition int64        // the client knows that everything up to here was sent or skipped
}

// byStream delivers as one continuous answer.
func (d *delivery) byStream(c echo.Context) error {
	response := c.Response()
	beginStream(c, d.kind)
	control := http.NewResponseController(response)
	d.send = func(frames []byte) error {
		for {
			next := frames[:min(len(frames), socket.WrittenAtOnce)]
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
	if d.kind == wire.ByEventStream {
		// Spread the reconnects of the many clients of a process that stopped.
		first = fmt.Appendf(nil, "retry: %d\n\n", 1000+rand.IntN(2000))
	}
	if err := d.send(first); err != nil { // also sends the header, so that the client knows it is connected
		return err
	}
	ctx := c.Request().Context()
	err := d.run(ctx)
	if errors.Is(context.Cause(ctx), socket.ErrStopping) {
		return nil // the answer ends normally: the client reconnects, and another process answers
	}
	return err
}

// bySocket delivers over a WebSocket.
func (d *delivery) bySocket(c echo.Context) error {
	conn, err := socket.Upgrade(c, d.server.ending, d.server.stallTimeout, cloudevents.Subprotocol)
	if err != nil {
		return err
	}
	d.frames = wire.NewFrames(wire.ByWebSocket, conn.Subprotocol() == cloudevents.Subprotocol)
	defer conn.Abandon() // in case of a panic, since nothing else would close it
	d.send, d.beat = conn.Send, conn.Ping
	ctx, cancel := context.WithCancelCause(c.Request().Context())
	release := conn.EndWith(ctx)
	var reading sync.WaitGroup
	reading.Go(func() { cancel(problem.Guarded(conn.DiscardMessages)) })
	cause := socket.EndCause(ctx, d.run(ctx))
	release()
	if _, fault := problem.Of(cause); fault && !errors.Is(cause, socket.ErrGone) && !errors.Is(cause, socket.ErrSilent) && !errors.Is(cause, socket.ErrStopping) {
		d.server.log.Error("a WebSocket was cut off", "requestId", c.Response().Header().Get(problem.HeaderRequestID), "route", c.Path(), "error", cause)
	}
	conn.CloseFor(cause)
	reading.Wait()
	cancel(nil)
	return nil // the response must no longer be used
}

// buffers are reused for frames and deliveries. A follower holds one only while it has something to send.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, sendBytes+sendBytes/4); return &b }}

// run delivers until ctx ends or an error occurs. Twice in each heartbeat it calls checkClient.
func (d *delivery) run(ctx context.Context) error {
	d.knownPosition = d.feed.Position()
	for {
		quiet, err := d.runFor(ctx, d.server.heartbeat/2)
		if err != nil {
			return err
		}
		if err := d.checkClient(quiet); err != nil {
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
		d.knownPosition, quiet = slice.Position, false
	}
	return quiet, ctx.Err()
}

// checkClient checks the client, and sends the position if the client does not know it or nothing was sent for a while.
func (d *delivery) checkClient(quiet bool) error {
	if d.beat != nil {
		if err := d.beat(); err != nil {
			return err
		}
	}
	at := d.feed.Position()
	if !quiet && at == d.knownPosition {
		return nil
	}
	d.knownPosition = at
	return d.send(d.frames.Place(nil, wire.Checkpoint, at))
}

// sendSlice sends a slice in few writes.
func (d *delivery) sendSlice(slice tail.Slice) error {
	began := time.Now()
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := (*buffer)[:0]
	if slice.Gap != nil {
		b = d.frames.Gap(b, slice.Gap)
	}
	for _, entry := range slice.Entries {
		if len(b) >= sendBytes {
			if err := d.send(b); err != nil {
				return err
			}
			b = b[:0]
		}
		b = d.frames.Event(b, entry)
	}
	switch {
	case slice.CaughtUp:
		b = d.frames.Place(b, wire.CaughtUp, slice.Position)
	case len(slice.Entries) == 0:
		b = d.frames.Place(b, wire.Checkpoint, slice.Position)
	}
	if cap(b) <= 4*sendBytes { // do not keep the memory of a large event
		*buffer = b
	}
	if err := d.send(b); err != nil {
		return err
	}
	d.server.observeFollowed(d.kind, len(slice.Entries))
	if spans := d.server.deliveries; spans != nil {
		spans.Record(d.tenant, len(slice.Entries), slice.Metadata, began, tracing.Transport(d.kind))
	}
	return nil
}

func (s *Server) observeFollowed(transport string, events int) {
	if observe := s.config.Observer.Followed; observe != nil {
		observe(transport, events)
	}
}
