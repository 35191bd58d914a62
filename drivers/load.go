package drivers

import (
	"context"
	"errors"

	"github.com/manifold-es/manifold/domain"
)

// LoadEach calls use with the existing documents among ids, in one or more portions that Load returns. An error of use
// ends it.
func LoadEach(ctx context.Context, driver Driver, build domain.Build, tenant domain.TenantID, ids []string, use func([]domain.Document) error) error {
	documents, err := driver.Load(ctx, build, tenant, ids)
	if errors.Is(err, ErrLoadTooLarge) && len(ids) > 1 {
		half := len(ids) / 2
		if err := LoadEach(ctx, driver, build, tenant, ids[:half], use); err != nil {
			return err
		}
		return LoadEach(ctx, driver, build, tenant, ids[half:], use)
	}
	if err != nil || len(documents) == 0 {
		return err
	}
	return use(documents)
}
