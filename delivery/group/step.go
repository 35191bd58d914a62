package group

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// step is one change of a ledger that applies all waiting requests.
type step struct {
	p           *partition
	answers     []*answer
	receives    []*receive
	dueRequests []*dueRequest
	sweepDue    bool
	outdated    bool
	recheckDue  bool // the known ledger may be outdated
	ledgerRead  bool // the ledger was read in this step
	began       time.Time

	dueUnknown error // why it is unknown what is due
	orphaned   bool  // events are leased to a member that is gone

	leasesBegunAt time.Time        // when this try granted its leases, by the latest bound of the database's clock
	slack         time.Duration    // how much later the leases begin, to allow for the save
	ackTimeout    time.Duration    // length of these leases
	undelivered   []domain.Attempt // attempts that were leased but must not be delivered

	wasFull     bool       // no room before the answers were applied
	served      []*receive // receives that may be given events
	nextServed  int        // index of the first one in served that may have room
	mayHaveMore bool       // there may be more to deliver, so another step follows
	counts      stepCounts
}

// stepCounts counts what to report to the observer after a save.
type stepCounts struct {
	delivered, expired, parked int
}

// newStep collects the waiting requests into a step. p.mu must be held.
func (p *partition) newStep() *step {
	s := &step{p: p, sweepDue: p.sweepDue, outdated: p.outdated}
	s.answers, p.answers = p.answers, nil
	s.dueRequests, p.dueRequests = p.dueRequests, nil
	if p.mayDeliver {
		for _, r := range p.receives {
			if r.claim(p) {
				s.receives = append(s.receives, r)
			}
		}
	}
	if len(s.receives) > 0 {
		p.readyEvents.Store(0) // other receives ask other partitions, even if this step hangs
	}
	// A notice may be lost. So waiting receives look again in time, however often others ask meanwhile.
	s.recheckDue = len(s.receives) > 0 && time.Since(p.checkedAt) >= p.recheckAfter
	p.sweepDue, p.outdated, p.mayDeliver = false, false, false
	return s
}

// run makes the step, and answers the requests.
func (s *step) run() {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	p := s.p
	s.began = time.Now()
	err := s.repeatTries(ctx)
	if err == nil {
		if late := s.renewLeases(ctx); late != nil {
			p.forgetLedger(late)
			s.recallLeases(late)
		}
	}
	if err != nil {
		p.forgetLedger(err)
		if len(s.answers)+len(s.receives)+len(s.dueRequests) == 0 {
			p.groups.config.Log.Warn("expired deliveries of a group could not be processed; trying again", "tenant", p.group.tenant.String(), "group", p.group.name, "error", err)
		}
	}
	p.countMemory()
	p.countReady()
	s.finish(err, time.Since(s.began))
}

// tryEnd is how a step's try to apply the requests to the known ledger ends:
//
//	end         | next
//	tryDone     | the requests are answered
//	tryOutdated | the ledger is read, and another try follows
//	tryUnread   | the receives fail, and another try follows for the answers; without answers, the step fails
//	tryFailed   | the step fails
type tryEnd uint8

const (
	tryDone     tryEnd = iota // the ledger is saved, or need not be
	tryOutdated               // another process has changed the ledger, or may have changed it
	tryUnread                 // events to deliver cannot be read
	tryFailed                 // any other error
)

// repeatTries makes tries until one is done or the step fails.
func (s *step) repeatTries(ctx context.Context) error {
	p := s.p
	if p.ledgerKnown && s.recheckDue && !s.outdated {
		s.outdated = !p.recheck(ctx)
	}
	for try := 0; try < stepTries; try++ {
		if try > 1 {
			if err := pause(ctx, conflictPause*time.Duration(try)); err != nil {
				return unavailableNow(err)
			}
		}
		if !p.ledgerKnown || s.outdated || try > 0 {
			if err := p.readLedger(ctx, try > 1); err != nil {
				return err
			}
			s.ledgerRead, s.outdated = true, false
		}
		switch end, err := s.try(ctx); {
		case end == tryUnread && len(s.answers) > 0:
			s.failReceives(err) // it is no reason to reject answers for other events
		case end != tryOutdated:
			return err
		}
	}
	return domain.Errorf(domain.CodeUnavailable, "", "too many processes are changing this group at the same time; try again")
}

// failReceives fails the receives, so that the step continues without them.
func (s *step) failReceives(err error) {
	for _, r := range s.receives {
		r.deliveries = nil
		r.finish(s.p, err)
	}
	s.receives = nil
}

func unavailableNow(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return domain.Errorf(domain.CodeUnavailable, "", "the database does not answer in time; try again")
	}
	return err
}

func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// try applies the requests to the known ledger, and saves it.
func (s *step) try(ctx context.Context) (tryEnd, error) {
	p := s.p
	s.counts, s.mayHaveMore = stepCounts{}, false
	s.wasFull = p.ledger.inFlight() >= p.row.Group.MaxInFlight
	now, begin := p.clock.now().UnixMicro(), s.beginLeases()
	if !s.applyAnswers(now, begin) && !s.ledgerRead {
		return tryOutdated, nil // one may be for a delivery of another process
	}
	if err := s.serve(ctx, now, begin); err != nil {
		return tryUnread, err
	}
	if len(s.dueRequests) > 0 && !p.row.Group.Paused {
		if s.dueUnknown = s.findNextNew(ctx); s.dueUnknown == nil {
			s.orphaned, s.dueUnknown = p.orphaned(ctx, now)
		}
	}
	if !p.mustSave() {
		if !s.verify(s.ledgerRead) {
			return tryOutdated, nil // another process may have left something
		}
		return tryDone, nil
	}
	saved, err := s.save(ctx)
	switch {
	case err != nil:
		return tryFailed, err
	case !saved:
		return tryOutdated, nil
	}
	s.verify(true)
	return tryDone, nil
}

// applyAnswers applies the answers. settled is false if one is for an event without a lease.
func (s *step) applyAnswers(now, begin int64) (settled bool) {
	settled = true
	for _, a := range s.answers {
		if !a.apply(s.p.ledger, &s.p.row.Group, now, begin) {
			settled = false
		}
	}
	return settled
}

// serve leases events to the receives, after interrupting those whose leases have expired.
func (s *step) serve(ctx context.Context, now, begin int64) error {
	p, group := s.p, &s.p.row.Group
	s.served = s.receives
	if len(s.receives) > 0 && group.Partitions > 0 && !group.Paused {
		if err := s.admit(ctx, now); err != nil {
			return err
		}
	}
	if len(s.receives) > 0 || s.sweepDue {
		parked := p.ledger.expireLeases(now, group.MaxAttempts)
		s.counts.parked += parked
		s.counts.expired += parked
	}
	for i, r := range s.receives {
		r.reset(group.BatchSize, now+int64(i))
	}
	if len(s.served) == 0 || group.Paused {
		return nil
	}
	p.upTo = latestOf(s.served)
	return s.deliver(ctx, now, begin)
}

// verify reports whether every receive without events has been checked against this partition's newest ledger at least
// once. After that, changes wake the receive. newest says that this try was such a check: the ledger was read for it,
// or saved after it, which fails unless the ledger is the newest. A top-up receive may use the known ledger.
func (s *step) verify(newest bool) bool {
	for _, r := range s.receives {
		if len(r.deliveries) > 0 || r.topUpBytes > 0 || slices.Contains(r.verified, s.p) {
			continue
		}
		if !newest {
			return false
		}
		r.verified = append(r.verified, s.p)
	}
	return true
}

// save saves the ledger, and starts to read the next events meanwhile.
func (s *step) save(ctx context.Context) (saved bool, err error) {
	p := s.p
	change := p.ledger.change()
	change.GroupRevision, change.Revision = p.row.Group.Revision, p.row.Revision
	if len(s.served) > 0 {
		p.ahead.startRead(&p.groups.running, min(p.group.head.Load(), p.ends()))
	}
	asked := time.Now()
	now, saved, err := p.groups.config.Store.SaveLedger(ctx, p.group.tenant, p.group.name, change)
	if err != nil || !saved {
		return false, err
	}
	p.clock.set(now, asked)
	p.slack = min(max(p.clock.latest().Sub(s.leasesBegunAt), p.slack/2), maxSlack)
	p.checkedAt, p.recheckAfter, p.savedAt = asked, lookAgain, time.Now()
	p.row.Revision++
	p.ledger.saved()
	p.ahead.saved(p.ledger.readTo)
	return true, nil
}

// mustSave reports whether the ledger has changes to save. Mere progress of readTo may wait.
func (p *partition) mustSave() bool {
	passed := p.ledger.readTo - p.ledger.savedReadTo
	return p.ledger.dirty || passed >= maxPassed || passed > 0 && time.Since(p.savedAt) >= keepPassed(p.groups.inUse(p.group.tenant))
}

// finish answers the requests, and prepares the next step.
func (s *step) finish(err error, took time.Duration) {
	p := s.p
	if err == nil {
		if p.ledgerKnown {
			p.recordInFlight(s)
		}
		s.stampDeliveries()
		s.report(&p.groups.config.Observer, took)
	}
	changed := s.answerAll(err)
	p.mu.Lock()
	p.receives = slices.DeleteFunc(p.receives, (*receive).ended)
	p.mayDeliver = p.mayDeliver || s.mayHaveMore || changed
	if len(s.undelivered) > 0 {
		p.answers = append(p.answers, newGiveBack(s.undelivered))
	}
	if p.ledgerKnown && p.ledger.wantsReplays() {
		p.outdated, p.mayDeliver = true, true
	}
	if s.sweepDue && err != nil {
		p.nextPark = p.clock.now().Add(sweepFailed).UnixMicro()
	}
	announce, dropped := p.mustAnnounce(s, err == nil && changed && p.ledgerKnown), p.dropped()
	p.mu.Unlock()
	if dropped {
		for _, r := range s.receives {
			r.fail(errDropped) // if it would keep waiting
		}
	}
	if announce {
		p.groups.config.Store.NotifyGroup(p.group.tenant, p.group.name)
	}
}

// answerAll answers the requests, and reports whether a consumer's answer has changed the ledger. Receives that keep
// waiting stay in the queue.
func (s *step) answerAll(err error) (changed bool) {
	for _, a := range s.answers {
		changed = changed || a.changed
		a.finish(err)
	}
	for _, r := range s.receives {
		r.mayHaveMore = s.mayHaveMore
		s.undelivered = append(s.undelivered, r.finish(s.p, err)...)
	}
	for _, ask := range s.dueRequests {
		if ask.err = cmp.Or(err, s.dueUnknown); ask.err == nil {
			ask.due = s.p.nextDue()
			ask.due.Now = ask.due.Now || s.orphaned
		}
		close(ask.done)
	}
	return changed
}

// mustAnnounce reports whether other processes must be notified that something may be deliverable. answered is set if
// answers have changed the ledger. The caller holds the lock.
func (p *partition) mustAnnounce(s *step, answered bool) bool {
	waiting := len(p.receives) > 0
	p.unannounced = p.unannounced || answered && (s.wasFull || p.deliverable())
	// Receives waiting here come first. If one still waits afterwards, nothing is left to deliver.
	announce := p.unannounced && !waiting || answered && p.mayChangeOwner()
	p.unannounced = p.unannounced && waiting && p.mayDeliver
	return announce
}

func (s *step) report(o *Observer, took time.Duration) {
	p := s.p
	now := p.clock.now().UnixMicro()
	for _, a := range s.answers {
		a.report(o, now)
		s.counts.parked += a.parked
	}
	if s.counts.expired > 0 && o.Expired != nil {
		o.Expired(s.counts.expired)
	}
	if s.counts.parked > 0 && o.Parked != nil {
		o.Parked(s.counts.parked)
	}
	if s.counts.delivered > 0 && o.Delivered != nil {
		o.Delivered(p.group.tenant, s.counts.delivered)
	}
	if o.Received != nil {
		for _, r := range s.receives {
			if len(r.deliveries) > 0 {
				o.Received(took, len(r.deliveries))
			}
		}
	}
}
