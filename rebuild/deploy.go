package rebuild

import (
	"context"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// Deployment is the result of deploying a definition.
type Deployment struct {
	Projection domain.Projection // the current projection
	Created    bool              // it is new
	Changed    bool              // it has the definition now, without a rebuild: the change does not affect documents
	Rebuild    *domain.Rebuild   // puts the definition in place; nil if it is in place already
}

// Deploy gives the owner's projection of the definition's name this definition. A new projection is created. One that
// already has the definition stays as it is. Changes that do not affect documents apply at once. For any other change
// Deploy starts a rebuild, during which the old definition stays live. If a rebuild to the same definition is under
// way, Deploy returns it; for a rebuild to another definition the error is domain.CodeRebuildRunning.
//
// A definition that names an aggregate takes the aggregate's present rules.
//
// by is the author, for the projection's versions; acceptLoss applies to the rebuild, as in domain.RebuildOptions.
func (r *Rebuilds) Deploy(ctx context.Context, owner domain.TenantID, given domain.Definition, by string, acceptLoss bool) (Deployment, error) {
	return r.deploy(ctx, owner, given, by, acceptLoss, nil)
}

// DeployTo is Deploy if the projection has this revision; 0: if there is none. Otherwise the error is
// domain.CodePreconditionFailed, unless the projection has the definition already, or a rebuild to it is under way.
func (r *Rebuilds) DeployTo(ctx context.Context, owner domain.TenantID, revision int64, given domain.Definition, by string, acceptLoss bool) (Deployment, error) {
	return r.deploy(ctx, owner, given, by, acceptLoss, &revision)
}

func (r *Rebuilds) deploy(ctx context.Context, owner domain.TenantID, given domain.Definition, by string, acceptLoss bool, revision *int64) (Deployment, error) {
	definition, err := r.config.Catalog.Complete(ctx, owner, given)
	if err != nil {
		return Deployment{}, err
	}
	definition = folding.WithDefaults(definition)
	id := domain.ProjectionID{Owner: owner, Name: definition.Name}
	// Try twice, since a concurrent request may create, change or delete the projection in between.
	for attempt := 0; ; attempt++ {
		p, err := r.config.Store.Projection(ctx, id)
		if domain.IsCode(err, domain.CodeNotFound) {
			if revision != nil && *revision != 0 {
				return Deployment{}, domain.Errorf(domain.CodePreconditionFailed, "", "there is no longer a projection %q", id.Name)
			}
			p, err = r.config.Catalog.Create(ctx, owner, given, by)
			if err == nil {
				return Deployment{Projection: p, Created: true}, nil
			}
			if attempt == 0 && domain.IsCode(err, domain.CodeAlreadyExists) {
				if _, err := r.config.Store.Projection(ctx, id); err == nil {
					continue
				}
			}
			return Deployment{}, err
		}
		if err != nil {
			return Deployment{}, err
		}
		d, err := r.change(ctx, p, definition, by, acceptLoss, revision)
		if attempt == 0 && (domain.IsCode(err, domain.CodeNotFound) || domain.IsCode(err, domain.CodeConflict)) {
			continue
		}
		return d, err
	}
}

// change deploys a definition to an existing projection.
func (r *Rebuilds) change(ctx context.Context, p domain.Projection, definition domain.Definition, by string, acceptLoss bool, revision *int64) (Deployment, error) {
	rebuilds, err := r.config.Store.Rebuilds(ctx, p.ProjectionID)
	if err != nil {
		return Deployment{}, err
	}
	for i := range rebuilds {
		running := &rebuilds[i]
		if !running.State.Ended() && !running.Cancel && !running.DryRun && len(running.Tenants) == 0 && folding.SameDefinition(running.Definition, definition) {
			return Deployment{Projection: p, Rebuild: running}, nil
		}
	}
	if folding.SameDefinition(p.Definition, definition) {
		return Deployment{Projection: p}, nil
	}
	if revision != nil {
		if err := p.RequireRevision(*revision); err != nil {
			return Deployment{}, err
		}
	}
	if folding.SameDocuments(p.Definition, definition) {
		if err := r.config.Catalog.Check(ctx, p.ProjectionID, definition); err != nil {
			return Deployment{}, err
		}
		p, err = r.config.Store.ChangeDefinition(ctx, p.ProjectionID, p.Definition, definition, by)
		return Deployment{Projection: p, Changed: err == nil}, err
	}
	rebuild, err := r.start(ctx, p.ProjectionID, Request{Definition: &definition, RebuildOptions: domain.RebuildOptions{AcceptLoss: acceptLoss}, By: by, revision: revision})
	if err != nil {
		return Deployment{}, err
	}
	return Deployment{Projection: p, Rebuild: &rebuild}, nil
}
