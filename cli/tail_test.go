package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/manifold-es/manifold/client"
)

// frameOf is an event as a follower is sent it.
func frameOf(position int64) string {
	return fmt.Sprintf(`{"event":{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","stream":"order-7","version":%d,"position":%[1]d,"type":"Placed","data":{"n":%[1]d},"recordedAt":"2026-03-01T09:30:00.1Z"}}`+"\n", position)
}

// A broken connection is made again after what was shown. Half a line, a refusal for lack of room, an end, and
// skipped events must not lose or repeat anything.
func TestTailGoesOn(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		call := calls.Add(1)
		if from, want := request.URL.Query().Get("from"), []string{"start", "3", "3", "11"}[min(call, 4)-1]; from != want {
			t.Errorf("call %d begins at %s, not at %s", call, from, want)
		}
		if call == 2 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		text := map[int32]string{
			1: frameOf(1) + frameOf(2) + frameOf(3)[:100],
			3: frameOf(3) + `{"checkpoint":{"position":10}}` + "\n" + `{"some":{"newer":"frame"}}` + "\n" + `{"gap":{"from":11,"to":14,"categories":["order","user"]}}` + "\n",
			4: frameOf(11) + frameOf(12) + `{"caughtUp":{"position":12}}` + "\n" + frameOf(13),
		}[call]
		if _, err := io.WriteString(w, text); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if call == 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(service.Close)
	environ := []string{"MANIFOLD_URL=" + service.URL, "MANIFOLD_KEY=k"}
	o := run(t, environ, nil, "tail", "--from", "start", "--until-caught-up")
	var got []string
	for line := range strings.Lines(o.out) {
		position, rest, _ := strings.Cut(line, "  ")
		got = append(got, position)
		if want := fmt.Sprintf("  order-7  Placed  {\"n\":%s}\n", position); !strings.HasSuffix(rest, want) {
			t.Errorf("a line is %q", line)
		}
	}
	if o.code != 0 || strings.Join(got, " ") != "1 2 3 11 12" {
		t.Errorf("it shows %s: %+v", got, o)
	}
	if strings.Count(o.err, "the connection broke") != 2 || strings.Count(o.err, "reconnected") != 2 {
		t.Errorf("it says %s", o.err)
	}
	if !strings.Contains(o.err, "between positions 11 and 14, events of order, user were removed by retention\n") {
		t.Errorf("it says nothing of what is gone: %s", o.err)
	}
}

// A log, a category and a stream are followed as is asked, and each format shows what it should.
func TestTailAsks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		path string
		want string
	}{
		{nil, "/v1/subscribe/$all?from=end", "7  "},
		{[]string{"$all", "--from", "7", "--json"}, "/v1/subscribe/$all?from=7", strings.TrimSuffix(strings.TrimPrefix(frameOf(7), `{"event":`), "}\n") + "\n"},
		{[]string{"$all", "--from", "7", "--format", "json"}, "/v1/subscribe/$all?from=7", `{"id":"`},
		{[]string{"$all", "--from", "7", "-o", "yaml"}, "/v1/subscribe/$all?from=7", "id: \"0190d3a4-5b6c-7def-8123-456789abcde0\"\n"},
		{[]string{"order", "--types", "Placed,Sent"}, "/v1/subscribe/categories/order?from=end&types=Placed,Sent", "  order-7  Placed  {\"n\":7}\n"},
		{[]string{"order-7", "--filter", "event.data.n > 1", "--format", "pretty"}, "/v1/subscribe/streams/order-7?from=end&filter=event.data.n > 1",
			"  order-7  Placed\n    version 7, id 0190d3a4-5b6c-7def-8123-456789abcde0\n    {\n      \"n\": 7\n    }\n"},
	} {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			query := strings.NewReplacer("%20", " ", "+", " ", "%2C", ",", "%3E", ">").Replace(request.URL.RawQuery)
			if got := request.URL.Path + "?" + query; got != c.path || request.Header.Get("Accept") != "application/x-ndjson" {
				t.Errorf("%v asks for %s as %s, not for %s", c.args, got, request.Header.Get("Accept"), c.path)
			}
			_, _ = io.WriteString(w, frameOf(7)+frameOf(8)) // it may be gone already
		}))
		t.Cleanup(service.Close)
		o := run(t, []string{"MANIFOLD_URL=" + service.URL, "MANIFOLD_KEY=k"}, nil, append([]string{"tail", "--count", "1"}, c.args...)...)
		if o.code != 0 || o.err != "" || !strings.Contains(o.out, c.want) || strings.Contains(o.out, `"n":8`) {
			t.Errorf("%v: %+v; it should show %q", c.args, o, c.want)
		}
	}
}

func TestTailRefused(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"type":"t","title":"t","status":400,"code":"invalid-request","where":"filter","detail":"no such field"}`)
	}))
	t.Cleanup(service.Close)
	for _, c := range []struct {
		url  string
		args []string
		want string
	}{
		{service.URL, nil, "filter: no such field (invalid-request)"},
		{"http://127.0.0.1:1", nil, "is it running?"},
		{service.URL, []string{"--format", "xml"}, "expected lines, json or pretty"},
		{service.URL, []string{"--count", "0"}, "at least 1"},
		{service.URL, []string{"order", "invoice"}, "usage: "},
		{service.URL, []string{""}, "'$all', in single quotes"},
		{service.URL, []string{"--json", "--format", "pretty"}, "--format and --json cannot be combined: give one of them"},
		{service.URL, []string{"-o", "yaml", "--json"}, "--json and --output cannot be combined: give one of them"},
		{service.URL, []string{"-o", "csv"}, `--output: "csv" is not one of table, json, yaml, ndjson`},
	} {
		if o := run(t, []string{"MANIFOLD_URL=" + c.url, "MANIFOLD_KEY=k"}, nil, append([]string{"tail"}, c.args...)...); o.code != 1 || !strings.Contains(o.err, c.want) {
			t.Errorf("%v: %+v; it should say %q", c.args, o, c.want)
		}
	}
}

// What is appended while it runs is shown at once, and Ctrl-C ends it as it should end.
func TestTailOfAService(t *testing.T) {
	t.Parallel()
	environ := sharedTenant(t, "acme")
	c := clientOf(t, environ)
	add := func(stream string) {
		t.Helper()
		r, err := c.AppendToStreamWithBodyWithResponse(t.Context(), stream, &client.AppendToStreamParams{}, "application/json", strings.NewReader(`[{"type":"Placed","data":{"of":"`+stream+`"}}]`))
		if err != nil || r.JSON201 == nil {
			t.Fatal(err, string(r.Body))
		}
	}
	add("order-1")
	add("invoice-1")
	tail := launch(t, environ, "", "tail", "order", "--from", "start")
	tail.await("  order-1  Placed  ")
	add("invoice-2")
	add("order-2")
	if line := tail.await("  order-2  Placed  "); !strings.HasPrefix(line, "4  ") {
		t.Errorf("it shows %s", line)
	}
	if code := tail.end(syscall.SIGINT); code != 0 {
		t.Errorf("it ends with %d:\n%s", code, tail.output())
	}
	if strings.Contains(tail.output(), "invoice") {
		t.Errorf("it shows\n%s", tail.output())
	}
	if out := must(t, environ, "tail", "order-2", "--from", "start", "--until-caught-up", "--json"); strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, `{"id":"`) {
		t.Errorf("one stream is shown as\n%s", out)
	}
	if out := must(t, environ, "tail", "--until-caught-up"); out != "" {
		t.Errorf("after the end there is\n%s", out)
	}

	for _, c := range []struct {
		streams string
		args    []string
	}{
		{"order-1 invoice-1 invoice-2 order-2", nil},
		{"order-2 invoice-2", []string{"--backward", "--count", "2"}},
		{"invoice-1 invoice-2", []string{"invoice", "--types", "Placed", "--since", "1h"}},
		{"order-2", []string{"order-2", "--until", "2999-01-01"}},
		{"invoice-1 order-1", []string{"--query", `{"items": [{"types": ["Placed"]}]}`, "--backward", "--from", "2"}},
		{"", []string{"--since", "2999-01-01T00:00:00Z"}},
		{"", []string{"order", "--until", "1h"}},
	} {
		var streams []string
		for line := range strings.Lines(must(t, environ, append([]string{"events"}, c.args...)...)) {
			streams = append(streams, strings.Fields(line)[2])
		}
		if got := strings.Join(streams, " "); got != c.streams {
			t.Errorf("events %v are of %s, want %s", c.args, got, c.streams)
		}
	}
	var list []client.Event
	out := must(t, environ, "read", "order", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 || list[1].Stream != "order-2" || !strings.HasPrefix(out, "[\n  {\n    \"id\": ") {
		t.Errorf("the list is, with %v,\n%s", err, out)
	}
	if out := must(t, environ, "read", "order", "-o", "ndjson"); strings.Count(out, "\n") != 2 || out != must(t, environ, "read", "order", "--format", "json") {
		t.Errorf("the lines are\n%s", out)
	}
	for message, args := range map[string][]string{
		`--until "soon" is not a time; write 2026-03-01`:                       {"--until", "soon"},
		"--types needs a category or the whole log":                            {"order-2", "--types", "Placed"},
		"--query cannot be combined with a category":                           {"order", "--query", `{"items": [{}]}`},
		"there is no stream order-9":                                           {"order-9"},
		"--tags, --cause and --correlation cannot be combined with a category": {"order", "--tags", "a"},
		"--count must be at least 1":                                           {"--count", "0"},
		"--format csv: expected lines, json or pretty":                         {"--format", "csv"},
		"missing name: give a category, a stream or":                           {""},
	} {
		if o := run(t, environ, nil, append([]string{"events"}, args...)...); o.code == 0 || !strings.Contains(o.err, message) {
			t.Errorf("events %v prints %s", args, o.err)
		}
	}
}
