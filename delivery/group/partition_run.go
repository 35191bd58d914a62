package group

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// Times and bounds of a partition's work.
const (
	stepTimeout   = 30 * time.Second     // for one step; the store's own are shorter
	stepTime      = time.Second / 4      // after this a step stops looking for more, as answers wait for it
	stepTries     = 50                   // per step, after conflicts
	conflictPause = 2 * time.Millisecond // between tries, from the second on, growing
	leastWait     = 5 * time.Millisecond // for waiting receives
	lookAgain     = time.Second          // between looks at a partition with waiting receives, by default
	lookSeldom    = 5 * time.Second      // the same after looks that found nothing new
	maxPassed     = 1000                 // positions by which readTo may grow without deliveries before it is saved
	idlePartition = time.Minute          // until an unused partition is dropped
	sweepFailed   = 5 * time.Second      // until the next try after a failed sweep
	sweepEvery    = time.Second          // between two sweeps for timeouts
	maxWaiting    = 1000                 // receives waiting in one group, and answers in one partition
)

// keepPassed returns how long a readTo that grew without deliveries may stay unsaved, for a tenant with so many groups
// in use. Most of a thousand groups pass over each event, and would save that hundreds of times a second; so they save
// 50 times.
func keepPassed(groups int) time.Duration {
	return max(2*time.Second, time.Duration(groups)*20*time.Millisecond)
}

// partition is one partition of a group in this process: what it knows of the ledger, and the waiting requests. It has
// a goroutine only while there is work. Requests that arrive while a step is being saved share the next step.
type partition struct {
	groups *Groups
	group  *group
	number int

	readyEvents  atomic.Int64 // new events in memory that may be delivered, approximately; 0 in a step with receives
	mayRedeliver atomic.Bool  // events other than new ones may be due

	mu          sync.Mutex
	state       partitionState
	answers     []*answer
	receives    []*receive // in order of arrival
	dueRequests []*dueRequest
	mayDeliver  bool // something may be deliverable that was not there at the last look
	outdated    bool // another process may have changed the ledger
	sweepDue    bool // something has timed out or must be saved
	unannounced bool // something may be deliverable that other processes do not know of
	used        time.Time
	inFlight    int         // size of deliveredHere after the last step
	alarm       *time.Timer // wakes waiting receives; nil: never set

	// The sweep reads these while no goroutine runs.
	nextPark int64 // when the next last attempt expires; 0: none
	unsaved  bool  // readTo has grown and was not saved

	// Only the running goroutine uses these.
	ledgerKnown  bool // the fields below are known
	row          LedgerRow
	ledger       *ledger
	ahead        lookahead
	streams      streamsAhead
	clock        clock
	slack        time.Duration // how long recent saves of granted leases took
	checkedAt    time.Time     // by the local clock: when the known ledger was last the newest
	recheckAfter time.Duration // after this long, waiting receives have it checked again
	savedAt      time.Time     // by the local clock
	delayedUntil int64         // when the next new event has waited for the group's delay; 0: none waits
	upTo         int64         // bound of the receives served last; 0: none
	memory       int           // bytes of events in memory, as counted in groups.memory

	deliveredHere map[domain.EventID]int // attempts delivered here and not settled, as far as known
}

// partitionState says whether a partition's goroutine runs, and whether the partition may still be used. It has these
// transitions; the caller of each holds the lock:
//
//	state             | start            | goIdle           | close
//	partitionIdle     | partitionRunning |                  | partitionDropped
//	partitionRunning  |                  | partitionIdle    | partitionDropping
//	partitionDropping |                  | partitionDropped |
//	partitionDropped  |                  |                  |
//
// Another partition takes the place of one that is dropped.
type partitionState uint8

const (
	partitionIdle     partitionState = iota
	partitionRunning                 // its goroutine makes steps
	partitionDropping                // its goroutine makes the last steps
	partitionDropped
)

// dropped reports whether the partition must no longer be used.
func (p *partition) dropped() bool { return p.state >= partitionDropping }

// start starts the goroutine, if the partition is idle.
func (p *partition) start() {
	if p.state != partitionIdle {
		return
	}
	p.state = partitionRunning
	p.groups.running.Add(1)
	go p.run()
}

// wakeReceives makes waiting receives look again. stale means that the known ledger may be outdated.
func (p *partition) wakeReceives(stale bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outdated = p.outdated || stale
	p.mayDeliver = true
	if len(p.receives) > 0 {
		p.start()
	}
}

// run makes steps until there is nothing to do.
func (p *partition) run() {
	defer p.groups.running.Done()
	for {
		p.letCallersQueue()
		p.mu.Lock()
		if len(p.answers) == 0 && len(p.dueRequests) == 0 && !(p.mayDeliver && len(p.receives) > 0) && !p.sweepDue {
			p.goIdle()
			p.mu.Unlock()
			return
		}
		s := p.newStep()
		p.mu.Unlock()
		s.run()
	}
}

// letCallersQueue lets callers that were just answered, and ask again at once, enter the queues.
func (p *partition) letCallersQueue() {
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

// goIdle ends the goroutine's work, and sets the alarm for receives that still wait.
func (p *partition) goIdle() {
	p.used = time.Now()
	if p.dropped() {
		p.drop()
		return
	}
	p.state = partitionIdle
	p.unsaved = false
	if p.ledgerKnown {
		p.nextPark, p.unsaved = 0, p.ledger.readTo > p.ledger.savedReadTo
		for _, le := range p.ledger.leaseOf {
			if !le.due() && le.lastAttempt(p.row.Group.MaxAttempts) && (p.nextPark == 0 || le.deadline < p.nextPark) {
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
	wait := max(p.recheckAfter-time.Since(p.checkedAt), leastWait)
	if p.ledgerKnown && !p.row.Group.Paused {
		// A due retry without room waits for an answer or for a lease to expire.
		if due := p.ledger.nextDue(p.ledger.inFlight() < p.row.Group.MaxInFlight); due > 0 {
			wait = min(wait, max(time.UnixMicro(due).Sub(p.clock.now()), leastWait))
		}
		if p.delayedUntil > 0 {
			wait = min(wait, max(time.UnixMicro(p.delayedUntil).Sub(p.clock.now()), leastWait))
		}
	}
	if p.alarm != nil {
		p.alarm.Stop()
	}
	p.alarm = time.AfterFunc(wait, func() { p.wakeReceives(false) })
}

// close drops the partition, at once or when its goroutine ends, and stops its alarm.
func (p *partition) close() {
	switch p.state {
	case partitionIdle:
		p.drop()
	case partitionRunning:
		p.state = partitionDropping
	}
	if p.alarm != nil {
		p.alarm.Stop()
	}
}

// drop ends the use of the partition's memory.
func (p *partition) drop() {
	p.state = partitionDropped
	p.groups.memory.used.Add(-int64(p.memory))
	p.memory = 0
}

// forgetLedger discards what is known of the ledger, after an error.
func (p *partition) forgetLedger(err error) {
	p.ledgerKnown = false
	p.ahead.awaitRead() //nolint:errcheck // what it read is not wanted
	p.row, p.ledger, p.delayedUntil, p.upTo = LedgerRow{}, nil, 0, 0
	p.ahead, p.streams = lookahead{}, streamsAhead{}
	if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Code == domain.CodeNotFound || errors.Is(err, errDropped) {
		p.groups.drop(p.group, err)
	}
}

// countMemory counts the partition's memory. If all partitions together use too much, this one reads ahead only what it
// must.
func (p *partition) countMemory() {
	held := p.ahead.memory() + p.streams.bytes
	p.groups.memory.used.Add(int64(held - p.memory))
	p.memory = held
	p.ahead.maxBytes, p.streams.maxBytes = aheadBytes, streamsAheadBytes
	if p.groups.memory.scarce() {
		p.ahead.maxBytes, p.streams.maxBytes = scarceBytes, scarceBytes
	}
}

// countReady sets readyEvents and mayRedeliver after a step. An ordered group has no ready events: most of those in
// memory may belong to streams that have an event in flight.
func (p *partition) countReady() {
	ready := 0
	if p.ledgerKnown && !p.ledger.ordered && p.delayedUntil == 0 {
		if space, fresh := p.roomForLeases(); fresh {
			ready = max(0, min(space, p.ahead.waiting()))
		}
	}
	p.readyEvents.Store(int64(ready))
	p.mayRedeliver.Store(p.ledgerKnown && p.deliverable())
}

// readLedger reads the ledger.
func (p *partition) readLedger(ctx context.Context, wait bool) error {
	asked := time.Now()
	row, err := p.groups.config.Store.Ledger(ctx, p.group.tenant, p.group.name, p.number, wait)
	if err != nil {
		return err
	}
	p.clock.set(row.Now, asked)
	if !row.Group.CreatedAt.Equal(p.group.known.Load().CreatedAt) {
		return errDropped // another group with this name has taken its place
	}
	l, err := openLedger(p.number, row)
	if err != nil {
		return fmt.Errorf("group %q of tenant %s, partition %d: %w; seek the group to replace the ledger", p.group.name, p.group.tenant, p.number, err)
	}
	err = l.identify(p.ledger, func(positions []int64) ([]domain.Event, error) {
		return p.groups.config.Events.ReadHeaders(ctx, p.group.tenant, positions)
	})
	if err != nil {
		return err
	}
	l.addRows(row.Retries, row.Replays)
	err = l.readOtherReplays(domain.MaxReplays, func(streams []string) ([]domain.DeadLetter, error) {
		return p.groups.config.Store.ReplaysOfOtherStreams(ctx, p.group.tenant, p.group.name, p.number, streams, domain.MaxReplays)
	})
	if err != nil {
		return err
	}
	if !p.ledgerKnown || row.Group.Revision != p.row.Group.Revision || p.ahead.selection == nil {
		if err := p.replaceLookahead(ctx, row.Group); err != nil {
			return err
		}
	}
	p.group.setKnown(row.Group)
	if p.ledgerKnown && row.Revision == p.row.Revision && row.Group.Revision == p.row.Group.Revision {
		p.noteUnchanged(asked)
	} else {
		p.recheckAfter, p.checkedAt = lookAgain, asked
	}
	p.row, p.ledger, p.ledgerKnown = row, l, true
	p.row.Ledger, p.row.Retries, p.row.Replays = nil, nil, nil // the ledger has them
	if erased := p.group.erased.Load(); p.ahead.erased != erased {
		p.ahead.erased = erased
		p.ahead.forget()
	}
	p.ahead.seekTo(l.readTo)
	p.streams.clear()
	return nil
}

// replaceLookahead replaces the lookahead with one for a group's definition.
func (p *partition) replaceLookahead(ctx context.Context, group domain.Group) error {
	selection, err := selection.New(group.Selection)
	if err != nil {
		return err
	}
	if _, err := p.ahead.awaitRead(); err != nil {
		return err
	}
	p.ahead = lookahead{
		log: p.group.sharedReads, tenant: p.group.tenant, selection: selection, partition: p.number, partitions: group.Partitions, version: -1, maxBytes: aheadBytes,
		filterTurn: p.group.filterTurn, filterTime: maxFilterTime,
	}
	head, err := p.groups.config.Events.Head(ctx, p.group.tenant)
	if err != nil {
		return err
	}
	p.group.advanceHead(head.Position)
	return nil
}

// deliverable reports whether there are events to deliver, other than new ones, that another process may not know of.
func (p *partition) deliverable() bool {
	l := p.ledger
	return len(l.freedStreams) > 0 || len(l.retries) > 0 || len(l.replays) > 0 || l.givenBack()
}
