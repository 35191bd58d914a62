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
	// recheck is how long holds count as current while slices are removed.
	recheck = 5 * time.Second
	// callWithin bounds one call of the store or of a holder.
	callWithin = 30 * time.Second
)

// run is one run of a policy, or a part of one.
type run struct {
	*Retention
	tenant domain.TenantID
	id     RunID
	work   Work

	sweepTo   int64 // targets of age and count, and of compacting, before holds apply
	compactTo int64
	holds     []domain.RetentionHold
	checked   time.Time // when the holds were read
	announced int64
	until     time.Time // when the turn ends

	below int64 // in supersede: events above this position stay

	sweptTo     int64 // progress so far
	compactedTo int64
	removed     int64
}

// outcome is how a run ended.
type outcome struct {
	more bool      // the run has not finished and may continue at once
	head int64     // of the log when the run began
	idle bool      // there is nothing to do before the head moves,
	next time.Time // or before this time; zero: never
}

// runOnce runs a category's policy, for one turn at most.
func (r *Retention) runOnce(ctx context.Context, tenant domain.TenantID, category string) (outcome, error) {
	x := &run{Retention: r, tenant: tenant, id: NewRunID()}
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
		// The run that took over records its own result.
		return outcome{}, errors.Join(err, x.withdraw(ctx, tenant, category))
	}
	var held []domain.RetentionHold
	if err == nil {
		held, err = r.blockingHolds(ctx, tenant, category, x.holds, max(x.sweepTo, x.compactTo))
	}
	end := End{
		Category: category, Revision: x.work.Revision, Run: x.id, SweptTo: x.sweptTo, CompactedTo: x.compactedTo,
		HeldBy: held, Finished: finished && err == nil, AskedAt: x.work.AskedAt,
	}
	if err != nil && ctx.Err() == nil {
		end.Error = domain.ClientMessage(err)
	}
	var spared int64
	// This also runs after ctx has ended, because the announcement must be withdrawn.
	endErr := x.call(context.WithoutCancel(ctx), func(ctx context.Context) (err error) {
		spared, err = r.config.Store.EndRetention(ctx, tenant, end)
		return err
	})
	if err = errors.Join(err, endErr); err != nil {
		return outcome{}, err
	}
	out := outcome{more: !finished, head: x.work.Head}
	// A hold may have been released after the announcement, or after the stage that it ended.
	released := x.sweptTo < lowest(x.holds, x.sweepTo) || x.compactedTo < lowest(x.holds, x.compactTo)
	if finished && len(held) == 0 && !released && spared == 0 && x.work.Ripe >= x.work.Head {
		return x.findRest(ctx, out)
	}
	return out, nil
}

// withdraw takes back the announcement of this run, or of any run if the policy has been deleted.
func (x *run) withdraw(ctx context.Context, tenant domain.TenantID, category string) error {
	return x.call(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return x.config.Store.WithdrawRetention(ctx, tenant, category, x.id)
	})
}

// findRest finds out until when there is nothing to do.
func (x *run) findRest(ctx context.Context, out outcome) (outcome, error) {
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

// stopped reports whether a run must stop, because the policy has changed or another run has begun.
func stopped(err error) bool {
	return domain.IsCode(err, domain.CodeConflict) || domain.IsCode(err, domain.CodeNotFound)
}

// call runs do with the timeout callWithin.
func (x *run) call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	return do(ctx)
}

// remove does the run's work; finished is false if its turn ends first.
func (x *run) remove(ctx context.Context) (finished bool, err error) {
	if err := x.computeBounds(ctx); err != nil {
		return false, err
	}
	if err := x.readHolds(ctx); err != nil {
		return false, err
	}
	x.until = time.Now().Add(x.config.Turn)
	before := max(x.compactedTo, x.sweptTo) // what earlier runs have compacted
	for _, stage := range []struct {
		reason Reason
		from   *int64
		to     func() int64
	}{
		{ReasonSweep, &x.sweptTo, func() int64 { return x.allowed(x.sweepTo) }},
		{ReasonCompact, &x.compactedTo, func() int64 { return x.allowed(x.compactTo) }},
		{ReasonSpared, new(int64), func() int64 {
			if x.work.Spared == 0 {
				return 0
			}
			return x.allowed(x.furthest())
		}},
	} {
		if stage.reason == ReasonCompact && x.work.Compact {
			x.compactedTo = max(x.compactedTo, x.sweptTo) // only spared events are left there
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
		// An interrupted run left this announcement, and the rest of its work is held. Ending this run withdraws it.
		return true, x.call(ctx, func(ctx context.Context) error {
			_, err := x.config.Store.AnnounceRetention(ctx, x.tenant, x.work.Category, x.work.Revision, x.id, 0)
			return err
		})
	}
	return true, nil
}

// supersede removes events that earlier runs kept as the newest of their stream and that newer events, themselves held,
// have since superseded. It goes through those newer events once. Events appended later are left to a later run.
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
		over, err = x.slice(ctx, ReasonSuperseded, &from.to, x.compactTo)
	}
	x.mu.Lock()
	x.superseded[at] = from
	x.mu.Unlock()
	return over, err
}

// looked is how far supersede has gone through the events of a policy.
type looked struct{ revision, to int64 }

// furthest is the highest position up to which the run may remove anything if nothing holds it. It includes the
// progress of earlier runs, which may have spared events there.
func (x *run) furthest() int64 {
	return max(x.sweepTo, x.compactTo, x.work.SweptTo, x.work.CompactedTo)
}

// allowed returns how far the run may remove events up to a position. If a hold has been released since the
// announcement, the next run removes those events. A run whose announcement kept following a fast reader would never
// end.
func (x *run) allowed(upTo int64) int64 {
	if x.announced > 0 {
		upTo = min(upTo, x.announced)
	}
	return lowest(x.holds, upTo)
}

// computeBounds computes how far the policy's rules reach.
func (x *run) computeBounds(ctx context.Context) error {
	counted, err := x.counted(ctx, x.tenant, &x.work, x.pace.run)
	if err != nil {
		return err
	}
	x.sweepTo = min(max(x.work.Aged, counted), x.work.Ripe)
	if x.work.Compact {
		x.compactTo = x.work.Ripe
	}
	return nil
}

// counted returns the position up to which MaxCount removes events, because enough newer ones exist. It returns 0 if
// MaxCount removes none.
func (r *Retention) counted(ctx context.Context, tenant domain.TenantID, work *Work, keep func(context.Context, func() error) error) (int64, error) {
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

// readHolds reads the holds again.
func (x *run) readHolds(ctx context.Context) error {
	return x.call(ctx, func(ctx context.Context) error {
		holds, err := x.Retention.holds(ctx, x.tenant, &x.work.Policy)
		if err != nil {
			return fmt.Errorf("read the holds on events: %w", err)
		}
		x.holds, x.checked = holds, time.Now()
		return nil
	})
}

// announce writes how far the run will remove events. It then reads the holds again and lowers the announcement if they
// forbid part of it.
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
	if err := x.readHolds(ctx); err != nil {
		return err
	}
	if lowest(x.holds, x.announced) < x.announced {
		return write()
	}
	return nil
}

// slice removes one slice of events, after *from and up to upTo. over reports that the turn has ended.
func (x *run) slice(ctx context.Context, reason Reason, from *int64, upTo int64) (over bool, err error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if !x.config.Owns(x.tenant) || time.Now().After(x.until) {
		return true, nil
	}
	if x.announced > 0 && time.Since(x.checked) > recheck {
		if err := x.readHolds(ctx); err != nil {
			return false, err
		}
		return false, x.announce(ctx)
	}
	var slice Slice
	err = x.pace.run(ctx, func() error {
		return x.call(ctx, func(ctx context.Context) (err error) {
			slice, err = x.config.Store.RemoveRetained(ctx, x.tenant, Step{
				Policy: x.work.Policy, Revision: x.work.Revision, Run: x.id, Reason: reason, After: *from, UpTo: upTo,
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
		// A group has begun to hold this event since the last check, so read the holds again.
		return false, x.readHolds(ctx)
	}
	return false, nil
}
