package upcasting

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Source says which events to preview; exactly one field is set.
type Source struct {
	Stream string         // the first PreviewEvents events of a stream
	Last   int            // how many of the last events of types with upcasters, at most PreviewEvents
	Events []domain.Event // made-up events; the only source for domain.Everyone
}

// Limits of a preview.
const (
	PreviewEvents = 1000
	previewBytes  = 8 << 20 // of data before and after; the rest is left out
	previewLooks  = 20_000  // how many of the log's newest events Source.Last reads
)

// Step is the result for one event.
type Step struct {
	Event         domain.Event // the original event
	VersionBefore int64        // its schema version; 0 if its metadata holds an invalid one, and it stays unchanged
	VersionAfter  int64        // the schema version that it reached
	After         json.RawMessage
	Fault         *Fault // if set, After is nil
}

// Preview shows what the upcasters in force for a tenant make of events. If tried is not nil, it replaces the upcaster
// of its type and version, or is added. Preview stores nothing.
func (u *Upcasters) Preview(ctx context.Context, tenant domain.TenantID, tried *domain.Upcaster, source Source) ([]Step, error) {
	ctx, end, err := u.requests.Begin(ctx, tenant, "try it on fewer events")
	if err != nil {
		return nil, err
	}
	defer end()
	set, err := u.Now(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if set == nil {
		set = &Set{}
	}
	if tried != nil {
		if err := check(*tried); err != nil {
			return nil, err
		}
		set = &Set{layers: append([]*layer{newLayer([]domain.Upcaster{*tried}, 0)}, set.layers...)}
	}
	events, err := u.events(ctx, tenant, set, source)
	if err != nil {
		return nil, err
	}
	steps := make([]Step, 0, len(events))
	err = budget.Work(ctx, func() error {
		meter, bytes := expr.MeterOf(ctx), 0
		for _, event := range events {
			if !meter.SpendBytes(len(event.Data) + len(event.Metadata)) {
				return nil // Work returns the reason
			}
			step := Step{Event: event}
			upcast := event
			if step.VersionBefore, step.VersionAfter, step.Fault = set.trace(meter, &upcast, true); step.Fault == nil {
				step.After = upcast.Data
			}
			if bytes += len(event.Data) + len(step.After); bytes > previewBytes && len(steps) > 0 {
				return nil
			}
			steps = append(steps, step)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return steps, nil
}

// events reads the events of a source.
func (u *Upcasters) events(ctx context.Context, tenant domain.TenantID, set *Set, source Source) ([]domain.Event, error) {
	switch {
	case len(source.Events) > 0:
		return source.Events, nil
	case tenant == domain.Everyone:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "source", "the operator has no log: give events")
	case source.Stream != "":
		if err := domain.CheckStream("source.stream", source.Stream); err != nil {
			return nil, err
		}
		events, err := u.log.ReadStream(ctx, tenant, source.Stream, domain.StreamQuery{From: 1, Limit: PreviewEvents, MaxBytes: previewBytes})
		if err == nil && len(events) == 0 {
			err = domain.Errorf(domain.CodeNotFound, "source.stream", "there is no stream %s", source.Stream)
		}
		return domain.WithData(events), err
	case source.Last > 0:
		return u.lastEvents(ctx, tenant, set, min(source.Last, PreviewEvents))
	}
	return nil, domain.Errorf(domain.CodeInvalidRequest, "source", "no events chosen: give stream, last or events")
}

// lastEvents returns the log's last n events of types that the set concerns, in the log's order. It looks back only a
// limited distance: a rare type would otherwise be searched for in the whole log.
func (u *Upcasters) lastEvents(ctx context.Context, tenant domain.TenantID, set *Set, n int) ([]domain.Event, error) {
	var found []domain.Event // newest first
	from, bytes := int64(0), 0
	for looked := 0; looked < previewLooks; {
		page, err := u.log.ReadLog(ctx, tenant, domain.LogQuery{
			From: from, Limit: PreviewEvents, MaxBytes: previewBytes, Direction: domain.Backward,
		})
		if err != nil {
			return nil, err
		}
		for _, event := range page {
			if set.Concerns(event.Type) && event.Gap == nil {
				found = append(found, event)
				bytes += len(event.Data)
			}
			if len(found) == n || bytes > previewBytes {
				slices.Reverse(found)
				return found, nil
			}
		}
		looked += len(page)
		if len(page) == 0 || page[len(page)-1].Position == 1 {
			break
		}
		from = page[len(page)-1].Position - 1
	}
	slices.Reverse(found)
	return found, nil
}
