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

// unknownPatience is how long the body of a request may take whose client is not known. A known client has longer.
const unknownPatience = 5 * time.Second

// serve is around every request, also those that no route answers: it names the request, bounds its time on the
// connection, and brings its path into the one form that routes are found by.
func (s *Server) serve(w http.ResponseWriter, request *http.Request) {
	id := request.Header.Get(headerRequestID)
	if !plainToken(id) {
		id = s.requestIDs.next()
	}
	header := w.Header()
	header.Set(headerRequestID, id)
	header.Set("X-Content-Type-Options", "nosniff")
	// A body that does not come, or an answer that is not read, must not hold a goroutine for ever. Streams push the
	// deadlines on as they go. A writer that knows no deadlines is a test's.
	control := http.NewResponseController(w)
	now := time.Now()
	_ = control.SetReadDeadline(now.Add(min(unknownPatience, s.timeout+s.stallTimeout)))
	_ = control.SetWriteDeadline(now.Add(s.timeout + s.stallTimeout))
	canonicalPath(request.URL)
	s.echo.ServeHTTP(w, request)
}

// guard runs a request and answers its error or panic, where it has one.
func (s *Server) guard(c echo.Context, run echo.HandlerFunc) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			panic(cause) // net/http cuts the connection
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

// canonicalPath makes the path's escaped form explicit and the same for all spellings, %24all and $all: routes are found
// by it, and parameters are unescaped exactly once.
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
		return "", domain.Errorf(domain.CodeInvalidRequest, "path "+name, "it is not percent-encoded as it must be")
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

// plainToken says whether a client's request id can be taken over into answers and logs.
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

// requestIDs names requests: a random word for this process, and a number.
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

// guarded runs what is done beside the request's own goroutine, where a panic would end the process.
func guarded(run func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return run()
}
