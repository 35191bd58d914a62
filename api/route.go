package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// handler answers a request on behalf of a caller.
type handler func(c echo.Context, caller caller) error

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

// drained is how much of an unwanted body is read and discarded.
const drained = 32 << 20

const (
	// unwantedPatience is how long a request may take to send a body that its operation does not use.
	unwantedPatience = time.Second
	// unreadPatience is how long the rest of a body may take after its request was answered. net/http waits for it
	// before it sends the answer, and the connection counts as busy meanwhile.
	unreadPatience = 2 * time.Second
)

// route registers a handler for an operation of the contract, with everything that surrounds it. A GET route also
// answers HEAD, without the body.
func (s *Server) route(method, path string, kind routeKind, handle handler) error {
	op := s.contract.operations[method+" "+echoPath(path)]
	if op == nil {
		return fmt.Errorf("%s %s has a handler, but is not in openapi.yaml", method, path)
	}
	run := func(c echo.Context, body *clientBody) (err error) {
		request := c.Request()
		if kind == following {
			c.Response().Header().Set("Access-Control-Allow-Origin", "*")
		}
		caller, err := s.authenticate(request, op)
		if err != nil {
			return err
		}
		under, err := s.enter(caller)
		if err != nil {
			return err
		}
		defer under.Close()
		if caller.known() && !caller.credential.Operator {
			// A delayed request keeps only its place: it still counts towards the tenant's limit.
			defer func() { s.delayRefusal(request.Context(), caller.tenant, err) }()
		}
		if caller.known() {
			s.known(request.Context())
			setReadDeadline(c, time.Now().Add(s.timeout+s.stallTimeout))
		}
		unwanted := op.route.Operation.RequestBody == nil && !body.over.Load()
		if unwanted {
			setReadDeadline(c, time.Now().Add(unwantedPatience))
		}
		defer func() {
			e, ok := errors.AsType[*domain.Error](err)
			if ok && (unwanted || readsOut(request, e.Code)) && !body.over.Load() && request.Header.Get("Expect") == "" {
				if !unwanted && e.Code != domain.CodeTooLarge {
					setReadDeadline(c, time.Now().Add(unreadPatience))
				}
				// Otherwise net/http may reset the connection before the client has read the answer.
				_, _ = io.CopyN(io.Discard, body, drained)
			}
		}()
		if kind != hot {
			if kind != upload {
				request.Body = http.MaxBytesReader(c.Response(), request.Body, op.maxBody)
			}
			params, err := pathParams(c)
			if err != nil {
				return err
			}
			account := s.budgets.bodies.Account(caller.tenant)
			defer account.Close()
			if err := op.check(request, params, account, s.budgets.checking.Account(caller.tenant)); err != nil {
				return err
			}
			if unwanted {
				setReadDeadline(c, time.Time{}) // it was read to its end; from now on the server watches the connection
			}
		}
		if kind == plain || kind == hot {
			ctx, cancel := context.WithTimeout(request.Context(), s.timeout)
			defer cancel()
			if kind == plain {
				// Handlers whose large answer must first wait for something find the account in the context.
				room := s.budgets.answers.Account(caller.shareOf())
				defer room.Close()
				if err := room.Wait(ctx, answerRoom[op.id], roomPatience); err != nil {
					return err
				}
				ctx = fairshare.With(ctx, room)
			}
			c.SetRequest(request.WithContext(ctx))
		} else {
			if kind != upload {
				// The request has no more data. From now on the server watches the connection, for as long as the
				// answer takes.
				setReadDeadline(c, time.Time{})
			}
			ctx, stop := s.whileAllowed(request.Context(), caller)
			defer stop()
			if kind == following {
				var release func()
				ctx, release = s.untilStop(ctx)
				defer release()
			}
			c.SetRequest(request.WithContext(ctx))
		}
		if kind == hot || kind == following {
			return handle(c, caller)
		}
		return s.compressed(request.Context(), c, caller.shareOf(), func() error { return handle(c, caller) })
	}
	route := echoPath(path)
	answer := func(c echo.Context) error {
		start := time.Now()
		request := c.Request()
		body := &clientBody{ReadCloser: request.Body}
		body.over.Store(request.ContentLength == 0)
		// A copy: net/http checks its own request's body to decide whether to wait for the rest.
		request = request.WithContext(request.Context())
		request.Body = body
		c.SetRequest(request)
		s.guard(c, func(c echo.Context) error {
			// The deadline is set before an error is answered: writing a long answer sends it, and waits for the body.
			// A WebSocket's connection has its own deadlines.
			defer func() {
				if !body.over.Load() && c.Response().Status != http.StatusSwitchingProtocols {
					setReadDeadline(c, time.Now().Add(unreadPatience))
				}
			}()
			return run(c, body)
		})
		duration := time.Since(start)
		if observe := s.config.Observer.Request; observe != nil {
			observe(c.Request().Method, route, c.Response().Status, duration)
		}
		if ctx := c.Request().Context(); s.log.Enabled(ctx, slog.LevelDebug) {
			s.log.Debug("a request was answered", "requestId", c.Response().Header().Get(headerRequestID),
				"method", c.Request().Method, "path", c.Request().URL.Path, "status", c.Response().Status, "bytes", c.Response().Size, "duration", duration)
		}
		return nil
	}
	s.echo.Add(method, route, answer)
	if method == http.MethodGet {
		s.echo.Add(http.MethodHead, route, answer)
	}
	return nil
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

// registrar registers generated handlers through route. The generated code calls only the four methods that the
// contract uses. The others complete the interface.
type registrar struct {
	add func(method, path string, kind routeKind, handler handler)
}

func (r registrar) register(method, path string, h echo.HandlerFunc) *echo.Route {
	r.add(method, openAPIPath(path), plain, func(c echo.Context, caller caller) error {
		c.SetRequest(c.Request().WithContext(withCaller(c.Request().Context(), caller)))
		return h(c)
	})
	return nil
}

func (r registrar) CONNECT(path string, h echo.HandlerFunc, _ ...echo.MiddlewareFunc) *echo.Route {
	return r.register(http.MethodConnect, path, h)
}
func (r registrar) DELETE(path string, h echo.HandlerFunc, _ ...echo.MiddlewareFunc) *echo.Route {
	return r.register(http.MethodDelete, path, h)
}
func (r registrar) GET(path string, h echo.HandlerFunc, _ ...echo.MiddlewareFunc) *echo.Route {
	return r.register(http.MethodGet, path, h)
}
func (r registrar) HEAD(path string, h echo.HandlerFunc, _ ...echo.MiddlewareFunc) *echo.Route {
	return r.register(http.MethodHead, path, h)
}
func (r registrar) OPTIONS(path string, h echo.HandlerFunc, _ ...echo.MiddlewareFunc) *echo.Route {
	return r.register(http.MethodOptions, path, h)
}
func (r registrar) PATCH(path string, h echo.HandlerFunc, _ ...echo.MiddlewareFunc) *echo.Route {
	return r.register(http.MethodPatch, path, h)
}
func (r registrar) POST(path string, h echo.HandlerFunc, _ ...echo.MiddlewareFunc) *echo.Route {
	return r.register(http.MethodPost, path, h)
}
func (r registrar) PUT(path string, h echo.HandlerFunc, _ ...echo.MiddlewareFunc) *echo.Route {
	return r.register(http.MethodPut, path, h)
}
func (r registrar) TRACE(path string, h echo.HandlerFunc, _ ...echo.MiddlewareFunc) *echo.Route {
	return r.register(http.MethodTrace, path, h)
}

var _ openapi.EchoRouter = registrar{}

// generated has the handlers that package openapi requires, each in the file of its tag.
type generated struct{ *Server }

var _ openapi.StrictServerInterface = generated{}
