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

// gapBehind is the gap that whoever goes on behind a position is to be told of, and knows of none up to told; nil: there is none.
func (s *selection) gapBehind(position, told int64, all []missing) *domain.Gap {
	var floors []domain.RetentionFloor
	first := int64(-1)
	categories := s.categories()
	for _, m := range all {
		if m.to <= position || len(categories) > 0 && !slices.Contains(categories, m.category) {
			continue
		}
		floors = append(floors, domain.RetentionFloor{Category: m.category, RemovedTo: m.to})
		if from := max(m.after, position) + 1; first < 0 || from < first {
			first = from
		}
	}
	if len(floors) == 0 {
		return nil
	}
	if gap := domain.NewGap(first, floors); gap != nil && gap.To > told {
		return gap
	}
	return nil
}

// gapOf looks up what a reading behind a position has missed, of which it is known up to where that goes; nil where that is no news.
func gapOf(ctx context.Context, log Log, tenant domain.TenantID, s *selection, after, told, removedTo int64) (*domain.Gap, error) {
	if removedTo <= max(after, told) {
		return nil, nil
	}
	floors, err := log.Floors(ctx, tenant, s.categories(), after+1)
	if err != nil {
		return nil, err
	}
	return domain.NewGap(after+1, floors), nil
}
