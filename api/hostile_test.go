package api_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/manifold-es/manifold/domain"
)

// rawRequest is a request as the bytes on the connection.
type rawRequest struct {
	method, target string
	headers        []string // "Name: value"
	body           string   // with its own framing, which headers describe
}

// raw sends a request that no Go client would send, and returns the status and the header of the answer; 0 means no
// answer.
func (w *world) raw(t testing.TB, r rawRequest) (int, http.Header) {
	t.Helper()
	conn := w.tcp(t)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	if _, err := io.WriteString(conn, r.text()); err != nil {
		t.Fatalf("%s %s: %v", r.method, r.target, err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.method})
	if err != nil {
		return 0, nil
	}
	return response.StatusCode, response.Header
}

func (w *world) tcp(t testing.TB) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	must(t, err)
	return conn
}

func (r rawRequest) text() string {
	return r.method + " " + r.target + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(r.headers, "\r\n") + "\r\n\r\n" + r.body
}

// Texts that no parameter may contain, encoded for a path or a query.
var unstorable = []string{"%00", "a%00b", "%ff", "a%ed%a0%80b", "%c0%80"}

// Nothing that a client sends in a path, a query, a header, a page token or body chunks causes a fault of the service,
// for any operation of the contract.
func TestNoTextIsAFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.append("order-1001", 3)
	a.send("PUT", "/v1/projections/order-summary", object{"on": object{"*": "doc"}}).want(201)
	a.send("PUT", "/v1/subscriptions/mailer", object{}).want(201)
	a.send("PUT", "/v1/aggregates/order", object{"on": object{"*": "state"}}).want(200)
	spec := loadContract(t)
	operations := 0
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			operations++
			keys := []string{a.key}
			if scopes := fmt.Sprint(op.Extensions["x-scopes"]); strings.Contains(scopes, "operator") {
				keys = append(keys, operatorKey)
			}
			for _, attack := range attacks(method, path, item, op) {
				for _, key := range keys {
					attack := attack
					attack.headers = append([]string{"Authorization: Bearer " + key}, attack.headers...)
					status, header := w.raw(t, attack)
					if status == 0 || status >= 500 && (status != 503 || header.Get("Retry-After") == "") {
						t.Errorf("%s: %s %s with %q is answered %d", op.OperationID, attack.method, attack.target, attack.headers[1:], status)
					}
				}
			}
		}
	}
	if operations < 100 {
		t.Errorf("there are %d operations", operations)
	}
}

// attacks returns requests for an operation with one error each.
func attacks(method, path string, item *openapi3.PathItem, op *openapi3.Operation) []rawRequest {
	var parameters []*openapi3.Parameter
	for _, some := range []openapi3.Parameters{item.Parameters, op.Parameters} {
		for _, p := range some {
			parameters = append(parameters, p.Value)
		}
	}
	var body string
	var headers []string
	if op.RequestBody != nil {
		body, headers = "{}", []string{"Content-Type: application/json"}
		if op.RequestBody.Value.Content.Get("application/x-ndjson") != nil && op.OperationID == "importEvents" {
			body, headers = "{}\n", []string{"Content-Type: application/x-ndjson"}
		}
		headers = append(headers, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	// target returns the operation's target, with the given value for one parameter.
	target := func(named *openapi3.Parameter, value string) string {
		target, query := path, ""
		for _, p := range parameters {
			text := url.QueryEscape(exampleOf(p))
			if p == named {
				text = value
			}
			switch {
			case p.In == openapi3.ParameterInPath:
				target = strings.ReplaceAll(target, "{"+p.Name+"}", text)
			case p.In == openapi3.ParameterInQuery && (p.Required || p == named):
				query += "&" + p.Name + "=" + text
			}
		}
		if query != "" {
			target += "?" + query[1:]
		}
		return target
	}
	var all []rawRequest
	for _, p := range parameters {
		values := unstorable
		if p.Name == "pageToken" {
			for _, raw := range []string{"n\x00", "na\x00b", "n\xff", "n", "\x00", "\xff", "n" + strings.Repeat("9", 40), "n-1", "n\xed\xa0\x80"} {
				values = append(values, base64.RawURLEncoding.EncodeToString([]byte(raw)))
			}
		}
		switch p.In {
		case openapi3.ParameterInHeader:
			for _, value := range []string{"\xff", "a\xed\xa0\x80", "%00", strings.Repeat("9", 60), "\"\xff\""} {
				all = append(all, rawRequest{method, target(nil, ""), append([]string{p.Name + ": " + value}, headers...), body})
			}
		default:
			for _, value := range values {
				all = append(all, rawRequest{method, target(p, value), headers, body})
			}
		}
	}
	for _, query := range []string{"%00=1", "%ff=%ff", "a=%zz"} {
		separator := "?"
		if strings.Contains(target(nil, ""), "?") {
			separator = "&"
		}
		all = append(all, rawRequest{method, target(nil, "") + separator + query, headers, body})
	}
	kind := "Content-Type: application/json"
	if op.OperationID == "importEvents" {
		kind = "Content-Type: application/x-ndjson"
	}
	for _, chunks := range []string{"zz\r\n{}\r\n0\r\n\r\n", "2\r\n{}XX\r\n0\r\n\r\n", "fffffffffffffffff\r\n", "\r\n\r\n", "2\n{}\r\n0\r\n\r\n", "2;\xff=\x00\r\n{}\r\n0\r\n\xff\x00\r\n\r\n"} {
		all = append(all, rawRequest{method, target(nil, ""), []string{kind, "Transfer-Encoding: chunked"}, chunks})
	}
	for _, header := range []string{"Traceparent: \xff", "X-Request-Id: \xff", "Accept: \xff/\xff", "Accept-Encoding: \xff;q=\xff", "Content-Type: \xff", "Content-Encoding: \xff", "If-None-Match: \xff", "Origin: \xff", "Last-Event-Id: \xff"} {
		all = append(all, rawRequest{method, target(nil, ""), append([]string{header}, headers...), body})
	}
	return all
}

// exampleOf returns a valid value of a parameter.
func exampleOf(p *openapi3.Parameter) string {
	for _, example := range append([]any{p.Example}, p.Schema.Value.Examples...) {
		if example != nil {
			if parts, ok := example.([]any); ok {
				example = parts[0]
			}
			return fmt.Sprint(example)
		}
	}
	if p.Schema.Value.Type.Is("integer") {
		return "1"
	}
	return "x"
}

// A request must have exactly one credential, so that a proxy cannot see another caller than the service does.
func TestOneKeyARequest(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a, other := w.tenant("acme"), w.tenant("other")
	a.append("order-1", 1)
	ticket := a.post("/v1/tickets", nil).want(201).text("ticket")
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
	for _, c := range []struct {
		what, target string
		headers      []string
	}{
		{"two keys", "/v1/streams/order-1", []string{"Authorization: Bearer " + a.key, "Authorization: Bearer " + other.key}},
		{"the same key twice", "/v1/streams/order-1", []string{"Authorization: Bearer " + a.key, "authorization: Bearer " + a.key}},
		{"a key and an empty one", "/v1/streams/order-1", []string{"Authorization: Bearer " + a.key, "Authorization:"}},
		{"a key and a ticket", "/v1/subscribe/$all?ticket=" + ticket, []string{"Authorization: Bearer " + a.key}},
		{"two tickets", "/v1/subscribe/$all?ticket=" + ticket + "&ticket=x", nil},
		{"two keys of a socket", "/v1/ws", append([]string{"Authorization: Bearer " + a.key, "Authorization: Bearer " + other.key}, upgrade...)},
		{"a key and a ticket of a socket", "/v1/ws?ticket=" + ticket, append([]string{"Authorization: Bearer " + a.key}, upgrade...)},
		{"an empty key and a ticket of a socket", "/v1/ws?ticket=" + ticket, append([]string{"Authorization:"}, upgrade...)},
		{"two keys of a follower's socket", "/v1/subscribe/$all", append([]string{"Authorization: Bearer " + a.key, "Authorization: Bearer " + other.key}, upgrade...)},
	} {
		if status, _ := w.raw(t, rawRequest{"GET", c.target, c.headers, ""}); status != 400 {
			t.Errorf("%s: it is answered %d", c.what, status)
		}
	}
	if status, _ := w.raw(t, rawRequest{"POST", "/v1/streams/order-1/events", []string{"Authorization: Bearer " + a.key, "Authorization: Bearer " + other.key, "Content-Type: application/json", "Content-Length: 26"}, `[{"type":"T","data":"a"}]` + "\n"}); status != 400 {
		t.Errorf("an append with two keys is answered %d", status)
	}
	a.get("/v1/streams/order-1", "Authorization", "Bearer "+other.key).wantProblem(404, domain.CodeNotFound, "")
}
