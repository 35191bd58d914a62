package service_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// One process creates a webhook and another one sends its events, which the metrics count. No metric contains the
// name of a tenant, or a name that a tenant chose.
func TestWebhooksOverProcesses(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	c := configuration(db)
	c.Webhooks = config.Webhooks{Allow: []string{"127.0.0.1"}, AllowHTTP: true}
	c.Role = config.RoleWorker
	worker := start(t, c)
	c.Role = config.RoleWeb
	web := start(t, c)
	u := as(t, web, newTenant(t, web, "secrettenant"))
	type request struct {
		header http.Header
		body   []byte
	}
	arrived := make(chan request, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		arrived <- request{r.Header, body}
		w.WriteHeader(map[string]int{"/good": 204, "/gone": 410}[r.URL.Path])
	}))
	defer server.Close()
	made, err := u.PutWebhookWithResponse(t.Context(), "secret-good", client.NewWebhook{Url: server.URL + "/good", Types: []string{"SecretlyPlaced"}})
	if err != nil || made.JSON201 == nil {
		t.Fatalf("%v, %s", err, made.Body)
	}
	verifier, err := standardwebhooks.NewWebhook(made.JSON201.Secrets[0].Secret)
	if err != nil {
		t.Fatal(err)
	}
	next := func() request {
		t.Helper()
		select {
		case r := <-arrived:
			return r
		case <-time.After(time.Minute):
			t.Fatal("nothing arrives")
			return request{}
		}
	}
	u.add("secretorder-1", "SecretlyPlaced", `{}`)
	r := next()
	if err := verifier.Verify(r.body, r.header); err != nil {
		t.Errorf("%v: %s", err, r.body)
	}
	gone, err := u.PutWebhookWithResponse(t.Context(), "secret-gone", client.NewWebhook{Url: server.URL + "/gone", Types: []string{"SecretlyRemoved"}})
	if err != nil || gone.JSON201 == nil {
		t.Fatalf("%v, %s", err, gone.Body)
	}
	u.add("secretorder-1", "SecretlyRemoved", `{}`)
	next()
	for _, line := range []string{
		`webhook_attempts_total{outcome="ok"} 1`,
		`webhook_attempts_total{outcome="gone"} 1`,
		`webhook_attempt_duration_seconds_count{outcome="ok"} 1`,
		`webhook_delay_seconds_count 2`,
		`webhook_breakers_open 0`,
	} {
		awaitMetric(t, worker, line)
	}
	// The worker notifies the others that it has disabled a webhook.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for disabled, over := false, time.After(time.Minute); !disabled; {
		found, err := u.GetWebhookWithResponse(t.Context(), "secret-gone")
		if err != nil || found.JSON200 == nil {
			t.Fatalf("%v, %s", err, found.Body)
		}
		disabled = found.JSON200.Disabled != nil
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("it is not disabled: %s", found.Body)
		}
	}
	// The process that receives the request sends the test message.
	tested, err := u.TestWebhookWithResponse(t.Context(), "secret-good")
	if err != nil || tested.JSON200 == nil || tested.JSON200.Status != 204 {
		t.Fatalf("%v, %s", err, tested.Body)
	}
	next()
	awaitMetric(t, web, `webhook_attempts_total{outcome="ok"} 1`)

	_, body := get(t, worker, "/metrics")
	if strings.Contains(strings.ToLower(body), "secret") {
		t.Errorf("/metrics names what is a tenant's:\n%s", body)
	}
	outcomes := []string{"ok", "failed", "timeout", "blocked", "gone", "duplicate"}
	for _, line := range regexp.MustCompile(`(?m)^webhook_\w*\{(.*)\}`).FindAllStringSubmatch(body, -1) {
		for label := range strings.SplitSeq(line[1], ",") {
			name, value, _ := strings.Cut(label, "=")
			if name != "le" && (name != "outcome" || !slices.Contains(outcomes, strings.Trim(value, `"`))) {
				t.Errorf("/metrics has the label %s", label)
			}
		}
	}
}
