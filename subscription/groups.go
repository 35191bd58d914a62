package subscription

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// GroupsConfig is what Groups are made of.
type GroupsConfig struct {
	Store    Store
	Bytes    int // of events that all groups together read ahead of their delivery, about; 0: DefaultGroupBytes
	Log      *slog.Logger
	Observer GroupObserver
	// Changed is called when a group was changed in this process, or its dead letters were: as Notice, but by Groups. It must return at
	// once; nil: nobody wants to know.
	Changed func(tenant domain.TenantID, name string)
}

// DefaultGroupBytes bounds what groups read ahead where nothing else is said.
const DefaultGroupBytes = 128 << 20

// GroupObserver has functions that are called as things happen, from many goroutines, and must not block. Each is optional.
type GroupObserver struct {
	Delivered func(events int)
	Acked     func(events int, held time.Duration) // held: since the oldest of them was delivered
	Nacked    func(action domain.NackAction, events int)
	Expired   func(events int)
	Parked    func(events int)
	Received  func(took time.Duration, events int) // a receive, its waiting left out
}

// Groups deliver events to consumers. All methods may be called concurrently, and by any number of processes at once.
type Groups struct {
	config GroupsConfig

	mu       sync.RWMutex
	byTenant map[domain.TenantID]map[string]*group
	closed   bool

	running sync.WaitGroup // the partitions' goroutines
	held    atomic.Int64   // bytes of events that the partitions have in memory

	peeking chan struct{} // has one for each peek

	rosterFor, fillFor time.Duration // the constants, but in tests
}

// group is a group that somebody uses in this process.
type group struct {
	tenant domain.TenantID
	name   string

	known   atomic.Pointer[domain.Group] // as it was read last
	head    atomic.Int64                 // of the tenant's log, as far as it is known
	asking  chan struct{}                // has one while a filter of the tenant's groups is asked
	peeking chan struct{}                // has one while somebody peeks at one of the tenant's groups
	recent  *recent                      // what reads the log for the tenant's groups
	waiting atomic.Int64                 // receives

	members membership    // of a group with partitions
	turn    atomic.Uint64 // with which of its partitions the next receive of a member begins
	placed  places        // of what was delivered here

	parts map[int]*partition // Groups.mu is its lock
}

// know takes the group as it was read.
func (gr *group) know(now domain.Group) {
	if before := gr.known.Load(); before == nil || before.Revision != now.Revision {
		gr.known.Store(&now)
	}
}

// moved notes that the log's head is there, or further, and reports whether that is news.
func (gr *group) moved(head int64) bool {
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

// NewGroups returns Groups; Run must be running.
func NewGroups(config GroupsConfig) *Groups {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	config.Bytes = cmp.Or(config.Bytes, DefaultGroupBytes)
	return &Groups{
		config: config, byTenant: make(map[domain.TenantID]map[string]*group), peeking: make(chan struct{}, peeks), rosterFor: rosterFor, fillFor: fillFor,
	}
}

// Run looks after what times out, until ctx ends, and then waits for what is being saved. Nothing is received or answered any
// more from then on.
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

// sweep has what timed out looked after, and forgets what nobody has used for a while.
func (g *Groups) sweep(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for tenant, groups := range g.byTenant {
		for name, gr := range groups {
			for number, p := range gr.parts {
				if p.swept(now) {
					delete(gr.parts, number)
				}
			}
			if len(gr.parts) == 0 && gr.waiting.Load() == 0 {
				delete(groups, name)
			}
		}
		if len(groups) == 0 {
			delete(g.byTenant, tenant)
		}
	}
}

// swept has the partition look after what timed out. It reports true, and the partition is of no more use, where nobody has used it for a
// while and nothing is left to be done.
func (p *partition) swept(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.running:
		return false
	case p.nextPark > 0 && p.clock.now().UnixMicro() >= p.nextPark, p.unsaved && now.Sub(p.savedAt) >= keepPassed:
		p.sweep = true
		p.kick()
		return false
	case len(p.receives) > 0 || p.nextPark > 0 || now.Sub(p.used) < idlePartition:
		return false
	}
	p.close()
	return true
}

// drop forgets a group: with err those are answered who wait.
func (g *Groups) drop(gr *group, err error) {
	g.mu.Lock()
	if groups := g.byTenant[gr.tenant]; groups[gr.name] == gr {
		delete(groups, gr.name)
		if len(groups) == 0 {
			delete(g.byTenant, gr.tenant)
		}
	}
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

// use returns a group to be used, which is looked up where this process does not know it.
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
	gr = &group{tenant: tenant, name: name, parts: make(map[int]*partition), asking: make(chan struct{}, 1), peeking: make(chan struct{}, 1)}
	gr.know(found)
	for _, other := range g.byTenant[tenant] {
		gr.asking, gr.peeking, gr.recent = other.asking, other.peeking, other.recent
		break
	}
	if gr.recent == nil {
		gr.recent = &recent{Log: g.config.Store, groups: func() int { return g.inUse(tenant) }}
	}
	if g.byTenant[tenant] == nil {
		g.byTenant[tenant] = make(map[string]*group)
	}
	g.byTenant[tenant][name] = gr
	return gr, nil
}

// inUse is how many of a tenant's groups are in use.
func (g *Groups) inUse(tenant domain.TenantID) int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.byTenant[tenant])
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
		if p.gone = g.byTenant[gr.tenant][gr.name] != gr || g.closed; !p.gone {
			gr.parts[number] = p
		}
	}
	return p
}

// Wake tells that a log has moved, and Notice that another process has changed a group. They return at once.
func (g *Groups) Wake(head domain.Head) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, gr := range g.byTenant[head.Tenant] {
		if gr.moved(head.Position) {
			gr.awaken(false)
		}
	}
}

// Notice tells that a group may have something to deliver. The zero name means every group of the tenant, and domain.Everyone
// every group there is.
func (g *Groups) Notice(tenant domain.TenantID, name string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	switch {
	case tenant == domain.Everyone:
		for _, groups := range g.byTenant {
			for _, gr := range groups {
				gr.awaken(true)
			}
		}
	case name == "":
		for _, gr := range g.byTenant[tenant] {
			gr.awaken(true)
		}
	default:
		if gr := g.byTenant[tenant][name]; gr != nil {
			gr.awaken(true)
		}
	}
}

// changed has those who wait in a group look at it anew, after this process has changed it.
func (g *Groups) changed(tenant domain.TenantID, name string) {
	g.Notice(tenant, name)
	if g.config.Changed != nil {
		g.config.Changed(tenant, name)
	}
}

// awaken has those look again who wait in a group. Groups.mu must be held.
func (gr *group) awaken(stale bool) {
	for _, p := range gr.parts {
		p.awaken(stale)
	}
}
