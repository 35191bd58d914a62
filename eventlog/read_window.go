package eventlog

import (
	"context"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// A statement that reads several categories goes along the index of each until it has a page of its events. If one of
// them has few events of the requested types, the statement reads that index to its end, for every page again. A
// statement that reads types of all categories goes along the positions, and so reads events of all types. Such a read
// is scattered: it proceeds by windows of positions, each four times as large as the one before. So a read visits each
// position once. A page that fills up within a window reads at most four times what it needs.
//
// From the second window on, a read by types alone uses the indexes of all categories, which contain the types, too.

const (
	leastWindow = 256 // positions of the first window, at least; as many as the limit otherwise
	// largestWindow is how many positions one statement goes over at most.
	largestWindow = 1 << 20
	// followedWindow is how many positions ReadWith reads in its one round trip.
	followedWindow = 10_000
	// mostCategories is how many categories a log may have for a read by types to go along the index of each.
	mostCategories = 1000
	// matchingFrom is how many positions a read must cover to find events by their tags. Fewer are read as fast
	// without.
	matchingFrom = 10_000
)

// isScattered reports whether the events that a query selects may lie far apart, so that it is read by windows.
func isScattered(q domain.LogQuery) bool {
	return len(q.Categories) > 1 || len(q.Categories) == 0 && len(q.Types) > 0
}

// window is the range of positions that a scattered read is going over.
type window struct {
	log    *Log
	tenant domain.TenantID
	q      domain.LogQuery
	from   int64 // where the window begins in the query's direction
	to     int64 // where it ends, inclusive
	end    int64 // where the last window ends
	width  int64
	listed bool // whether the categories have been listed
}

// openWindow returns the first window of a query.
func (s *Log) openWindow(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) (*window, error) {
	w := &window{log: s, tenant: tenant, q: q, from: q.From, end: q.To, width: max(leastWindow, int64(q.Limit)), listed: len(q.Categories) > 0}
	backward := q.Direction == domain.Backward
	if backward {
		w.end = max(1, q.To)
	}
	if q.To == 0 && !backward || q.From == 0 && backward {
		var head int64
		if err := s.db.Read(ctx, tenant, nil, HeadQuery(tenant, &head)); err != nil {
			return nil, err
		}
		if backward {
			w.from = max(w.end, head)
		} else {
			w.end = max(q.From, head)
		}
	}
	w.to = w.last()
	return w, nil
}

// last returns where a window of the width ends.
func (w *window) last() int64 {
	switch backward := w.q.Direction == domain.Backward; {
	case backward && w.from-w.end >= w.width:
		return w.from - w.width + 1
	case !backward && w.end-w.from >= w.width:
		return w.from + w.width - 1
	}
	return w.end
}

// page is pageReader.page.
func (w *window) page(from int64, limit int, events *eventReader) pg.Query {
	return logQuery(w.tenant, w.q, from, w.to, limit, events)
}

// advance is pageReader.advance: it goes to the next window.
func (w *window) advance(ctx context.Context) (from int64, ok bool, err error) {
	if w.to == w.end {
		return 0, false, nil
	}
	if !w.listed {
		w.listed = true
		if w.q.Categories, err = w.log.categories(ctx, w.tenant); err != nil {
			return 0, false, err
		}
	}
	w.width = max(w.width, min(4*w.width, largestWindow))
	if w.from = w.to + 1; w.q.Direction == domain.Backward {
		w.from = w.to - 1
	}
	w.to = w.last()
	return w.from, true, nil
}

// listCategories returns one category more than a read goes along.
var listCategories = pg.Statement{Name: "manifold_list_categories", SQL: everyCategory + `
	select c.category from categories as c where c.category is not null limit $2::bigint`}

// categories returns all categories of a log; none if there are more than mostCategories.
func (s *Log) categories(ctx context.Context, tenant domain.TenantID) (all []string, err error) {
	err = s.db.Read(ctx, tenant, func() { all = nil }, pg.Query{
		Statement: &listCategories, Params: [][]byte{pg.TenantParam(tenant), pg.Int8Param(mostCategories + 1)},
		Row: func(values [][]byte) error {
			all = append(all, string(values[0]))
			return nil
		},
	})
	if len(all) > mostCategories {
		return nil, err
	}
	return all, err
}

// readTagged returns the events up to a position that a query finds by their tags, whatever their categories and types.
func (s *Log) readTagged(ctx context.Context, tenant domain.TenantID, q domain.LogQuery, to int64) ([]domain.Event, error) {
	match := domain.MatchQuery{Query: q.Query, After: q.From - 1, Before: to + 1, Limit: q.Limit, MaxBytes: q.MaxBytes}
	var all []domain.Event
	for {
		events, next, err := s.ReadMatching(ctx, tenant, match)
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
		match.Limit -= len(events)
		if q.MaxBytes > 0 {
			for i := range events {
				match.MaxBytes -= events[i].Bytes()
			}
			if match.MaxBytes <= 0 {
				return all, nil
			}
		}
		if next == 0 || match.Limit <= 0 {
			return all, nil
		}
		match.After = next
	}
}
