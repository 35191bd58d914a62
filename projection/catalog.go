package projection

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/fairshare"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/projection/registry"
	tenants "github.com/manifold-es/manifold/tenant"
	"github.com/manifold-es/manifold/upcasting"
)

// Store is Manifold's own database: the log, what is known of projections, and the tenants.
type Store struct {
	*eventlog.Log
	*registry.Registry
	*tenants.Tenants
}

// Heads is eventlog.Log.Heads without audit logs, which projections do not fold.
func (s Store) Heads(ctx context.Context, since time.Time) ([]domain.Head, error) {
	heads, err := s.Log.Heads(ctx, since)
	return slices.DeleteFunc(heads, func(head domain.Head) bool { return head.Tenant.IsAuditLog() }), err
}

// CatalogConfig configures a Catalog.
type CatalogConfig struct {
	Store     Store
	Drivers   map[string]drivers.Driver  // by the database's name in the configuration
	Handlers  map[string]folding.Handler // written in Go, by name; may be nil
	Progress  *Progress                  // the Runner's of this process
	Upcasters *upcasting.Upcasters       // may be nil
	Outages   Outages                    // shared with the Runner
	Requests  *budget.Requests           // what requests' folds and definitions may cost; nil: budget.New's defaults
	// Aggregate returns the rules of a tenant's aggregate, or domain.CodeNotFound; nil: there are none.
	Aggregate func(ctx context.Context, tenant domain.TenantID, category string) (folding.AggregateRules, error)
	// Lost is called each time a read finds that a live build's table is missing; may be nil.
	Lost        func(id domain.ProjectionID, build int64)
	LogDatabase string        // the name of the database that also holds the log; empty: none does
	Keep        time.Duration // how long to keep a build after its last reader, longer than any request may take; 0: an hour
	Log         *slog.Logger
}

// maxSourceFolds is how many compiled folds of source projections are kept: each takes tens of kilobytes.
const maxSourceFolds = 200

// defaultKeep is how long a retired build stays before it is dropped.
const defaultKeep = time.Hour

// Catalog is the clients' view of projections: definitions, their status, and their documents. A tenant sees its own
// projections and the shared ones. If both have the same name, it sees its own. All methods may be called concurrently.
// Errors that a client can act on are *domain.Error.
type Catalog struct {
	config      CatalogConfig
	rules       folding.Rules
	filters     filterCache
	queries     *fairshare.Budget // queries of unknown cost under way
	tokens      tokenSeal
	folds       *folding.Cache // of source projections, see DocumentsOf
	parkedLocks chan struct{}  // one element for each locked parked document: see replayAttempt.runLocked
}

// NewCatalog returns a Catalog.
func NewCatalog(config CatalogConfig) *Catalog {
	config.Keep = cmp.Or(config.Keep, defaultKeep)
	if config.Requests == nil {
		config.Requests = budget.New(budget.Limits{})
	}
	return &Catalog{
		config:      config,
		rules:       folding.Rules{Databases: slices.Sorted(maps.Keys(config.Drivers)), LogDatabase: config.LogDatabase, Handlers: config.Handlers},
		filters:     newFilterCache(),
		queries:     newQueryShares(),
		folds:       folding.NewCache(maxSourceFolds),
		parkedLocks: make(chan struct{}, locksAtOnce),
		tokens:      tokenSeal{key: config.Store.PageTokenKey},
	}
}

// Complete returns a definition that names an aggregate with the aggregate's present rules, and any other unchanged.
// The error is domain.CodeInvalidDefinition if there is no such aggregate, if the definition has rules besides, and for
// domain.Everyone, who has no aggregates.
func (c *Catalog) Complete(ctx context.Context, owner domain.TenantID, definition domain.Definition) (domain.Definition, error) {
	return c.complete(ctx, owner, definition, nil)
}

// complete is Complete; aggregates are used in place of stored ones.
func (c *Catalog) complete(ctx context.Context, owner domain.TenantID, definition domain.Definition, aggregates map[string]folding.AggregateRules) (domain.Definition, error) {
	if definition.Aggregate == "" || owner == domain.Everyone {
		return definition, nil // Check refuses an aggregate of everyone
	}
	rules, found := aggregates[definition.Aggregate]
	if !found && c.config.Aggregate != nil {
		var err error
		if rules, err = c.config.Aggregate(ctx, owner, definition.Aggregate); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
			return definition, err
		}
		found = err == nil
	}
	if !found {
		return definition, domain.Errorf(domain.CodeInvalidDefinition, "aggregate", "there is no aggregate %q; put its definition first", folding.Clip(definition.Aggregate))
	}
	return folding.FromAggregate(definition, rules)
}

// Check reports everything that keeps the definition from working as projection id, as Rules.Check does. The names of
// the projections that Manifold itself deploys are reserved. A large definition takes seconds to compile, so the
// request's budget pays for it.
func (c *Catalog) Check(ctx context.Context, id domain.ProjectionID, definition domain.Definition) error {
	if err := folding.CheckReserved(id, definition); err != nil {
		return err
	}
	_, err := c.check(ctx, id, definition)
	return err
}

// check is Check without the reserved names. It returns the compiled fold.
func (c *Catalog) check(ctx context.Context, id domain.ProjectionID, definition domain.Definition) (fold *folding.Fold, err error) {
	ctx, end, err := c.config.Requests.Begin(ctx, id.Owner, "give the definition fewer and shorter expressions")
	if err != nil {
		return nil, err
	}
	defer end()
	err = budget.Work(ctx, func() error {
		fold, err = c.rules.Compile(expr.MeterOf(ctx), id, definition)
		return err
	})
	return fold, err
}

// Create creates a projection with an empty build that follows the log from its first event. With owner domain.Everyone
// it is shared. The error is domain.CodeAlreadyExists if the owner has a projection of that name, or if a tenant's
// would hide a shared one. by names the author for the projection's versions: "key <id> (<name>)", "operator",
// "configuration" or "service".
func (c *Catalog) Create(ctx context.Context, owner domain.TenantID, definition domain.Definition, by string) (domain.Projection, error) {
	definition, err := c.Complete(ctx, owner, definition)
	if err != nil {
		return domain.Projection{}, err
	}
	definition = folding.WithDefaults(definition)
	id := domain.ProjectionID{Owner: owner, Name: definition.Name}
	if err := c.Check(ctx, id, definition); err != nil {
		return domain.Projection{}, err
	}
	if err := c.requireUnusedName(ctx, id); err != nil {
		return domain.Projection{}, err
	}
	number, err := c.config.Store.NextBuild(ctx, owner)
	if err != nil {
		return domain.Projection{}, fmt.Errorf("create projection %q: %w", id.Name, err)
	}
	p := domain.Projection{ProjectionID: id, Definition: definition, Build: number}
	if definition.Mode == domain.ModeLive { // nothing is stored
		if err := c.config.Store.CreateProjection(ctx, p, by); err != nil {
			return domain.Projection{}, err
		}
		return c.config.Store.Projection(ctx, id)
	}
	if err := c.createTable(ctx, p.LiveBuild()); err != nil {
		return domain.Projection{}, err
	}
	if err := c.config.Store.CreateProjection(ctx, p, by); err != nil {
		// A concurrent request may have created it; the unused table must not stay.
		if dropErr := c.config.Drivers[definition.Database].DropTable(context.WithoutCancel(ctx), p.LiveBuild()); dropErr != nil {
			c.config.Log.Error("drop the table of a projection that could not be created", "projection", id.Name, "build", number, "error", dropErr)
		}
		return domain.Projection{}, err
	}
	c.swapTable(ctx, p.LiveBuild())
	return c.config.Store.Projection(ctx, id)
}

// requireUnusedName refuses a name that the owner already uses. For a tenant's projection it also refuses the name of a
// shared one, which it would hide from the tenant.
func (c *Catalog) requireUnusedName(ctx context.Context, id domain.ProjectionID) error {
	owners := []domain.TenantID{id.Owner}
	if !id.Shared() {
		owners = append(owners, domain.Everyone)
	}
	for _, owner := range owners {
		_, err := c.config.Store.Projection(ctx, domain.ProjectionID{Owner: owner, Name: id.Name})
		switch {
		case err == nil && owner != id.Owner:
			return domain.Errorf(domain.CodeAlreadyExists, "name", "there is a shared projection named %q; choose another name", id.Name)
		case err == nil:
			return domain.Errorf(domain.CodeAlreadyExists, "name", "there is a projection named %q already; PUT changes its definition", id.Name)
		case !domain.IsCode(err, domain.CodeNotFound):
			return fmt.Errorf("look up projection %q: %w", id.Name, err)
		}
	}
	return nil
}

// createTable creates the table and indexes of a new, empty build: indexing an empty table costs nothing. It announces
// a shared projection's table first, so that the table is found if the creation fails later.
func (c *Catalog) createTable(ctx context.Context, build domain.Build) error {
	driver := c.config.Drivers[build.Database]
	if build.Shared() {
		if err := c.config.Store.AnnounceBuild(ctx, build); err != nil {
			return err
		}
	}
	if err := driver.CreateTemporaryTable(ctx, build); err != nil {
		return fmt.Errorf("make the table of build %d of projection %q: %w", build.Number, build.Name, err)
	}
	if err := driver.IndexTable(ctx, build); err != nil {
		return fmt.Errorf("index the table of build %d of projection %q: %w", build.Number, build.Name, err)
	}
	return nil
}

// swapTable points the public name of the projection at the build's table. It only logs a failure: nothing in Manifold
// reads by that name, and the cleanup of retired builds repeats the swap before it drops them.
func (c *Catalog) swapTable(ctx context.Context, build domain.Build) {
	if err := c.config.Drivers[build.Database].SwapTable(ctx, build, nil); err != nil {
		c.config.Log.Warn("the public name of a projection does not point at its live build yet", "projection", build.Name, "build", build.Number, "error", err)
	}
}

// Get returns the projection with this name: the tenant's own, or else the shared one.
func (c *Catalog) Get(ctx context.Context, tenant domain.TenantID, name string) (domain.Projection, error) {
	return ownOrShared(tenant, name, func(id domain.ProjectionID) (domain.Projection, error) { return c.config.Store.Projection(ctx, id) })
}

// Live returns the projection with this name: the tenant's own, or else the shared one. It comes with the build and
// definition that are live for the tenant, since a rebuild may have given the tenant a separate build.
func (c *Catalog) Live(ctx context.Context, tenant domain.TenantID, name string) (domain.Projection, error) {
	return ownOrShared(tenant, name, func(id domain.ProjectionID) (domain.Projection, error) {
		return c.config.Store.LiveProjection(ctx, tenant, id)
	})
}

func ownOrShared(tenant domain.TenantID, name string, read func(domain.ProjectionID) (domain.Projection, error)) (domain.Projection, error) {
	p, err := read(domain.ProjectionID{Owner: tenant, Name: name})
	if domain.IsCode(err, domain.CodeNotFound) && tenant != domain.Everyone {
		p, err = read(domain.ProjectionID{Owner: domain.Everyone, Name: name})
	}
	if domain.IsCode(err, domain.CodeNotFound) {
		return domain.Projection{}, domain.Errorf(domain.CodeNotFound, "name", "there is no projection named %q", folding.Clip(name))
	}
	return p, err
}

// List returns the tenant's own projections and the shared ones that they do not hide, ordered by name.
func (c *Catalog) List(ctx context.Context, tenant domain.TenantID) ([]domain.Projection, error) {
	own, err := c.config.Store.Projections(ctx, tenant)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(own)
	if tenant != domain.Everyone {
		shared, err := c.config.Store.Projections(ctx, domain.Everyone)
		if err != nil {
			return nil, err
		}
		for _, p := range shared {
			if !slices.ContainsFunc(own, func(o domain.Projection) bool { return o.Name == p.Name }) {
				all = append(all, p)
			}
		}
	}
	slices.SortFunc(all, func(a, b domain.Projection) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Delete removes the owner's projection and cancels a running rebuild of it. Its documents are dropped after Keep.
// by is as for Create.
func (c *Catalog) Delete(ctx context.Context, owner domain.TenantID, name, by string) error {
	id, err := c.ownID(ctx, owner, name)
	if err != nil {
		return err
	}
	return c.config.Store.DeleteProjection(ctx, id, time.Now().Add(c.config.Keep), by)
}

// Reset replaces the owner's projection at once with an empty build that follows the log from its first event. It is
// meant for development: readers see few documents until the build has caught up. The definition does not change, so
// Reset adds no version; it logs by. The error is domain.CodeEventsRemoved if retention has removed events of its
// source and acceptLoss is false.
func (c *Catalog) Reset(ctx context.Context, owner domain.TenantID, name, by string, acceptLoss bool) (domain.Projection, error) {
	id, err := c.ownID(ctx, owner, name)
	if err != nil {
		return domain.Projection{}, err
	}
	p, err := c.config.Store.Projection(ctx, id)
	if err != nil || p.Definition.Mode == domain.ModeLive { // nothing is stored
		return p, err
	}
	if _, err := c.driver(p.LiveBuild()); err != nil {
		return domain.Projection{}, err
	}
	if p.Build, err = c.config.Store.NextBuild(ctx, owner); err != nil {
		return domain.Projection{}, err
	}
	if err := c.config.Store.BeginReset(ctx, p.LiveBuild(), p.Definition, by); err != nil {
		return domain.Projection{}, err
	}
	reset := false
	defer func() {
		if reset {
			return
		}
		if err := c.config.Store.AbandonReset(context.WithoutCancel(ctx), p.LiveBuild()); err != nil {
			c.config.Log.Error("undo a reset that failed", "projection", id.Name, "build", p.Build, "error", err)
		}
	}()
	// Check only after BeginReset: retention first announces what it is about to remove, and then asks who still needs
	// it.
	if !acceptLoss {
		if err := c.requireAllEvents(ctx, p); err != nil {
			return domain.Projection{}, err
		}
	}
	if err := c.createTable(ctx, p.LiveBuild()); err != nil {
		return domain.Projection{}, err
	}
	if err := c.config.Store.ResetProjection(ctx, id, p.Build, time.Now().Add(c.config.Keep)); err != nil {
		if dropErr := c.config.Drivers[p.Definition.Database].DropTable(context.WithoutCancel(ctx), p.LiveBuild()); dropErr != nil {
			c.config.Log.Error("drop the table of a reset that failed", "projection", id.Name, "build", p.Build, "error", dropErr)
		}
		return domain.Projection{}, err
	}
	reset = true
	c.config.Log.Info("projection reset", "projection", id.Name, "owner", owner.String(), "build", p.Build, "by", by)
	c.swapTable(ctx, p.LiveBuild())
	return c.config.Store.Projection(ctx, id)
}

// ownID returns the id of the owner's projection for a change. A tenant may change only its own projections.
func (c *Catalog) ownID(ctx context.Context, owner domain.TenantID, name string) (domain.ProjectionID, error) {
	p, err := c.Get(ctx, owner, name)
	if err != nil {
		return domain.ProjectionID{}, err
	}
	if p.Owner != owner {
		return domain.ProjectionID{}, domain.Errorf(domain.CodeForbidden, "name", "projection %q is shared: only the operator may change it", name)
	}
	return p.ProjectionID, nil
}

func (c *Catalog) driver(build domain.Build) (drivers.Driver, error) {
	if driver := c.config.Drivers[build.Database]; driver != nil {
		return driver, nil
	}
	return nil, domain.Errorf(domain.CodeUnavailable, "", "projection %q keeps its documents in database %q, which is not in this process's configuration", build.Name, build.Database)
}

// types returns the event types that a definition folds; nil means all.
func (c *Catalog) types(definition domain.Definition) []string {
	if definition.Handler == "" {
		return definition.Types()
	}
	if handler := c.config.Handlers[definition.Handler]; handler != nil {
		return handler.Types()
	}
	return nil
}
