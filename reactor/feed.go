package reactor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/subscription"
)

// Projections is what is asked of projections that are sources: see package projection.
type Projections interface {
	Live(ctx context.Context, tenant domain.TenantID, name string) (domain.Projection, error)
	Selects(p domain.Projection) (categories, types []string)
	Settled(ctx context.Context, tenant domain.TenantID, name string) (int64, error)
	AwaitSettled(ctx context.Context, tenant domain.TenantID, name string, above int64, wait time.Duration) (int64, error)
	Behind(ctx context.Context, tenant domain.TenantID, name string, settled int64) (bool, error)
	DocumentsOf(ctx context.Context, tenant domain.TenantID, name string, events []domain.Event) ([]projection.EventDocument, error)
}

// feed is what one tenant's group delivers, where it has a projection as its source no further than that has come.
type feed struct {
	groups      Groups
	places      *places
	projections Projections
	tenant      domain.TenantID
	group       string
	projection  string // empty: none
	// follow has the group be of what the projection sees now. ok is false where there is nothing to be taken from it.
	follow func(ctx context.Context) (ok bool, err error)

	settled int64 // how far the projection had come when it was asked last
}

// errOver means that a projection is no longer the source that it was when the run began.
var errOver = errors.New("the projection is another one now")

// ended is how a run ends whose source is over: the next one finds out what there is now.
func ended(again time.Time, err error) (time.Time, error) {
	if errors.Is(err, errOver) {
		return time.Now(), nil
	}
	return again, err
}

// typesOf are the types that the group of a projection's events names; none, which is all, where there are more than it can name: the
// projection is asked with each event then.
func typesOf(types []string) []string {
	if len(types) > subscription.MaxTypes {
		return nil
	}
	return types
}

// take takes what is due, at most so many events, and waits that long for one.
func (f *feed) take(ctx context.Context, most int, wait time.Duration) ([]domain.Delivery, error) {
	if f.projection != "" {
		var err error
		if f.settled, err = f.projections.Settled(ctx, f.tenant, f.projection); err != nil || f.settled == 0 {
			return nil, err // 0 would be no bound
		}
		// Behind that: where another definition has gone live meanwhile, none of its events is passed over by the names of the last one.
		ok, err := f.follow(ctx)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, errOver
		}
	}
	deliveries, err := f.groups.Receive(ctx, f.tenant, f.group, subscription.Receive{Batch: min(most, domain.MaxBatchSize), Wait: wait, UpTo: f.settled})
	if len(deliveries) > 0 && f.projection != "" {
		f.places.moves(f.tenant, f.group)
	}
	return deliveries, err
}

// early reports whether an event that was delivered is behind what the projection has stored: it was delivered before, and the
// projection has been reset since.
func (f *feed) early(d domain.Delivery) bool {
	return f.projection != "" && d.Event.Position > f.settled
}

// Waits of a feed to which nothing was delivered.
const (
	settledWait = 2 * time.Second        // for the projection, while it works
	lookSoon    = 500 * time.Millisecond // until the next look, where something was due that was not delivered
)

// rest says, where nothing was delivered, when something becomes due; more: now.
func (f *feed) rest(ctx context.Context) (more bool, again time.Time, err error) {
	if f.projection != "" {
		behind, err := f.projections.Behind(ctx, f.tenant, f.projection, f.settled)
		if err != nil {
			return false, again, err
		}
		if behind {
			settled, err := f.projections.AwaitSettled(ctx, f.tenant, f.projection, f.settled, settledWait)
			if err != nil || settled > f.settled {
				return err == nil, again, err
			}
			again = f.places.standsStill(f.tenant, f.group)
		}
		if f.settled == 0 {
			return false, again, nil
		}
	}
	due, err := f.groups.Due(ctx, f.tenant, f.group)
	if err != nil {
		return false, again, err
	}
	if due.Now {
		due.At = time.Now().Add(lookSoon)
	}
	return false, sooner(again, due.At), nil
}

// sooner is the sooner of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// cut shortens a text to so many bytes of UTF-8.
func cut(text string, most int) string { return strings.ToValidUTF8(text[:most], "") }
