package totals

import (
	"context"
	"time"
)

// Compute computes the totals that are due, as Run does.
func (t *Totals) Compute(ctx context.Context) error {
	err := t.look(ctx)
	t.work(ctx, time.Now().Add(time.Minute))
	return err
}

// MaxKeys is the limit of a tenant's keys.
const MaxKeys = maxKeys
