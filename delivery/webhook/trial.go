package webhook

import (
	"context"
	"encoding/json"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// testType is the event type of a test message. The event is in no log: its version and position are 0.
const testType = "webhook.test"

// Test sends one test message at once, even if the webhook is stopped, and returns the result. It is recorded among the
// attempts.
func (w *Webhooks) Test(ctx context.Context, tenant domain.TenantID, name string) (Attempt, error) {
	webhook, err := w.config.Store.Webhook(ctx, tenant, name)
	if err != nil {
		return Attempt{}, err
	}
	data, err := json.Marshal(map[string]string{"webhook": name})
	if err != nil {
		return Attempt{}, err
	}
	now := time.Now()
	event := domain.Event{ID: domain.NewEventID(), Stream: "webhook-" + name, Type: testType, Data: data, RecordedAt: now}
	var documents []projection.EventDocument
	if webhook.Projection != "" {
		documents = []projection.EventDocument{{ID: "test"}}
	}
	answer := w.sender.send(ctx, webhook.URL, webhook.Timeout, webhook.Secrets, w.newMessage(webhook.Format, &event, documents))
	if ctx.Err() != nil {
		return Attempt{}, context.Cause(ctx)
	}
	w.observe(answer)
	attempt := newAttempt(webhook.URL, &event, 0, now, answer)
	return attempt, w.config.Store.AddWebhookAttempts(ctx, tenant, name, []Attempt{attempt})
}

// newAttempt returns the line for an answer in the log of attempts.
func newAttempt(url string, event *domain.Event, attempt int, began time.Time, a answer) Attempt {
	if a.outcome == OutcomeDuplicate {
		url = "" // nothing was sent
	}
	return Attempt{
		URL: url,
		ID:  NewAttemptID(), EventID: event.ID, Type: event.Type, Position: event.Position, Attempt: attempt, Outcome: a.outcome,
		Status: a.status, Took: a.took.Round(time.Microsecond), Error: a.err, Excerpt: a.excerpt, At: began,
	}
}

func (w *Webhooks) observe(a answer) {
	if w.config.Observer.Attempted != nil {
		w.config.Observer.Attempted(a.outcome, a.took)
	}
}
