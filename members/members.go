package members

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Member is a process that works for tenants (on projections, service groups and retention), as announced by itself.
type Member struct {
	ID        domain.MemberID
	Name      string // for people: the host's name and the listen address
	Version   string // of the program
	StartedAt time.Time
	// Egresses are what Announce records besides the sign of life. Nil leaves what it recorded last.
	Egresses []domain.EgressReport
	AliveAt  time.Time // the last sign of life, by the database's clock

	// Connected reports whether the database holds a connection of the process, if that is known; see
	// pg.Config.Member.
	Connected bool
}

// Store keeps the members' signs of life; Postgres is it. It is an interface because the protocol depends on the
// database's clock, and its tests need minutes of a clock that they move themselves.
type Store interface {
	// Join announces a member and replaces any other member of the same name. That other member has ended without
	// leaving, since two processes cannot listen on the same address.
	Join(ctx context.Context, member Member) error
	// Announce records a sign of life of the member. It returns the members with a sign of life within the given time,
	// by the database's clock, in the order in which they started. If tenants is not nil, Announce sets it to all
	// tenants that have a log.
	Announce(ctx context.Context, member Member, within time.Duration, tenants *[]domain.TenantID) ([]Member, error)
	// Leave forgets a member.
	Leave(ctx context.Context, id domain.MemberID) error
}

// The times of the protocol. They are the same for all processes: a process that takes over must know how long the
// others need to step down.
const (
	Beat     = time.Second     // between two signs of life
	Dead     = 6 * time.Second // a member without a sign of life for this long is considered dead
	stepDown = 5 * time.Second // a process that could not send a sign of life for this long stops working

	// A member whose connections have ended, as seen by the database, is considered dead sooner. A member that is
	// merely slow keeps its connections.
	gone = 2500 * time.Millisecond

	// The list of tenants is read at this interval. A process keeps a tenant that it has lost until every process has
	// read the same list. So two processes may briefly work for a tenant, which is harmless, but there is always at
	// least one.
	tenantsEvery = 5 * time.Second
	keepLost     = 10 * time.Second

	leaveWithin = 2 * time.Second // the longest wait at shutdown
)

// Config configures Members. Store and Log are required.
type Config struct {
	Store    Store
	ID       domain.MemberID              // of this process; zero: a new one
	Name     func() string                // for people: the host's name and where the process listens; asked when Run begins
	Version  string                       // of the program
	Egresses func() []domain.EgressReport // of this process; nil: none
	Changed  func()                       // called when Owns or Died may have changed; must return soon; may be nil
	Log      *slog.Logger

	Beat, Dead, StepDown time.Duration // for tests; 0: the constants above
}

// Members is what one process knows of all members, including itself. All methods may be called concurrently.
type Members struct {
	config Config
	self   Member

	mu        sync.RWMutex
	announced []domain.MemberID             // those with a sign of life within Dead
	alive     []Member                      // those of announced whose connections have not ended
	shares    shares                        // empty before the announcement and after stepping down
	kept      map[domain.TenantID]time.Time // lost tenants, and until when this process still works for them
	tenants   []domain.TenantID             // as last read; only Run changes them

	// Only Run uses these.
	egresses  []domain.EgressReport    // as last recorded; nil: unknown
	connected map[domain.MemberID]bool // whose connections were seen since this process last lost its own
}

// New returns Members that own nothing until Run has announced the process.
func New(config Config) *Members {
	config.Beat = cmp.Or(config.Beat, Beat)
	config.Dead = cmp.Or(config.Dead, Dead)
	config.StepDown = cmp.Or(config.StepDown, stepDown)
	if config.ID == (domain.MemberID{}) {
		config.ID = domain.NewMemberID()
	}
	return &Members{config: config, self: Member{ID: config.ID, Version: config.Version}, kept: make(map[domain.TenantID]time.Time)}
}

// Alive returns the members that were alive at the last sign of life, in the order in which they started. It returns
// none if this process has stepped down.
func (m *Members) Alive() []Member {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.alive)
}

// Died reports whether a process has been silent for so long that it has certainly stepped down. What it holds may then
// be given to other processes. If its connections have ended, others may work for its tenants before that. Died returns
// false if this process itself has stepped down.
func (m *Members) Died(id domain.MemberID) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.announced) > 0 && !slices.Contains(m.announced, id)
}

// Owns reports whether this process works on the tenant's projections.
func (m *Members) Owns(tenant domain.TenantID) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if owner, ok := m.shares.owner(tenant); ok && owner == m.self.ID {
		return true
	}
	_, kept := m.kept[tenant]
	return kept
}

// Owned returns the tenants that this process owns, without those that it is about to lose. It returns false before the
// announcement and after stepping down.
func (m *Members) Owned() (tenants []domain.TenantID, known bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, tenant := range m.tenants {
		if owner, ok := m.shares.owner(tenant); ok && owner == m.self.ID {
			tenants = append(tenants, tenant)
		}
	}
	return tenants, len(m.shares.members) > 0
}

// Run announces the process until ctx ends. It then leaves and returns nil. Run may be called once.
func (m *Members) Run(ctx context.Context) error {
	if m.config.Name != nil {
		m.self.Name = m.config.Name()
	}
	next := time.NewTimer(0)
	defer next.Stop()
	down := time.NewTimer(m.config.StepDown)
	defer down.Stop()
	answers := make(chan answer, 1) // at most one is under way
	asked, failing, joined := false, false, false
	var read time.Time // when the tenants were last requested
	var sending sync.WaitGroup
	defer sending.Wait()
	beating, stop := context.WithCancel(ctx)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			stop()
			sending.Wait()
			m.leave(ctx)
			return nil
		case <-down.C:
			// This holds even while a sign of life is on its way, because it may not have arrived.
			m.adopt(nil, nil)
			m.config.Log.Warn("this process could not report to the database that it is alive: other processes work on its tenants until the database answers")
		case <-next.C:
			if !asked {
				asked = true
				reads := time.Since(read) >= tenantsEvery
				if reads {
					read = time.Now()
				}
				recorded := m.egresses
				sending.Go(func() { m.announce(beating, joined, reads, recorded, answers) })
			}
			next.Reset(m.config.Beat)
		case a := <-answers:
			asked = false
			if a.err != nil {
				if !failing && ctx.Err() == nil {
					m.config.Log.Warn("this process cannot announce itself; trying again", "error", a.err)
				}
				failing, read = true, time.Time{}
				m.egresses = nil
				m.connected = nil // all connections may have ended together, as when the database restarts
				continue
			}
			failing, joined = false, true
			m.egresses = a.egresses
			// The time counts from the moment of sending: the database recorded the sign of life no earlier.
			if left := m.config.StepDown - time.Since(a.sent); left > 0 {
				down.Reset(left)
				if m.adopt(a.alive, a.tenants) {
					read = time.Time{} // the other processes read them now, too
				}
			}
		}
	}
}

type answer struct {
	sent     time.Time
	alive    []Member
	tenants  *[]domain.TenantID    // nil: they were not read
	egresses []domain.EgressReport // as they were recorded
	err      error
}

func (m *Members) announce(ctx context.Context, joined, reads bool, recorded []domain.EgressReport, answers chan<- answer) {
	ctx, cancel := context.WithTimeout(ctx, m.config.StepDown)
	defer cancel()
	var a answer
	if !joined && m.self.Name != "" {
		a.err = m.config.Store.Join(ctx, m.self)
	}
	a.sent = time.Now()
	if a.err == nil {
		if reads {
			a.tenants = new([]domain.TenantID)
		}
		self := m.self
		if m.config.Egresses != nil {
			a.egresses = m.config.Egresses()
			if recorded == nil || !reflect.DeepEqual(a.egresses, recorded) {
				self.Egresses = a.egresses
			}
		}
		a.alive, a.err = m.config.Store.Announce(ctx, self, m.config.Dead, a.tenants)
	}
	answers <- a
}

// dropDisconnected leaves out silent members whose connections have ended. It does so only for members whose
// connections this process has seen: for others it cannot know whether their connections are visible at all.
func (m *Members) dropDisconnected(alive []Member) []Member {
	var now time.Time // by the database's clock
	for i := range alive {
		if alive[i].ID == m.self.ID {
			now = alive[i].AliveAt
		}
	}
	connected := make(map[domain.MemberID]bool, len(alive))
	remaining := make([]Member, 0, len(alive))
	for _, member := range alive {
		if connected[member.ID] = member.Connected || m.connected[member.ID]; member.Connected || !connected[member.ID] || now.Sub(member.AliveAt) < gone {
			remaining = append(remaining, member)
		}
	}
	m.connected = connected
	return remaining
}

// adopt adopts the announced members and the list of tenants; nil tenants leave the list as it was. It reports whether
// the set of working members has changed.
func (m *Members) adopt(all []Member, tenants *[]domain.TenantID) (membersChanged bool) {
	alive := m.dropDisconnected(all)
	announced, ids := idsOf(all), idsOf(alive)
	membersChanged = !slices.Equal(m.shares.members, ids)
	changed := membersChanged || !slices.Equal(m.announced, announced)
	listed := m.tenants
	if tenants != nil && !slices.Equal(listed, *tenants) {
		listed, changed = *tenants, true
	}
	before, after := m.shares, m.shares
	if changed {
		after = divide(ids, listed)
	}
	now := time.Now()
	m.mu.Lock()
	kept := len(m.kept)
	if changed && len(ids) > 0 {
		for _, tenant := range listed {
			is, _ := after.owner(tenant)
			was, _ := before.owner(tenant)
			if is == m.self.ID {
				delete(m.kept, tenant)
			} else if was == m.self.ID {
				m.kept[tenant] = now.Add(keepLost)
			}
		}
	}
	for tenant, until := range m.kept {
		if !now.Before(until) || len(ids) == 0 {
			delete(m.kept, tenant)
		}
	}
	changed = changed || len(m.kept) < kept
	m.announced, m.alive, m.shares, m.tenants = announced, alive, after, listed
	m.mu.Unlock()
	if changed && m.config.Changed != nil {
		m.config.Changed()
	}
	return membersChanged
}

func idsOf(members []Member) []domain.MemberID {
	ids := make([]domain.MemberID, len(members))
	for i := range members {
		ids[i] = members[i].ID
	}
	return ids
}

// leave lets the other processes take over without waiting.
func (m *Members) leave(ctx context.Context) {
	m.adopt(nil, nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	if err := m.config.Store.Leave(ctx, m.self.ID); err != nil {
		m.config.Log.Warn("this process could not leave in order: others take over in a few seconds", "error", err)
	}
}
