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
	// database's clock, in the order in which they started.
	Announce(ctx context.Context, member domain.Member, within time.Duration) ([]domain.Member, error)
	// Leave forgets a member.
	Leave(ctx context.Context, id domain.MemberID) error
}

// The times of the protocol. They are the same for all processes: whoever is to take over must know how long the others
// need to step down.
const (
	Beat     = 2 * time.Second // between two signs of life
	Dead     = 6 * time.Second // a member is taken for dead after so long without one
	stepDown = 5 * time.Second // a process that could not give one for so long stops working

	leaveWithin = 2 * time.Second // at the end there is no more waiting than this
)

// Config is what Members are made of. Store and Log must be set.
type Config struct {
	Store   Store
	Name    func() string // for people: the host's name and where the process listens; asked when Run begins
	Version string        // of the program
	Changed func()        // called when Owns may answer otherwise than before; must return soon; may be nil
	Log     *slog.Logger

	Beat, Dead, StepDown time.Duration // for tests; 0: the constants above
}

// Members is what one process knows of all, itself among them. All methods may be called concurrently.
type Members struct {
	config Config
	self   domain.Member

	mu    sync.RWMutex
	alive []domain.Member
	ids   []domain.MemberID // of alive; none: this process has not announced itself, or has stepped down
}

// New returns Members that own nothing until Run has announced the process.
func New(config Config) *Members {
	config.Beat = cmp.Or(config.Beat, Beat)
	config.Dead = cmp.Or(config.Dead, Dead)
	config.StepDown = cmp.Or(config.StepDown, stepDown)
	return &Members{config: config, self: domain.Member{ID: domain.NewMemberID(), Version: config.Version}}
}

// Alive returns the members that were alive at the last sign of life, in the order in which they started; none where this
// process has stepped down.
func (m *Members) Alive() []domain.Member {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Clone(m.alive)
}

// Owns reports whether this process works on the tenant's projections.
func (m *Members) Owns(tenant domain.TenantID) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	owner, ok := Owner(tenant, m.ids)
	return ok && owner == m.self.ID
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
			m.take(nil)
			m.config.Log.Warn("the database could not be told for too long that this process is alive: others work on its tenants until it answers")
		case <-next.C:
			if !asked {
				asked = true
				under.Go(func() { m.announce(beating, joined, answers) })
			}
			next.Reset(m.config.Beat)
		case a := <-answers:
			asked = false
			if a.err != nil {
				if !failing && ctx.Err() == nil {
					m.config.Log.Warn("this process cannot announce itself; trying again", "error", a.err)
				}
				failing = true
				continue
			}
			failing, joined = false, true
			// It counts from the moment at which it was sent: the database's own moment is no earlier.
			if left := m.config.StepDown - time.Since(a.sent); left > 0 {
				down.Reset(left)
				m.take(a.alive)
			}
		}
	}
}

type answer struct {
	sent  time.Time
	alive []domain.Member
	err   error
}

func (m *Members) announce(ctx context.Context, joined bool, answers chan<- answer) {
	ctx, cancel := context.WithTimeout(ctx, m.config.StepDown)
	defer cancel()
	var a answer
	if !joined && m.self.Name != "" {
		a.err = m.config.Store.Join(ctx, m.self)
	}
	a.sent = time.Now()
	if a.err == nil {
		a.alive, a.err = m.config.Store.Announce(ctx, m.self, m.config.Dead)
	}
	answers <- a
}

// take takes over who is alive.
func (m *Members) take(alive []domain.Member) {
	ids := make([]domain.MemberID, len(alive))
	for i := range alive {
		ids[i] = alive[i].ID
	}
	m.mu.Lock()
	changed := !slices.Equal(m.ids, ids)
	m.alive, m.ids = alive, ids
	m.mu.Unlock()
	if changed && m.config.Changed != nil {
		m.config.Changed()
	}
}

// leave tells the others that they need not wait.
func (m *Members) leave(ctx context.Context) {
	m.take(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	if err := m.config.Store.Leave(ctx, m.self.ID); err != nil {
		m.config.Log.Warn("this process could not leave in order: others take over in a few seconds", "error", err)
	}
}
