package projection

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// MaxParked is how many documents a projection parks for a tenant. At the next one the projection stops: so many faults
// are not the fault of single documents.
const MaxParked = 1000

// A replay leaves out skipped events, and events that wait for parked documents. No event is lost, and no document is
// folded past a waiting event (docs/decisions/0024-parked-documents.md):
//
//   - A replay reads the exclusions after the checkpoint, and stores new ones before the save whose checkpoint passes
//     them. So a replay that can still save has read all exclusions at or below its checkpoint.
//   - Storing waiting events fails if their document is no longer parked. The replay then reads everything again.

// readExclusions returns the build's exclusions, and reads them on first use.
func (r *Replay) readExclusions(ctx context.Context) (*domain.Exclusions, error) {
	if r.exclusions != nil {
		return r.exclusions, nil
	}
	var found domain.Exclusions
	if r.Registry != nil {
		var err error
		if found, err = r.Registry.Exclusions(ctx, r.Tenant, r.Build.ProjectionID, r.Build.Number, r.Version); err != nil {
			return nil, fmt.Errorf("read the skipped events and parked documents of projection %q: %w", r.Build.Name, err)
		}
	}
	r.exclusions = &found
	return r.exclusions, nil
}

// parksFaults reports whether an event that cannot be folded parks its document.
func (r *Replay) parksFaults() bool {
	return r.Registry != nil && r.Fold.Definition().OnError == domain.OnErrorPark
}

// excludeEvents removes entries of events that are skipped, that wait for parked documents, or whose keys cannot be
// computed. If such a fault must stop the projection, it cuts the reading off before the event.
func (r *Replay) excludeEvents(ctx context.Context, p *prepared) error {
	if len(p.events) == 0 {
		return nil
	}
	a, err := r.readExclusions(ctx)
	if err != nil {
		return err
	}
	faults := p.faults
	for i := range p.events {
		event := &p.events[i]
		var fault *folding.EventError
		if len(faults) > 0 && faults[0].Event.Position == event.Position {
			fault, faults = faults[0], faults[1:]
		}
		if a.Skips(event.Position, p.keys[i]) {
			p.keys[i] = ""
			continue
		}
		if refused := r.at.refused; fault == nil && refused != nil && refused.Event.Position == event.Position && refused.DocumentID == p.keys[i] {
			fault = refused
		}
		switch {
		case fault != nil && !r.parksFaults():
			p.stopBefore(fault)
			return nil
		case fault != nil:
			if full := r.park(fault); full != nil {
				p.stopBefore(full)
				return nil
			}
			r.addWaiting(parkedAs(fault), event.Position)
			p.keys[i] = ""
		case p.keys[i] == "":
		default:
			if from, parked := a.Parked[p.keys[i]]; parked && event.Position >= from {
				r.addWaiting(p.keys[i], event.Position)
				p.keys[i] = ""
			}
		}
	}
	return nil
}

// parkedAs returns the id under which the event's document is parked.
func parkedAs(e *folding.EventError) string {
	return cmp.Or(e.DocumentID, domain.ParkedEventID(e.Event.ID))
}

// park parks the document of an event that cannot be folded. If too many documents are parked already, it returns
// the fault that stops the projection.
func (r *Replay) park(fault *folding.EventError) (full *folding.EventError) {
	id := parkedAs(fault)
	if _, parked := r.exclusions.Parked[id]; !parked && len(r.exclusions.Parked) >= MaxParked {
		return stopAtLimit(fault)
	}
	if r.exclusions.Parked == nil {
		r.exclusions.Parked = make(map[string]int64)
	}
	r.exclusions.Parked[id] = fault.Event.Position
	r.pending.parked = append(r.pending.parked, domain.ParkedDocument{
		ProjectionID: r.Build.ProjectionID, Tenant: r.Tenant, Build: r.Build.Number, ID: id,
		Position: fault.Event.Position, EventID: fault.Event.ID, Failure: fault.Failure(),
	})
	return nil
}

// stopAtLimit returns the fault to stop with when too many documents are parked to park this one.
func stopAtLimit(e *folding.EventError) *folding.EventError {
	stops := *e
	stops.Err = fmt.Errorf("%d documents are parked already, so the projection stops before the next one: %w", MaxParked, e.Err)
	return &stops
}

// addWaiting makes an event wait for a parked document.
func (r *Replay) addWaiting(id string, position int64) {
	r.pending.waiting = append(r.pending.waiting, domain.ParkedEvent{DocumentID: id, Position: position})
}

// parkFaults parks the documents of a slice that ended with a fault. Each stays as it was before its faulty event, and
// the events from there on wait. If these are too many to park, parkFaults changes nothing and returns the first fault
// that stops the projection. The events before it are then folded again.
func (r *Replay) parkFaults(s slice, chains []chain, next []int32, outcomes []outcome) (stops *folding.EventError) {
	var faulty []int
	for i := range outcomes {
		if outcomes[i].fault != nil {
			faulty = append(faulty, i)
		}
	}
	slices.SortFunc(faulty, func(a, b int) int {
		return cmp.Compare(outcomes[a].fault.Event.Position, outcomes[b].fault.Event.Position)
	})
	if room := max(0, MaxParked-len(r.exclusions.Parked)); len(faulty) > room {
		return stopAtLimit(outcomes[faulty[room]].fault)
	}
	for _, i := range faulty {
		fault := outcomes[i].fault
		r.park(fault)
		for j := chains[i].first; j >= 0; j = next[j] {
			if position := s.events[j].Position; position >= fault.Event.Position {
				r.addWaiting(chains[i].id, position)
			}
		}
	}
	return nil
}

// waitingPerSave bounds how many waiting events collect before a save keeps them.
const waitingPerSave = 10_000

// saveWaiting stores the documents and events parked since the previous save. It returns errRefold if a document that
// events should wait for is no longer parked.
func (r *Replay) saveWaiting(ctx context.Context, s *saving) error {
	if len(s.waiting) == 0 {
		return nil
	}
	ok, err := r.Registry.Park(ctx, r.Tenant, r.Build.ProjectionID, r.Build.Number, s.parked, s.waiting)
	switch {
	case err != nil:
		return fmt.Errorf("store parked events: %w", err)
	case !ok:
		return errRefold
	}
	return nil
}

// handleRefusal handles a document that the database refuses because of one event.
func (r *Replay) handleRefusal(fault *folding.EventError) error {
	if !r.parksFaults() {
		return fault
	}
	r.at.refused = fault
	return errRefold
}
