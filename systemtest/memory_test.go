package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// These are the limits of the flooded service in MiB, and its process's maximum by the formula in
// docs/guides/operations.md.
const (
	floodedQueue, floodedTenantQueue   = 64, 16
	floodedAnswer, floodedTenantAnswer = 64, 24
	floodedGroups, floodedTail         = 16, 1
	floodedFolds                       = 2
	floodedCeiling                     = 200 + 2*(floodedQueue+floodedAnswer+floodedGroups+16*floodedTail) + 150*floodedFolds
)

// Whatever several tenants and clients without a key send to any operation, the process stays below the ceiling that
// follows from its settings, and serves another tenant.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	mib := func(n int) string { return strconv.Itoa(n) + "MiB" }
	s := serve(t, pgtest.Database(t),
		"MANIFOLD_LIMITS_QUEUE_BYTES="+mib(floodedQueue), "MANIFOLD_LIMITS_TENANT_QUEUE_BYTES="+mib(floodedTenantQueue),
		"MANIFOLD_LIMITS_ANSWER_BYTES="+mib(floodedAnswer), "MANIFOLD_LIMITS_TENANT_ANSWER_BYTES="+mib(floodedTenantAnswer),
		"MANIFOLD_LIMITS_GROUP_BYTES="+mib(floodedGroups), "MANIFOLD_LIMITS_TAIL_BYTES="+mib(floodedTail),
		"MANIFOLD_LIMITS_FOLDS="+strconv.Itoa(floodedFolds), "MANIFOLD_LIMITS_TENANT_FOLDS=1",
	)
	f := newFlood(t, s)
	var keys []string
	for i := range 3 {
		keys = append(keys, f.tenant(fmt.Sprintf("hostile-%d", i)))
	}
	quiet := f.tenant("quiet")
	keys = append(keys, "") // who has none
	large := `[{"type":"Happened","data":"` + strings.Repeat("x", 1_000_000) + `"}]`
	for _, key := range keys[:3] {
		for range 12 {
			f.call(key, "POST", "/v1/streams/order-1001/events", "application/json", large)
		}
		f.call(key, "PUT", "/v1/aggregates/order", "application/json", `{"on":{"*":"state"}}`)
		f.call(key, "PUT", "/v1/projections/order-summary", "application/json", `{"on":{"*":"event.data"},"initial":{}}`)
		f.call(key, "PUT", "/v1/subscriptions/mailer", "application/json", `{}`)
	}
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				if n < 10 {
					t.Errorf("the quiet tenant has appended %d times", n)
				}
				return
			default:
			}
			if status := f.call(quiet, "POST", "/v1/streams/order-1/events", "application/json", `[{"type":"Happened","data":1}]`); status != 201 {
				t.Errorf("the quiet tenant's append is answered %d", status)
			}
		}
	})
	text, err := os.ReadFile(filepath.Join("..", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	spec, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	operations := 0
	var all sync.WaitGroup
	atOnce := make(chan struct{}, 48)
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			operations++
			times := 1
			if op.RequestBody != nil && bodyLimit(op) > 1<<20 {
				times = 3
			}
			for _, key := range keys {
				for range times {
					atOnce <- struct{}{}
					all.Go(func() {
						f.attack(key, method, path, item, op)
						<-atOnce
					})
				}
			}
		}
	}
	all.Wait()
	close(stop)
	beside.Wait()
	if operations < 100 || f.refused.Load() == 0 {
		t.Errorf("%d operations were flooded, and %d requests refused for want of room", operations, f.refused.Load())
	}
	if peak := peakMemory(t, s.cmd.Process.Pid); peak > floodedCeiling {
		t.Errorf("the process had %d MiB of memory; %d is the ceiling", peak, floodedCeiling)
	} else {
		t.Logf("the process had %d of %d MiB of memory; %d requests were refused for want of room", peak, floodedCeiling, f.refused.Load())
	}
}

// peakMemory is the most that a process has had, in MiB.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("this system does not say how much memory a process has: %v", err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}

// flood is many requests to one service.
type flood struct {
	t       *testing.T
	address string
	client  *http.Client
	refused atomic.Int64
}

func newFlood(t *testing.T, s *service) *flood {
	address, _ := s.state()
	f := &flood{t: t, address: address, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

// tenant creates a tenant, and returns a key with all scopes.
func (f *flood) tenant(name string) string {
	f.t.Helper()
	var made struct{ ID, Key string }
	for _, c := range [][2]string{{"/v1/tenants", `{"name":"` + name + `"}`}, {"/v1/tenants/%s/keys", `{"name":"all","scopes":["events:append","events:read","events:consume","documents:read","projections:write","subscriptions:write","tenant:admin"]}`}} {
		path := c[0]
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, made.ID)
		}
		response := f.send(operatorKey, "POST", path, "application/json", strings.NewReader(c[1]))
		if response == nil {
			f.t.Fatalf("%s is not answered", path)
		}
		answer, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err == nil {
			err = json.Unmarshal(answer, &made)
		}
		if err != nil || response.StatusCode != 201 {
			f.t.Fatalf("%s is answered %d %s: %v", path, response.StatusCode, answer, err)
		}
	}
	return made.Key
}

// call sends a request, reads its answer, and returns the status; 0: the connection was cut.
func (f *flood) call(key, method, path, kind, body string) int {
	response := f.send(key, method, path, kind, strings.NewReader(body))
	if response == nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	f.judge(response.StatusCode, response.Header, method+" "+path)
	return response.StatusCode
}

func (f *flood) send(key, method, path, kind string, body io.Reader) *http.Response {
	request, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+f.address+path, body)
	if err != nil {
		f.t.Errorf("%s %s: %v", method, path, err)
		return nil
	}
	request.Header.Set("Content-Type", kind)
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := f.client.Do(request)
	if err != nil {
		return nil
	}
	return response
}

// judge checks an answer: no request may cause a 5xx.
func (f *flood) judge(status int, header http.Header, what string) {
	if status == 429 || status == 503 {
		f.refused.Add(1)
	}
	if status >= 500 && (status != 503 || header.Get("Retry-After") == "") {
		f.t.Errorf("%s is answered %d", what, status)
	}
}

// attack calls one operation in the most costly ways: with the largest body, with half of one, and without reading
// the answer.
func (f *flood) attack(key, method, path string, item *openapi3.PathItem, op *openapi3.Operation) {
	target := path
	query := "?"
	for _, ref := range append(append(openapi3.Parameters{}, item.Parameters...), op.Parameters...) {
		p := ref.Value
		value := "1"
		for _, example := range append([]any{p.Example}, p.Schema.Value.Examples...) {
			if example != nil && value == "1" {
				value = strings.Trim(fmt.Sprint(example), "[]")
			}
		}
		switch {
		case p.In == openapi3.ParameterInPath:
			target = strings.ReplaceAll(target, "{"+p.Name+"}", value)
		case p.Name == "pageSize" || p.Name == "count" && p.Schema.Value.Type.Is("integer"):
			query += p.Name + "=1000&"
		case p.In == openapi3.ParameterInQuery && p.Required:
			query += p.Name + "=" + value + "&"
		}
	}
	target += strings.TrimRight(query, "?&")
	if op.RequestBody == nil {
		f.unread(key, method, target)
		return
	}
	limit, kind := bodyLimit(op), "application/json"
	if op.OperationID == "importEvents" {
		kind = "application/x-ndjson"
	}
	half := f.open(key, method, target, kind, limit, limit/2)
	if half != nil {
		defer half.Close()
	}
	// Values that take much more memory than text.
	var body bytes.Buffer
	body.WriteString(`{"on":{"*":"state"},"initial":[`)
	for body.Len() < limit-16 {
		body.WriteString(`{"":0},`)
	}
	body.WriteString(`0]}`)
	f.call(key, method, target, kind, body.String())
}

// bodyLimit is how large the body of an operation may be; of an import, how much is sent here.
func bodyLimit(op *openapi3.Operation) int {
	switch op.OperationID {
	case "append", "appendToStream", "publish", "importEvents":
		return 8 << 20
	}
	if given, ok := op.RequestBody.Value.Extensions["x-max-body"].(float64); ok {
		return int(given)
	}
	return 256 << 10
}

// open sends the beginning of a request with a body of length bytes, of which so many come.
func (f *flood) open(key, method, target, kind string, length, come int) net.Conn {
	conn, err := net.Dial("tcp", f.address)
	if err != nil {
		return nil
	}
	authorization := ""
	if key != "" {
		authorization = "Authorization: Bearer " + key + "\r\n"
	}
	framing := ""
	if length > 0 {
		framing = fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n", kind, length)
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\n%sAccept: application/x-ndjson\r\nAccept-Encoding: zstd\r\n%s\r\n", method, target, authorization, framing)
	_, _ = io.WriteString(conn, strings.Repeat(" ", come)) // it may be refused before
	return conn
}

// unread sends several requests, and reads only the beginning of the answers.
func (f *flood) unread(key, method, target string) {
	var open []net.Conn
	for range 4 {
		if conn := f.open(key, method, target, "", 0, 0); conn != nil {
			open = append(open, conn)
		}
	}
	for _, conn := range open {
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		start := make([]byte, 12)
		if _, err := io.ReadFull(conn, start); err == nil {
			status, _ := strconv.Atoi(string(start[9:]))
			f.judge(status, http.Header{"Retry-After": {"unknown"}}, method+" "+target)
		}
		conn.Close()
	}
}
