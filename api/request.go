package api

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/domain"
)

const headerRequestID = "X-Request-Id"

// unknownPatience is how long the body of an unknown client's request may take. Known clients have more time.
const unknownPatience = 5 * time.Second

// serve wraps every request, even those without a route. It gives the request an id, limits its time on the connection,
// and normalizes the path for routing.
func (s *Server) serve(w http.ResponseWriter, request *http.Request) {
	id := request.Header.Get(headerRequestID)
	if !plainToken(id) {
		id = s.requestIDs.next()
	}
	header := w.Header()
	header.Set(headerRequestID, id)
	header.Set("X-Content-Type-Options", "nosniff")
	// A missing body or an unread answer must not occupy a goroutine indefinitely. Streams extend the deadlines as they
	// progress. Only writers of tests have no deadlines.
	control := http.NewResponseController(w)
	now := time.Now()
	_ = control.SetReadDeadline(now.Add(min(unknownPatience, s.timeout+s.stallTimeout)))
	_ = control.SetWriteDeadline(now.Add(s.timeout + s.stallTimeout))
	canonicalPath(request.URL)
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
			s.log.Error("a request panicked", "requestId", c.Response().Header().Get(headerRequestID), "method", c.Request().Method, "route", c.Path(), "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			if c.Response().Committed {
				panic(http.ErrAbortHandler)
			}
			s.writeProblem(c.Response(), c.Request(), c.Response().Header().Get(headerRequestID), domain.Errorf(codeInternal, "", "the service's log has the cause under this request's id"))
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

// pathParams returns the route's parameters, unescaped.
func pathParams(c echo.Context) (map[string]string, error) {
	names := c.ParamNames()
	params := make(map[string]string, len(names))
	for _, name := range names {
		value, err := pathParam(c, name)
		if err != nil {
			return nil, err
		}
		params[name] = value
	}
	return params, nil
}

func pathParam(c echo.Context, name string) (string, error) {
	value := c.Param(name)
	if strings.IndexByte(value, '%') < 0 {
		return value, nil
	}
	value, err := url.PathUnescape(value)
	if err != nil {
		return "", domain.Errorf(domain.CodeInvalidRequest, "path "+name, "invalid percent-encoding")
	}
	return value, nil
}

// openAPIPath turns /a/:b into /a/{b}.
func openAPIPath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, ":"); ok {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

// plainToken reports whether a client's request id is safe to copy into answers and logs.
func plainToken(text string) bool {
	if text == "" || len(text) > 64 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

// requestIDs creates request ids: a random word for this process, and a number.
type requestIDs struct {
	process string
	last    *atomic.Uint64
}

func newRequestIDs() requestIDs {
	var word [5]byte
	rand.Read(word[:])
	return requestIDs{process: hex.EncodeToString(word[:]) + "-", last: new(atomic.Uint64)}
}

func (r requestIDs) next() string { return r.process + strconv.FormatUint(r.last.Add(1), 36) }

// guarded calls run outside of the request's goroutine, where a panic would end the process.
func guarded(run func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return run()
}
