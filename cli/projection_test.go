package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The command prints what stops a projection, and fails.
func TestProjectionState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state string
		code  int
		want  []string
	}{
		{`"state":"caught-up","checkpoint":3,"lagEvents":1,"lagSeconds":0.5`, 0, []string{"orders: caught-up at position 3 of 4, build 2, 1 position and 0.5 s behind, 1 event to fold\n"}},
		{`"state":"faulted","fault":{"position":4,"eventId":"0190d3a4-5b6c-7def-8123-456789abcde0","stream":"order-1","type":"Added","documentId":"order-1","where":"on.Added","expression":"merge(doc,\n  {'n': 1 / 0})","before":{"n":7},"message":"no such field","at":"2026-03-01T10:00:00Z"}`, 1,
			[]string{"orders: faulted", "it is stopped at the event at position 4: no such field", "  event:      4, 0190d3a4-5b6c-7def-8123-456789abcde0, Added of order-1\n",
				"  document:   order-1\n  part:       on.Added\n  expression: merge(doc,\n                {'n': 1 / 0})\n  before:     {\"n\":7}\n  message:    no such field\n"}},
		{`"state":"unavailable","error":"the database does not answer","since":"2026-03-01T10:00:00Z","nextTry":"2026-03-01T10:00:05Z"`, 1,
			[]string{"orders: unavailable", "it cannot continue since 2026-", "the database does not answer; the next try is at 2026-"}},
		{`"state":"caught-up","checkpoint":4,"lagEvents":0,"lagSeconds":0,"parked":2`, 0, []string{"orders: caught-up at position 4 of 4", "parked documents: 2; see manifold projection parked orders"}},
		{`"state":"lost","error":"the table is missing"`, 1, []string{"orders: lost, build 2\n", "it cannot continue: the table is missing\n"}},
	} {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"name":"orders","build":2,"head":4,`+c.state+`}`)
		}))
		t.Cleanup(service.Close)
		o := run(t, []string{"MANIFOLD_URL=" + service.URL, "MANIFOLD_KEY=k"}, nil, "projection", "state", "orders")
		for _, want := range c.want {
			if o.code != c.code || !strings.Contains(o.out+o.err, want) {
				t.Errorf("%s: %+v; it should say %q", c.state, o, want)
			}
		}
	}
}
