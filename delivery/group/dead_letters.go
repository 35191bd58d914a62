package group

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// DeadLetters returns up to limit dead letters after a position, each with its event.
func (g *Groups) DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]DeadLetter, error) {
	found, err := g.config.Store.DeadLetters(ctx, tenant, name, after, limit)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	positions := make([]int64, len(found))
	for i := range found {
		positions[i] = found[i].Position
	}
	events, err := g.config.Events.ReadPositions(ctx, tenant, positions)
	if err != nil {
		return nil, err
	}
	letters := make([]DeadLetter, len(found))
	for i := range found {
		d := &found[i]
		letters[i].DeadLetter = *d
		// These fields are known even if the event is no longer in the log.
		letters[i].Event = domain.Event{ID: d.EventID, Stream: d.Stream, Version: d.Version, Position: d.Position, Type: d.Type}
		if len(events) > 0 && events[0].Position == d.Position {
			letters[i].Event, events = events[0], events[1:]
		}
	}
	return letters, nil
}

// DeadLetter is a dead letter with its event. The event has neither data nor times if it is no longer in the log.
type DeadLetter struct {
	domain.DeadLetter
	Event domain.Event
}

// Replay redelivers one dead letter, or all of them if id is zero. It returns their number.
func (g *Groups) Replay(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	replayed, err := g.config.Store.ReplayDeadLetters(ctx, tenant, name, id)
	g.changed(tenant, name)
	return replayed, err
}

// Discard removes one dead letter, or all of them if id is zero. It returns their number.
func (g *Groups) Discard(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	discarded, err := g.config.Store.DiscardDeadLetters(ctx, tenant, name, id)
	g.changed(tenant, name)
	return discarded, err
}
