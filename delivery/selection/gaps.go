package selection

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
)

// Missing is a range of a log in which some events were gone when it was read.
type Missing struct {
	category  string
	after, To int64 // positions above after, up to to
}

// MissingOf returns the ranges with removed events that a read after a position has covered.
func MissingOf(floors []domain.RetentionFloor, after int64) []Missing {
	var found []Missing
	for _, floor := range floors {
		if floor.RemovedTo > after {
			found = append(found, Missing{floor.Category, after, floor.RemovedTo})
		}
	}
	return found
}

// MergeMissing merges ranges into one range per category, from the start of the first to the end of the last. So there
// are at most as many as there are categories, and they report too much rather than too little.
func MergeMissing(all, more []Missing) []Missing {
	merged := slices.Clone(all) // readers of all hold no lock
	for _, m := range more {
		i := slices.IndexFunc(merged, func(other Missing) bool { return other.category == m.category })
		if i < 0 {
			merged = append(merged, m)
			continue
		}
		merged[i].after, merged[i].To = min(merged[i].after, m.after), max(merged[i].To, m.To)
	}
	return merged
}

// KnownGaps is the position, by category, up to which a reader knows that events are gone. It is immutable.
type KnownGaps map[string]int64

// With returns what a reader that continues after a position knows, including floors. It drops what lies before the
// position.
func (h KnownGaps) With(floors []domain.RetentionFloor, position int64) KnownGaps {
	all := make(KnownGaps, len(h)+len(floors))
	for category, to := range h {
		if to > position {
			all[category] = to
		}
	}
	for _, floor := range floors {
		if floor.RemovedTo > position {
			all[floor.Category] = max(all[floor.Category], floor.RemovedTo)
		}
	}
	return all
}

// Unknown returns the floors that the reader does not know yet.
func (h KnownGaps) Unknown(floors []domain.RetentionFloor) []domain.RetentionFloor {
	return slices.DeleteFunc(floors, func(floor domain.RetentionFloor) bool { return floor.RemovedTo <= h[floor.Category] })
}

// Gap is what to report to a reader, with the floors that it consists of.
type Gap struct {
	*domain.Gap // nil: nothing
	Floors      []domain.RetentionFloor
}

// GapAfter returns the gap to report to a reader that continues after a position.
func (s *Selection) GapAfter(position int64, known KnownGaps, all []Missing) Gap {
	var floors []domain.RetentionFloor
	first := int64(-1)
	categories := s.InCategories()
	for _, m := range all {
		if m.To <= max(position, known[m.category]) || len(categories) > 0 && !slices.Contains(categories, m.category) {
			continue
		}
		floors = append(floors, domain.RetentionFloor{Category: m.category, RemovedTo: m.To})
		if from := max(m.after, position) + 1; first < 0 || from < first {
			first = from
		}
	}
	return Gap{domain.NewGap(first, floors), floors}
}

// GapOf returns what a read after a position has missed that its reader does not know yet. removedTo is the highest
// removed position that the read found.
func GapOf(ctx context.Context, log *eventlog.Log, tenant domain.TenantID, s *Selection, after int64, known KnownGaps, removedTo int64) (Gap, error) {
	if removedTo <= after {
		return Gap{}, nil
	}
	floors, err := log.Floors(ctx, tenant, s.InCategories(), after+1)
	if err != nil {
		return Gap{}, err
	}
	floors = slices.DeleteFunc(known.Unknown(floors), func(floor domain.RetentionFloor) bool { return floor.RemovedTo <= after })
	return Gap{domain.NewGap(after+1, floors), floors}, nil
}
