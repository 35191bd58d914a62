package projection

import (
	"context"
	"errors"
	"slices"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/expr"
)

// DocumentsAsOf is DocumentsOf, but each document is as of its event, without later ones. A stored document that includes
// later events is folded again, from its stream up to the event. That needs a key that is the stream's name, and all of
// the stream's events. It has the limits of a live projection. Where it is not possible, Failed says why.
func (c *Catalog) DocumentsAsOf(ctx context.Context, tenant domain.TenantID, name string, events []domain.Event) ([]EventDocuments, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var found []EventDocuments
	err := c.readStored(ctx, tenant, name, func(driver drivers.Driver, p domain.Projection) (err error) {
		if found, err = c.documentsOf(ctx, driver, p, tenant, events); err != nil {
			return err
		}
		later := make(map[string][]*asOf) // by document, in the order of the positions
		for i := range found {
			if found[i].Waiting {
				continue
			}
			for j := range found[i].All {
				// Without a version, nothing is stored: a later event may have removed the document.
				if document := &found[i].All[j]; document.version == 0 || document.version > events[i].Position {
					later[document.ID] = append(later[document.ID], &asOf{&events[i], document, &found[i]})
				}
			}
		}
		for id, wanted := range later {
			slices.SortFunc(wanted, func(a, b *asOf) int { return int(a.event.Position - b.event.Position) })
			reader := &liveReader{catalog: c, projection: p, asOf: true}
			err := reader.documentsAt(ctx, tenant, id, wanted)
			failure, ok := errors.AsType[*domain.Error](err)
			switch {
			case err == nil:
			case ok && (failure.Code == domain.CodeUnsupported || failure.Code == domain.CodeTooCostly || failure.Code == domain.CodeFaulted):
				for _, w := range wanted {
					w.of.Failed = failure
				}
			default:
				return err
			}
		}
		return nil
	})
	return found, err
}

// asOf is a document to be folded up to an event.
type asOf struct {
	event    *domain.Event
	document *EventDocument
	of       *EventDocuments
}

// documentsAt folds a document from its stream, once, and takes its state at each of the events.
func (l *liveReader) documentsAt(ctx context.Context, tenant domain.TenantID, id string, wanted []*asOf) error {
	ctx, end, err := l.begin(ctx, tenant)
	if err != nil {
		return err
	}
	defer end()
	fold, err := l.fold(ctx, tenant)
	if err != nil {
		return budget.Cause(ctx, err)
	}
	if !fold.fold.OwnStream() {
		return domain.Errorf(domain.CodeUnsupported, "projection",
			"projection %q has a key other than the stream, so its documents as of an earlier event cannot be folded; leave the key out, or use the current documents", l.projection.Name)
	}
	return budget.Cause(ctx, fold.streamAt(ctx, id, wanted))
}

// streamAt folds the events of one stream up to the last of the wanted ones.
func (f *liveFold) streamAt(ctx context.Context, stream string, wanted []*asOf) error {
	for version := int64(0); len(wanted) > 0; {
		events, err := f.reader.catalog.config.Store.ReadStream(ctx, f.tenant, stream, domain.StreamQuery{From: version + 1, Limit: livePage, MaxBytes: livePageBytes})
		if err != nil {
			return err
		}
		if len(events) == 0 || events[0].Version != version+1 || events[len(events)-1].Version != version+int64(len(events)) {
			return domain.Errorf(domain.CodeUnsupported, "projection", "document %q of projection %q as of an earlier event cannot be folded: events of its stream were removed",
				domain.Clip(stream, 100), f.reader.projection.Name)
		}
		version = events[len(events)-1].Version
		for len(wanted) > 0 && wanted[0].event.Version <= version {
			w := wanted[0]
			n := len(events) - int(version-w.event.Version)
			if err := f.addSeen(ctx, events[:n]); err != nil {
				return err
			}
			events, wanted = events[n:], wanted[1:]
			err := budget.Work(ctx, func() error {
				document, there, err := f.document(expr.MeterOf(ctx), stream)
				if w.document.Document = nil; there {
					w.document.Document = &document
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		if len(wanted) == 0 {
			return nil
		}
		if err := f.addSeen(ctx, events); err != nil {
			return err
		}
	}
	return nil
}

// addSeen folds those of the events that the projection sees.
func (f *liveFold) addSeen(ctx context.Context, events []domain.Event) error {
	return f.add(ctx, slices.DeleteFunc(slices.Clone(events), func(e domain.Event) bool { return !f.fold.Sees(&e) }))
}
