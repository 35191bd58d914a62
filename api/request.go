package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/domain"
)

// unknownPatience is how long the body of an unknown client's request may take. Known clients have more time.
const unknownPatience = 5 * time.Second

// serve wraps every request, even those without a route. It gives the request an id, limits its time on the connection,
// and normalizes the path for routing.
func (s *Server) serve(w http.ResponseWriter, request *http.Request) {
	id := request.Header.Get(problem.HeaderRequestID)
	if !problem.PlainToken(id) {
		id = s.requestIDs.Next()
	}
	header := w.Header()
	header.Set(problem.HeaderRequestID, id)
	header.Set("X-Content-Type-Options", "nosniff")
	// A missing body or an unread answer must not occupy a goroutine indefinitely. Streams extend the deadlines as they
	// progress. Only writers of tests have no deadlines.
	control := http.NewResponseController(w)
	now := time.Now()
	_ = control.SetReadDeadline(now.Add(min(unknownPatience, s.timeout+s.stallTimeout)))
	_ = control.SetWriteDeadline(now.Add(s.timeout + s.stallTimeout))
	canonicalPath(request.URL)
	request = routeAudit(request)
	s.echo.ServeHTTP(w, request)
}

// guard runs a request and answers with its error or panic, if any.
func (s *Server) guard(c echo.Context, run echo.HandlerFunc) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			panic(cause) // net/http closes the connection
		default:
			s.log.Error("a request panicked", "requestId", c.Response().Header().Get(problem.HeaderRequestID), "method", c.Request().Method, "route", c.Path(), "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			if c.Response().Committed {
				panic(http.ErrAbortHandler)
			}
			problem.Write(c.Response(), c.Request(), c.Response().Header().Get(problem.HeaderRequestID), domain.Errorf(problem.CodeInternal, "", "the service's log has the cause under this request's id"))
		}
	}()
	if err := run(c); err != nil {
		s.fail(c, err)
	}
}

// canonicalPath makes the escaped form of the path explicit, and the same for all spellings, such as %24all and $all.
// Routes are matched against it, and parameters are unescaped exactly once.
func canonicalPath(u *url.URL) {
	escaped := u.EscapedPath()
	if strings.IndexByte(escaped, '%') >= 0 {
		parts := strings.Split(escaped, "/")
		for i, part := range parts {
			if plain, err := url.PathUnescape(part); err == nil {
				parts[i] = url.PathEscape(plain)
			}
		}
		escaped = strings.Join(parts, "/")
	}
	u.RawPath = escaped
}

// unescapePathParams unescapes the route's parameters, so that c.Param returns what the client means.
func unescapePathParams(c echo.Context) error {
	values := c.ParamValues()
	for i, value := range values {
		plain, err := url.PathUnescape(value)
		if err != nil {
			return domain.Errorf(domain.CodeInvalidRequest, "path "+c.ParamNames()[i], "invalid percent-encoding")
		}
		values[i] = plain
	}
	return nil
}

// pathParams returns the route's parameters by name.
func pathParams(c echo.Context) map[string]string {
	params := make(map[string]string)
	for i, name := range c.ParamNames() {
		params[name] = c.ParamValues()[i]
	}
	return params
}

// loggedPath returns a request's path for logs, which never have a person's id.
func loggedPath(c echo.Context) string {
	if c.Param(subjectParam) != "" {
		return c.Path()
	}
	return c.Request().URL.Path
}

// fail answers a request with an error. If the answer has already begun, it cuts the connection instead, so that no
// client mistakes a part for the whole.
func (s *Server) fail(c echo.Context, err error) {
	request, response := c.Request(), c.Response()
	requestID := response.Header().Get(problem.HeaderRequestID)
	if cause := context.Cause(request.Context()); problem.IsRefusal(cause) && errors.Is(err, context.Canceled) {
		err = cause // the key was revoked meanwhile, or its tenant suspended
	} else if cause != nil && errors.Is(err, context.Canceled) {
		// The client has disconnected, or the service is stopping: nobody will read an answer.
		s.log.Debug("a request was cancelled", "requestId", requestID, "path", loggedPath(c))
		if response.Committed {
			panic(http.ErrAbortHandler)
		}
		problem.Write(response, request, requestID, domain.Errorf(domain.CodeUnavailable, "", "the request was cancelled before it ended"))
		return
	}
	e, fault := problem.Of(err)
	switch {
	case fault:
		s.log.Error("a request failed", "requestId", requestID, "method", request.Method, "route", c.Path(), "error", err)
	case e.Code == domain.CodeUnavailable || e.Code == domain.CodeOutcomeUnknown:
		// Clients only learn that a database is unavailable. The reason is for the operator.
		s.log.Warn("a database did not serve a request", "requestId", requestID, "route", c.Path(), "error", err)
	}
	if response.Committed {
		if !fault {
			s.log.Log(request.Context(), slog.LevelWarn, "an answer was cut off", "requestId", requestID, "route", c.Path(), "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	problem.Write(response, request, requestID, e)
}
