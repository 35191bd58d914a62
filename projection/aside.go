package projection

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// AsideStore keeps what a build leaves out of its folding for a tenant: events that are passed over, and documents that are
// parked with the events that wait for them.
type AsideStore interface {
	Aside(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build, version int64) (domain.Aside, error)
	Park(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, documents []domain.ParkedDocument, events []domain.ParkedEvent) (ok bool, err error)
}

// MaxParked is how many documents a projection parks for a tenant. One more, and it stops: what is wrong is not one
// document then.
const MaxParked = 1000

// aside is what a Replay leaves out. docs/decisions/0024-parked-documents.md says why nothing is lost by it, and nothing
// folded past an event that waits:
//
//   - It is read after the checkpoint, and what is set aside is kept before the save whose checkpoint passes it. So
//     whoever may still save has read all that was set aside at or below its checkpoint.
//   - A document that is parked no more is found out when events for it are kept: then all is read anew.
type aside struct{ domain.Aside }

// setAside reads what is set aside, unless that is known.
func (r *Replay) setAside(ctx context.Context) (*aside, error) {
	if r.aside == nil {
		r.aside = &aside{}
		if r.Aside != nil {
			found, err := r.Aside.Aside(ctx, r.Tenant, r.Build.ProjectionID, r.Build.Number, r.Version)
			if err != nil {
				r.aside = nil
				return nil, fmt.Errorf("read what is set aside of projection %q: %w", r.Build.Name, err)
			}
			r.aside.Aside = found
		}
	}
	return r.aside, nil
}

// parks reports whether an event that cannot be folded parks its document.
func (r *Replay) parks() bool {
	return r.Aside != nil && r.Fold.definition.OnError == domain.OnErrorPark
}

// sift takes those events out of a reading that are passed over, that wait for parked documents, and whose keys cannot be
// worked out, or cuts it off before the first of these.
func (r *Replay) sift(ctx context.Context, p *prepared) error {
	if len(p.events) == 0 {
		return nil
	}
	a, err := r.setAside(ctx)
	if err != nil {
		return err
	}
	faults := p.faults
	for i := range p.events {
		event := &p.events[i]
		var fault *EventError
		if len(faults) > 0 && faults[0].Event.Position == event.Position {
			fault, faults = faults[0], faults[1:]
		}
		if _, skipped := slices.BinarySearch(a.Skipped, event.Position); skipped {
			p.keys[i] = ""
			continue
		}
		if refused := r.at.refused; fault == nil && refused != nil && refused.Event.Position == event.Position {
			fault = refused
		}
		switch {
		case fault != nil && !r.parks():
			p.stopBefore(fault)
			return nil
		case fault != nil:
			if full := r.park(fault); full != nil {
				p.stopBefore(full)
				return nil
			}
			r.wait(fault.parkedAs(), event.Position)
			p.keys[i] = ""
		case p.keys[i] == "":
		default:
			if from, parked := a.Parked[p.keys[i]]; parked && event.Position >= from {
				r.wait(p.keys[i], event.Position)
				p.keys[i] = ""
			}
		}
	}
	return nil
}

// parkedAs is the id under which the event's document is parked.
func (e *EventError) parkedAs() string {
	return cmp.Or(e.DocumentID, domain.ParkedEventID(e.Event.ID))
}

// park sets the document aside that an event could not be folded into. It returns what the projection stops with where
// there are too many already.
func (r *Replay) park(fault *EventError) (full *EventError) {
	id := fault.parkedAs()
	if _, parked := r.aside.Parked[id]; !parked && len(r.aside.Parked) >= MaxParked {
		return fault.full()
	}
	if r.aside.Parked == nil {
		r.aside.Parked = make(map[string]int64)
	}
	r.aside.Parked[id] = fault.Event.Position
	r.gathered.parked = append(r.gathered.parked, domain.ParkedDocument{
		ProjectionID: r.Build.ProjectionID, Tenant: r.Tenant, Build: r.Build.Number, ID: id,
		Position: fault.Event.Position, EventID: fault.Event.ID, Failure: fault.Failure(),
	})
	return nil
}

// full is the fault where its document cannot be parked, since too many are.
func (e *EventError) full() *EventError {
	stops := *e
	stops.Err = fmt.Errorf("%d documents are parked already, so the projection stops before the next one: %w", MaxParked, e.Err)
	return &stops
}

// wait lets an event wait for a parked document.
func (r *Replay) wait(id string, position int64) {
	r.gathered.waiting = append(r.gathered.waiting, domain.ParkedEvent{DocumentID: id, Position: position})
}

// parkFaults parks the documents of a slice that ended with a fault: each is as it was before its event, and the events from
// that on wait. Where these are too many it does nothing, and returns the first fault with which the projection stops: what
// comes before it is folded once more.
func (r *Replay) parkFaults(s slice, chains []chain, next []int32, outcomes []outcome) (stops *EventError) {
	var faulty []int
	for i := range outcomes {
		if outcomes[i].fault != nil {
			faulty = append(faulty, i)
		}
	}
	slices.SortFunc(faulty, func(a, b int) int {
		return cmp.Compare(outcomes[a].fault.Event.Position, outcomes[b].fault.Event.Position)
	})
	if room := max(0, MaxParked-len(r.aside.Parked)); len(faulty) > room {
		return outcomes[faulty[room]].fault.full()
	}
	for _, i := range faulty {
		fault := outcomes[i].fault
		r.park(fault)
		for j := chains[i].first; j >= 0; j = next[j] {
			if position := s.events[j].Position; position >= fault.Event.Position {
				r.wait(chains[i].id, position)
			}
		}
	}
	return nil
}

// waitingASave bounds the events that wait until they are kept.
const waitingASave = 10_000

// keepWaiting keeps what was set aside since the save before. errAgain: a document that events were to wait for is parked no
// more.
func (r *Replay) keepWaiting(ctx context.Context, s *saving) error {
	if len(s.waiting) == 0 {
		return nil
	}
	ok, err := r.Aside.Park(ctx, r.Tenant, r.Build.ProjectionID, r.Build.Number, s.parked, s.waiting)
	switch {
	case err != nil:
		return fmt.Errorf("set events aside: %w", err)
	case !ok:
		return errAgain
	}
	return nil
}

// refuse is what follows when the database does not keep the document that one event has made.
func (r *Replay) refuse(fault *EventError) error {
	if !r.parks() {
		return fault
	}
	r.at.refused = fault
	return errAgain
}
