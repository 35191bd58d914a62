package projection

import (
	"slices"
	"sync/atomic"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// Through returns the fold with upcasters that events go through before anything of the definition sees them; nil: none.
// What counts events as they are in the log stays as it is.
func (f *Fold) Through(upcasters *upcasting.Upcasters) *Fold {
	if _, raw := f.handler.(asRecorded); raw {
		return f
	}
	through := *f
	through.upcasters = upcasters
	return &through
}

// upcast brings an event into the form that expressions are written for; with a fault it is as it was.
func upcast(meter *expr.Meter, set *upcasting.Set, event *domain.Event) *EventError {
	return notUpcast(set.Upcast(meter, event), event)
}

// notUpcast is the fault of an event that does not go through an upcaster; nil for nil.
func notUpcast(fault *upcasting.Fault, event *domain.Event) *EventError {
	if fault == nil {
		return nil
	}
	return &EventError{Event: *event, Where: fault.Upcaster.Name(), Expression: fault.Upcaster.Expression, Err: fault.Err}
}

// upcasts are the events of one reading on their way through the upcasters, by several goroutines. Events may come out
// larger than they went in, however small what was read was: so what they grow by is counted.
type upcasts struct {
	meter *expr.Meter
	set   *upcasting.Set
	most  int // bytes that they may grow by
	grown atomic.Int64
}

// full reports whether the reading has grown as far as it may: what is not upcast yet is for the next one.
func (u *upcasts) full() bool { return u.grown.Load() > int64(u.most) }

// apply upcasts an event.
func (u *upcasts) apply(event *domain.Event) *EventError {
	if !u.set.Concerns(event.Type) {
		return nil
	}
	before := len(event.Data) + len(event.Metadata)
	if fault := upcast(u.meter, u.set, event); fault != nil {
		return fault
	}
	if growth := len(event.Data) + len(event.Metadata) - before; growth > 0 {
		u.grown.Add(int64(growth))
	}
	return nil
}

// upcastCopies returns events that are to be appended as expressions are to see them: the same ones, or copies of which some
// are upcast. faults are of those that do not go through, by index.
func upcastCopies(meter *expr.Meter, set *upcasting.Set, events []Event) (newest []Event, faults map[int]*EventError) {
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
		if fault := notUpcast(set.UpcastUnrecorded(meter, &event), &event); fault != nil {
			if faults == nil {
				faults = make(map[int]*EventError)
			}
			faults[i] = fault
		}
	}
	return newest, faults
}
