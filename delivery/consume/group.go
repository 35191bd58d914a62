package consume

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// Group is a tenant's group with its source. If the source is a projection, the group delivers an event only after its
// document is stored. Its methods are not safe for concurrent use.
type Group struct {
	Groups *group.Groups
	Tenant domain.TenantID
	Name   string

	Projection  string // the source; empty: the log. The fields below are for a projection
	Projections *projection.Catalog
	AsOfEvent   bool // documents are as of their events, without later ones
	Stalls      *Stalls
	// Follow makes the group select what the projection selects now.
	Follow func(ctx context.Context) error

	settled int64 // the projection's progress when it was last read
}

// settledWait is how long a consumer waits for a projection that has more events to fold.
const settledWait = time.Second

// dueWait is how long a consumer sleeps if something was due but not delivered.
const dueWait = 500 * time.Millisecond

// receive leases events that are due. From a projection, it leases none after the projection's progress.
func (g *Group) receive(ctx context.Context, wanted group.Receive) ([]domain.Delivery, error) {
	if g.Projection != "" {
		var err error
		if g.settled, err = g.Projections.Settled(ctx, g.Tenant, g.Projection); err != nil || g.settled == 0 {
			return nil, err // 0 would mean no bound
		}
		// Follow after reading Settled. If another definition has gone live meanwhile, none of its events is skipped
		// because of the previous definition's types.
		if err := g.Follow(ctx); err != nil {
			return nil, err
		}
		wanted.UpTo = g.settled
	}
	deliveries, err := g.Groups.Receive(ctx, g.Tenant, g.Name, wanted)
	if len(deliveries) > 0 && g.Projection != "" {
		g.Stalls.end(g.Tenant, g.Name)
	}
	return deliveries, err
}

// awaitSettled waits for the projection to advance.
func (g *Group) awaitSettled(ctx context.Context, wait time.Duration) (advanced bool, err error) {
	settled, err := g.Projections.AwaitSettled(ctx, g.Tenant, g.Projection, g.settled, wait)
	return settled > g.settled, err
}

// nextDue returns when something will be due after nothing was delivered. now means at once.
func (g *Group) nextDue(ctx context.Context) (now bool, at time.Time, err error) {
	if g.Projection != "" {
		behind, err := g.Projections.Behind(ctx, g.Tenant, g.Projection, g.settled)
		if err != nil {
			return false, at, err
		}
		if behind {
			if advanced, err := g.awaitSettled(ctx, settledWait); err != nil || advanced {
				return err == nil, at, err
			}
			at = g.Stalls.next(g.Tenant, g.Name)
		}
		if g.settled == 0 {
			return false, at, nil
		}
	}
	due, err := g.Groups.Due(ctx, g.Tenant, g.Name)
	if err != nil {
		return false, at, err
	}
	if due.Now {
		due.At = time.Now().Add(dueWait)
	}
	return false, Sooner(at, due.At), nil
}

// IsAhead reports whether a delivered event comes after what the projection has stored. Then it was delivered before,
// and the projection has been reset since.
func (g *Group) IsAhead(d *domain.Delivery) bool {
	return g.Projection != "" && d.Event.Position > g.settled
}

// PauseIfAhead returns when to receive again if one of the deliveries is ahead of the projection, after about half a
// second, and otherwise zero.
func (g *Group) PauseIfAhead(deliveries []domain.Delivery) time.Time {
	for i := range deliveries {
		if g.IsAhead(&deliveries[i]) {
			return g.Stalls.next(g.Tenant, g.Name)
		}
	}
	return time.Time{}
}

// Documents returns the documents of the deliveries' events, or nil if the source is the log. A delivery whose event is
// Left is to be given back.
func (g *Group) Documents(ctx context.Context, deliveries []domain.Delivery) ([]projection.EventDocuments, error) {
	if g.Projection == "" {
		return nil, nil
	}
	events := make([]domain.Event, len(deliveries))
	for i := range deliveries {
		events[i] = deliveries[i].Event
	}
	if g.AsOfEvent {
		return g.Projections.DocumentsAsOf(ctx, g.Tenant, g.Projection, events)
	}
	return g.Projections.DocumentsOf(ctx, g.Tenant, g.Projection, events)
}

// Sooner returns the earlier of two times. Zero means never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Stalls remembers which groups wait for a projection that does not advance. It may be blocked by a fault, its database
// may be down, or its tenant may be moving to another process. The zero value is ready for use. All methods may be
// called concurrently.
type Stalls struct {
	mu    sync.Mutex
	waits map[stallKey]time.Duration
}

type stallKey struct {
	tenant domain.TenantID
	group  string
}

const (
	firstStall   = 500 * time.Millisecond
	longestStall = 30 * time.Second
	stallsKept   = 100_000 // above it, all are forgotten
)

// next returns when to look again. The wait doubles each time.
func (s *Stalls) next(tenant domain.TenantID, group string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waits == nil || len(s.waits) >= stallsKept {
		s.waits = make(map[stallKey]time.Duration)
	}
	key := stallKey{tenant, group}
	wait := min(max(2*s.waits[key], firstStall), longestStall)
	s.waits[key] = wait
	return time.Now().Add(wait - rand.N(wait/4)) // many tenants may wait for the same cause
}

// end records that a projection has advanced.
func (s *Stalls) end(tenant domain.TenantID, group string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waits, stallKey{tenant, group})
}
