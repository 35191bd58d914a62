package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// handler answers a request on behalf of a caller.
type handler func(c echo.Context, caller access.Caller) error

// routeKind says how a route treats its requests.
type routeKind int

const (
	// plain: checked against the contract, limited in size and time, compressed.
	plain routeKind = iota
	// streaming: like plain, but the answer may continue as long as the client reads.
	streaming
	// following: like streaming, but ends when the process is about to stop. Pages of any origin may use it: it
	// requires a key or a ticket, and a browser adds neither by itself. Its answer is sent piece by piece and never
	// compressed.
	following
	// upload: body and answer are streams, and the body is not checked against the contract.
	upload
	// hot: the handler itself checks the request against the contract; never compressed.
	hot
)

// maxDrained is how much of an unwanted body is read and discarded.
const maxDrained = 32 << 20

const (
	// unwantedPatience is how long a request may take to send a body that its operation does not use.
	unwantedPatience = time.Second
	// unreadPatience is how long the rest of a body may take after its request was answered. net/http waits for it
	// before it sends the answer, and the connection counts as busy meanwhile.
	unreadPatience = 2 * time.Second
)

// endpoint is an operation of the contract with everything that surrounds its handler.
type endpoint struct {
	*Server
	op     *operation
	route  string
	kind   routeKind
	handle handler
}

// register registers the handler of an operation. A GET route also answers HEAD, without the body.
func (s *Server) register(method, path string, kind routeKind, handle handler) error {
	route := echoPath(path)
	op := s.contract.operations[method+" "+route]
	if op == nil {
		return fmt.Errorf("%s %s has a handler, but is not in openapi.yaml", method, path)
	}
	if op.audited != nil && kind != plain {
		return fmt.Errorf("%s is administrative (x-audit), but its answer is a stream", op.id)
	}
	e := &endpoint{s, op, route, kind, handle}
	s.endpoints[op.id] = e
	s.echo.Add(method, route, e.answer)
	if method == http.MethodGet {
		s.echo.Add(http.MethodHead, route, e.answer)
	}
	return nil
}

// answer answers a request, and reports it to the observer and the log.
func (e *endpoint) answer(c echo.Context) error {
	start := time.Now()
	request := c.Request()
	body := &transfer.ClientBody{ReadCloser: request.Body}
	body.Over.Store(request.ContentLength == 0)
	// A copy: net/http checks its own request's body to decide whether to wait for the rest.
	ctx, span := e.beginSpan(request)
	request = request.WithContext(ctx)
	request.Body = body
	c.SetRequest(request)
	if ofAuditLog(ctx) {
		linkAudit(c)
	}
	e.guard(c, func(c echo.Context) error {
		// The deadline is set before an error is answered: writing a long answer sends it, and waits for the body.
		// A WebSocket's connection has its own deadlines.
		defer func() {
			if !body.Over.Load() && c.Response().Status != http.StatusSwitchingProtocols {
				setReadDeadline(c, time.Now().Add(unreadPatience))
			}
		}()
		err := e.admit(c, body)
		if err != nil {
			e.denied(e.op.id)(c.Request().Context(), err)
		}
		return err
	})
	endSpan(span, c.Response().Status)
	duration := time.Since(start)
	if observe := e.config.Observer.Request; observe != nil {
		observe(c.Request().Method, e.route, c.Response().Status, duration)
	}
	if ctx := c.Request().Context(); e.log.Enabled(ctx, slog.LevelDebug) {
		e.log.Debug("a request was answered", "requestId", c.Response().Header().Get(problem.HeaderRequestID),
			"method", c.Request().Method, "path", loggedPath(c), "status", c.Response().Status, "bytes", c.Response().Size, "duration", duration)
	}
	return nil
}

// beginSpan begins the span of a request to the API, if it is traced. A follower has none: it may stay for days.
func (e *endpoint) beginSpan(request *http.Request) (context.Context, *tracing.Span) {
	if e.config.Tracer == nil || e.kind == following || !strings.HasPrefix(e.route, "/v1/") {
		return request.Context(), nil
	}
	return e.config.Tracer.Request(request.Context(), request.Header, e.op.id,
		attribute.String("http.request.method", request.Method), attribute.String("http.route", e.op.path))
}

// endSpan ends a request's span. That of a request without a valid key is dropped: anybody could send such requests,
// each with a traceparent that asks for a span.
func endSpan(span *tracing.Span, status int) {
	if span == nil || status == http.StatusUnauthorized {
		return
	}
	span.Set(attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		span.Fail(strconv.Itoa(status))
	}
	span.End(nil)
}

// admit lets the request of a caller with the right scopes and with room for it pass to the handler.
func (e *endpoint) admit(c echo.Context, body *transfer.ClientBody) (err error) {
	request := c.Request()
	if e.kind == following {
		c.Response().Header().Set("Access-Control-Allow-Origin", "*")
	}
	caller, err := e.authenticate(request, e.op)
	if err != nil {
		return err
	}
	if e.config.Tracer != nil && caller.Known() && !caller.Credential.Operator {
		trace.SpanFromContext(request.Context()).SetAttributes(tracing.Tenant(caller.Tenant))
	}
	underWay, err := e.enter(caller)
	if err != nil {
		return err
	}
	defer underWay.Close()
	defer func() { err = asDenied(err, caller) }()
	if caller.Known() && !caller.Credential.Operator {
		// A delayed request keeps only its place: it still counts towards the tenant's limit.
		defer func() { e.delayRefusal(request.Context(), caller.Credential.Tenant, err) }()
	}
	kind := e.limitedAs()
	pass, err := e.pass(request.Context(), caller, kind)
	if pass != nil || err != nil {
		e.setRateFields(c, caller, kind)
	}
	if err != nil {
		return err
	}
	if pass != nil {
		request = request.WithContext(limits.With(request.Context(), pass))
		c.SetRequest(request)
		defer func() {
			pass.Close()
			if domain.IsCode(err, domain.CodeTooManyRequests) {
				e.setRateFields(c, caller, kind) // an append may have been refused for its events
			}
		}()
	}
	if caller.Known() {
		e.known(request.Context())
		setReadDeadline(c, time.Now().Add(e.timeout+e.stallTimeout))
	}
	unwanted := e.op.route.Operation.RequestBody == nil && !body.Over.Load()
	if unwanted {
		setReadDeadline(c, time.Now().Add(unwantedPatience))
	}
	defer func() { drain(c, body, unwanted, err) }()
	if err := unescapePathParams(c); err != nil {
		return err
	}
	if e.kind == hot {
		return e.handleInTime(c, caller)
	}
	if e.kind != upload {
		request.Body = http.MaxBytesReader(c.Response(), request.Body, e.op.maxBody)
	}
	account := e.budgets.bodies.Account(caller.Credential.Tenant)
	defer account.Close()
	if err := e.op.check(request, pathParams(c), account, e.budgets.checking.Account(caller.Credential.Tenant)); err != nil {
		return err
	}
	if unwanted {
		setReadDeadline(c, time.Time{}) // it was read to its end; from now on the server watches the connection
	}
	if e.kind == plain {
		return e.handleInTime(c, caller)
	}
	return e.handleStream(c, caller)
}

// drain reads the rest of the body of a refused request. Otherwise net/http may reset the connection before the client
// has read the answer. unwanted means that the operation does not use the body.
func drain(c echo.Context, body *transfer.ClientBody, unwanted bool, err error) {
	e, ok := errors.AsType[*domain.Error](err)
	if !ok || !unwanted && !readsOut(c.Request(), e.Code) || body.Over.Load() || c.Request().Header.Get("Expect") != "" {
		return
	}
	if !unwanted && e.Code != domain.CodeTooLarge {
		setReadDeadline(c, time.Now().Add(unreadPatience))
	}
	_, _ = io.CopyN(io.Discard, body, maxDrained)
}

// handleInTime calls the handler with a time limit.
func (e *endpoint) handleInTime(c echo.Context, caller access.Caller) error {
	request := c.Request()
	ctx, cancel := context.WithTimeout(request.Context(), e.timeout)
	defer cancel()
	if e.kind == hot {
		c.SetRequest(request.WithContext(ctx))
		return e.handle(c, caller)
	}
	// Handlers whose large answer must first wait for something find the account in the context.
	room := e.budgets.answers.Account(caller.ShareOf())
	defer room.Close()
	if err := room.Wait(ctx, answerRoom[e.op.id], transfer.RoomPatience); err != nil {
		return err
	}
	c.SetRequest(request.WithContext(fairshare.With(ctx, room)))
	return e.compressor.Run(request.Context(), c, caller.ShareOf(), func() error { return e.run(c, caller) })
}

// handleStream calls the handler as long as its caller's key is valid and, for a follower, the process does not stop.
func (e *endpoint) handleStream(c echo.Context, caller access.Caller) error {
	request := c.Request()
	if e.kind != upload {
		// The request has no more data. From now on the server watches the connection, for as long as the answer takes.
		setReadDeadline(c, time.Time{})
	}
	ctx, stop := access.WhileAllowed(request.Context(), e.config.Keys, e.recheck, caller)
	defer stop()
	if e.kind == following {
		ctx, release := e.ending.Until(ctx)
		defer release()
		c.SetRequest(request.WithContext(ctx))
		return e.handle(c, caller)
	}
	c.SetRequest(request.WithContext(ctx))
	return e.compressor.Run(request.Context(), c, caller.ShareOf(), func() error { return e.handle(c, caller) })
}

// readsOut reports whether to read the whole body of a request refused with code. Bodies refused for their size or for
// lack of room are large. net/http does not read the rest before it closes a connection at the client's request.
func readsOut(request *http.Request, code domain.Code) bool {
	return request.Close || code == domain.CodeTooLarge || code == domain.CodeTooManyRequests || code == domain.CodeOverloaded
}

// setReadDeadline sets the deadline for the rest of a request's body; zero means none.
func setReadDeadline(c echo.Context, deadline time.Time) {
	_ = http.NewResponseController(c.Response()).SetReadDeadline(deadline) // writers of tests may have no deadlines
}

// operations has the operations whose requests the generated code decodes, each in the file of its tag.
type operations struct{ *Server }
