package subscription

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// DeadLetters are the dead letters behind a position, at most so many, each with its event.
func (g *Groups) DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]DeadLetter, error) {
	found, err := g.config.Store.DeadLetters(ctx, tenant, name, after, limit)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	positions := make([]int64, len(found))
	for i := range found {
		positions[i] = found[i].Position
	}
	events, err := g.config.Store.ReadPositions(ctx, tenant, positions)
	if err != nil {
		return nil, err
	}
	letters := make([]DeadLetter, len(found))
	for i := range found {
		d := &found[i]
		letters[i].DeadLetter = *d
		// What is known of an event that is no longer in the log.
		letters[i].Event = domain.Event{ID: d.EventID, Stream: d.Stream, Version: d.Version, Position: d.Position, Type: d.Type}
		if len(events) > 0 && events[0].Position == d.Position {
			letters[i].Event, events = events[0], events[1:]
		}
	}
	return letters, nil
}

// DeadLetter is a dead letter with its event, which has neither data nor times where the log no longer has it.
type DeadLetter struct {
	domain.DeadLetter
	Event domain.Event
}

// Replay has one dead letter, or with the zero id all, delivered again, and returns how many these are.
func (g *Groups) Replay(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	replayed, err := g.config.Store.ReplayDeadLetters(ctx, tenant, name, id)
	g.changed(tenant, name)
	return replayed, err
}

// Discard removes one dead letter, or with the zero id all, and returns how many these were.
func (g *Groups) Discard(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	discarded, err := g.config.Store.DiscardDeadLetters(ctx, tenant, name, id)
	g.changed(tenant, name)
	return discarded, err
}
