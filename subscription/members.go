package subscription

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// Join makes a member of a group with partitions; others are domain.CodeConflict. label is for people, of up to
// domain.MaxNameBytes. A member that gives no sign of life for domain.GroupMemberDead is swept; each receive is one.
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
	return g.alive(ctx, gr, domain.GroupMember{ID: domain.NewGroupMemberID(), Label: label}, true)
}

// Heartbeat is a member's sign of life. One that is not there, or was swept, is domain.CodeNotFound: it joins again.
func (g *Groups) Heartbeat(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) (domain.GroupMember, error) {
	gr, err := g.use(ctx, tenant, name)
	if err != nil {
		return domain.GroupMember{}, err
	}
	return g.alive(ctx, gr, domain.GroupMember{ID: id}, false)
}

// alive announces a member, and returns it with its partitions.
func (g *Groups) alive(ctx context.Context, gr *group, member domain.GroupMember, join bool) (domain.GroupMember, error) {
	r, err := g.announce(ctx, gr, member, join)
	if err != nil {
		return domain.GroupMember{}, err
	}
	found, ok := r.find(member.ID)
	if !ok {
		return found, domain.Errorf(domain.CodeNotFound, "memberId", "group %q has no member %s any more; join again", gr.name, member.ID)
	}
	return found, nil
}

// Leave ends a membership: what the member has in flight is delivered to others, as soon as they ask for it.
func (g *Groups) Leave(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error {
	gr, err := g.use(ctx, tenant, name)
	if err != nil {
		return err
	}
	if err := g.config.Store.RemoveGroupMember(ctx, tenant, name, id); err != nil {
		return err
	}
	if _, err := g.readRoster(ctx, gr); err != nil {
		return nil // it has left all the same; who goes by the roster reads it soon
	}
	g.Notice(tenant, name)
	return nil
}

// Members are those that are alive, by their ids.
func (g *Groups) Members(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error) {
	gr, err := g.use(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	r, err := g.readRoster(ctx, gr)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(r.members)
	for i := range all {
		all[i].Partitions = r.partitions(all[i].ID)
	}
	return all, nil
}
