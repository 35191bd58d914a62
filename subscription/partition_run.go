package subscription

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
	slack   time.Duration // how long it took lately from granting leases until they were saved
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

// deliverable reports whether there is something to deliver that another process may not know of: events that were not new.
func (p *partition) deliverable() bool {
	l := p.ledger
	return len(l.freed) > 0 || len(l.retries) > 0 || len(l.replays) > 0 || l.givenBack()
}
