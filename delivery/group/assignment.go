package group

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	// assignmentFor is how long a process relies on what it read of a group's members. Meanwhile, processes may
	// disagree, which is harmless: the ledger decides who may work on a partition.
	assignmentFor = time.Second
	// signEvery is how often, at most, a member's receives are recorded as signs of life.
	signEvery = 5 * time.Second
)

// assignment holds the live members of a group and the partitions assigned to them. It is immutable.
type assignment struct {
	members []domain.GroupMember   // by id
	ids     []domain.GroupMemberID // ids of members
	owners  []domain.GroupMemberID // by partition: the assigned member; zero: there are no members
	read    time.Time              // local time just before it was read
}

// find returns a member with its partitions.
func (r *assignment) find(id domain.GroupMemberID) (member domain.GroupMember, ok bool) {
	i := slices.Index(r.ids, id)
	if i < 0 {
		return domain.GroupMember{}, false
	}
	member = r.members[i]
	member.Partitions = r.partitions(id)
	return member, true
}

// partitions returns a member's partitions in order.
func (r *assignment) partitions(id domain.GroupMemberID) []int {
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
	known atomic.Pointer[assignment] // nil: nothing was read yet

	mu      sync.Mutex
	reading bool                               // one goroutine is reading; the others use what is known
	signed  map[domain.GroupMemberID]time.Time // when this process last recorded a member's sign of life
}

// recordMembers records the live members, from a read that started at began.
func (gr *group) recordMembers(alive []domain.GroupMember, began time.Time) *assignment {
	next := &assignment{members: alive, ids: make([]domain.GroupMemberID, len(alive)), read: began}
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
		next.owners = assignPartitions(gr.name, gr.known.Load().Partitions, next.ids)
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

// signOfLifeDue reports whether a member's sign of life must be recorded now. If so, it marks it as recorded.
func (m *membership) signOfLifeDue(id domain.GroupMemberID, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.signed[id]; ok && now.Sub(at) < signEvery {
		return false
	}
	m.recordSign(id, now)
	return true
}

func (m *membership) recordSign(id domain.GroupMemberID, now time.Time) {
	if m.signed == nil {
		m.signed = make(map[domain.GroupMemberID]time.Time)
	}
	m.signed[id] = now
}

func (m *membership) forgetSign(id domain.GroupMemberID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.signed, id)
}

// mustRead reports whether the caller must read the members again. If so, it must call doneReading afterwards.
func (m *membership) mustRead(now time.Time, within time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reading || now.Sub(m.known.Load().read) < within {
		return false
	}
	m.reading = true
	return true
}

func (m *membership) doneReading() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading = false
}

// attendMember returns a group's assignment to its members, with the member id among them, for a receive. A receive is
// a sign of life. If id is no longer a member, attendMember returns domain.CodeNotFound.
func (g *Groups) attendMember(ctx context.Context, gr *group, id domain.GroupMemberID) (*assignment, error) {
	now := time.Now()
	known := gr.members.known.Load()
	if known == nil || !slices.Contains(known.ids, id) || gr.members.signOfLifeDue(id, now) {
		return g.announce(ctx, gr, domain.GroupMember{ID: id}, false)
	}
	if gr.members.mustRead(now, g.assignmentFor) {
		defer gr.members.doneReading()
		r, err := g.readAssignment(ctx, gr)
		if err != nil || slices.Contains(r.ids, id) {
			return r, err
		}
		return g.announce(ctx, gr, domain.GroupMember{ID: id}, false) // fails, as the member is gone
	}
	return known, nil
}

// announce records a member's sign of life, and reads the live members.
func (g *Groups) announce(ctx context.Context, gr *group, member domain.GroupMember, join bool) (*assignment, error) {
	began := time.Now()
	alive, err := g.config.Store.AnnounceGroupMember(ctx, gr.tenant, gr.name, member, join)
	if err != nil {
		gr.members.forgetSign(member.ID)
		return nil, err
	}
	r := gr.recordMembers(alive, began)
	gr.members.mu.Lock()
	gr.members.recordSign(member.ID, began)
	gr.members.mu.Unlock()
	return r, nil
}

func (g *Groups) readAssignment(ctx context.Context, gr *group) (*assignment, error) {
	began := time.Now()
	alive, err := g.config.Store.GroupMembers(ctx, gr.tenant, gr.name)
	if err != nil {
		return nil, err
	}
	return gr.recordMembers(alive, began), nil
}
