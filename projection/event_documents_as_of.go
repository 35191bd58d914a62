package projection

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/expr"
)

// Bounds of what DocumentsAsOf folds at once; the first event's document is always folded. The bytes are
// drivers.MaxLoadBytes.
const asOfTime = time.Second

// DocumentsAsOf is DocumentsOf, but each document is as of its event, without later ones. A stored document that
// includes later events is folded again, from its stream up to the event. That needs a definition in expressions, a key
// that is the stream's name, and all of the stream's events, and has the limits of a live projection. Where it is not
// possible, Failed says why. Events whose documents would take too long, or too much memory, are Left.
func (c *Catalog) DocumentsAsOf(ctx context.Context, tenant domain.TenantID, name string, events []domain.Event) ([]EventDocuments, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var found []EventDocuments
	err := c.readStored(ctx, tenant, name, func(driver drivers.Driver, p domain.Projection) (err error) {
		if found, err = c.documentsOf(ctx, driver, p, tenant, events); err != nil {
			return err
		}
		fold, err := c.foldOf(ctx, p.Definition)
		if err != nil {
			return err
		}
		if !fold.OwnStream() {
			for i := range found {
				if len(found[i].All) > 0 && !found[i].Waiting {
					found[i].Failed = domain.Errorf(domain.CodeUnsupported, "projection",
						"projection %q has a key, a map or a handler in Go, so its documents as of their events cannot be folded; use the current documents", p.Name)
				}
			}
			return nil
		}
		return c.foldAsOf(ctx, tenant, p, events, found)
	})
	return found, err
}

// foldAsOf replaces the documents that include later events.
func (c *Catalog) foldAsOf(ctx context.Context, tenant domain.TenantID, p domain.Projection, events []domain.Event, found []EventDocuments) error {
	var ids []string // in the order of the events
	later := make(map[string][]*asOf)
	for i := range found {
		if found[i].Waiting || found[i].Left || len(found[i].All) == 0 {
			continue
		}
		// The key is the stream's name, so there is one document. Without a version nothing is stored: a later event
		// may have removed it.
		document := &found[i].All[0]
		if document.version != 0 && document.version <= events[i].Position {
			continue
		}
		if later[document.ID] == nil {
			ids = append(ids, document.ID)
		}
		later[document.ID] = append(later[document.ID], &asOf{&events[i], document, &found[i]})
	}
	bytes, until := 0, time.Now().Add(asOfTime)
	for n, id := range ids {
		wanted := later[id]
		if n > 0 && (bytes > drivers.MaxLoadBytes || time.Now().After(until)) {
			leave(wanted)
			continue
		}
		slices.SortFunc(wanted, func(a, b *asOf) int { return cmp.Compare(a.event.Position, b.event.Position) })
		reader := &liveReader{catalog: c, projection: p, asOf: true}
		err := reader.documentsAt(ctx, tenant, id, wanted, &bytes)
		failure, ok := errors.AsType[*domain.Error](err)
		switch {
		case err == nil:
		case ok && slices.Contains([]domain.Code{domain.CodeUnsupported, domain.CodeTooCostly, domain.CodeOverloaded, domain.CodeFaulted}, failure.Code):
			for _, w := range wanted {
				w.of.Failed = failure
			}
		default:
			return err
		}
	}
	return nil
}

// asOf is a document to be folded up to an event.
type asOf struct {
	event    *domain.Event
	document *EventDocument
	of       *EventDocuments
}

func leave(events []*asOf) {
	for _, e := range events {
		*e.of = EventDocuments{Left: true}
	}
}

// documentsAt folds a document from its stream, once, and takes its state at each of the events. It adds the size of
// these to bytes, and leaves the rest if they become too large.
func (l *liveReader) documentsAt(ctx context.Context, tenant domain.TenantID, id string, wanted []*asOf, bytes *int) error {
	ctx, end, err := l.begin(ctx, tenant)
	if err != nil {
		return err
	}
	defer end()
	fold, err := l.fold(ctx, tenant)
	if err != nil {
		return budget.Cause(ctx, err)
	}
	return budget.Cause(ctx, fold.streamAt(ctx, id, wanted, bytes))
}

// streamAt is documentsAt with the fold.
func (f *liveFold) streamAt(ctx context.Context, stream string, wanted []*asOf, bytes *int) error {
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
					*bytes += len(document.Data)
				}
				return err
			})
			if err != nil {
				return err
			}
			if *bytes > drivers.MaxLoadBytes {
				leave(wanted)
				return nil
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
