package subscription

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Times and bounds of a partition's work.
const (
	stepTimeout   = 30 * time.Second     // for one step; the store's own are shorter
	stepTime      = time.Second / 4      // behind which a step looks for nothing more to deliver: answers wait for it
	stepTries     = 50                   // of a step that others get in the way of
	conflictPause = 2 * time.Millisecond // between them, from the second on, longer each time
	leastWait     = 5 * time.Millisecond // of those who wait
	lookAgain     = time.Second          // between two looks at a partition that somebody waits for, without any reason
	lookSeldom    = 5 * time.Second      // the same where the last ones have found nothing new
	keepPassed    = 2 * time.Second      // how long a readTo that grew without deliveries may wait to be saved
	maxPassed     = 1000                 // or by how many positions it may grow
	idlePartition = time.Minute          // until a partition that nobody uses is forgotten
	sweepFailed   = 5 * time.Second      // until what has timed out is looked after again, when that has failed
	sweepEvery    = time.Second          // between two looks at what has timed out
	maxWaiting    = 1000                 // receives that wait in one group, and answers in one partition
)

// partition is one partition of a group in this process: what it knows of the ledger, and the requests that wait. It has a
// goroutine only while there is something to do. Requests that wait while a step is being saved go together in the next.
type partition struct {
	groups *Groups
	group  *group
	number int

	mu       sync.Mutex
	gone     bool // forgotten: another has taken its place
	answers  []*answer
	receives []*receive // first come, first served
	dues     []*dueAsk
	running  bool
	news     bool // there may be something to deliver that was not there at the last look
	stale    bool // the ledger may have been changed by others
	sweep    bool // something has timed out, or waits to be saved
	untold   bool // there may be something to deliver of which other processes do not know
	used     time.Time
	inFlight int         // events of mine, when the last step was done
	alarm    *time.Timer // wakes those who wait; nil: never set

	// Read by the sweep while nothing is running.
	nextPark int64 // when a lease expires that is its event's last attempt; 0: none
	unsaved  bool  // readTo has grown and was not saved

	// The running goroutine's.
	open    bool // what follows is known
	row     domain.LedgerRow
	ledger  *ledger
	ahead   lookahead
	streams streamsAhead
	clock   clock
	newest  time.Time     // by the local clock: what is known of the ledger was the newest then
	looking time.Duration // and is held against it after so long, where somebody waits
	savedAt time.Time     // by the local clock
	young   int64         // when the next new event has waited for the group's delay; 0: there is none that waits
	upTo    int64         // that of the receives served last; 0: they had no such bound
	held    int           // bytes of events that it has in memory, as groups.held counts them

	mine map[domain.EventID]int // attempts that were delivered here and are not settled, as far as is known
}

// kick sees to it that somebody looks after what waits. p.mu must be held.
func (p *partition) kick() {
	if p.running || p.gone {
		return
	}
	p.running = true
	p.groups.running.Add(1)
	go p.run()
}

// awaken has those who wait look again; stale: what is known of the ledger may no longer be so.
func (p *partition) awaken(stale bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stale = p.stale || stale
	p.news = true
	if len(p.receives) > 0 {
		p.kick()
	}
}

// run makes step after step until there is nothing to do.
func (p *partition) run() {
	defer p.groups.running.Done()
	for {
		p.gather()
		p.mu.Lock()
		if len(p.answers) == 0 && len(p.dues) == 0 && !(p.news && len(p.receives) > 0) && !p.sweep {
			p.rest()
			p.mu.Unlock()
			return
		}
		s := p.begin()
		p.mu.Unlock()
		s.make()
	}
}

// gather lets those who were just answered, and ask again at once, into the queues.
func (p *partition) gather() {
	const turns = 8
	for before, n := -1, 0; n < turns; n++ {
		runtime.Gosched()
		p.mu.Lock()
		waiting := len(p.answers) + len(p.receives)
		p.mu.Unlock()
		if waiting <= before {
			return
		}
		before = waiting
	}
}

// rest ends the running goroutine's work, and has those who still wait woken in time. p.mu must be held.
func (p *partition) rest() {
	p.running, p.used = false, time.Now()
	if p.gone {
		p.groups.held.Add(-int64(p.held))
		p.held = 0
		return
	}
	p.unsaved = false
	if p.open {
		p.nextPark, p.unsaved = 0, p.ledger.readTo > p.ledger.kept
		for _, le := range p.ledger.leaseOf {
			if le.lastAttempt(p.row.Group.MaxAttempts) && (p.nextPark == 0 || le.deadline < p.nextPark) {
				p.nextPark = le.deadline
			}
		}
	}
	if len(p.receives) == 0 {
		if p.alarm != nil {
			p.alarm.Stop()
		}
		return
	}
	wait := max(p.looking-time.Since(p.newest), leastWait)
	if p.open && !p.row.Group.Paused {
		// A retry that is due where there is no room waits for an answer, or for a lease that expires.
		if due := p.ledger.nextDue(p.ledger.inFlight() < p.row.Group.MaxInFlight); due > 0 {
			wait = min(wait, max(time.UnixMicro(due).Sub(p.clock.now()), leastWait))
		}
		if p.young > 0 {
			wait = min(wait, max(time.UnixMicro(p.young).Sub(p.clock.now()), leastWait))
		}
	}
	if p.alarm != nil {
		p.alarm.Stop()
	}
	p.alarm = time.AfterFunc(wait, func() { p.awaken(false) })
}

// close stops the alarm of a partition that is forgotten. p.mu must be held.
func (p *partition) close() {
	p.gone = true
	if !p.running {
		p.groups.held.Add(-int64(p.held))
		p.held = 0
	}
	if p.alarm != nil {
		p.alarm.Stop()
	}
}

// step is what is done to a ledger at once: all that waited.
type step struct {
	p        *partition
	answers  []*answer
	receives []*receive
	dues     []*dueAsk
	sweep    bool
	stale    bool
	fresh    bool // the ledger was read in this step
	began    time.Time

	unlooked error // why it is not known what is due

	wasFull bool       // there was no room before the answers
	served  []*receive // those of receives that may be given events
	serving int        // the first of them that may have room
	more    bool       // there may be more to deliver: another step is to follow
	told    told
}

// told is what the observer is told when a step was saved.
type told struct {
	delivered, expired, parked int
}

// begin takes what waits. p.mu must be held.
func (p *partition) begin() *step {
	s := &step{p: p, sweep: p.sweep, stale: p.stale}
	s.answers, p.answers = p.answers, nil
	s.dues, p.dues = p.dues, nil
	if p.news {
		for _, r := range p.receives {
			if r.claim(p) {
				s.receives = append(s.receives, r)
			}
		}
	}
	// A notice may be lost. However often others ask meanwhile: who waits looks again in time.
	s.stale = s.stale || len(s.receives) > 0 && time.Since(p.newest) >= p.looking
	p.sweep, p.stale, p.news = false, false, false
	return s
}

// make makes the step, and answers those who asked.
func (s *step) make() {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	p := s.p
	s.began = time.Now()
	err := s.try(ctx)
	if err != nil {
		p.forget(err)
		if len(s.answers)+len(s.receives)+len(s.dues) == 0 {
			p.groups.config.Log.Warn("what has timed out in a group was not looked after; trying again", "tenant", p.group.tenant.String(), "group", p.group.name, "error", err)
		}
	}
	p.count()
	s.finish(err, time.Since(s.began))
}

// forget lets go of what is known of the ledger, after an error.
func (p *partition) forget(err error) {
	p.open = false
	p.ahead.join() //nolint:errcheck // what it read is not wanted
	p.row, p.ledger, p.young, p.upTo = domain.LedgerRow{}, nil, 0, 0
	p.ahead, p.streams = lookahead{}, streamsAhead{}
	if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Code == domain.CodeNotFound || errors.Is(err, errForgotten) {
		p.groups.drop(p.group, err)
	}
}

// count counts what the partition has in memory. Where all of them together have too much, this one reads no further ahead than
// it must.
func (p *partition) count() {
	held := p.ahead.held() + p.streams.bytes
	all := p.groups.held.Add(int64(held - p.held))
	p.held = held
	p.ahead.most, p.streams.most = aheadBytes, streamsAheadBytes
	if all > int64(p.groups.config.Bytes) {
		p.ahead.most, p.streams.most = scarceBytes, scarceBytes
	}
}

// try makes attempts until one is saved, or there is nothing to be saved.
func (s *step) try(ctx context.Context) error {
	p := s.p
	for try := 0; try < stepTries; try++ {
		if try > 1 {
			if err := pause(ctx, conflictPause*time.Duration(try)); err != nil {
				return unavailableNow(err)
			}
		}
		if !p.open || s.stale || try > 0 {
			if err := p.load(ctx, try > 1); err != nil {
				return err
			}
			s.fresh, s.stale = true, false
		}
		done, err := s.once(ctx)
		if failed, ok := errors.AsType[*readError](err); ok && len(s.answers) > 0 {
			// That events cannot be read is no reason not to take the answers to others.
			s.refuse(failed.error)
			continue
		}
		if done || err != nil {
			return err
		}
	}
	return domain.Errorf(domain.CodeUnavailable, "", "many others ask this group for events at the same time; try again")
}

// readError is that of reading events to be delivered.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// refuse answers the receives with an error, and goes on without them.
func (s *step) refuse(err error) {
	for _, r := range s.receives {
		r.deliveries = nil
		r.finish(err)
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

// load reads the ledger.
func (p *partition) load(ctx context.Context, wait bool) error {
	asked := time.Now()
	row, err := p.groups.config.Store.Ledger(ctx, p.group.tenant, p.group.name, p.number, wait)
	if err != nil {
		return err
	}
	p.clock.set(row.Now, asked)
	if !row.Group.CreatedAt.Equal(p.group.known.Load().CreatedAt) {
		return errForgotten // another group of the name has taken its place
	}
	l, err := openLedger(p.number, row)
	if err != nil {
		return fmt.Errorf("group %q of tenant %s, partition %d: %w; a seek makes it anew", p.group.name, p.group.tenant, p.number, err)
	}
	err = l.readBeside(domain.MaxReplays, func(streams []string) ([]domain.DeadLetter, error) {
		return p.groups.config.Store.ReplaysBeside(ctx, p.group.tenant, p.group.name, p.number, streams, domain.MaxReplays)
	})
	if err != nil {
		return err
	}
	if !p.open || row.Group.Revision != p.row.Group.Revision || p.ahead.selection == nil {
		if err := p.prepare(ctx, row.Group); err != nil {
			return err
		}
	}
	p.group.know(row.Group)
	same := p.open && row.Revision == p.row.Revision && row.Group.Revision == p.row.Group.Revision
	if p.looking = lookAgain; same && asked.Sub(p.newest) >= lookAgain {
		p.looking = lookSeldom
	}
	p.row, p.ledger, p.open, p.newest = row, l, true, asked
	p.row.Ledger, p.row.Retries, p.row.Replays = nil, nil, nil // the ledger has them
	p.ahead.at(l.readTo)
	p.streams.clear()
	return nil
}

// prepare makes what reads ahead the one of a group's definition.
func (p *partition) prepare(ctx context.Context, group domain.Group) error {
	selection, err := newSelection(group.Selection)
	if err != nil {
		return err
	}
	if _, err := p.ahead.join(); err != nil {
		return err
	}
	p.ahead = lookahead{
		log: p.group.recent, tenant: p.group.tenant, selection: selection, partition: p.number, partitions: group.Partitions, version: -1, most: aheadBytes,
		asking: p.group.asking, siftFor: siftTime,
	}
	head, err := p.groups.config.Store.Head(ctx, p.group.tenant)
	if err != nil {
		return err
	}
	p.group.moved(head.Position)
	return nil
}

// once applies the requests to the ledger and saves it. done is false where somebody else has changed it meanwhile, or what is
// known of it is not good enough.
func (s *step) once(ctx context.Context) (done bool, err error) {
	p := s.p
	l := p.ledger
	s.told, s.more = told{}, false
	s.wasFull = l.inFlight() >= p.row.Group.MaxInFlight
	now, latest := p.clock.now().UnixMicro(), p.clock.latest().UnixMicro()
	settled := true
	for _, a := range s.answers {
		if !a.apply(l, &p.row.Group, now, latest) {
			settled = false
		}
	}
	if !settled && !s.fresh {
		return false, nil // an answer to what another process has delivered, perhaps
	}
	s.served = s.receives
	if len(s.receives) > 0 && p.row.Group.Partitions > 0 && !p.row.Group.Paused {
		if err := s.admit(ctx, now); err != nil {
			return false, &readError{err}
		}
	}
	if len(s.receives) > 0 || s.sweep {
		parked := l.parkExpired(now, p.row.Group.MaxAttempts)
		s.told.parked += parked
		s.told.expired += parked
	}
	for _, r := range s.receives {
		r.begin(p.row.Group.BatchSize)
	}
	if len(s.served) > 0 && !p.row.Group.Paused {
		p.upTo = latestOf(s.served)
		if err := s.deliver(ctx, now, latest); err != nil {
			return false, &readError{err}
		}
	}
	if len(s.dues) > 0 && !p.row.Group.Paused {
		s.unlooked = s.look(ctx)
	}
	if !s.verified() {
		return false, nil // there may be something that another process has left
	}
	passed := l.readTo - l.kept
	if !l.dirty && passed < maxPassed && (passed == 0 || time.Since(p.savedAt) < keepPassed) {
		return true, nil
	}
	return s.save(ctx)
}

// verified reports whether each receive that has nothing was told so by the newest ledger of this partition once. From then on
// it is woken when that changes. One that only fills up another is content with what is known here.
func (s *step) verified() bool {
	for _, r := range s.receives {
		if len(r.deliveries) > 0 || r.rest > 0 || slices.Contains(r.verified, s.p) {
			continue
		}
		if !s.fresh {
			return false
		}
		r.verified = append(r.verified, s.p)
	}
	return true
}

// save saves the ledger, and has the next events read meanwhile.
func (s *step) save(ctx context.Context) (saved bool, err error) {
	p := s.p
	change := p.ledger.change()
	change.GroupRevision, change.Revision = p.row.Group.Revision, p.row.Revision
	if len(s.served) > 0 {
		p.ahead.begin(&p.groups.running, min(p.group.head.Load(), p.ends()))
	}
	asked := time.Now()
	now, saved, err := p.groups.config.Store.SaveLedger(ctx, p.group.tenant, p.group.name, change)
	if err != nil || !saved {
		return false, err
	}
	p.clock.set(now, asked)
	p.newest, p.looking, p.savedAt = asked, lookAgain, time.Now()
	p.row.Revision++
	p.ledger.saved()
	p.ahead.saved(p.ledger.readTo)
	return true, nil
}

// finish answers those who asked, and puts back into the queue those who go on waiting.
func (s *step) finish(err error, took time.Duration) {
	p := s.p
	observer := &p.groups.config.Observer
	if err == nil {
		p.note(s)
		s.tell(observer, took)
	}
	changed := false
	for _, a := range s.answers {
		changed = changed || a.changed
		a.finish(err)
	}
	var back []domain.Attempt
	for _, r := range s.receives {
		r.more = s.more
		back = append(back, r.finish(err)...)
	}
	for _, ask := range s.dues {
		if ask.err = cmp.Or(err, s.unlooked); ask.err == nil {
			ask.due = p.nextDue()
		}
		close(ask.done)
	}
	p.mu.Lock()
	p.receives = slices.DeleteFunc(p.receives, (*receive).ended)
	p.news = p.news || s.more || changed
	if len(back) > 0 {
		p.answers = append(p.answers, newGiveBack(back))
	}
	if p.open && p.ledger.wantsReplays() {
		p.stale, p.news = true, true
	}
	if s.sweep && err != nil {
		p.nextPark = p.clock.now().Add(sweepFailed).UnixMicro()
	}
	waiting, gone := len(p.receives) > 0, p.gone
	p.untold = p.untold || err == nil && changed && p.open && (s.wasFull || p.deliverable())
	// Who waits here comes first. Where somebody still waits then, nothing is left.
	tell := p.untold && !waiting || err == nil && changed && p.open && p.passesOn()
	p.untold = p.untold && waiting && p.news
	p.mu.Unlock()
	if gone {
		for _, r := range s.receives {
			r.fail(errForgotten) // where it would wait on
		}
	}
	if tell {
		p.groups.config.Store.NotifyGroup(p.group.tenant, p.group.name)
	}
}

// deliverable reports whether there is something to deliver that another process may not know of: events that were not new.
func (p *partition) deliverable() bool {
	l := p.ledger
	return len(l.freed) > 0 || len(l.retries) > 0 || len(l.replays) > 0 || l.givenBack()
}

func (s *step) tell(o *GroupObserver, took time.Duration) {
	p := s.p
	now := p.clock.now().UnixMicro()
	for _, a := range s.answers {
		a.tell(o, now)
		s.told.parked += a.parked
	}
	if s.told.expired > 0 && o.Expired != nil {
		o.Expired(s.told.expired)
	}
	if s.told.parked > 0 && o.Parked != nil {
		o.Parked(s.told.parked)
	}
	if s.told.delivered > 0 && o.Delivered != nil {
		o.Delivered(s.told.delivered)
	}
	if o.Received != nil {
		for _, r := range s.receives {
			if len(r.deliveries) > 0 {
				o.Received(took, len(r.deliveries))
			}
		}
	}
}
