package group

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// Join creates a member of a group with partitions. A group without partitions returns domain.CodeConflict. label is
// for people and has up to domain.MaxNameBytes. A member is removed if it gives no sign of life for
// domain.GroupMemberDead. Each receive counts as one.
func (g *Groups) Join(ctx context.Context, tenant domain.TenantID, name, label string) (domain.GroupMember, error) {
	if len(label) > domain.MaxNameBytes {
		return domain.GroupMember{}, domain.Errorf(domain.CodeInvalidRequest, "label", "it has %d bytes; at most %d are allowed", len(label), domain.MaxNameBytes)
	}
	gr, err := g.use(ctx, tenant, name)
	if err != nil {
		return domain.GroupMember{}, err
	}
	if gr.known.Load().Partitions == 0 {
		return domain.GroupMember{}, domain.Errorf(domain.CodeConflict, "name", "group %q has no partitions, and so no members; any number of consumers may receive from it as it is", name)
	}
	return g.announceMember(ctx, gr, domain.GroupMember{ID: domain.NewGroupMemberID(), Label: label}, true)
}

// Heartbeat records a member's sign of life. If the member does not exist or was removed, it returns
// domain.CodeNotFound, and the member must join again.
func (g *Groups) Heartbeat(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) (domain.GroupMember, error) {
	gr, err := g.use(ctx, tenant, name)
	if err != nil {
		return domain.GroupMember{}, err
	}
	return g.announceMember(ctx, gr, domain.GroupMember{ID: id}, false)
}

// announceMember announces a member, and returns it with its partitions.
func (g *Groups) announceMember(ctx context.Context, gr *group, member domain.GroupMember, join bool) (domain.GroupMember, error) {
	r, err := g.announce(ctx, gr, member, join)
	if err != nil {
		return domain.GroupMember{}, err
	}
	found, ok := r.find(member.ID)
	if !ok {
		return found, domain.Errorf(domain.CodeNotFound, "memberId", "group %q no longer has a member %s; join again", gr.name, member.ID)
	}
	return found, nil
}

// Leave ends a membership. What the member has in flight is redelivered to other members at their next receive.
func (g *Groups) Leave(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error {
	gr, err := g.use(ctx, tenant, name)
	if err != nil {
		return err
	}
	if err := g.config.Store.RemoveGroupMember(ctx, tenant, name, id); err != nil {
		return err
	}
	if _, err := g.readAssignment(ctx, gr); err != nil {
		return nil // it has left all the same; other receives read it soon
	}
	g.Notice(tenant, name)
	return nil
}

// Members returns the live members, ordered by id.
func (g *Groups) Members(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error) {
	gr, err := g.use(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	r, err := g.readAssignment(ctx, gr)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(r.members)
	for i := range all {
		all[i].Partitions = r.partitions(all[i].ID)
	}
	return all, nil
}
