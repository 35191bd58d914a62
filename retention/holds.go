package retention

import (
	"cmp"
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// holds asks all holders what they hold of a category. It leaves out what the policy forces and sorts by position,
// lowest first.
func (r *Retention) holds(ctx context.Context, tenant domain.TenantID, policy *Policy) ([]domain.RetentionHold, error) {
	var all []domain.RetentionHold
	for _, holder := range r.config.Holders {
		holds, err := holder.RetentionHolds(ctx, tenant, policy.Category)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(holds, policy.Force.Forces)...)
	}
	slices.SortFunc(all, func(a, b domain.RetentionHold) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// lowest returns the position up to which nothing is held, at most upTo.
func lowest(holds []domain.RetentionHold, upTo int64) int64 {
	if len(holds) > 0 {
		return min(upTo, holds[0].Position)
	}
	return upTo
}

// blockingHolds returns those of the sorted holds that keep an event of the category from removal at or below upTo. It
// returns at most MaxHoldsKept holds.
func (r *Retention) blockingHolds(ctx context.Context, tenant domain.TenantID, category string, holds []domain.RetentionHold, upTo int64) ([]domain.RetentionHold, error) {
	var held []domain.RetentionHold
	seen := int64(-1)
	for _, hold := range holds {
		if hold.Position >= upTo || len(held) == MaxHoldsKept {
			break
		}
		if hold.Position > seen {
			next, _, err := r.config.Store.RetentionNext(ctx, tenant, category, hold.Position)
			if err != nil {
				return nil, err
			}
			if next == 0 || next > upTo {
				break
			}
			seen = next - 1 // holds below this position keep the same event
		}
		held = append(held, hold)
	}
	return held, nil
}
