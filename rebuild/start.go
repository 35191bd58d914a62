package rebuild

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// Request says what to rebuild, and how.
type Request struct {
	Definition *domain.Definition // nil: the projection's current one
	Database   string             // moves the documents there, in place of the definition's database; empty: no move
	domain.RebuildOptions
	MaxFaulted *int   // how many tenants of a shared projection may stay behind; nil: domain.MaxFaultedTenants
	By         string // the author, as in domain.ProjectionVersion.By
	revision   *int64 // that the projection must still have; nil: any
}

// Limits of a request.
const (
	maxKeep       = 90 * 24 * time.Hour
	maxTenants    = 1000
	maxAssertions = 50
)

// Start queues a rebuild of a projection. It refuses an invalid request, and names the place in it. If a rebuild is
// under way, the error is domain.CodeRebuildRunning. It is domain.CodeEventsRemoved if retention has removed events
// that the rebuild needs and the request does not accept the loss, unless enough tenants of a shared projection can
// still be swapped.
//
// A definition in the request that names an aggregate takes the aggregate's present rules. The current one keeps those
// that it has.
func (r *Rebuilds) Start(ctx context.Context, id domain.ProjectionID, request Request) (domain.Rebuild, error) {
	if request.Definition != nil {
		definition, err := r.config.Catalog.Complete(ctx, id.Owner, *request.Definition)
		if err != nil {
			return domain.Rebuild{}, err
		}
		request.Definition = &definition
	}
	return r.start(ctx, id, request)
}

// start is Start, with a complete definition.
func (r *Rebuilds) start(ctx context.Context, id domain.ProjectionID, request Request) (domain.Rebuild, error) {
	p, err := r.config.Store.Projection(ctx, id)
	if err != nil {
		return domain.Rebuild{}, err
	}
	rebuild := domain.Rebuild{
		ProjectionID: id, ID: domain.NewRebuildID(), RebuildOptions: request.RebuildOptions, By: request.By, State: domain.RebuildQueued,
	}
	if rebuild.MaxFaulted = domain.MaxFaultedTenants; request.MaxFaulted != nil {
		rebuild.MaxFaulted = *request.MaxFaulted
	}
	if rebuild.Definition, err = definitionOf(p, request); err != nil {
		return domain.Rebuild{}, err
	}
	if err := r.config.Catalog.Check(ctx, id, rebuild.Definition); err != nil {
		if request.Definition == nil && request.Database != "" {
			err = movePlace("database", err)
		}
		return domain.Rebuild{}, err
	}
	if err := r.checkOptions(ctx, rebuild); err != nil {
		return domain.Rebuild{}, err
	}
	if err := r.checkRemoved(ctx, rebuild, func(domain.TenantID) (int64, error) { return 0, nil }); err != nil {
		return domain.Rebuild{}, err
	}
	if rebuild.Keep == 0 {
		rebuild.Keep = r.config.Keep
	}
	if rebuild.Build, err = r.config.Store.NextBuild(ctx, id.Owner); err != nil {
		return domain.Rebuild{}, err
	}
	if request.revision == nil {
		err = r.config.Store.CreateRebuild(ctx, rebuild)
	} else {
		err = r.config.Store.CreateRebuildOf(ctx, rebuild, *request.revision)
	}
	if err != nil {
		return domain.Rebuild{}, err
	}
	r.Wake()
	return r.config.Store.Rebuild(ctx, id, rebuild.ID)
}

// definitionOf returns the definition of the new build.
func definitionOf(p domain.Projection, request Request) (domain.Definition, error) {
	if len(request.Tenants) > 0 && request.Database != "" {
		return domain.Definition{}, refused("tenants", "a change of database applies to all tenants; leave out database or tenants")
	}
	definition := p.Definition
	if request.Definition != nil {
		definition = folding.WithDefaults(*request.Definition)
		if definition.Name != p.Name {
			return domain.Definition{}, refused("definition.name", "it is %q; the projection is %q", definition.Name, p.Name)
		}
		if named := request.Definition.Database; request.Database != "" && named != "" && named != request.Database {
			return domain.Definition{}, refused("database", "it is %q, and the definition names %q; name one of them", request.Database, named)
		}
	}
	if request.Database != "" {
		definition.Database = request.Database
	}
	definition = folding.WithDefaults(definition)
	if len(request.Tenants) > 0 {
		switch was := folding.WithDefaults(p.Definition); {
		case definition.Database != was.Database:
			return domain.Definition{}, refused("definition.database", "the change of database from %q to %q applies to all tenants; leave tenants out", was.Database, definition.Database)
		case definition.Mode != was.Mode:
			return domain.Definition{}, refused("definition.mode", "the change of mode from %s to %s applies to all tenants; leave tenants out", was.Mode, definition.Mode)
		}
	}
	return definition, nil
}

// checkOptions refuses unsupported options.
func (r *Rebuilds) checkOptions(ctx context.Context, rebuild domain.Rebuild) error {
	o := rebuild.RebuildOptions
	switch {
	case rebuild.MaxFaulted < 0 || rebuild.MaxFaulted > domain.MaxFaultedTenants:
		return refused("maxFaultedTenants", "it is %d; it must be between 0 and %d", rebuild.MaxFaulted, domain.MaxFaultedTenants)
	case o.MaxEventsPerSecond < 0:
		return refused("maxEventsPerSecond", "it is %d; it must be at least 1, or be left out", o.MaxEventsPerSecond)
	case o.Keep < 0 || o.Keep > maxKeep:
		return refused("keep", "it is %s; it must be between 1s and %s", o.Keep, maxKeep)
	case o.DryRun && o.Manual:
		return refused("approve", "a dry run swaps nothing, so there is nothing to approve; leave approve or dryRun out")
	case len(o.Assert) > maxAssertions:
		return refused("assertions", "there are %d; at most %d are allowed", len(o.Assert), maxAssertions)
	case rebuild.Definition.Mode == domain.ModeLive && o.DryRun:
		return refused("dryRun", "projection %q is live, so a dry run has no documents to report on", rebuild.Name)
	}
	for i, assertion := range o.Assert {
		probe := domain.Definition{Name: rebuild.Name, On: map[string]string{"*": "doc"}, Assert: []string{assertion}}
		_, err := folding.CompileIn(ctx, probe, nil)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return movePlace(fmt.Sprintf("assertions[%d]", i), err)
		}
	}
	return r.checkTenants(ctx, rebuild)
}

func (r *Rebuilds) checkTenants(ctx context.Context, rebuild domain.Rebuild) error {
	tenants := rebuild.Tenants
	switch {
	case len(tenants) == 0:
		return nil
	case !rebuild.Shared():
		return refused("tenants", "projection %q belongs to one tenant and is rebuilt as a whole; leave tenants out", rebuild.Name)
	case len(tenants) > maxTenants:
		return refused("tenants", "there are %d; name at most %d, or rebuild for all", len(tenants), maxTenants)
	case rebuild.Definition.Mode == domain.ModeLive:
		return refused("tenants", "projection %q is live and stores no documents", rebuild.Name)
	}
	for i, tenant := range tenants {
		where := fmt.Sprintf("tenants[%d]", i)
		if slices.Contains(tenants[:i], tenant) {
			return refused(where, "tenant %s is named twice", tenant)
		}
		found, err := r.config.Store.Tenant(ctx, tenant)
		if domain.IsCode(err, domain.CodeNotFound) {
			return refused(where, "there is no tenant %s", tenant)
		}
		if err != nil {
			return err
		}
		if found.State == domain.TenantDeleting || found.State == domain.TenantDeleted {
			return refused(where, "tenant %s is %s", tenant, found.State)
		}
	}
	return nil
}

func refused(where, format string, args ...any) error {
	return domain.Errorf(domain.CodeInvalidRequest, where, format, args...)
}

// movePlace moves a client's error to another place, for a field that the request names differently.
func movePlace(where string, err error) error {
	for _, code := range []domain.Code{domain.CodeInvalidDefinition, domain.CodeUnsupported} {
		if domain.IsCode(err, code) {
			message := domain.ClientMessage(err)
			return domain.Errorf(code, where, "%s", strings.TrimPrefix(message, "assert[0]: "))
		}
	}
	return err
}
