package subscription

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// missing is a stretch of a log of which some events were gone when it was read.
type missing struct {
	category  string
	after, to int64 // behind after, up to to
}

// missingOf are the stretches that a reading behind a position has gone over.
func missingOf(floors []domain.RetentionFloor, after int64) []missing {
	var found []missing
	for _, floor := range floors {
		if floor.RemovedTo > after {
			found = append(found, missing{floor.Category, after, floor.RemovedTo})
		}
	}
	return found
}

// mergeMissing adds stretches to others: one for each category, from where the first begins to where the last ends. So they are no
// more than there are categories, and say too much rather than too little.
func mergeMissing(all, more []missing) []missing {
	merged := slices.Clone(all) // those who look at it hold no lock
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

// heard says up to where a reader was told that events of a category are gone. It is not changed once it is made.
type heard map[string]int64

// and is what a reader that goes on behind a position was told of with these as well; what it has behind it is left out.
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

// news are those of the floors that the reader was not told of.
func (h heard) news(floors []domain.RetentionFloor) []domain.RetentionFloor {
	return slices.DeleteFunc(floors, func(floor domain.RetentionFloor) bool { return floor.RemovedTo <= h[floor.Category] })
}

// gap is what a reader is to be told of, and by which floors.
type gap struct {
	*domain.Gap // nil: there is nothing
	floors      []domain.RetentionFloor
}

// gapBehind is the gap that whoever goes on behind a position is to be told of.
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

// gapOf looks up what a reading behind a position has missed that is news to its reader. The highest position that is gone, removedTo,
// was found with what was read.
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
