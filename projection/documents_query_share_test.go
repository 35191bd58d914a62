package projection

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/manifold-es/manifold/domain"
)

// One tenant's queries wait for each other. Another tenant's queries do not wait for them, and neither does a cancelled
// one.
func TestQueryShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		catalog := &Catalog{queries: newQueryShares()}
		busy, other := domain.NewTenantID(), domain.NewTenantID()
		var leave []func()
		for range queriesAtOnce {
			l, err := catalog.enterCostly(t.Context(), busy, true)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		entered := make(chan func(), 1)
		go func() {
			l, err := catalog.enterCostly(t.Context(), busy, true)
			if err != nil {
				t.Error(err)
			}
			entered <- l
		}()
		synctest.Wait()
		if len(entered) > 0 {
			t.Fatal("the tenant has more than its share")
		}
		l, err := catalog.enterCostly(t.Context(), other, true)
		if err != nil {
			t.Fatal(err)
		}
		l()
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the client has gone")
		cancel(cause)
		if _, err := catalog.enterCostly(ctx, busy, true); !errors.Is(err, cause) {
			t.Errorf("a cancelled query gets %v, want %v", err, cause)
		}
		leave[0]()
		(<-entered)()
		for _, l := range leave[1:] {
			l()
		}
		if used := catalog.queries.Used(); used > 0 {
			t.Errorf("%d places are taken with no query under way", used)
		}
	})
}
