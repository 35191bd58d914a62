package webhook

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/domain"
)

// Timing of a consumer.
const (
	linger     = time.Second     // for more events if nothing is due
	probeWait  = time.Second     // until the next look at a probe that is running
	replayWait = 2 * time.Second // until the next look at whether a replay is done; its position is saved late
)

// scarceRoom is how many events a webhook receives at a time while all webhooks together use too much memory.
const scarceRoom = 1

// consumer sends the deliveries of a webhook's group, or of the group of its replay. Calls of its run never overlap.
type consumer struct {
	webhooks *Webhooks
	tenant   domain.TenantID
	webhook  Webhook
	replay   *Replay // nil: the webhook itself
	group    string
	endpoint *endpoint
	dedupe   *Dedupe // nil: none
	broken   error   // why it can never send

	ended   atomic.Bool  // the endpoint wants no more events; another consumer replaces this one
	unswept atomic.Int64 // attempts recorded since the last sweep was requested
}

func newConsumer(w *Webhooks, tenant domain.TenantID, webhook Webhook, replay *Replay, group string, e *endpoint) *consumer {
	c := &consumer{webhooks: w, tenant: tenant, webhook: webhook, replay: replay, group: group, endpoint: e}
	c.dedupe, c.broken = NewDedupe(w.config.Store, webhook.DedupeID, webhook.DedupeWindow)
	return c
}

// run sends what is due. It implements consume.Consumer.Run.
func (c *consumer) run(ctx context.Context) (nextRun time.Time, err error) {
	if c.broken != nil {
		return time.Time{}, c.broken
	}
	if c.ended.Load() {
		return time.Time{}, nil
	}
	now := time.Now()
	if room, until := c.endpoint.room(now); room == 0 {
		if !until.After(now) {
			until = now.Add(probeWait) // the other consumer's probe is running: the replay's or the webhook's
		}
		return until, nil
	}
	if c.webhook.Projection != "" {
		err := c.follow(ctx)
		if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Where == sourceProjection {
			return time.Time{}, c.disable(ctx, failure.Message+"; then resume the webhook")
		}
		if err != nil {
			return time.Time{}, err
		}
	}
	return c.runRound(ctx)
}

// follow updates the group's selection to the events that the projection selects, because its definition may have
// changed.
func (c *consumer) follow(ctx context.Context) error {
	w := c.webhooks
	wanted, err := w.groupOf(ctx, c.tenant, c.webhook.Definition)
	if err != nil {
		return err
	}
	now, err := w.config.Groups.Selection(ctx, c.tenant, c.group)
	if err != nil || sameNames(now, wanted.Selection) {
		return err
	}
	if c.replay != nil {
		return nil // each replay gets a new group
	}
	_, _, err = w.config.Groups.Put(ctx, c.tenant, c.group, wanted)
	return err
}

func sameNames(a, b domain.Selection) bool {
	return slices.Equal(a.Categories, b.Categories) && slices.Equal(a.Types, b.Types) && a.Query.Equal(b.Query) && a.Filter == b.Filter
}

// endReplay ends a replay that is complete. Otherwise it returns when the replay may be complete.
func (c *consumer) endReplay(ctx context.Context, due time.Time) (nextRun time.Time, err error) {
	status, err := c.webhooks.config.Groups.Get(ctx, c.tenant, c.group)
	if err != nil {
		return nextRun, err
	}
	read, left := true, int64(0)
	for _, p := range status.Partitions {
		read = read && p.ReadTo >= c.replay.To
		left += p.InFlight + p.Retrying
	}
	switch {
	case read && left == 0:
		return nextRun, c.webhooks.config.Store.EndWebhookReplay(ctx, c.tenant, c.webhook.Name, c.replay.StartedAt)
	case read && !due.IsZero():
		return due, nil
	}
	return consume.Sooner(due, time.Now().Add(replayWait)), nil
}

// disable stops the webhook on behalf of the service. Another consumer, or none, replaces this one.
func (c *consumer) disable(ctx context.Context, reason string) error {
	if !c.ended.CompareAndSwap(false, true) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if _, err := c.webhooks.config.Store.DisableWebhook(ctx, c.tenant, c.webhook.Name, c.webhook.Revision, reason); err != nil {
		c.ended.Store(false) // the next consumer tries again
		return err
	}
	c.webhooks.Notice(c.tenant) // there is another revision, whoever created it
	return nil
}
