package rebuild

import (
	"context"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// Deployment is what became of a definition that was deployed.
type Deployment struct {
	Projection domain.Projection // as it is now
	Created    bool              // it is new
	Changed    bool              // it has the definition now, with no rebuild: the documents do not depend on what is different
	Rebuild    *domain.Rebuild   // that puts the definition in; nil where it is there already
}

// Deploy sees to it that the owner's projection of the definition's name gets this definition: a new one is created, one
// that has it already stays as it is, what documents do not depend on is changed at once, and otherwise a rebuild is
// started, which the old definition serves until its end. Deploying what a rebuild under way is putting in returns that
// rebuild; domain.CodeRebuildRunning where one is putting in something else.
//
// by is who deploys it, for the projection's versions; acceptLoss is for the rebuild, as domain.RebuildOptions has it.
func (r *Rebuilds) Deploy(ctx context.Context, owner domain.TenantID, definition domain.Definition, by string, acceptLoss bool) (Deployment, error) {
	definition = projection.WithDefaults(definition)
	id := domain.ProjectionID{Owner: owner, Name: definition.Name}
	// Twice, since somebody else may create, change or delete it between the look and the deed.
	for attempt := 0; ; attempt++ {
		p, err := r.config.Store.Projection(ctx, id)
		if domain.IsCode(err, domain.CodeNotFound) {
			p, err = r.config.Catalog.Create(ctx, owner, definition, by)
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
		d, err := r.change(ctx, p, definition, by, acceptLoss)
		if attempt == 0 && (domain.IsCode(err, domain.CodeNotFound) || domain.IsCode(err, domain.CodeConflict)) {
			continue
		}
		return d, err
	}
}

// change deploys a definition to a projection that is there.
func (r *Rebuilds) change(ctx context.Context, p domain.Projection, definition domain.Definition, by string, acceptLoss bool) (Deployment, error) {
	rebuilds, err := r.config.Store.Rebuilds(ctx, p.ProjectionID)
	if err != nil {
		return Deployment{}, err
	}
	for i := range rebuilds {
		running := &rebuilds[i]
		if !running.State.Ended() && !running.Cancel && !running.DryRun && len(running.Tenants) == 0 && projection.SameDefinition(running.Definition, definition) {
			return Deployment{Projection: p, Rebuild: running}, nil
		}
	}
	if projection.SameDefinition(p.Definition, definition) {
		return Deployment{Projection: p}, nil
	}
	if projection.SameDocuments(p.Definition, definition) {
		if err := r.config.Catalog.Check(ctx, p.ProjectionID, definition); err != nil {
			return Deployment{}, err
		}
		p, err = r.config.Store.ChangeDefinition(ctx, p.ProjectionID, p.Definition, definition, by)
		return Deployment{Projection: p, Changed: err == nil}, err
	}
	rebuild, err := r.Start(ctx, p.ProjectionID, Request{Definition: &definition, RebuildOptions: domain.RebuildOptions{AcceptLoss: acceptLoss}, By: by})
	if err != nil {
		return Deployment{}, err
	}
	return Deployment{Projection: p, Rebuild: &rebuild}, nil
}
