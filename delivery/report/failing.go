package report

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// webhooksAtOnce is how many webhooks are read at once.
const webhooksAtOnce = 100

// findFailing looks for webhooks whose attempts fail, and for open alerts of those that succeed again.
func (r *Reporter) findFailing(ctx context.Context, tenant domain.TenantID, f *findings, open map[string]alert) error {
	f.includeKind(KindFailing)
	for after := ""; ; {
		webhooks, err := r.config.Webhooks.Webhooks(ctx, tenant, after, webhooksAtOnce)
		if err != nil {
			return err
		}
		for i := range webhooks {
			w := &webhooks[i]
			after = w.Name
			attempts, err := r.config.Webhooks.WebhookFailing(ctx, tenant, w.Name, w.URL)
			if err != nil {
				return err
			}
			_, isOpen := open[w.Name]
			switch {
			case isOpen && attempts == nil:
				f.add(KindFailing, w.Name, ended)
			case isOpen:
				f.add(KindFailing, w.Name, holds)
			case attempts != nil && attempts.LastAt.Sub(attempts.Since) >= r.config.FailingFor:
				err := f.begin(KindFailing, w.Name, "", failing{
					Webhook: w.Name, FailingSince: attempts.Since.UTC(), Attempts: attempts.Attempts, Outcome: string(attempts.Outcome),
					Status: attempts.Status, Error: quote(attempts.Error),
				})
				if err != nil {
					return err
				}
			}
		}
		if len(webhooks) < webhooksAtOnce {
			return nil
		}
	}
}
