package totals

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Compute computes the totals that are due, as Run does.
func (t *Totals) Compute(ctx context.Context) error {
	err := t.queueScans(ctx)
	t.work(ctx, time.Now().Add(time.Minute))
	return err
}

// MaxKeys is the limit of a tenant's keys.
const MaxKeys = maxKeys

// BeginOrder returns the order in which short (s) and long (l) scans begin that are queued together.
func BeginOrder(short, long int) (order string) {
	t := New(Config{})
	for range short {
		t.queue(&scan{scanID: scanID{tenant: domain.NewTenantID()}})
	}
	for range long {
		t.queue(&scan{scanID: scanID{tenant: domain.NewTenantID()}, old: state{took: turnTime + 1}})
	}
	for s := t.next(); s != nil; s = t.next() {
		if s.isLong() {
			order += "l"
		} else {
			order += "s"
		}
	}
	return order
}
