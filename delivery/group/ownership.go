package group

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// A partition's ledger says which member owns it, and only the owner receives events. So two members never work on one
// partition at the same time, whatever processes believe about the members. Because there is only one ledger, an event
// acknowledged by one member is not delivered to another.

// admit decides which of the step's receives may be served: those of the member that the partition is assigned to. This
// member becomes the owner if there is none, if the owner has nothing in flight, or if the owner is gone. In the last
// case, what the owner has in flight is due again at once. While another owner has events in flight, nobody receives
// anything.
func (s *step) admit(ctx context.Context, now int64) error {
	p, l := s.p, s.p.ledger
	s.served = nil
	r := p.group.members.known.Load()
	if r == nil || p.number >= len(r.owners) {
		return nil
	}
	wanted := r.owners[p.number]
	if wanted.IsZero() || !slices.ContainsFunc(s.receives, func(r *receive) bool { return r.member == wanted }) {
		return nil
	}
	if l.owner != wanted {
		if held := !l.owner.IsZero() && l.holdsLeases(now); held {
			gone, err := p.isGone(ctx, l.owner)
			if err != nil || !gone {
				return err
			}
			l.releaseAll(now)
		}
		l.setOwner(wanted)
	}
	for _, r := range s.receives {
		if r.member == wanted {
			s.served = append(s.served, r)
		}
	}
	return nil
}

// orphaned reports whether events are leased to an owner that is gone, so that the next member receives them at once.
func (p *partition) orphaned(ctx context.Context, now int64) (bool, error) {
	if p.ledger.owner.IsZero() || !p.ledger.holdsLeases(now) {
		return false, nil
	}
	r, err := p.groups.readAssignment(ctx, p.group)
	return err == nil && !slices.Contains(r.ids, p.ledger.owner), err
}

// isGone reports whether a member in a ledger is no longer alive. It may have joined after the members were read. So
// isGone reads the members again before it declares the member gone.
func (p *partition) isGone(ctx context.Context, id domain.GroupMemberID) (bool, error) {
	if slices.Contains(p.group.members.known.Load().ids, id) {
		return false, nil
	}
	r, err := p.groups.readAssignment(ctx, p.group)
	if err != nil {
		return false, err
	}
	return !slices.Contains(r.ids, id), nil
}

// mayChangeOwner reports whether another member may take over the partition now. That member may be waiting in another
// process.
func (p *partition) mayChangeOwner() bool {
	r := p.group.members.known.Load()
	return r != nil && p.number < len(r.owners) && p.ledger.owner != r.owners[p.number] && !p.ledger.owner.IsZero() && !p.ledger.holdsLeases(p.clock.now().UnixMicro())
}

// setOwner makes a member the owner.
func (l *ledger) setOwner(member domain.GroupMemberID) {
	l.owner = member
	l.dirty = true
}

// holdsLeases reports whether a lease has not expired.
func (l *ledger) holdsLeases(now int64) bool {
	for _, le := range l.leaseOf {
		if le.deadline > now {
			return true
		}
	}
	return false
}

// lapsed reports whether a lease of a partition was found to have expired. It must not be extended: another member may
// own the partition now, and two would work on it.
func (l *ledger) lapsed(le *lease) bool { return !l.owner.IsZero() && le.due() }

// releaseAll makes all leases expire, because the consumer may have started on their events.
func (l *ledger) releaseAll(now int64) {
	for _, le := range l.leaseOf {
		le.deadline = min(le.deadline, now)
	}
	l.dirty = true
}
