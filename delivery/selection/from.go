package selection

import (
	"context"
	"errors"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
)

// ResolveFrom returns the first position that a subscription delivers, counting from 1. If there is no such event, the
// error is domain.CodeNotFound with the place "from".
func ResolveFrom(ctx context.Context, log *eventlog.Log, tenant domain.TenantID, from domain.From) (int64, error) {
	switch {
	case from.End:
		head, err := log.Head(ctx, tenant)
		return head.Position + 1, err
	case from.Position > 0:
		return from.Position, nil
	case !from.Time.IsZero():
		before, err := log.PositionBefore(ctx, tenant, from.Time)
		return before + 1, err
	case !from.EventID.IsZero():
		position, err := log.EventPosition(ctx, tenant, from.EventID)
		if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Code == domain.CodeNotFound {
			return 0, domain.Errorf(domain.CodeNotFound, "from", "there is no event %s; begin with start, a position or a time", from.EventID)
		}
		return position, err
	default:
		return 1, nil
	}
}
