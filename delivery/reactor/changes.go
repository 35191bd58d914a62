package reactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/registry"
)

// Appender appends changes to a log. The service's appender also reports each append to aggregates, which this package
// does not know.
type Appender interface {
	Append(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error)
}

// ChangesConfig configures Changes. Registry, Births, Events, Appends, Groups and Projections are required.
type ChangesConfig struct {
	Registry    *registry.Registry // the projections that publish their changes
	Births      *group.Postgres    // records since when each of them does
	Events      *eventlog.Log
	Appends     Appender
	Groups      *group.Groups
	Projections *projection.Catalog
	// Notice is called when a tenant's consumers have changed; domain.Everyone means every tenant. It must return at
	// once. Nil means that nothing is called.
	Notice func(tenant domain.TenantID)
	Log    *slog.Logger // nil: none
	// Lease is how long a process that publishes the changes of events holds these events before another one takes
	// over. 0 means DefaultLease.
	Lease time.Duration
	// Seen is called for each projection that is created or changed after the first look, sometimes more than once. It
	// must return at once. Nil means that nothing is called.
	Seen func(id domain.ProjectionID)
	// Published is called after changes were appended. It must return at once. Nil means that nothing is called.
	Published func(id domain.ProjectionID, events int)
}

// DefaultLease is the default of ChangesConfig.Lease.
const DefaultLease = 10 * time.Second

// Changes turns changes of documents into events, for projections whose definition sets publishChanges. It is a source
// of a consume.Dispatcher. All methods may be called concurrently.
//
// Each document has a stream with its successive states, one event per state. Changes compares the document's current
// state with the stream's newest event. If the event is older and has another value, Changes appends the current state
// and expects the stream's current version. So two concurrent writers, or one that repeats its work, append each change
// once.
type Changes struct {
	config    ChangesConfig
	groups    knownGroups
	look      chan struct{} // one entry while the projections must be looked at
	firstLook chan struct{} // closed after the first look

	mu     sync.Mutex
	opened bool // firstLook is closed
	of     map[domain.TenantID]map[string]published
	newest time.Time // newest change of a projection seen so far
}

// published is a projection whose changes are or were published.
type published struct {
	since time.Time // zero: no longer published, and its remains must be removed
	row   time.Time // last change of its row that was seen
}

var _ consume.Source = (*Changes)(nil)

// NewChanges returns Changes. It learns of projections while Run is running.
func NewChanges(config ChangesConfig) *Changes {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Notice == nil {
		config.Notice = func(domain.TenantID) {}
	}
	if config.Seen == nil {
		config.Seen = func(domain.ProjectionID) {}
	}
	if config.Published == nil {
		config.Published = func(domain.ProjectionID, int) {}
	}
	return &Changes{
		config: config, groups: knownGroups{groups: config.Groups}, look: make(chan struct{}, 1), firstLook: make(chan struct{}),
		of: make(map[domain.TenantID]map[string]published),
	}
}

// Refresh reports that projections may have been created or changed. It returns at once.
func (c *Changes) Refresh() {
	select {
	case c.look <- struct{}{}:
	default:
	}
}

// retryLook is how long to wait after a failed look.
const retryLook = 2 * time.Second

// Run follows the definitions until ctx ends, and then returns nil.
func (c *Changes) Run(ctx context.Context) error {
	c.Refresh()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.look:
		}
		err := c.lookAtProjections(ctx)
		if err == nil {
			failing = false
			continue
		}
		if !failing && ctx.Err() == nil {
			c.config.Log.Warn("the projections that publish changes cannot be listed; trying again", "error", err)
		}
		failing = true
		c.Refresh()
		select {
		case <-ctx.Done():
		case <-time.After(retryLook):
		}
	}
}

// lookAtProjections applies what has changed since the last look.
func (c *Changes) lookAtProjections(ctx context.Context) error {
	c.mu.Lock()
	since, first := c.newest, !c.opened
	c.mu.Unlock()
	projections, err := c.config.Registry.AllProjections(ctx, since)
	if err != nil {
		return err
	}
	for i := range projections {
		if err := c.applyRow(ctx, &projections[i]); err != nil {
			return err
		}
		if !first {
			c.config.Seen(projections[i].ProjectionID)
		}
	}
	if !first {
		return nil
	}
	// Nothing else removes the groups of projections that were published and are gone.
	declared, err := c.config.Births.Declared(ctx, domain.ServiceChanges)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range declared {
		if _, there := c.of[id.Owner][id.Name]; !there {
			c.put(id, published{})
		}
	}
	c.opened = true
	close(c.firstLook)
	return nil
}

// applyRow applies a projection's row.
func (c *Changes) applyRow(ctx context.Context, p *domain.Projection) error {
	c.mu.Lock()
	before, there := c.of[p.Owner][p.Name]
	c.mu.Unlock()
	if (there || p.Definition.PublishChanges) && !before.row.Equal(p.UpdatedAt) {
		now := published{row: p.UpdatedAt}
		if p.Definition.PublishChanges {
			since, err := c.since(ctx, p)
			if err != nil {
				return err
			}
			if now.since, err = c.config.Births.Declare(ctx, p.Owner, domain.ServiceChanges, p.Name, since); err != nil {
				return err
			}
			if now.since.Before(since) { // it was withdrawn since, or should have been when it was removed
				if err := c.config.Births.Withdraw(ctx, p.Owner, domain.ServiceChanges, p.Name); err != nil {
					return err
				}
				if now.since, err = c.config.Births.Declare(ctx, p.Owner, domain.ServiceChanges, p.Name, since); err != nil {
					return err
				}
			}
		}
		c.mu.Lock()
		c.put(p.ProjectionID, now)
		c.mu.Unlock()
		if !now.since.Equal(before.since) {
			c.config.Notice(p.Owner)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.UpdatedAt.After(c.newest) {
		c.newest = p.UpdatedAt
	}
	return nil
}

// put records what is known of a projection. c.mu must be held.
func (c *Changes) put(id domain.ProjectionID, p published) {
	if c.of[id.Owner] == nil {
		c.of[id.Owner] = make(map[string]published)
	}
	c.of[id.Owner][id.Name] = p
}

// manyVersions limits how many versions since searches.
const manyVersions = 1000

// since returns when the definition began to set publishChanges.
func (c *Changes) since(ctx context.Context, p *domain.Projection) (time.Time, error) {
	versions, err := c.config.Registry.ProjectionVersions(ctx, p.ProjectionID, manyVersions)
	if err != nil {
		return time.Time{}, err
	}
	since := p.UpdatedAt
	for _, v := range versions {
		if !v.Definition.PublishChanges || v.Cause == domain.VersionRemoved {
			break
		}
		since = v.At
	}
	return since, nil
}

// Consumers returns one consumer for each projection that publishes changes, and none for an audit log. It implements
// consume.Source. It waits for the first look at the projections.
func (c *Changes) Consumers(ctx context.Context, tenant domain.TenantID) ([]consume.Consumer, error) {
	if tenant.IsAuditLog() {
		return nil, nil
	}
	select {
	case <-c.firstLook:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	consumers := make([]consume.Consumer, 0, len(c.of[tenant])+len(c.of[domain.Everyone]))
	for _, owner := range [...]domain.TenantID{tenant, domain.Everyone} {
		for name, p := range c.of[owner] {
			if _, own := c.of[tenant][name]; own && owner == domain.Everyone {
				continue
			}
			id := domain.ProjectionID{Owner: owner, Name: name}
			consumers = append(consumers, consume.Consumer{
				Name: domain.ServiceGroup(domain.ServiceChanges, name), Revision: p.since.Format(time.RFC3339Nano),
				Run: func(ctx context.Context) (time.Time, error) { return c.run(ctx, tenant, id, p) },
			})
		}
	}
	return consumers, nil
}

// run publishes the changes of a tenant's documents.
func (c *Changes) run(
	ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, of published,
) (nextRun time.Time, err error) {
	group := domain.ServiceGroup(domain.ServiceChanges, id.Name)
	if of.since.IsZero() {
		return time.Time{}, c.end(ctx, tenant, id, of)
	}
	follow := func(ctx context.Context) error { return c.follow(ctx, tenant, id, of, group) }
	switch err := follow(ctx); {
	case errors.Is(err, errNoProjection):
		return time.Time{}, c.end(ctx, tenant, id, of)
	case err != nil:
		return time.Time{}, ignoreNoSource(err)
	}
	w := newWriter(c, id, consume.Group{
		Groups: c.config.Groups, Tenant: tenant, Name: group,
		Projection: id.Name, Projections: c.config.Projections, Stalls: &c.groups.stalls, Follow: follow,
	})
	nextRun, err = rerunWithoutSource(w.Run(ctx))
	if domain.IsCode(err, domain.CodeNotFound) {
		c.groups.forget(tenant, group) // the projection or the group was removed
	}
	return nextRun, err
}

// errNoProjection means that no projection has the name.
var errNoProjection = fmt.Errorf("there is no such projection: %w", errNoSource)

// follow creates the group of a projection's changes, or updates it to what the projection selects now. The error is
// errNoProjection if there is no projection, and errNoSource if the name means another projection for this tenant, or
// if the projection stores nothing.
func (c *Changes) follow(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, of published, group string) error {
	p, err := c.config.Projections.Live(ctx, tenant, id.Name)
	switch {
	case domain.IsCode(err, domain.CodeNotFound):
		return errNoProjection
	case err != nil:
		return err
	case p.Owner != id.Owner || p.Definition.Mode == domain.ModeLive:
		return errNoSource
	}
	definition := domain.GroupDefinition{
		From: domain.From{Time: of.since}.String(), BatchSize: changesBatch, AckTimeout: cmp.Or(c.config.Lease, DefaultLease), MaxAttempts: changesAttempts,
	}
	categories, types := c.config.Projections.Selects(p)
	definition.Categories, definition.Types = categories, typesOf(types)
	return c.groups.ensure(ctx, tenant, group, definition, true)
}

// end removes a tenant's group of a projection whose changes are no longer published.
func (c *Changes) end(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, as published) error {
	group := domain.ServiceGroup(domain.ServiceChanges, id.Name)
	if c.groups.gone(tenant, group) {
		return nil
	}
	err := c.config.Groups.Delete(ctx, tenant, group)
	if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return fmt.Errorf("remove the group of changes that are no longer published: %w", err)
	}
	if !id.Shared() {
		if err := c.config.Births.Withdraw(ctx, id.Owner, domain.ServiceChanges, id.Name); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[id.Owner][id.Name] != as {
		return nil // it is published again, and its group is created again
	}
	if id.Shared() {
		c.of[id.Owner][id.Name] = published{row: as.row} // other tenants still have their groups
		c.groups.remember(tenant, group, "")
		return nil
	}
	delete(c.of[id.Owner], id.Name)
	if len(c.of[id.Owner]) == 0 {
		delete(c.of, id.Owner)
	}
	return nil
}
