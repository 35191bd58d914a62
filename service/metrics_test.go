package service_test

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Event delivery shows in /metrics, and no metric contains the name of a tenant, or a name that a tenant chose.
func TestMetricsOfSubscriptions(t *testing.T) {
	t.Parallel()
	p := start(t, configuration(pgtest.Database(t)))
	key := newTenant(t, p, "secrettenant")
	u := as(t, p, key)
	for range 5 {
		u.add("secretorder-1", "SecretlyPlaced", `{}`)
	}
	const name = "secret-group"
	timeout, attempts := 1.0, 1
	made, err := u.PutSubscriptionWithResponse(t.Context(), name, client.NewSubscription{AckTimeout: &timeout, MaxAttempts: &attempts})
	if err != nil || made.JSON201 == nil {
		t.Fatalf("make the group: %v, %s", err, made.Body)
	}
	received, err := u.ReceiveWithResponse(t.Context(), name, client.Receive{Batch: 4})
	if err != nil || received.JSON200 == nil || len(received.JSON200.Deliveries) != 4 {
		t.Fatalf("receive: %v, %s", err, received.Body)
	}
	var given []client.Attempt
	for _, d := range received.JSON200.Deliveries {
		given = append(given, client.Attempt{Id: d.Event.Id, Attempt: d.Attempt})
	}
	if acked, err := u.AckEventsWithResponse(t.Context(), name, client.Attempts{Ids: given[:2]}); err != nil || acked.JSON200 == nil {
		t.Fatalf("ack: %v, %s", err, acked.Body)
	}
	if nacked, err := u.NackEventsWithResponse(t.Context(), name, client.Nack{Ids: given[2:3], Action: "park"}); err != nil || nacked.JSON200 == nil {
		t.Fatalf("nack: %v, %s", err, nacked.Body)
	}
	for _, line := range []string{
		`events_delivered_total{kind="group",transport="http"} 4`,
		`events_acked_total 2`,
		`events_nacked_total{action="park"} 1`,
		`subscribe_poll_duration_seconds_count{kind="group"} 1`,
		`delivery_handler_duration_seconds_count 1`,
		// The lease of the last event expires soon, and the event had only one attempt.
		`events_expired_total 1`,
		`events_dead_lettered_total 2`,
		`events_inflight 0`,
	} {
		awaitMetric(t, p, line)
	}

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	request, err := http.NewRequestWithContext(ctx, "GET", "http://"+p.Address()+"/v1/subscribe/categories/secretorder", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	follower, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Body.Close()
	awaitMetric(t, p, `events_delivered_total{kind="follow",transport="ndjson"} 5`)
	awaitMetric(t, p, `manifold_followers 1`)
	awaitMetric(t, p, `manifold_tails 1`)
	leave()
	awaitMetric(t, p, `manifold_followers 0`)

	_, body := get(t, p, "/metrics")
	if strings.Contains(strings.ToLower(body), "secret") {
		t.Errorf("/metrics names what is a tenant's:\n%s", body)
	}
	bounds := map[string][]string{"kind": {"follow", "group"}, "transport": {"http", "ndjson", "sse", "websocket"}, "action": {"park", "retry", "skip"}}
	for _, line := range regexp.MustCompile(`(?m)^(?:events_|subscribe_|delivery_|manifold_tails|manifold_followers)\w*\{(.*)\}`).FindAllStringSubmatch(body, -1) {
		for label := range strings.SplitSeq(line[1], ",") {
			name, value, _ := strings.Cut(label, "=")
			if name != "le" && !slices.Contains(bounds[name], strings.Trim(value, `"`)) {
				t.Errorf("/metrics has the label %s", label)
			}
		}
	}
}
