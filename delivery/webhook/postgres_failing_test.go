package webhook_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// A webhook is failing from the first attempt behind the last that was taken, with the URL that it has; what was not
// sent does not count.
func TestWebhookFailing(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx, tenant := t.Context(), domain.NewTenantID()
	putWebhook(t, s, tenant, "mail", 1)
	const url, old = "https://example.com/new", "https://example.com/old"
	began := time.Now().UTC().Truncate(time.Second)
	n := 0
	add := func(url string, outcome webhook.Outcome, status int) time.Time {
		t.Helper()
		at := began.Add(time.Duration(n) * time.Second)
		n++
		tablestest.Must(t, s.AddWebhookAttempts(ctx, tenant, "mail", []webhook.Attempt{{
			ID: webhook.FirstAttemptID(at), EventID: domain.NewEventID(), URL: url, Outcome: outcome, Status: status, Error: string(outcome), At: at,
		}}))
		return at
	}
	failing := func() webhook.Failing {
		t.Helper()
		got, err := s.WebhookFailing(ctx, tenant, "mail", url)
		tablestest.Must(t, err)
		if got == nil {
			return webhook.Failing{}
		}
		got.Since, got.LastAt = got.Since.UTC(), got.LastAt.UTC()
		return *got
	}
	if got := failing(); got != (webhook.Failing{}) {
		t.Errorf("before the first attempt it is %+v", got)
	}
	add(url, webhook.OutcomeFailed, 500)
	add(url, webhook.OutcomeOK, 204)
	if got := failing(); got != (webhook.Failing{}) {
		t.Errorf("behind one that was taken it is %+v", got)
	}
	add(old, webhook.OutcomeTimeout, 0)
	first := add(url, webhook.OutcomeTimeout, 0)
	add("", webhook.OutcomeDuplicate, 0)
	add(old, webhook.OutcomeOK, 204)
	last := add(url, webhook.OutcomeFailed, 503)
	want := webhook.Failing{Since: first, Attempts: 2, LastAt: last, Outcome: webhook.OutcomeFailed, Status: 503, Error: "failed"}
	if got := failing(); got != want {
		t.Errorf("it is %+v; want %+v", got, want)
	}
	add(url, webhook.OutcomeOK, 200)
	if got := failing(); got != (webhook.Failing{}) {
		t.Errorf("when it is taken again it is %+v", got)
	}
}
