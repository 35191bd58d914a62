package problem

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

// NotReady answers requests while the process waits for the dependencies of a Server. It serves /livez as usual,
// reports the failing check on /readyz, and answers everything else with 503. why returns the check's message, which
// everyone may read.
func NotReady(check string, why func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		reading := request.Method == http.MethodGet || request.Method == http.MethodHead
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch path := request.URL.Path; {
		case path == "/livez" && reading:
			fmt.Fprintln(w, "ok")
		case path == "/readyz" && reading:
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(openapi.Readiness{Checks: []openapi.ReadinessCheck{{Name: check, Message: why()}}})
		default:
			Refuse(w, request, domain.Errorf(domain.CodeUnavailable, "", "the service is starting: %s", why()))
		}
	})
}

// Answer answers a request that is handled no further.
func Answer(w http.ResponseWriter, request *http.Request, id string, e *domain.Error) {
	if id != "" {
		w.Header().Set(HeaderRequestID, id)
	}
	Write(w, request, id, e)
}

// Refuse answers a request that does not reach a Server, with a problem.
func Refuse(w http.ResponseWriter, request *http.Request, e *domain.Error) {
	Answer(w, request, refusalIDs.Next(), e)
}

// refusalIDs name the requests that do not reach a Server.
var refusalIDs = NewRequestIDs()

// RawRefusal returns a complete HTTP/1.1 response with a problem, after which the connection is closed. It is for
// listeners that read no requests.
func RawRefusal(e *domain.Error) []byte {
	w := rawResponse{header: http.Header{}}
	Answer(&w, &http.Request{Header: http.Header{}}, "", e) // every connection gets the same bytes
	w.header.Set("Connection", "close")
	w.header.Set("Content-Length", strconv.Itoa(w.body.Len()))
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\n", w.status, http.StatusText(w.status))
	_ = w.header.Write(&out) // writes to memory do not fail
	out.WriteString("\r\n")
	out.Write(w.body.Bytes())
	return out.Bytes()
}

// rawResponse collects a response.
type rawResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *rawResponse) Header() http.Header         { return r.header }
func (r *rawResponse) WriteHeader(status int)      { r.status = status }
func (r *rawResponse) Write(p []byte) (int, error) { return r.body.Write(p) }
