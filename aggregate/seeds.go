package aggregate

import (
	"context"
	"maps"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// Seeds returns the next seeds of a category's streams: snapshots that Manifold folded by the same rules and upcasters.
// A stream has one if the log still has all events before it and can read them, so that folding them gives the same
// state. The category needs no definition. Snapshots say nothing of tags, which may change: there are no seeds if an
// upcaster reads those of events, and the rules must not.
func (s *States) Seeds(ctx context.Context, tenant domain.TenantID, q domain.SeedQuery) (domain.SeedPage, error) {
	upcasters, err := s.upcasters.At(ctx, tenant, q.Upcasters)
	if err != nil {
		return domain.SeedPage{}, err
	}
	definition := Definition{Initial: q.Initial, On: q.On}
	if upcasters.Uses(definition.Folds, "tags") {
		return domain.SeedPage{}, nil
	}
	types := slices.Sorted(maps.Keys(q.On))
	if slices.Contains(types, anyType) {
		types = nil
	}
	return s.store.seeds(ctx, tenant, q, tagOf(definition, upcasters), types)
}
