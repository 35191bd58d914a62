package telemetry

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v1")
	m.Appended(30, 10, time.Millisecond)
	m.Appended(2, 1, time.Millisecond)
	m.Request("GET", "/v1/streams/:streamId", 200, time.Millisecond)
	m.Read(7)
	m.Imported(9)
	m.Projected("orders", true, 5)
	m.Projected("secret-of-acme", false, 6)
	m.Projected("secret-of-umbrella", false, 1)
	m.Faulted("secret-of-acme", false)
	m.Lag("orders", true, 3*time.Second)
	m.Lag("orders", true, time.Second)
	m.Rebuilding("orders", true, 40, 100)
	m.Rebuilding("old", true, 1, 2)
	m.Rebuilt("old", true, "swapped")
	m.CollectBehind(func(yield func(string, int64, int)) {
		yield("orders", 12, 0)
		yield("", 3, 2)
	})
	m.CollectDatabases(func(yield func(string, bool)) {
		yield("default", true)
		yield("reports", false)
	})
	m.Published("websocket", 6)
	m.Followed("sse", 4)
	m.EventsRemoved(8)
	m.EventsRetagged(9)
	m.Decided("rejected", 3, time.Second)
	m.SchemasViolated("warn", 7)
	m.Delivered("http", 3)
	m.Acked(2, time.Second)
	m.Nacked("park", 1)
	m.Expired(5)
	m.DeadLettered(1)
	m.Polled(time.Millisecond, 10)
	m.Received(time.Millisecond, 10)
	m.Tails(1)
	m.Followers(3)
	m.Followers(2)
	m.CollectEventsInFlight(func() int { return 3 })
	m.WebhookAttempted("ok", time.Second)
	m.WebhookAttempted("duplicate", 0)
	m.WebhookDelayed(2 * time.Second)
	m.CollectWebhookBreakers(func() int { return 4 })
	m.EgressPublished("orders", 5, 2*time.Second)
	m.EgressFailed("orders", 3)
	m.EgressRefused("orders", 1)
	m.CollectEgress(func(yield func(string, bool, time.Duration)) { yield("orders", true, 4*time.Second) })
	shown := scrape(t, m)
	for _, line := range []string{
		`manifold_schema_violations_total{mode="warn"} 7`,
		`egress_messages_total{egress="orders",outcome="acked"} 5`,
		`egress_messages_total{egress="orders",outcome="failed"} 3`,
		`egress_messages_total{egress="orders",outcome="refused"} 1`,
		`egress_delay_seconds_sum{egress="orders"} 2`,
		`egress_lag_seconds{egress="orders"} 4`,
		`egress_up{egress="orders"} 1`,
		`events_delivered_total{kind="follow",transport="sse"} 4`,
		`events_delivered_total{kind="group",transport="http"} 3`,
		`events_published_total{transport="websocket"} 6`,
		`events_acked_total 2`,
		`events_removed_total 8`,
		`manifold_events_retagged_total 9`,
		`manifold_command_seconds_sum{outcome="rejected"} 1`,
		`manifold_command_conflicts_total 3`,
		`events_nacked_total{action="park"} 1`,
		`events_expired_total 5`,
		`events_dead_lettered_total 1`,
		`events_inflight 3`,
		`webhook_attempts_total{outcome="ok"} 1`,
		`webhook_attempts_total{outcome="duplicate"} 1`,
		`webhook_attempt_duration_seconds_count{outcome="ok"} 1`,
		`webhook_delay_seconds_sum 2`,
		`webhook_breakers_open 4`,
		`subscribe_poll_duration_seconds_count{kind="follow"} 1`,
		`subscribe_poll_duration_seconds_count{kind="group"} 1`,
		`delivery_handler_duration_seconds_sum 1`,
		`manifold_tails 1`,
		`manifold_followers 2`,
		`manifold_build_info{version="v1"} 1`,
		`manifold_database_up{database="default"} 1`,
		`manifold_database_up{database="reports"} 0`,
		`manifold_appends_total 11`,
		`manifold_appended_events_total 32`,
		`manifold_append_batch_events_sum 32`,
		`manifold_append_batch_requests_count 2`,
		`manifold_http_request_seconds_count{method="GET",route="/v1/streams/:streamId",status="200"} 1`,
		`manifold_read_events_total 7`,
		`manifold_imported_events_total 9`,
		`manifold_projected_events_total{projection="orders"} 5`,
		`manifold_projected_events_total{projection="(own)"} 7`,
		`manifold_projection_faults_total{projection="(own)"} 1`,
		`manifold_projection_lag_seconds{projection="orders"} 3`,
		`manifold_projection_lag_positions{projection="orders"} 12`,
		`manifold_projection_lag_events{projection="orders"} 12`,
		`manifold_projection_faulted{projection="(own)"} 2`,
		`manifold_rebuild_events_done{projection="orders"} 40`,
		`manifold_rebuild_events{projection="orders"} 100`,
		`manifold_rebuilds_total{outcome="swapped",projection="old"} 1`,
	} {
		if !strings.Contains(shown, line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	for _, hidden := range []string{"secret-of", `manifold_rebuild_events{projection="old"}`} {
		if strings.Contains(shown, hidden) {
			t.Errorf("/metrics shows %s", hidden)
		}
	}
}

// The greatest lag is shown for at least half of the window, at most for all of it, and then no longer.
func TestLagIsForgotten(t *testing.T) {
	t.Parallel()
	l, start := newLag(), time.Now()
	l.note("p", time.Minute, start)
	for after, want := range map[time.Duration]bool{
		lagWindow/2 - 1: true, lagWindow: false, 10 * lagWindow: false,
	} {
		l := newLag()
		l.note("p", time.Minute, start)
		if got := l.read(start.Add(after))["p"] == time.Minute; got != want {
			t.Errorf("after %s the lag is shown: %t", after, got)
		}
	}
	l.note("p", time.Second, start.Add(lagWindow/2))
	if got := l.read(start.Add(lagWindow - 1))["p"]; got != time.Minute {
		t.Errorf("the greatest lag is forgotten early: %s", got)
	}
	if got := l.read(start.Add(lagWindow))["p"]; got != time.Second {
		t.Errorf("the greatest lag of the last half is %s", got)
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelInfo, "json")
	log.Debug("hidden")
	log.Info("shown", "n", 1)
	var entry struct {
		Msg string
		N   int
	}
	if err := json.Unmarshal(out.Bytes(), &entry); err != nil || entry.Msg != "shown" || entry.N != 1 {
		t.Errorf("it logs %q, %v", out.String(), err)
	}
	out.Reset()
	NewLogger(&out, slog.LevelInfo, "text").Info("shown")
	if !strings.Contains(out.String(), "msg=shown") {
		t.Errorf("it logs %q", out.String())
	}
}
