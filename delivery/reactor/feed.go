package reactor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// feed delivers the events of one tenant's group. If its source is a projection, it delivers events only up to the
// projection's progress.
type feed struct {
	groups      *group.Groups
	places      *places
	projections *projection.Catalog
	tenant      domain.TenantID
	group       string
	projection  string // empty: none
	// follow updates the group to what the projection selects now. ok is false if there is nothing to take from it.
	follow func(ctx context.Context) (ok bool, err error)

	settled int64 // progress of the projection when last read
}

// errOver means that the projection is no longer the run's source.
var errOver = errors.New("the projection was replaced")

// ended ends a run whose source is over. The next run finds the new source.
func ended(again time.Time, err error) (time.Time, error) {
	if errors.Is(err, errOver) {
		return time.Now(), nil
	}
	return again, err
}

// typesOf returns the types for the group of a projection's events. If there are more than a group can name, it returns
// none, which means all. The projection is then asked for each event.
func typesOf(types []string) []string {
	if len(types) > selection.MaxTypes {
		return nil
	}
	return types
}

// take receives events that are due, no more than most. If none is due, it waits for the duration wait.
func (f *feed) take(ctx context.Context, most int, wait time.Duration) ([]domain.Delivery, error) {
	if f.projection != "" {
		var err error
		if f.settled, err = f.projections.Settled(ctx, f.tenant, f.projection); err != nil || f.settled == 0 {
			return nil, err // 0 would mean no bound
		}
		// Follow after reading Settled. If another definition has gone live meanwhile, none of its events is skipped
		// because of the previous definition's types.
		ok, err := f.follow(ctx)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, errOver
		}
	}
	deliveries, err := f.groups.Receive(ctx, f.tenant, f.group, group.Receive{Batch: min(most, domain.MaxBatchSize), Wait: wait, UpTo: f.settled})
	if len(deliveries) > 0 && f.projection != "" {
		f.places.moves(f.tenant, f.group)
	}
	return deliveries, err
}

// early reports whether a delivered event comes after what the projection has stored. Then it was delivered before, and
// the projection has been reset since.
func (f *feed) early(d domain.Delivery) bool {
	return f.projection != "" && d.Event.Position > f.settled
}

// Waits of a feed without deliveries.
const (
	settledWait = 2 * time.Second        // for the projection while it works
	lookSoon    = 500 * time.Millisecond // until the next look if something was due but not delivered
)

// rest is called if nothing was delivered. It returns when something will be due; more means now.
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

// sooner returns the earlier of two times. Zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// cut shortens a text to at most that many bytes of valid UTF-8.
func cut(text string, most int) string { return strings.ToValidUTF8(text[:most], "") }
