package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	// countStep is how many events are counted at a time.
	countStep = 20_000
	// recheck is how long holds are taken for true while slices are removed.
	recheck = 5 * time.Second
	// callWithin bounds one call of the store, or of who holds events.
	callWithin = 30 * time.Second
)

// run is one run of a policy, or a part of one.
type run struct {
	*Retention
	tenant domain.TenantID
	id     domain.RetentionRunID
	work   domain.RetentionWork

	sweepTo   int64 // what age and count say should go, and compacting, if nothing held it
	compactTo int64
	holds     []domain.RetentionHold
	checked   time.Time // when the holds were read
	announced int64
	until     time.Time // when it is another one's turn

	below int64 // in supersede: what is above stays

	sweptTo     int64 // how far it has come
	compactedTo int64
	removed     int64
}

// outcome is how a run ended.
type outcome struct {
	more bool      // it is not through, and may go on at once
	head int64     // of the log when it began
	idle bool      // there is nothing to do before the head moves,
	next time.Time // or before this time; zero: never
}

// runOnce runs a category's policy, for one turn at the most.
func (r *Retention) runOnce(ctx context.Context, tenant domain.TenantID, category string) (outcome, error) {
	x := &run{Retention: r, tenant: tenant, id: domain.NewRetentionRunID()}
	err := x.call(ctx, func(ctx context.Context) (err error) {
		x.work, err = r.config.Store.BeginRetention(ctx, tenant, category, r.config.Grace)
		return err
	})
	if domain.IsCode(err, domain.CodeNotFound) {
		return outcome{idle: true}, x.withdraw(ctx, tenant, category)
	}
	if err != nil {
		return outcome{}, err
	}
	x.sweptTo, x.compactedTo = x.work.SweptTo, x.work.CompactedTo
	finished, err := x.remove(ctx)
	if stopped(err) {
		// Whoever has come in between keeps what becomes of it.
		return outcome{}, errors.Join(err, x.withdraw(ctx, tenant, category))
	}
	var held []domain.RetentionHold
	if err == nil {
		held, err = r.inTheWay(ctx, tenant, category, x.holds, max(x.sweepTo, x.compactTo))
	}
	end := domain.RetentionEnd{
		Category: category, Revision: x.work.Revision, Run: x.id, SweptTo: x.sweptTo, CompactedTo: x.compactedTo,
		HeldBy: held, Finished: finished && err == nil, AskedAt: x.work.AskedAt,
	}
	if err != nil && ctx.Err() == nil {
		end.Error = domain.ClientMessage(err)
	}
	var spared int64
	// Also where ctx has ended: what was announced is to be taken back.
	endErr := x.call(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		spared, err = r.config.Store.EndRetention(ctx, tenant, end)
		return err
	})
	if err = errors.Join(err, endErr); err != nil {
		return outcome{}, err
	}
	out := outcome{more: !finished, head: x.work.Head}
	if finished && len(held) == 0 && spared == 0 && x.work.Ripe >= x.work.Head {
		return x.rest(ctx, out)
	}
	return out, nil
}

// withdraw takes back what the run has announced, or whoever had a policy that is gone.
func (x *run) withdraw(ctx context.Context, tenant domain.TenantID, category string) error {
	return x.call(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return x.config.Store.WithdrawRetention(ctx, tenant, category, x.id)
	})
}

// rest finds out until when there is nothing to do.
func (x *run) rest(ctx context.Context, out outcome) (outcome, error) {
	out.idle = true
	if x.work.MaxAge == 0 {
		return out, nil
	}
	err := x.call(ctx, func(ctx context.Context) error {
		next, at, err := x.config.Store.RetentionNext(ctx, x.tenant, x.work.Category, x.sweptTo)
		if next > 0 {
			out.next = at.Add(x.work.MaxAge)
		}
		return err
	})
	return out, err
}

// stopped reports whether a run must not go on, since the policy is another one now, or another run has begun.
func stopped(err error) bool {
	return domain.IsCode(err, domain.CodeConflict) || domain.IsCode(err, domain.CodeNotFound)
}

// call bounds one call.
func (x *run) call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	return do(ctx)
}

// remove does the run's work; finished is false where its turn is over before.
func (x *run) remove(ctx context.Context) (finished bool, err error) {
	if err := x.bounds(ctx); err != nil {
		return false, err
	}
	if err := x.check(ctx); err != nil {
		return false, err
	}
	x.until = time.Now().Add(x.config.Turn)
	before := max(x.compactedTo, x.sweptTo) // what was compacted by runs before this one
	for _, stage := range []struct {
		reason domain.RetentionReason
		from   *int64
		to     func() int64
	}{
		{domain.RetentionSweep, &x.sweptTo, func() int64 { return x.allowed(x.sweepTo) }},
		{domain.RetentionCompact, &x.compactedTo, func() int64 { return x.allowed(x.compactTo) }},
		{domain.RetentionSpared, new(int64), func() int64 {
			if x.work.Spared == 0 {
				return 0
			}
			return x.allowed(x.furthest())
		}},
	} {
		if stage.reason == domain.RetentionCompact && x.work.Compact {
			x.compactedTo = max(x.compactedTo, x.sweptTo) // nothing is left there but what was spared
		}
		for *stage.from < stage.to() {
			over, err := x.slice(ctx, stage.reason, stage.from, stage.to())
			if over || err != nil {
				return false, err
			}
		}
	}
	if over, err := x.supersede(ctx, before); over || err != nil {
		return false, err
	}
	if floor := x.work.Floor; x.announced == 0 && floor.AnnouncedTo > floor.RemovedTo {
		// By a run that has come to no end: what is left of it to do is held. With this one's end it is taken back.
		return true, x.call(ctx, func(ctx context.Context) error {
			_, err := x.config.Store.AnnounceRetention(ctx, x.tenant, x.work.Category, x.work.Revision, x.id, 0)
			return err
		})
	}
	return true, nil
}

// supersede removes what runs before this one left as the newest of its stream, and newer events have superseded that are
// held themselves. It goes through those once, and what is appended later in a later run.
func (x *run) supersede(ctx context.Context, before int64) (over bool, err error) {
	if !x.work.Compact || before == 0 {
		return false, nil
	}
	at := key{x.tenant, x.work.Category}
	x.mu.Lock()
	from := x.superseded[at]
	x.mu.Unlock()
	if from.revision != x.work.Revision {
		from = looked{revision: x.work.Revision}
	}
	from.to = max(from.to, x.compactedTo)
	x.below = before
	for from.to < x.compactTo && !over && err == nil {
		over, err = x.slice(ctx, domain.RetentionSuperseded, &from.to, x.compactTo)
	}
	x.mu.Lock()
	x.superseded[at] = from
	x.mu.Unlock()
	return over, err
}

// looked is how far a policy's events were looked through for what they supersede.
type looked struct{ revision, to int64 }

// furthest is how far the run may remove anything, if nothing holds it: what it has come to before included, where something
// may have been spared.
func (x *run) furthest() int64 {
	return max(x.sweepTo, x.compactTo, x.work.SweptTo, x.work.CompactedTo)
}

// allowed is how far the run may remove what is up to a position. What is held no more since it was announced is left to the
// next run: an announcement that ran after a fast reader would never end.
func (x *run) allowed(upTo int64) int64 {
	if x.announced > 0 {
		upTo = min(upTo, x.announced)
	}
	return lowest(x.holds, upTo)
}

// bounds finds out how far the policy's rules go.
func (x *run) bounds(ctx context.Context) error {
	counted, err := x.counted(ctx, x.tenant, &x.work, x.pace.keep)
	if err != nil {
		return err
	}
	x.sweepTo = min(max(x.work.Aged, counted), x.work.Ripe)
	if x.work.Compact {
		x.compactTo = x.work.Ripe
	}
	return nil
}

// counted returns the position up to which events go since there are enough above; 0 where none does.
func (r *Retention) counted(ctx context.Context, tenant domain.TenantID, work *domain.RetentionWork, keep func(context.Context, func() error) error) (int64, error) {
	if work.MaxCount == 0 {
		return 0, nil
	}
	below := work.Head + 1
	for left := work.MaxCount; left > 0 && below > 0; {
		n := min(left, countStep)
		err := keep(ctx, func() (err error) {
			below, err = r.config.Store.RetentionNth(ctx, tenant, work.Category, below, n)
			return err
		})
		if err != nil {
			return 0, err
		}
		left -= n
	}
	return max(0, below-1), nil
}

// check reads the holds anew.
func (x *run) check(ctx context.Context) error {
	return x.call(ctx, func(ctx context.Context) error {
		holds, err := x.Retention.holds(ctx, x.tenant, &x.work.RetentionPolicy)
		if err != nil {
			return fmt.Errorf("find out who still needs events: %w", err)
		}
		x.holds, x.checked = holds, time.Now()
		return nil
	})
}

// announce writes down how far the run removes, asks for the holds behind that, and takes back what they forbid.
func (x *run) announce(ctx context.Context) error {
	write := func() error {
		upTo := lowest(x.holds, x.furthest())
		return x.call(ctx, func(ctx context.Context) error {
			_, err := x.config.Store.AnnounceRetention(ctx, x.tenant, x.work.Category, x.work.Revision, x.id, upTo)
			x.announced = upTo
			return err
		})
	}
	if err := write(); err != nil {
		return err
	}
	if err := x.check(ctx); err != nil {
		return err
	}
	if lowest(x.holds, x.announced) < x.announced {
		return write()
	}
	return nil
}

// slice takes one slice, from position from on, and up to a position. over says that the turn is.
func (x *run) slice(ctx context.Context, reason domain.RetentionReason, from *int64, upTo int64) (over bool, err error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if !x.config.Owns(x.tenant) || time.Now().After(x.until) {
		return true, nil
	}
	if x.announced > 0 && time.Since(x.checked) > recheck {
		if err := x.check(ctx); err != nil {
			return false, err
		}
		return false, x.announce(ctx)
	}
	var slice domain.RetentionSlice
	err = x.pace.keep(ctx, func() error {
		return x.call(ctx, func(ctx context.Context) (err error) {
			slice, err = x.config.Store.RemoveRetained(ctx, x.tenant, domain.RetentionStep{
				RetentionPolicy: x.work.RetentionPolicy, Revision: x.work.Revision, Run: x.id, Reason: reason, After: *from, UpTo: upTo,
				Limit: x.config.Slice, SweptTo: x.sweptTo, CompactedTo: x.compactedTo, Ripe: x.compactTo, Below: x.allowed(x.below),
			})
			return err
		})
	})
	if err != nil {
		return false, err
	}
	if slice.Removed > 0 {
		x.removed += slice.Removed
		if x.config.Observer.Removed != nil {
			x.config.Observer.Removed(slice.Removed)
		}
	}
	*from = slice.Seen
	switch {
	case slice.Unannounced:
		return false, x.announce(ctx)
	case slice.Done && slice.HeldAt >= 0:
		// A group holds it that did not before: how far it goes is asked for anew.
		return false, x.check(ctx)
	}
	return false, nil
}
