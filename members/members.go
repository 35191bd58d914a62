package members

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Store keeps the members' signs of life.
type Store interface {
	// Join announces a member, in the place of any other of its name: that one has come to its end without a word, since two
	// processes cannot listen at one place.
	Join(ctx context.Context, member domain.Member) error
	// Announce gives a sign of life of the member, and returns those that have given one within the time, by the
	// database's clock, in the order in which they started. tenants, if it is not nil, is set to all tenants that have a log.
	Announce(ctx context.Context, member domain.Member, within time.Duration, tenants *[]domain.TenantID) ([]domain.Member, error)
	// Leave forgets a member.
	Leave(ctx context.Context, id domain.MemberID) error
}

// The times of the protocol. They are the same for all processes: whoever is to take over must know how long the others
// need to step down.
const (
	Beat     = time.Second     // between two signs of life
	Dead     = 6 * time.Second // a member is taken for dead after so long without one
	stepDown = 5 * time.Second // a process that could not give one for so long stops working

	// A member whose connections the database has seen end is taken for dead sooner. One that is merely slow keeps them.
	gone = 2500 * time.Millisecond

	// What the tenants are is read so often. Until every process has read the same, each keeps what it has lost: for a
	// moment two processes work for a tenant, which is harmless, but never none.
	tenantsEvery = 5 * time.Second
	keepLost     = 10 * time.Second

	leaveWithin = 2 * time.Second // at the end there is no more waiting than this
)

// Config is what Members are made of. Store and Log must be set.
type Config struct {
	Store   Store
	ID      domain.MemberID // of this process; zero: a fresh one
	Name    func() string   // for people: the host's name and where the process listens; asked when Run begins
	Version string          // of the program
	Changed func()          // called when Owns or Died may answer otherwise than before; must return soon; may be nil
	Log     *slog.Logger

	Beat, Dead, StepDown time.Duration // for tests; 0: the constants above
}

// Members is what one process knows of all, itself among them. All methods may be called concurrently.
type Members struct {
	config Config
	self   domain.Member

	mu        sync.RWMutex
	announced []domain.MemberID             // those that have given a sign of life within Dead
	alive     []domain.Member               // of these, the ones whose connections have not ended
	shares    shares                        // without members: this process has not announced itself, or has stepped down
	kept      map[domain.TenantID]time.Time // that another process is to work for now, and until when this one still does

	// Run's alone.
	tenants   []domain.TenantID        // as they were read last
	connected map[domain.MemberID]bool // whose connections were seen since this process lost its own
}

// New returns Members that own nothing until Run has announced the process.
func New(config Config) *Members {
	config.Beat = cmp.Or(config.Beat, Beat)
	config.Dead = cmp.Or(config.Dead, Dead)
	config.StepDown = cmp.Or(config.StepDown, stepDown)
	if config.ID == (domain.MemberID{}) {
		config.ID = domain.NewMemberID()
	}
	return &Members{config: config, self: domain.Member{ID: config.ID, Version: config.Version}, kept: make(map[domain.TenantID]time.Time)}
}

// Alive returns the members that were alive at the last sign of life, in the order in which they started; none where this
// process has stepped down.
func (m *Members) Alive() []domain.Member {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.alive)
}

// Died reports whether a process has been silent for so long that it has stepped down, whatever it still does: what it holds may
// be given to others. That is later than others work for its tenants where its connections have ended. False where this process has
// stepped down itself.
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

// Run announces the process until ctx ends, and returns nil then, after it has left. It may be called once.
func (m *Members) Run(ctx context.Context) error {
	if m.config.Name != nil {
		m.self.Name = m.config.Name()
	}
	next := time.NewTimer(0)
	defer next.Stop()
	down := time.NewTimer(m.config.StepDown)
	defer down.Stop()
	answers := make(chan answer, 1) // there is one under way at the most
	asked, failing, joined := false, false, false
	var read time.Time // when the tenants were asked for last
	var under sync.WaitGroup
	defer under.Wait()
	beating, stop := context.WithCancel(ctx)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			stop()
			under.Wait()
			m.leave(ctx)
			return nil
		case <-down.C:
			// Even while a sign of life is on its way: whether it has arrived is not known.
			m.take(nil, nil)
			m.config.Log.Warn("the database could not be told for too long that this process is alive: others work on its tenants until it answers")
		case <-next.C:
			if !asked {
				asked = true
				reads := time.Since(read) >= tenantsEvery
				if reads {
					read = time.Now()
				}
				under.Go(func() { m.announce(beating, joined, reads, answers) })
			}
			next.Reset(m.config.Beat)
		case a := <-answers:
			asked = false
			if a.err != nil {
				if !failing && ctx.Err() == nil {
					m.config.Log.Warn("this process cannot announce itself; trying again", "error", a.err)
				}
				failing, read = true, time.Time{}
				m.connected = nil // they may all have ended together, as when the database restarts
				continue
			}
			failing, joined = false, true
			// It counts from the moment at which it was sent: the database's own moment is no earlier.
			if left := m.config.StepDown - time.Since(a.sent); left > 0 {
				down.Reset(left)
				if m.take(a.alive, a.tenants) {
					read = time.Time{} // others read them now, too
				}
			}
		}
	}
}

type answer struct {
	sent    time.Time
	alive   []domain.Member
	tenants *[]domain.TenantID // nil: they were not read
	err     error
}

func (m *Members) announce(ctx context.Context, joined, reads bool, answers chan<- answer) {
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
		a.alive, a.err = m.config.Store.Announce(ctx, m.self, m.config.Dead, a.tenants)
	}
	answers <- a
}

// present leaves out the members whose connections have ended and that are silent. Only of one whose connections this
// process has seen it is known that there are some to be seen.
func (m *Members) present(alive []domain.Member) []domain.Member {
	var now time.Time // by the database's clock
	for i := range alive {
		if alive[i].ID == m.self.ID {
			now = alive[i].AliveAt
		}
	}
	connected := make(map[domain.MemberID]bool, len(alive))
	there := make([]domain.Member, 0, len(alive))
	for _, member := range alive {
		if connected[member.ID] = member.Connected || m.connected[member.ID]; member.Connected || !connected[member.ID] || now.Sub(member.AliveAt) < gone {
			there = append(there, member)
		}
	}
	m.connected = connected
	return there
}

// take takes over who has announced itself, and what the tenants are; nil: as they were. It reports whether other members work than
// before.
func (m *Members) take(all []domain.Member, tenants *[]domain.TenantID) (others bool) {
	alive := m.present(all)
	announced, ids := idsOf(all), idsOf(alive)
	others = !slices.Equal(m.shares.members, ids)
	changed := others || !slices.Equal(m.announced, announced)
	if tenants != nil && !slices.Equal(m.tenants, *tenants) {
		m.tenants, changed = *tenants, true
	}
	before, after := m.shares, m.shares
	if changed {
		after = divide(ids, m.tenants)
	}
	now := time.Now()
	m.mu.Lock()
	kept := len(m.kept)
	if changed && len(ids) > 0 {
		for _, tenant := range m.tenants {
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
	m.announced, m.alive, m.shares = announced, alive, after
	m.mu.Unlock()
	if changed && m.config.Changed != nil {
		m.config.Changed()
	}
	return others
}

func idsOf(members []domain.Member) []domain.MemberID {
	ids := make([]domain.MemberID, len(members))
	for i := range members {
		ids[i] = members[i].ID
	}
	return ids
}

// leave tells the others that they need not wait.
func (m *Members) leave(ctx context.Context) {
	m.take(nil, nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	if err := m.config.Store.Leave(ctx, m.self.ID); err != nil {
		m.config.Log.Warn("this process could not leave in order: others take over in a few seconds", "error", err)
	}
}
