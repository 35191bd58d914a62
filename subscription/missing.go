package subscription

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// missing is a range of a log in which some events were gone when it was read.
type missing struct {
	category  string
	after, to int64 // positions above after, up to to
}

// missingOf returns the ranges with removed events that a read after a position has covered.
func missingOf(floors []domain.RetentionFloor, after int64) []missing {
	var found []missing
	for _, floor := range floors {
		if floor.RemovedTo > after {
			found = append(found, missing{floor.Category, after, floor.RemovedTo})
		}
	}
	return found
}

// mergeMissing merges ranges into one range per category, from the start of the first to the end of the last. So there
// are at most as many as there are categories, and they report too much rather than too little.
func mergeMissing(all, more []missing) []missing {
	merged := slices.Clone(all) // readers of all hold no lock
	for _, m := range more {
		i := slices.IndexFunc(merged, func(other missing) bool { return other.category == m.category })
		if i < 0 {
			merged = append(merged, m)
			continue
		}
		merged[i].after, merged[i].to = min(merged[i].after, m.after), max(merged[i].to, m.to)
	}
	return merged
}

// heard is the position, by category, up to which a reader knows that events are gone. It is immutable.
type heard map[string]int64

// and returns what a reader that continues after a position knows, including floors. It drops what lies before the
// position.
func (h heard) and(floors []domain.RetentionFloor, position int64) heard {
	all := make(heard, len(h)+len(floors))
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

// news returns the floors that the reader does not know yet.
func (h heard) news(floors []domain.RetentionFloor) []domain.RetentionFloor {
	return slices.DeleteFunc(floors, func(floor domain.RetentionFloor) bool { return floor.RemovedTo <= h[floor.Category] })
}

// gap is what to report to a reader, with the floors that it consists of.
type gap struct {
	*domain.Gap // nil: nothing
	floors      []domain.RetentionFloor
}

// gapBehind returns the gap to report to a reader that continues after a position.
func (s *selection) gapBehind(position int64, known heard, all []missing) gap {
	var floors []domain.RetentionFloor
	first := int64(-1)
	categories := s.categories()
	for _, m := range all {
		if m.to <= max(position, known[m.category]) || len(categories) > 0 && !slices.Contains(categories, m.category) {
			continue
		}
		floors = append(floors, domain.RetentionFloor{Category: m.category, RemovedTo: m.to})
		if from := max(m.after, position) + 1; first < 0 || from < first {
			first = from
		}
	}
	return gap{domain.NewGap(first, floors), floors}
}

// gapOf returns what a read after a position has missed that its reader does not know yet. removedTo is the highest
// removed position that the read found.
func gapOf(ctx context.Context, log Log, tenant domain.TenantID, s *selection, after int64, known heard, removedTo int64) (gap, error) {
	if removedTo <= after {
		return gap{}, nil
	}
	floors, err := log.Floors(ctx, tenant, s.categories(), after+1)
	if err != nil {
		return gap{}, err
	}
	floors = slices.DeleteFunc(known.news(floors), func(floor domain.RetentionFloor) bool { return floor.RemovedTo <= after })
	return gap{domain.NewGap(after+1, floors), floors}, nil
}
