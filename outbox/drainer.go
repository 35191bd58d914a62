package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Config configures a Drainer. Store and Publish are required.
type Config struct {
	Store Store
	// Publish publishes rows in their order, all or none. A row whose id is already published counts as published. A
	// *RefusedError says that the rows themselves are the cause; after any other error the same rows are retried.
	// HTTP.Publish is such a function.
	Publish func(ctx context.Context, rows []Row) error

	Batch int           // rows that are claimed at once; 0: 100, at most 1,000
	Lease time.Duration // how long the claim of a dead drainer lasts; 0: 30 s, at least 1 s
	Poll  time.Duration // pause between checks of an empty outbox; 0: 500 ms
	Keep  time.Duration // how long published rows are kept, marked; 0: they are removed at once

	Observer Observer
	Log      *slog.Logger // nil: none
}

// Observer has callbacks for metrics. Each is optional, and must not block.
type Observer struct {
	Published func(rows int)    // rows that were published
	Refused   func(rows int)    // rows that were refused because of their content
	Failed    func()            // an attempt failed for another reason, such as an unreachable service or database
	Lag       func(outbox Lag)  // every 10 s, by each drainer
	Swept     func(removed int) // kept rows that were removed
}

// Drainer publishes the rows of an outbox.
type Drainer struct {
	config Config
	wake   chan struct{}
}

// The pauses of a drainer.
const (
	firstPause = 200 * time.Millisecond // after a failure, doubled with each further one
	maxPause   = 30 * time.Second
	// A refused row blocks its stream until somebody fixes the cause, so it is retried soon.
	firstRefusedPause = 2 * time.Second
	maxRefusedPause   = 5 * time.Minute
	upkeepEvery       = 10 * time.Second
	settleTimeout     = 10 * time.Second
	sweptAtOnce       = 1000
)

// New returns a Drainer, which does nothing before Run.
func New(config Config) (*Drainer, error) {
	if config.Store == nil || config.Publish == nil {
		return nil, errors.New("outbox: a drainer needs Store and Publish")
	}
	config.Batch = cmp.Or(config.Batch, 100)
	config.Lease = cmp.Or(config.Lease, 30*time.Second)
	config.Poll = cmp.Or(config.Poll, 500*time.Millisecond)
	config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	if config.Batch < 1 || config.Batch > requestRows || config.Lease < time.Second || config.Poll < 0 || config.Keep < 0 {
		return nil, fmt.Errorf("outbox: Batch must be 1 to %d, Lease at least 1s, Poll and Keep not negative", requestRows)
	}
	return &Drainer{config: config, wake: make(chan struct{}, 1)}, nil
}

// Wake makes the drainer check the outbox at once. It never blocks. A producer calls it after its commit.
func (d *Drainer) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends, and then returns nil. It settles its claim before it returns. It logs failures, and
// retries after increasing pauses.
func (d *Drainer) Run(ctx context.Context) error {
	pause := firstPause
	upkeep := time.Now() // when it is next due
	for ctx.Err() == nil {
		if !time.Now().Before(upkeep) {
			upkeep = time.Now().Add(upkeepEvery)
			if err := d.Upkeep(ctx); err != nil && ctx.Err() == nil {
				d.config.Log.Warn("the outbox could not be maintained", "error", err)
			}
		}
		claimed, err := d.Drain(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			d.config.Log.Warn("the outbox could not be published", "error", err, "pause", pause)
			// Drainers that fail together should not retry together.
			d.wait(ctx, pause/2+rand.N(pause/2), nil)
			pause = min(2*pause, maxPause)
			continue
		case claimed < d.config.Batch:
			d.wait(ctx, d.config.Poll, d.wake)
		}
		pause = firstPause
	}
	return nil
}

// wait returns when the pause is over, early is signalled, or ctx ends.
func (d *Drainer) wait(ctx context.Context, pause time.Duration, early <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-early:
	}
}

// Drain claims rows once and publishes them. It returns how many rows were claimed; fewer than the batch means that
// there were no more. An error comes from the database or from publishing; refused rows are no error.
func (d *Drainer) Drain(ctx context.Context) (claimed int, err error) {
	claim, err := d.config.Store.Claim(ctx, d.config.Batch, d.config.Lease)
	if err != nil {
		d.failed()
		return 0, fmt.Errorf("claim rows of the outbox: %w", err)
	}
	if len(claim.Rows) == 0 {
		return 0, nil
	}
	// Publishing ends before the lease does, so that two drainers rarely send the same rows.
	publishing, cancel := context.WithTimeout(ctx, d.config.Lease*3/4)
	defer cancel()
	s := sending{publish: d.config.Publish, blocked: map[string]bool{}}
	err = s.publishAll(publishing, claim.Rows)
	if err != nil {
		d.failed()
		err = fmt.Errorf("publish %d rows of the outbox: %w", len(claim.Rows), err)
	}
	// Settle even if ctx has ended: otherwise published rows would be published again.
	settling, done := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer done()
	if failure := d.config.Store.Settle(settling, claim, s.outcome, d.config.Keep > 0); failure != nil {
		d.failed()
		err = errors.Join(err, fmt.Errorf("settle rows of the outbox: %w", failure))
	}
	for _, refusal := range s.outcome.Refused {
		d.config.Log.Error("an event of the outbox is refused, and blocks its stream", "id", refusal.Row.ID, "stream", refusal.Row.Stream, "reason", refusal.Reason, "attempts", refusal.Row.Attempts+1)
	}
	if o := d.config.Observer; o.Published != nil && len(s.outcome.Published) > 0 {
		o.Published(len(s.outcome.Published))
	}
	if o := d.config.Observer; o.Refused != nil && len(s.outcome.Refused) > 0 {
		o.Refused(len(s.outcome.Refused))
	}
	return len(claim.Rows), err
}

func (d *Drainer) failed() {
	if d.config.Observer.Failed != nil {
		d.config.Observer.Failed()
	}
}

// Upkeep reports the lag to the observer, and removes kept rows whose time is over. Run calls it every 10 s.
func (d *Drainer) Upkeep(ctx context.Context) error {
	var problems []error
	if report := d.config.Observer.Lag; report != nil {
		lag, err := d.config.Store.Lag(ctx)
		if err == nil {
			report(lag)
		}
		problems = append(problems, err)
	}
	for {
		removed, err := d.config.Store.Sweep(ctx, d.config.Keep, sweptAtOnce)
		if removed > 0 && d.config.Observer.Swept != nil {
			d.config.Observer.Swept(removed)
		}
		if err != nil || removed < sweptAtOnce {
			problems = append(problems, err)
			break
		}
	}
	return errors.Join(problems...)
}
