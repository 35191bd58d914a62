package systemtest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// collector is an OTLP collector that keeps the spans in memory.
type collector struct {
	url string

	mu    sync.Mutex
	spans []*v1.Span
	names []string        // of services, as the spans' resources say
	all   bytes.Buffer    // every request as it arrived
	more  chan struct{}   // closed when spans have arrived
	stuck <-chan struct{} // requests wait until it is closed; nil: they do not
}

func newCollector(t *testing.T, stuck <-chan struct{}) *collector {
	c := &collector{more: make(chan struct{}), stuck: stuck}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request collectortrace.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprintf("%s: %v", r.URL.Path, err), http.StatusBadRequest)
		return
	}
	if c.stuck != nil {
		select {
		case <-c.stuck:
		case <-r.Context().Done():
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Write(body)
	for _, resource := range request.ResourceSpans {
		for _, attribute := range resource.Resource.Attributes {
			if attribute.Key == "service.name" {
				c.names = append(c.names, attribute.Value.GetStringValue())
			}
		}
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	close(c.more)
	c.more = make(chan struct{})
}

// await returns the spans of a trace by name, once it has those names. A fold's name has its projection, and a
// delivery's name its transport and group.
func (c *collector) await(t *testing.T, traceID string, names ...string) map[string]*v1.Span {
	t.Helper()
	late := time.After(patience)
	for {
		found := make(map[string]*v1.Span)
		c.mu.Lock()
		for _, span := range c.spans {
			if hex.EncodeToString(span.TraceId) == traceID {
				name := span.Name
				for _, key := range []string{"manifold.projection", "manifold.transport", "manifold.group"} {
					name = strings.TrimSpace(name + " " + attributeOf(span, key))
				}
				found[name] = span
			}
		}
		more := c.more
		c.mu.Unlock()
		if !slices.ContainsFunc(names, func(name string) bool { return found[name] == nil }) {
			return found
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("the trace %s has only the spans %v", traceID, found)
		}
	}
}

func attributeOf(span *v1.Span, key string) string {
	for _, attribute := range span.Attributes {
		if attribute.Key == key {
			if text := attribute.Value.GetStringValue(); text != "" {
				return text
			}
			return fmt.Sprint(attribute.Value.GetIntValue())
		}
	}
	return ""
}

// A request, its commit, its projection and its webhook are one trace. It begins with the request's traceparent, or
// with the request. The spans contain nothing of the events.
func TestTraces(t *testing.T) {
	t.Parallel()
	collected := newCollector(t, nil)
	received := make(chan string, 10)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r.Header.Get("Traceparent") }))
	t.Cleanup(endpoint.Close)
	s := serve(t, pgtest.Database(t), "MANIFOLD_WEBHOOKS_ALLOW=127.0.0.0/8", "MANIFOLD_WEBHOOKS_ALLOW_HTTP=true",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+collected.url, "OTEL_BSP_SCHEDULE_DELAY=20")
	tenant, u := newTenant(t, newUser(t, services{s}, operatorKey), "acme")
	u.must(t, 201, nil, "POST", "/v1/projections", []byte(`{"name": "sums", "source": {"categories": ["a"]}, "initial": {"sum": 0}, "on": {"Counted": "{\"sum\": doc.sum + event.data.n}"}}`))
	u.must(t, 201, nil, "PUT", "/v1/webhooks/hook", []byte(fmt.Sprintf(`{"source": {"categories": ["a"]}, "url": %q}`, endpoint.URL+"/secret-path")))
	appendOne := func(id string, status int, header ...string) {
		t.Helper()
		u.must(t, status, nil, "POST", "/v1/streams/a-1/events", []byte(`[{"id": "`+id+`", "type": "Counted", "data": {"n": 1, "secret": "secret-data"}}]`), header...)
	}

	deliver := []string{"deliver ndjson", "deliver websocket", "deliver websocket work", "deliver http polled"}
	for _, group := range []string{"work", "polled"} {
		u.must(t, 201, nil, "PUT", "/v1/subscriptions/"+group, []byte(`{"source": {"categories": ["a"]}}`))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	address, err := services{s}.address(t.Context(), 0)
	must(err)
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+"/v1/subscribe/categories/a", nil)
	must(err)
	request.Header.Set("Authorization", "Bearer "+u.key)
	following, err := http.DefaultClient.Do(request)
	must(err)
	t.Cleanup(func() { following.Body.Close() })
	ws, _, err := websocket.Dial(t.Context(), "ws://"+address+"/v1/ws", &websocket.DialOptions{HTTPHeader: request.Header})
	must(err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	for _, message := range []string{
		`{"op": "SUBSCRIBE", "id": "1", "subscription": "all", "source": {"categories": ["a"]}}`, `{"op": "SUBSCRIBE", "id": "2", "subscription": "mine", "group": "work"}`,
	} {
		must(ws.Write(t.Context(), websocket.MessageText, []byte(message)))
	}

	given := "0af7651916cd43dd8448eb211c80319c"
	id := *eventID("traces", 1)
	appendOne(id, 201, "Traceparent", "00-"+given+"-b7ad6b7169203331-01")
	appendOne(id, 200, "Traceparent", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") // the same event
	u.must(t, 200, nil, "POST", "/v1/subscriptions/polled/receive", []byte(`{"wait": 10}`))
	spans := collected.await(t, given, append(deliver, "appendToStream", "append", "commit", "fold sums", "webhook")...)
	call, commit := spans["appendToStream"], spans["commit"]
	for _, name := range deliver {
		if d := spans[name]; !bytes.Equal(d.ParentSpanId, call.SpanId) || attributeOf(d, "manifold.events") != "1" || attributeOf(d, "manifold.tenant") != tenant {
			t.Errorf("the span %s is %v", name, d)
		}
	}
	if got := hex.EncodeToString(call.ParentSpanId); got != "b7ad6b7169203331" || call.Kind != v1.Span_SPAN_KIND_SERVER ||
		attributeOf(call, "http.route") != "/v1/streams/{streamId}/events" || attributeOf(call, "http.response.status_code") != "201" ||
		attributeOf(call, "http.request.method") != "POST" || attributeOf(call, "manifold.tenant") != tenant {
		t.Errorf("the request is %v", call)
	}
	for child, parent := range map[string]string{"append": "appendToStream", "commit": "append", "fold sums": "appendToStream", "webhook": "appendToStream"} {
		if !bytes.Equal(spans[child].ParentSpanId, spans[parent].SpanId) {
			t.Errorf("the span %s is not below %s: %v", child, parent, spans[child])
		}
	}
	if call.StartTimeUnixNano > commit.StartTimeUnixNano || commit.EndTimeUnixNano > call.EndTimeUnixNano || attributeOf(commit, "manifold.events") != "1" {
		t.Errorf("the commit is %v, of %v", commit, call)
	}
	if sent := <-received; sent != "00-"+given+"-"+hex.EncodeToString(spans["webhook"].SpanId)+"-01" || attributeOf(spans["webhook"], "manifold.webhook") != "hook" {
		t.Errorf("the webhook got %q, and its span is %v", sent, spans["webhook"])
	}
	var stored client.Event
	u.must(t, 200, &stored, "GET", "/v1/events/"+id, nil)
	if want := `{"traceparent": "00-` + given + "-" + hex.EncodeToString(call.SpanId) + `-01"}`; string(stored.Metadata) != want {
		t.Errorf("the event's metadata is %s, not %s", stored.Metadata, want)
	}

	// Messages of the gateway that append have spans, too. The projection and the groups do not read their events.
	u.must(t, 200, nil, "PUT", "/v1/aggregates/b", []byte(`{"on": {"*": "merge(state, {})"}, "commands": {"Do": {"emit": [{"Done": "{'n': command.n}"}]}}}`))
	for _, sent := range []struct{ op, fields, stream, trace string }{
		{"PUBLISH", `"id": "3", "message": {"topic": "b", "key": "1", "payload": {"secret": "secret-data"}}`, "b-1", "4af7651916cd43dd8448eb211c80319c"},
		{"COMMAND", `"id": "4", "stream": "b-2", "command": "Do", "data": {"n": 1}`, "b-2", "5af7651916cd43dd8448eb211c80319c"},
	} {
		must(ws.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"op": %q, %s, "traceparent": "00-%s-b7ad6b7169203331-01"}`, sent.op, sent.fields, sent.trace)))
		spans := collected.await(t, sent.trace, sent.op+" websocket", "append", "commit")
		span := spans[sent.op+" websocket"]
		if got := hex.EncodeToString(span.ParentSpanId); got != "b7ad6b7169203331" || span.Kind != v1.Span_SPAN_KIND_SERVER ||
			attributeOf(span, "manifold.tenant") != tenant || !bytes.Equal(spans["append"].ParentSpanId, span.SpanId) {
			t.Errorf("the message is %v, and its append %v", span, spans["append"])
		}
		var page client.EventList
		u.must(t, 200, &page, "GET", "/v1/streams/"+sent.stream, nil)
		if want := sent.trace + "-" + hex.EncodeToString(span.SpanId); len(page.Events) != 1 || !strings.Contains(string(page.Events[0].Metadata), want) {
			t.Errorf("the events of %s are %v, want the trace %s", sent.op, page.Events, want)
		}
	}
	must(ws.Write(t.Context(), websocket.MessageText, []byte(`{"op": "COMMAND", "id": "5", "stream": "b-2", "command": "Gone", "data": {}, "traceparent": "00-6af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`)))
	if refused := collected.await(t, "6af7651916cd43dd8448eb211c80319c", "COMMAND websocket")["COMMAND websocket"]; refused.Status.GetCode() == v1.Status_STATUS_CODE_ERROR {
		t.Errorf("a refused command is a failure: %v", refused)
	}

	appendOne(*eventID("traces", 2), 201) // the trace begins here
	own := strings.Split(<-received, "-")
	collected.await(t, own[1], "appendToStream", "append", "commit", "fold sums", "webhook")

	unsampled := "00-2af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	appendOne(*eventID("traces", 3), 201, "Traceparent", unsampled)
	if sent := <-received; sent != unsampled {
		t.Errorf("the webhook of a trace that is not sampled got %q", sent)
	}
	appendOne(*eventID("traces", 4), 201, "Traceparent", "00-3af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	last := s.cmd
	s.end() // exports what is left
	if last.ProcessState.ExitCode() != 0 {
		t.Error("the service ended with", last.ProcessState)
	}
	s.mu.Lock()
	s.cmd = nil
	s.mu.Unlock()
	collected.await(t, "3af7651916cd43dd8448eb211c80319c", "appendToStream")
	collected.mu.Lock()
	defer collected.mu.Unlock()
	for _, secret := range []string{"secret-data", "secret-path", u.key, operatorKey} {
		if bytes.Contains(collected.all.Bytes(), []byte(secret)) {
			t.Errorf("the spans contain %q", secret)
		}
	}
	unsampledID, _ := hex.DecodeString(strings.Split(unsampled, "-")[1])
	for _, span := range collected.spans {
		if bytes.Equal(span.TraceId, unsampledID) {
			t.Errorf("a span was exported of a trace that is not sampled: %v", span)
		}
	}
	if collected.names[0] != "manifold" {
		t.Errorf("the service's name is %q", collected.names[0])
	}
}

// A collector that does not answer delays neither requests nor the end of the process.
func TestTracesToAStuckCollector(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	collected := newCollector(t, free)
	t.Cleanup(func() { close(free) })
	s := serve(t, pgtest.Database(t), "OTEL_EXPORTER_OTLP_ENDPOINT="+collected.url, "OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_BSP_MAX_QUEUE_SIZE=10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=10")
	_, u := newTenant(t, newUser(t, services{s}, operatorKey), "acme")
	for n := range 200 {
		u.must(t, 201, nil, "POST", "/v1/streams/a-1/events", []byte(fmt.Sprintf(`[{"id": %q, "type": "Counted", "data": {}}]`, *eventID("stuck", n))))
	}
	began := time.Now()
	s.end()
	s.mu.Lock()
	s.cmd = nil
	s.mu.Unlock()
	if took := time.Since(began); took > within(20*time.Second) {
		t.Errorf("its end took %s", took)
	}
}
