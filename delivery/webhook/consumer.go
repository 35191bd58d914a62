package webhook

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection"
)

// Timing of a consumer.
const (
	linger        = time.Second      // for more events if nothing is due
	lookSoon      = time.Second      // until the next look if something was due but not received
	settledSoon   = time.Second      // until the next look at whether a projection has advanced; grows
	settledSeldom = 30 * time.Second // up to this
	replaySoon    = 2 * time.Second  // until the next look at whether a replay is done; its position is saved late
)

// scarceRoom is how many events a webhook receives at a time while all webhooks together use too much memory.
const scarceRoom = 1

// consumer sends the deliveries of a webhook's group, or of the group of its replay. Calls of its run never overlap.
type consumer struct {
	webhooks *Webhooks
	tenant   domain.TenantID
	webhook  domain.Webhook
	replay   *domain.WebhookReplay // nil: the webhook itself
	group    string
	endpoint *endpoint
	dedupe   *expr.Key // nil: none
	broken   error     // why it can never send

	ended   atomic.Bool   // the endpoint wants no more events; another consumer replaces this one
	settle  time.Duration // until the next look at whether the projection has advanced
	unswept atomic.Int64  // attempts recorded since the last sweep was requested
}

func newConsumer(w *Webhooks, tenant domain.TenantID, webhook domain.Webhook, replay *domain.WebhookReplay, group string, e *endpoint) *consumer {
	c := &consumer{webhooks: w, tenant: tenant, webhook: webhook, replay: replay, group: group, endpoint: e}
	c.dedupe, c.broken = dedupeKey(webhook.WebhookDefinition)
	return c
}

// run sends what is due. It implements consume.Consumer.Run.
func (c *consumer) run(ctx context.Context) (again time.Time, err error) {
	if c.broken != nil {
		return time.Time{}, c.broken
	}
	if c.ended.Load() {
		return time.Time{}, nil
	}
	now := time.Now()
	if room, until := c.endpoint.room(now); room == 0 {
		if !until.After(now) {
			until = now.Add(lookSoon) // the other consumer's probe is running: the replay's or the webhook's
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
	return newRound(c).run(ctx)
}

// follow updates the group's selection to the events that the projection selects, because its definition may have
// changed.
func (c *consumer) follow(ctx context.Context) error {
	w := c.webhooks
	wanted, err := w.groupOf(ctx, c.tenant, c.webhook.WebhookDefinition)
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
	return slices.Equal(a.Categories, b.Categories) && slices.Equal(a.Types, b.Types) && a.Filter == b.Filter
}

// delivered holds prepared events that a group delivered together.
type delivered struct {
	jobs []*job
}

// job is an event to be sent.
type job struct {
	delivery domain.Delivery
	message  message
}

// receive takes what is due, as much as the endpoint has room for, and prepares it. It settles what is not to be sent.
// none means that the group had nothing; again is then when it will have something.
func (c *consumer) receive(ctx context.Context, r *round) (d delivered, none bool, again time.Time, err error) {
	room, until := c.endpoint.room(time.Now())
	if room == 0 {
		return d, true, until, nil
	}
	w := c.webhooks
	if w.held.Load() > int64(w.config.Bytes) {
		room = scarceRoom
	}
	wanted := group.Receive{Batch: min(room, domain.MaxBatchSize), Wait: w.pace.linger, Lease: w.pace.lease}
	if c.webhook.Projection != "" {
		if wanted.UpTo, err = w.config.Projections.Settled(ctx, c.tenant, c.webhook.Projection); err != nil {
			return d, false, again, err
		}
		// Follow after reading Settled. If another definition has gone live meanwhile, none of its events is skipped
		// because of the previous definition's selection.
		if err = c.follow(ctx); err != nil {
			return d, false, again, err
		}
		wanted.Wait = 0
	}
	var deliveries []domain.Delivery
	if c.webhook.Projection == "" || wanted.UpTo > 0 {
		if deliveries, err = w.config.Groups.Receive(ctx, c.tenant, c.group, wanted); err != nil {
			return d, false, again, err
		}
	}
	if len(deliveries) == 0 {
		more, again, err := c.rest(ctx, wanted.UpTo)
		return d, !more, again, err
	}
	c.settle = 0
	r.hold(deliveries)
	if d.jobs, err = c.prepare(ctx, r, deliveries); err != nil {
		r.giveBack(ctx, attempts(deliveries))
	}
	return d, false, again, err
}

func attempts(deliveries []domain.Delivery) []domain.Attempt {
	all := make([]domain.Attempt, len(deliveries))
	for i := range deliveries {
		all[i] = attemptOf(&deliveries[i])
	}
	return all
}

// rest is called if nothing was delivered. It returns when something will be due; more means now.
func (c *consumer) rest(ctx context.Context, settled int64) (more bool, again time.Time, err error) {
	w := c.webhooks
	if c.webhook.Projection != "" {
		head, err := w.config.Events.Head(ctx, c.tenant)
		if err != nil {
			return false, again, err
		}
		if settled < head.Position {
			moved, err := w.config.Projections.AwaitSettled(ctx, c.tenant, c.webhook.Projection, settled, w.pace.linger)
			if err != nil || moved > settled {
				return err == nil, again, err
			}
			// The next events may not belong to the projection, and then its checkpoint is saved rarely.
			c.settle = min(max(2*c.settle, settledSoon), settledSeldom)
			again = time.Now().Add(c.settle)
		}
	}
	due := group.Due{}
	if c.webhook.Projection == "" || settled > 0 {
		if due, err = w.config.Groups.Due(ctx, c.tenant, c.group); err != nil {
			return false, again, err
		}
	}
	again = sooner(again, due.At)
	if due.Now {
		again = sooner(again, time.Now().Add(lookSoon))
	}
	if c.replay != nil {
		return c.restOfReplay(ctx, again)
	}
	return false, again, nil
}

// restOfReplay ends a replay that is complete. Otherwise it returns when the replay may be complete.
func (c *consumer) restOfReplay(ctx context.Context, due time.Time) (more bool, again time.Time, err error) {
	status, err := c.webhooks.config.Groups.Get(ctx, c.tenant, c.group)
	if err != nil {
		return false, again, err
	}
	read, left := true, int64(0)
	for _, p := range status.Partitions {
		read = read && p.ReadTo >= c.replay.To
		left += p.InFlight + p.Retrying
	}
	switch {
	case read && left == 0:
		return false, again, c.webhooks.config.Store.EndWebhookReplay(ctx, c.tenant, c.webhook.Name, c.replay.StartedAt)
	case read && !due.IsZero():
		return false, due, nil
	}
	return false, sooner(due, time.Now().Add(replaySoon)), nil
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

// sooner returns the earlier of two times. Zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// prepare turns deliveries into jobs in order. What is not to be sent is settled by the round.
func (c *consumer) prepare(ctx context.Context, r *round, deliveries []domain.Delivery) ([]*job, error) {
	documents, err := c.documents(ctx, deliveries)
	if err != nil {
		return nil, err
	}
	duplicate, err := c.duplicates(ctx, deliveries)
	if err != nil {
		return nil, err
	}
	jobs := make([]*job, 0, len(deliveries))
	for i := range deliveries {
		d := &deliveries[i]
		var document *projection.EventDocument
		if documents != nil {
			document = &documents[i]
		}
		switch {
		case document != nil && document.Waiting:
			r.report(result{delivery: *d, skipped: waiting})
		case document != nil && document.ID == "":
			r.report(result{delivery: *d, skipped: notOfProjection})
		case duplicate[i]:
			r.report(result{delivery: *d, began: time.Now(), answer: answer{outcome: domain.WebhookDuplicate}})
		default:
			j := &job{delivery: *d, message: newMessage(c.webhook.Format, &d.Event, document)}
			j.delivery.Event.Data, j.delivery.Event.Metadata = nil, nil // the message contains them
			c.webhooks.held.Add(int64(len(j.message.body)))
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// documents returns the documents of the deliveries' events, or nil if the source is not a projection.
func (c *consumer) documents(ctx context.Context, deliveries []domain.Delivery) ([]projection.EventDocument, error) {
	if c.webhook.Projection == "" {
		return nil, nil
	}
	events := make([]domain.Event, len(deliveries))
	for i := range deliveries {
		events[i] = deliveries[i].Event
	}
	return c.webhooks.config.Projections.DocumentsOf(ctx, c.tenant, c.webhook.Projection, events)
}

// duplicates reports for each delivery whether another event with its deduplication id was sent within the window. An
// event without an id is not a duplicate, nor is one for which the expression fails.
func (c *consumer) duplicates(ctx context.Context, deliveries []domain.Delivery) ([]bool, error) {
	duplicate := make([]bool, len(deliveries))
	if c.dedupe == nil {
		return duplicate, nil
	}
	var at []int
	claims := make(map[int]domain.WebhookClaim)
	for i := range deliveries {
		event := &deliveries[i].Event
		id, ok, err := c.dedupe.Eval(expr.NewEvent(*event))
		if !ok || err != nil {
			continue
		}
		at = append(at, i)
		claims[i] = domain.WebhookClaim{ID: domain.WebhookClaimID(id), Position: event.Position, RecordedAt: event.RecordedAt}
	}
	if len(at) == 0 {
		return duplicate, nil
	}
	slices.SortFunc(at, func(a, b int) int { return cmp.Compare(claims[a].Position, claims[b].Position) })
	asked := make([]domain.WebhookClaim, len(at))
	for n, i := range at {
		asked[n] = claims[i]
	}
	found, err := c.webhooks.config.Store.ClaimWebhookEvents(ctx, c.tenant, c.group, c.webhook.DedupeWindow, asked)
	if err != nil {
		return nil, err
	}
	if len(found) != len(at) {
		return nil, errors.New("the store returned unrequested claims")
	}
	for n, i := range at {
		duplicate[i] = found[n]
	}
	return duplicate, nil
}
