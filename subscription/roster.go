package subscription

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	// rosterFor is how long a process goes by what it has read of a group's members. That two processes know different things
	// meanwhile is no harm: who may work on a partition is decided in its ledger.
	rosterFor = time.Second
	// signEvery is how often a member's receives are written down as signs of life at most.
	signEvery = 5 * time.Second
)

// roster is which members of a group are alive, and which partitions are theirs. It is not changed.
type roster struct {
	members []domain.GroupMember   // by id
	ids     []domain.GroupMemberID // theirs
	owners  []domain.GroupMemberID // by partition: the member that it is to be of; zero: there are no members
	read    time.Time              // by the local clock, before it was read
}

// find returns a member with its partitions.
func (r *roster) find(id domain.GroupMemberID) (member domain.GroupMember, ok bool) {
	i := slices.Index(r.ids, id)
	if i < 0 {
		return domain.GroupMember{}, false
	}
	member = r.members[i]
	member.Partitions = r.partitions(id)
	return member, true
}

// partitions are those that are a member's, in order.
func (r *roster) partitions(id domain.GroupMemberID) []int {
	var numbers []int
	for number, owner := range r.owners {
		if owner == id {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// membership is what a process knows of a group's members. All methods may be called concurrently.
type membership struct {
	known atomic.Pointer[roster] // nil: nothing was read yet

	mu      sync.Mutex
	reading bool                               // somebody is at it: others go by what is known
	signed  map[domain.GroupMemberID]time.Time // when a member's sign of life was written last, here
}

// enroll takes the members that are alive as they were read, which begun at a time.
func (gr *group) enroll(alive []domain.GroupMember, began time.Time) *roster {
	next := &roster{members: alive, ids: make([]domain.GroupMemberID, len(alive)), read: began}
	for i := range alive {
		next.ids[i] = alive[i].ID
	}
	m := &gr.members
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.known.Load()
	if before != nil && slices.Equal(before.ids, next.ids) {
		next.owners = before.owners
	} else {
		next.owners = shareOut(gr.name, gr.known.Load().Partitions, next.ids)
		for id := range m.signed {
			if !slices.Contains(next.ids, id) {
				delete(m.signed, id)
			}
		}
	}
	if before == nil || !before.read.After(began) {
		m.known.Store(next)
	}
	return next
}

// due reports whether a member's sign of life is to be written now, and takes it for written.
func (m *membership) due(id domain.GroupMemberID, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.signed[id]; ok && now.Sub(at) < signEvery {
		return false
	}
	m.sign(id, now)
	return true
}

func (m *membership) sign(id domain.GroupMemberID, now time.Time) {
	if m.signed == nil {
		m.signed = make(map[domain.GroupMemberID]time.Time)
	}
	m.signed[id] = now
}

func (m *membership) unsign(id domain.GroupMemberID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.signed, id)
}

// old reports whether what is known is to be read anew by whoever asks; done must be called then.
func (m *membership) old(now time.Time, rosterFor time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reading || now.Sub(m.known.Load().read) < rosterFor {
		return false
	}
	m.reading = true
	return true
}

func (m *membership) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading = false
}

// attend returns a group's roster as a member that receives needs it: the member is in it. Receiving is a sign of life. One that is
// not a member, or no longer, is domain.CodeNotFound.
func (g *Groups) attend(ctx context.Context, gr *group, id domain.GroupMemberID) (*roster, error) {
	now := time.Now()
	known := gr.members.known.Load()
	if known == nil || !slices.Contains(known.ids, id) || gr.members.due(id, now) {
		return g.announce(ctx, gr, domain.GroupMember{ID: id}, false)
	}
	if gr.members.old(now, g.rosterFor) {
		defer gr.members.done()
		r, err := g.readRoster(ctx, gr)
		if err != nil || slices.Contains(r.ids, id) {
			return r, err
		}
		return g.announce(ctx, gr, domain.GroupMember{ID: id}, false) // which says that it is none any more
	}
	return known, nil
}

// announce writes a member's sign of life, and reads who else is alive.
func (g *Groups) announce(ctx context.Context, gr *group, member domain.GroupMember, join bool) (*roster, error) {
	began := time.Now()
	alive, err := g.config.Store.AnnounceGroupMember(ctx, gr.tenant, gr.name, member, join)
	if err != nil {
		gr.members.unsign(member.ID)
		return nil, err
	}
	r := gr.enroll(alive, began)
	gr.members.mu.Lock()
	gr.members.sign(member.ID, began)
	gr.members.mu.Unlock()
	return r, nil
}

func (g *Groups) readRoster(ctx context.Context, gr *group) (*roster, error) {
	began := time.Now()
	alive, err := g.config.Store.GroupMembers(ctx, gr.tenant, gr.name)
	if err != nil {
		return nil, err
	}
	return gr.enroll(alive, began), nil
}
