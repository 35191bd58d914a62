package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Every list says on standard error that there is nothing, and keeps standard output for results.
func TestEmptyLists(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(service.Close)
	environ := []string{"MANIFOLD_URL=" + service.URL, "MANIFOLD_KEY=k", "MANIFOLD_OPERATOR_KEY=o"}
	for _, c := range []struct {
		none string
		args []string
	}{
		{"egresses", []string{"egress", "list"}},
		{"groups", []string{"group", "list"}},
		{"members", []string{"group", "members", "mail"}},
		{"dead letters", []string{"group", "dead-letters", "mail"}},
		{"webhooks", []string{"webhook", "list"}},
		{"attempts", []string{"webhook", "attempts", "crm"}},
		{"projections", []string{"projection", "list"}},
		{"rebuilds", []string{"rebuild", "list", "orders"}},
		{"skipped events", []string{"projection", "skipped", "orders"}},
		{"aggregates", []string{"aggregate", "list"}},
		{"snapshots", []string{"snapshot", "list", "order-1"}},
		{"schemas", []string{"schema", "list"}},
		{"rules", []string{"schema", "rule", "list"}},
		{"upcasters", []string{"upcaster", "list"}},
		{"policies", []string{"retention", "list"}},
		{"erasures", []string{"subject", "erasures"}},
		{"keys", []string{"key", "list"}},
		{"tenants", []string{"tenant", "list"}},
		{"plans", []string{"plan", "list"}},
		{"consumers", []string{"lag"}},
		{"consumers that need attention", []string{"lag", "--all-tenants", "--behind", "1m"}},
		{"days with usage", []string{"usage", "days"}},
		{"signing keys", []string{"signing-keys"}},
		{"profiles", []string{"profile", "list"}},
	} {
		if o := run(t, environ, nil, c.args...); o.code != 0 || o.out != "" || o.err != "no "+c.none+"\n" {
			t.Errorf("%v ends with %+v", c.args, o)
		}
	}
	for format, want := range map[string]string{"json": "[]\n", "ndjson": ""} {
		if o := run(t, environ, nil, "egress", "list", "-o", format); o.code != 0 || o.out != want || o.err != "" {
			t.Errorf("in the format %s it ends with %+v", format, o)
		}
	}
}
