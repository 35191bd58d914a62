package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/rebuild"
)

// settled notes which builds may have erased data, and which projections to rebuild. done is false if the turn is over
// before.
func (j *job) settled(ctx context.Context) (done bool, err error) {
	if done, err := j.forget(ctx); err != nil || !done {
		return false, err
	}
	// Builds that begin from here on read only erased events.
	if j.e.plan.Own, err = j.config.Registry.NextBuild(ctx, j.tenant); err != nil {
		return false, err
	}
	if j.e.plan.Shared, err = j.config.Registry.NextBuild(ctx, domain.Everyone); err != nil {
		return false, err
	}
	j.e.plan.Projections, err = j.affected(ctx, j.tenant, j.e.plan.Kinds)
	j.e.Counts.Projections = namesOf(append(slices.Clone(j.e.plan.Projections), refs(j.e.Counts.Projections)...))
	return err == nil, err
}

func refs(names []string) []projectionRef {
	of := make([]projectionRef, len(names))
	for i, name := range names {
		of[i].Name = name
	}
	return of
}

// affected returns the projections with stored documents that fold events of these kinds, or that are being rebuilt,
// since their next definition may.
func (s *Subjects) affected(ctx context.Context, tenant domain.TenantID, kinds []eventlog.Kind) (affected []projectionRef, err error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	for _, owner := range []domain.TenantID{tenant, domain.Everyone} {
		projections, err := s.config.Registry.Projections(ctx, owner)
		if err != nil {
			return nil, err
		}
		for _, p := range projections {
			folds := false
			if p.Definition.Mode != domain.ModeLive {
				categories, types := s.config.Catalog.Selects(p)
				folds = len(kinds) > maxKinds || slices.ContainsFunc(kinds, func(k eventlog.Kind) bool {
					return (len(categories) == 0 || slices.Contains(categories, k.Category)) && (len(types) == 0 || slices.Contains(types, k.Type))
				})
			}
			if !folds {
				if folds, err = s.isRebuilt(ctx, p.ProjectionID); err != nil {
					return nil, err
				}
			}
			if folds {
				affected = append(affected, projectionRef{p.Name, owner == domain.Everyone})
			}
		}
	}
	return affected, nil
}

func (s *Subjects) isRebuilt(ctx context.Context, id domain.ProjectionID) (bool, error) {
	rebuilds, err := s.config.Registry.Rebuilds(ctx, id)
	return slices.ContainsFunc(rebuilds, func(r domain.Rebuild) bool { return !r.State.Ended() }), err
}

// rebuild replaces the documents that were folded from erased events. It returns a blockedError while rebuilds are
// under way.
func (j *job) rebuild(ctx context.Context) error {
	var waits *blockedError
	for _, ref := range j.e.plan.Projections {
		blocked, err := j.rebuildOne(ctx, ref)
		if err != nil {
			return err
		}
		if blocked != nil && (waits == nil || blocked.problem != "") {
			waits = blocked
		}
	}
	if waits != nil {
		return waits
	}
	return j.dropOld(ctx)
}

func (j *job) rebuildOne(ctx context.Context, ref projectionRef) (*blockedError, error) {
	id := ref.id(j.tenant)
	live, err := j.config.Registry.LiveProjection(ctx, j.tenant, id)
	if domain.IsCode(err, domain.CodeNotFound) {
		return nil, nil // its documents are in a retired build
	}
	if err != nil {
		return nil, err
	}
	rebuilds, err := j.config.Registry.Rebuilds(ctx, id)
	if err != nil {
		return nil, err
	}
	last := j.e.plan.lastBefore(id.Owner)
	by := "erasure " + j.e.ID.String()
	for _, r := range rebuilds {
		if r.State.Ended() {
			continue
		}
		if live.Build > last && r.Build > last {
			break
		}
		if r.By == by {
			return &blockedError{pause: waitPause}, nil
		}
		return &blockedError{fmt.Sprintf("it waits for the end of rebuild %s of projection %q", r.ID, ref.Name), waitPause}, nil
	}
	if live.Definition.Mode == domain.ModeLive || live.Build > last {
		return nil, nil
	}
	failed := func(r domain.Rebuild) bool {
		return r.By == by && r.Build > last && r.State.Ended() && time.Since(r.EndedAt) < rebuildPause
	}
	if i := slices.IndexFunc(rebuilds, failed); i >= 0 {
		return &blockedError{fmt.Sprintf("rebuild %s of projection %q did not replace its documents; correct the definition, and rebuild it, or wait until that is tried again",
			rebuilds[i].ID, ref.Name), waitPause}, nil
	}
	request := rebuild.Request{RebuildOptions: domain.RebuildOptions{Keep: time.Second, AcceptLoss: j.e.AcceptLoss, NoExamples: true}, By: by}
	if ref.Shared {
		request.Tenants = []domain.TenantID{j.tenant}
	}
	_, err = j.config.Rebuilds.Start(ctx, id, request)
	switch {
	case domain.IsCode(err, domain.CodeEventsRemoved):
		remedy := "repeat the request with acceptLoss"
		if j.e.ApprovedBy != nil {
			remedy = "rebuild it with acceptLoss"
		}
		return &blockedError{fmt.Sprintf("projection %q cannot be rebuilt without loss, since retention has removed events that it needs; %s", ref.Name, remedy), retryPause}, nil
	case err != nil && !domain.IsCode(err, domain.CodeRebuildRunning):
		return &blockedError{fmt.Sprintf("projection %q cannot be rebuilt: %s", ref.Name, domain.ClientMessage(err)), retryPause}, nil
	}
	return &blockedError{pause: waitPause}, nil
}

// dropOld removes the tenant's documents from all builds that may have erased data and are not live.
func (j *job) dropOld(ctx context.Context) error {
	for _, owner := range []domain.TenantID{j.tenant, domain.Everyone} {
		builds, err := j.config.Registry.Builds(ctx, owner)
		if err != nil {
			return err
		}
		for _, build := range builds {
			live, err := j.config.Registry.LiveProjection(ctx, j.tenant, build.ProjectionID)
			if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
				return err
			}
			if err == nil && live.Build == build.Number || build.Number > j.e.plan.lastBefore(owner) {
				continue
			}
			driver, ok := j.config.Drivers[build.Database]
			if !ok {
				return &blockedError{fmt.Sprintf("old documents of projection %q are in the database %q, which is not in the configuration", build.Name, build.Database), retryPause}
			}
			if err := driver.DropTenant(ctx, build, j.tenant); err != nil && !errors.Is(err, drivers.ErrNoTable) {
				return fmt.Errorf("projection %s, build %d: %w", build.Name, build.Number, err)
			}
		}
	}
	return nil
}

// documentsDone ends the step. The first time, changes may have been published from old documents meanwhile.
func (j *job) documentsDone(ctx context.Context) error {
	if j.e.plan.Pass == 1 {
		return j.advance(ctx, StepReceipt, 0)
	}
	head, err := j.config.Events.Head(ctx, j.tenant)
	if err != nil {
		return err
	}
	j.e.plan.Pass, j.e.plan.DerivedTo, j.e.plan.DerivedBefore = 1, head.Position, j.e.Counts.DerivedEvents
	return j.advance(ctx, StepDerived, 0)
}
