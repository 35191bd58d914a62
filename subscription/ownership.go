package subscription

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// A partition's ledger says which member owns it, and only the owner is given events. So whatever processes believe of the
// members, two of them never work on one partition at the same time, and what was acknowledged to one is not delivered to the
// other: it is one ledger.

// admit decides which of the step's receives may be given events: those of the member that the partition is to be of. That member
// becomes the owner where nobody is, where the owner has nothing in flight, or where the owner is gone: then what it has in
// flight is due again at once. While the owner has something in flight nobody is given anything.
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
			gone, err := p.absent(ctx, l.owner)
			if err != nil || !gone {
				return err
			}
			l.releaseAll(now)
		}
		l.own(wanted)
	}
	for _, r := range s.receives {
		if r.member == wanted {
			s.served = append(s.served, r)
		}
	}
	return nil
}

// orphaned reports whether events are leased to an owner that is gone, so that the next member is given them at once.
func (p *partition) orphaned(ctx context.Context, now int64) (bool, error) {
	if p.ledger.owner.IsZero() || !p.ledger.holdsLeases(now) {
		return false, nil
	}
	r, err := p.groups.readRoster(ctx, p.group)
	return err == nil && !slices.Contains(r.ids, p.ledger.owner), err
}

// absent reports whether a member that a ledger names is alive no more. It may have joined since the roster was read, so that
// is read anew before anybody is said to be gone.
func (p *partition) absent(ctx context.Context, id domain.GroupMemberID) (bool, error) {
	if slices.Contains(p.group.members.known.Load().ids, id) {
		return false, nil
	}
	r, err := p.groups.readRoster(ctx, p.group)
	if err != nil {
		return false, err
	}
	return !slices.Contains(r.ids, id), nil
}

// passesOn reports whether another member may have the partition now, which waits for it in another process, perhaps.
func (p *partition) passesOn() bool {
	r := p.group.members.known.Load()
	return r != nil && p.number < len(r.owners) && p.ledger.owner != r.owners[p.number] && !p.ledger.owner.IsZero() && !p.ledger.holdsLeases(p.clock.now().UnixMicro())
}

// own makes a member the owner.
func (l *ledger) own(member domain.GroupMemberID) {
	l.owner = member
	l.dirty = true
}

// holdsLeases reports whether an event is leased whose time is not over.
func (l *ledger) holdsLeases(now int64) bool {
	for _, le := range l.leaseOf {
		if le.deadline > now {
			return true
		}
	}
	return false
}

// releaseAll makes everything that is leased due again at once. Its attempts count: who had them may have begun.
func (l *ledger) releaseAll(now int64) {
	for _, le := range l.leaseOf {
		le.deadline = min(le.deadline, now)
	}
	l.dirty = true
}
