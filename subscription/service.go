package subscription

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// What the service needs where it is a group's consumer itself, or stands between the group and one.

// Complete returns a definition with its defaults, its times rounded to milliseconds; an error is a *domain.Error with the field.
func Complete(definition domain.GroupDefinition) (domain.GroupDefinition, error) {
	definition = withDefaults(definition)
	err := checkDefinition(&definition) // which rounds its times
	return definition, err
}

// Place returns the first position that a group delivers which begins there now, from 1. domain.CodeNotFound, with the place from:
// there is no such event.
func (g *Groups) Place(ctx context.Context, tenant domain.TenantID, from domain.From) (int64, error) {
	return resolveFrom(ctx, g.config.Store, tenant, from)
}

// GiveBack gives events back that were delivered and that nothing was begun with: they are due again at once, and the attempts do
// not count. Outcomes are in the order of attempts.
func (g *Groups) GiveBack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
	return g.answer(ctx, tenant, name, attempts, newGiveBack)
}
