package folding

import (
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// WithUpcasters returns the fold with upcasters that are applied to events before the definition sees them; nil: none.
// Handlers that need the events as recorded (asRecorded) still get those.
func (f *Fold) WithUpcasters(upcasters *upcasting.Upcasters) *Fold {
	if _, raw := f.handler.(asRecorded); raw {
		return f
	}
	through := *f
	through.upcasters = upcasters
	return &through
}

// Upcast converts an event to the form that expressions are written for. With a fault the event is unchanged.
func Upcast(meter *expr.Meter, set *upcasting.Set, event *domain.Event) *EventError {
	return upcastError(set.Upcast(meter, event), event)
}

// upcastError converts an upcaster's fault of an event to an EventError; nil for nil.
func upcastError(fault *upcasting.Fault, event *domain.Event) *EventError {
	if fault == nil {
		return nil
	}
	return &EventError{Event: *event, Where: fault.Upcaster.Name(), Expression: fault.Upcaster.Expression, Err: fault.Err}
}

// UpcastCopies returns events to be appended as expressions should see them: the same slice, or a copy with some events
// upcast. faults are those of events that cannot be upcast, by index.
func UpcastCopies(meter *expr.Meter, set *upcasting.Set, events []Event) (newest []Event, faults map[int]*EventError) {
	newest = events
	for i := range events {
		if !set.Concerns(events[i].Type) {
			continue
		}
		if &newest[0] == &events[0] {
			newest = slices.Clone(events)
		}
		event := *events[i].Event
		newest[i] = Event{Event: &event, meter: meter}
		if fault := upcastError(set.UpcastUnrecorded(meter, &event), &event); fault != nil {
			if faults == nil {
				faults = make(map[int]*EventError)
			}
			faults[i] = fault
		}
	}
	return newest, faults
}
