package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Commands report what retention has removed, and each request has a way to accept the loss.
func TestWhatIsRemovedIsSaid(t *testing.T) {
	t.Parallel()
	const loss = `"loss":[{"category":"order","removedTo":812}]`
	rebuild := `{"id":"0190d3a4-5b6c-7def-8123-456789abcdef","projection":"orders","build":2,"state":"swapped","eventsDone":3,"eventsTotal":3,"documents":2,
		"liveDocuments":2,"approve":"auto","createdAt":"2026-03-01T10:05:00Z","updatedAt":"2026-03-01T10:05:00Z","endedAt":"2026-03-01T10:05:01Z",` + loss + `}`
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			t.Error(err)
		}
		if agent := request.UserAgent(); !strings.HasPrefix(agent, "manifold/") {
			t.Errorf("the command is named %q", agent)
		}
		accepted := request.URL.Query().Get("acceptLoss") == "true" || strings.Contains(string(body), `"acceptLoss":true`)
		answer := func(status int, text string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintln(w, text)
		}
		switch path := request.URL.Path; {
		case request.Method == "GET" && path == "/v1/projections/orders/rebuilds":
			answer(200, `{"rebuilds":[`+rebuild+`]}`)
		case request.Method == "GET" && path == "/v1/projections/orders/state":
			answer(200, `{"name":"orders","state":"caught-up","build":2,"checkpoint":3,"head":3,"lagEvents":0,"lagSeconds":0,`+loss+`}`)
		case path == "/v1/export":
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Manifold-Removed-To", "812")
		case strings.HasPrefix(path, "/v1/projections/orders") && !accepted:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			fmt.Fprintln(w, `{"type":"/docs/errors#events-removed","title":"Required events were removed","status":409,"code":"events-removed","detail":"with acceptLoss it makes documents of what is left","requestId":"1"}`)
		default:
			answer(202, rebuild)
		}
	}))
	t.Cleanup(service.Close)
	environ := []string{"MANIFOLD_URL=" + service.URL, "MANIFOLD_KEY=k"}
	definition := writeFile(t, "orders.yaml", []byte("name: orders\non: {Placed: 'doc'}\n"))
	const lacks = "events of order up to position 812 were removed by retention: the documents lack them\n"
	for _, args := range [][]string{{"rebuild", "orders"}, {"rebuild", "rollback", "orders"}, {"projection", "apply", definition}} {
		if o := run(t, environ, nil, args...); o.code == 0 || !strings.Contains(o.err, "events-removed") || !strings.Contains(o.err, "give --accept-loss") {
			t.Errorf("%v without accepting a loss: %+v", args, o)
		}
		if out := must(t, environ, append(args, "--accept-loss")...); !strings.Contains(out, lacks) {
			t.Errorf("%v says %s", args, out)
		}
	}
	if out := must(t, environ, "projection", "state", "orders"); !strings.Contains(out, lacks) {
		t.Errorf("the state says %s", out)
	}
	if o := run(t, environ, nil, "export"); o.code != 0 || !strings.Contains(o.err, "retention has removed events up to position 812") {
		t.Errorf("the export says %+v", o)
	}
}
