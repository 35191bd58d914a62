package group

import (
	"context"
	"errors"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// Put creates or changes a group. A group keeps its from, ordering and number of partitions; other values return
// domain.CodeConflict. Without From, a new group begins at the start.
func (g *Groups) Put(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition) (status domain.GroupStatus, created bool, err error) {
	if err := domain.CheckGroupName("name", name); err != nil {
		return domain.GroupStatus{}, false, err
	}
	definition = withDefaults(definition)
	if err := checkDefinition(&definition); err != nil {
		return domain.GroupStatus{}, false, err
	}
	start, err := g.start(ctx, tenant, name, &definition)
	if err != nil {
		return domain.GroupStatus{}, false, err
	}
	if _, created, err = g.config.Store.PutGroup(ctx, tenant, name, definition, start); err != nil {
		return domain.GroupStatus{}, false, err
	}
	g.changed(tenant, name)
	status, err = g.statusOf(ctx, tenant, name)
	return status, created, err
}

// start returns where the partitions of a new group begin to read. For an existing group it checks that the change is
// allowed.
func (g *Groups) start(ctx context.Context, tenant domain.TenantID, name string, definition *domain.GroupDefinition) (int64, error) {
	wanted := definition.From
	if wanted == "" {
		wanted = domain.From{}.String()
	}
	from, err := domain.ParseFrom("from", wanted)
	if err != nil {
		return 0, err
	}
	group, err := g.config.Store.Group(ctx, tenant, name)
	if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Code == domain.CodeNotFound {
		definition.From = from.String()
		return selection.ResolveFrom(ctx, g.config.Events, tenant, from)
	}
	if err != nil {
		return 0, err
	}
	if definition.From == "" {
		definition.From = group.From
	} else {
		definition.From = from.String()
	}
	return 1, changeable(group, *definition)
}

// Get returns a group's status.
func (g *Groups) Get(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error) {
	return g.statusOf(ctx, tenant, name)
}

// List returns up to limit groups after a name, ordered by name.
func (g *Groups) List(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.GroupStatus, error) {
	groups, err := g.config.Store.Groups(ctx, tenant, after, limit)
	if err != nil || len(groups) == 0 {
		return groups, err
	}
	floors, err := g.config.Events.Floors(ctx, tenant, nil, 1)
	if err != nil {
		return nil, err
	}
	for i := range groups {
		groups[i].RemovedTo = removedTo(floors, &groups[i].Selection)
	}
	return groups, nil
}

// Delete removes a group.
func (g *Groups) Delete(ctx context.Context, tenant domain.TenantID, name string) error {
	err := g.config.Store.DeleteGroup(ctx, tenant, name)
	g.changed(tenant, name)
	return err
}

// Pause stops or resumes deliveries. Events in flight can still be answered.
func (g *Groups) Pause(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.GroupStatus, error) {
	if _, err := g.config.Store.PauseGroup(ctx, tenant, name, paused); err != nil {
		return domain.GroupStatus{}, err
	}
	g.changed(tenant, name)
	return g.statusOf(ctx, tenant, name)
}

// Seek moves a group to another position. Events that are in flight or wait for a retry are dropped. Dead letters stay,
// except those after the new position whose replay was requested: they are delivered anyway. A position after the head
// takes effect when the log reaches it. An unreadable ledger is replaced.
func (g *Groups) Seek(ctx context.Context, tenant domain.TenantID, name string, to domain.From) (domain.GroupStatus, error) {
	if to.Position < 0 {
		return domain.GroupStatus{}, domain.Errorf(domain.CodeInvalidRequest, "position", "it is %d; positions begin with 1", to.Position)
	}
	start, err := selection.ResolveFrom(ctx, g.config.Events, tenant, to)
	if err != nil {
		return domain.GroupStatus{}, err
	}
	group, err := g.config.Store.Group(ctx, tenant, name)
	if err != nil {
		return domain.GroupStatus{}, err
	}
	_, err = g.config.Store.SeekGroup(ctx, tenant, name, func(partition int, ledger []byte) ([]byte, domain.PartitionStatus, error) {
		l, err := openLedger(partition, LedgerRow{Group: group, Ledger: ledger})
		if err != nil {
			g.config.Log.Warn("a partition's ledger cannot be read; the seek replaces it", "tenant", tenant.String(), "group", name, "partition", partition, "error", err)
			l = lostLedger(partition, group.Ordering == domain.OrderingStream)
		}
		l = l.afterSeek(start - 1)
		return l.encode(), l.status(), nil
	})
	if err != nil {
		return domain.GroupStatus{}, err
	}
	g.changed(tenant, name)
	return g.statusOf(ctx, tenant, name)
}
