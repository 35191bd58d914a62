package group

import (
	"context"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// Methods for the service, which consumes some groups itself, and stands between a group and its consumer for others.

// Complete returns a definition with its defaults, with durations rounded to milliseconds. Its error is a *domain.Error
// that names the field.
func Complete(definition domain.GroupDefinition) (domain.GroupDefinition, error) {
	definition = withDefaults(definition)
	err := checkDefinition(&definition) // also rounds its durations
	return definition, err
}

// Place returns the first position that a group would deliver if it began at from now, counting from 1. If there is no
// such event, the error is domain.CodeNotFound with the place "from".
func (g *Groups) Place(ctx context.Context, tenant domain.TenantID, from domain.From) (int64, error) {
	return selection.ResolveFrom(ctx, g.config.Events, tenant, from)
}

// GiveBack gives back delivered events that the consumer has not started on. They are due again at once, and the
// attempts do not count. Outcomes are in the order of attempts.
func (g *Groups) GiveBack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
	return g.answer(ctx, tenant, name, attempts, newGiveBack)
}

// interruptedConsumer is the reason for parking an event whose consumer ended with it.
const interruptedConsumer = "the consumer's connection broke before it was answered"

// Interrupt ends the leases of events whose consumer has died, as if they had expired: they are due again at once, each
// by itself. The attempts count only if alone is set, which says that the consumer had only this event. Outcomes are in
// the order of attempts.
func (g *Groups) Interrupt(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, alone bool) ([]domain.Outcome, error) {
	return g.answer(ctx, tenant, name, attempts, func(attempts []domain.Attempt) *answer { return newInterrupt(attempts, alone) })
}
