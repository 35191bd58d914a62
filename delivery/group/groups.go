package group

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
)

// Config configures Groups.
type Config struct {
	Store    *Postgres
	Events   *eventlog.Log
	Bytes    int // approximate limit for events that all groups read ahead; 0: DefaultBytes
	Log      *slog.Logger
	Observer Observer
	// Changed is called when this process has changed a group or its dead letters. It is the counterpart of Notice. It
	// must return at once. Nil means that nothing is called.
	Changed func(tenant domain.TenantID, name string)
}

// DefaultBytes is the default of Config.Bytes.
const DefaultBytes = 128 << 20

// Observer has optional functions that report what happens. They are called by many goroutines and must not block.
type Observer struct {
	Delivered func(tenant domain.TenantID, events int)
	Acked     func(events int, held time.Duration) // held: time since the oldest of them was delivered
	Nacked    func(action domain.NackAction, events int)
	Expired   func(events int)
	Parked    func(events int)
	Received  func(took time.Duration, events int) // a receive, without its waiting time
}

// Groups delivers events to consumers. All methods may be called concurrently, and by any number of processes at once.
type Groups struct {
	config Config

	mu       sync.RWMutex
	byTenant map[domain.TenantID]map[string]*group
	closed   bool

	running sync.WaitGroup // the partitions' goroutines
	memory  memoryBudget

	peeking chan struct{} // one entry for each peek

	assignmentFor, topUpFor time.Duration // the constants, except in tests
}

// group is a group that is in use in this process.
type group struct {
	tenant domain.TenantID
	name   string

	known      atomic.Pointer[domain.Group] // as last read
	head       atomic.Int64                 // of the tenant's log, as far as known
	filterTurn chan struct{}                // one entry while a filter of the tenant's groups runs
	peeking    chan struct{}                // one entry while a peek at one of the tenant's groups runs
	waiting    atomic.Int64                 // receives

	sharedReads    *sharedReads    // reads the log for the tenant's groups
	sharedRechecks *sharedRechecks // reads revisions for them

	members membership     // of a group with partitions
	erased  atomic.Int64   // how often stored events have changed
	placed  partitionCache // partitions of events delivered here

	parts map[int]*partition // guarded by Groups.mu
}

// setKnown records the group as it was read.
func (gr *group) setKnown(now domain.Group) {
	if before := gr.known.Load(); before == nil || before.Revision != now.Revision {
		gr.known.Store(&now)
	}
}

// advanceHead records that the log's head has reached a position, and reports whether that is new.
func (gr *group) advanceHead(head int64) bool {
	for {
		before := gr.head.Load()
		if head <= before {
			return false
		}
		if gr.head.CompareAndSwap(before, head) {
			return true
		}
	}
}

// New returns Groups. Run must be running.
func New(config Config) *Groups {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	config.Bytes = cmp.Or(config.Bytes, DefaultBytes)
	g := &Groups{
		config: config, byTenant: make(map[domain.TenantID]map[string]*group), peeking: make(chan struct{}, peeks), assignmentFor: assignmentFor, topUpFor: topUpFor,
	}
	g.memory.bound = int64(config.Bytes)
	return g
}

// Run handles timeouts until ctx ends, and then waits for saves in progress. From then on, receives and answers fail.
func (g *Groups) Run(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			g.sweep(time.Now())
		}
	}
	g.close()
	g.running.Wait()
	return nil
}

func (g *Groups) close() {
	gone := domain.Errorf(domain.CodeUnavailable, "", "the service is shutting down")
	g.mu.Lock()
	g.closed = true
	var all []*group
	for _, groups := range g.byTenant {
		for _, gr := range groups {
			all = append(all, gr)
		}
	}
	g.mu.Unlock()
	for _, gr := range all {
		g.drop(gr, gone)
	}
}

// sweep makes partitions handle timeouts, and drops groups that nobody has used for a while.
func (g *Groups) sweep(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, groups := range g.byTenant {
		for _, gr := range groups {
			for number, p := range gr.parts {
				if p.sweepOrClose(now, keepPassed(len(groups))) {
					delete(gr.parts, number)
				}
			}
			gr.sharedReads.dropUnused(now)
			if len(gr.parts) == 0 && gr.waiting.Load() == 0 {
				g.forget(gr)
			}
		}
	}
}

// forget removes a group from the map. g.mu must be held.
func (g *Groups) forget(gr *group) {
	groups := g.byTenant[gr.tenant]
	if groups[gr.name] != gr {
		return
	}
	delete(groups, gr.name)
	if len(groups) == 0 {
		delete(g.byTenant, gr.tenant)
		gr.sharedReads.close()
	}
}

// sweepOrClose makes the partition handle timeouts. If nobody has used the partition for a while and nothing is left to
// do, it returns true, and the partition must no longer be used.
func (p *partition) sweepOrClose(now time.Time, keepPassed time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.state != partitionIdle:
		return false
	case p.nextPark > 0 && p.clock.now().UnixMicro() >= p.nextPark, p.unsaved && now.Sub(p.savedAt) >= keepPassed:
		p.sweepDue = true
		p.start()
		return false
	case len(p.receives) > 0 || p.nextPark > 0 || now.Sub(p.used) < idlePartition:
		return false
	}
	p.close()
	return true
}

// drop removes a group from memory. Waiting receives fail with err.
func (g *Groups) drop(gr *group, err error) {
	g.mu.Lock()
	g.forget(gr)
	parts := make([]*partition, 0, len(gr.parts))
	for _, p := range gr.parts {
		parts = append(parts, p)
	}
	g.mu.Unlock()
	for _, p := range parts {
		p.mu.Lock()
		p.close()
		waiting := p.receives
		p.receives = nil
		p.mu.Unlock()
		for _, r := range waiting {
			r.fail(err)
		}
	}
}

// use returns a group for use. It looks the group up if this process does not know it.
func (g *Groups) use(ctx context.Context, tenant domain.TenantID, name string) (*group, error) {
	g.mu.RLock()
	gr, closed := g.byTenant[tenant][name], g.closed
	g.mu.RUnlock()
	if closed {
		return nil, domain.Errorf(domain.CodeUnavailable, "", "the service is shutting down")
	}
	if gr != nil {
		return gr, nil
	}
	found, err := g.config.Store.Group(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if gr = g.byTenant[tenant][name]; gr != nil {
		return gr, nil
	}
	gr = &group{tenant: tenant, name: name, parts: make(map[int]*partition), filterTurn: make(chan struct{}, 1), peeking: make(chan struct{}, 1)}
	gr.setKnown(found)
	for _, other := range g.byTenant[tenant] {
		gr.filterTurn, gr.peeking, gr.sharedReads, gr.sharedRechecks = other.filterTurn, other.peeking, other.sharedReads, other.sharedRechecks
		break
	}
	if gr.sharedReads == nil {
		gr.sharedReads = &sharedReads{log: g.config.Events, groups: func() int { return g.inUse(tenant) }, memory: &g.memory, events: sharedEvents, kept: sharedBytesKept, held: sharedBytesHeld}
		gr.sharedRechecks = &sharedRechecks{store: g.config.Store, tenant: tenant, names: func() []string { return g.namesInUse(tenant) }}
	}
	if g.byTenant[tenant] == nil {
		g.byTenant[tenant] = make(map[string]*group)
	}
	g.byTenant[tenant][name] = gr
	return gr, nil
}

// inUse returns how many of a tenant's groups are in use.
func (g *Groups) inUse(tenant domain.TenantID) int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.byTenant[tenant])
}

// namesInUse returns the names of a tenant's groups in use.
func (g *Groups) namesInUse(tenant domain.TenantID) []string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Collect(maps.Keys(g.byTenant[tenant]))
}

// partition returns a partition of a group that is in use.
func (g *Groups) partition(gr *group, number int) *partition {
	g.mu.RLock()
	p := gr.parts[number]
	g.mu.RUnlock()
	if p != nil {
		return p
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p = gr.parts[number]; p == nil {
		p = &partition{groups: g, group: gr, number: number, used: time.Now()}
		if g.byTenant[gr.tenant][gr.name] != gr || g.closed {
			p.state = partitionDropped
		} else {
			gr.parts[number] = p
		}
	}
	return p
}

// Wake reports that a log has moved. It returns at once.
func (g *Groups) Wake(head domain.Head) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, gr := range g.byTenant[head.Tenant] {
		if gr.advanceHead(head.Position) {
			gr.wakeReceives(false)
		}
	}
}

// Forget reports that stored events of a tenant have changed, because a person's data was erased; domain.Everyone means
// those of any tenant. Each partition drops the events that it has read ahead before it delivers again.
func (g *Groups) Forget(tenant domain.TenantID) {
	g.mu.RLock()
	for of, groups := range g.byTenant {
		if of != tenant && tenant != domain.Everyone {
			continue
		}
		for _, gr := range groups {
			gr.erased.Add(1)
			gr.sharedReads.forget()
		}
	}
	g.mu.RUnlock()
	g.Notice(tenant, "")
}

// Notice reports that a group may have something to deliver, because another process has changed it, for example. The
// empty name means every group of the tenant, and domain.Everyone every group of all tenants. It returns at once.
func (g *Groups) Notice(tenant domain.TenantID, name string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	switch {
	case tenant == domain.Everyone:
		for _, groups := range g.byTenant {
			for _, gr := range groups {
				gr.wakeReceives(true)
			}
		}
	case name == "":
		for _, gr := range g.byTenant[tenant] {
			gr.wakeReceives(true)
		}
	default:
		if gr := g.byTenant[tenant][name]; gr != nil {
			gr.wakeReceives(true)
		}
	}
}

// changed makes waiting receives of a group look again, after this process has changed it.
func (g *Groups) changed(tenant domain.TenantID, name string) {
	g.Notice(tenant, name)
	if g.config.Changed != nil {
		g.config.Changed(tenant, name)
	}
}

// wakeReceives makes waiting receives of a group look again. Groups.mu must be held.
func (gr *group) wakeReceives(stale bool) {
	for _, p := range gr.parts {
		p.wakeReceives(stale)
	}
}
