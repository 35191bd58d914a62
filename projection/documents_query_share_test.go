package projection

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/manifold-es/manifold/domain"
)

// One tenant's queries wait for one another; another tenant's do not wait for them, nor does one that is given up.
func TestQueryShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var share queryShare
		busy, other := domain.NewTenantID(), domain.NewTenantID()
		var leave []func()
		for range queriesAtOnce {
			l, err := share.enter(t.Context(), busy)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		entered := make(chan func(), 1)
		go func() {
			l, err := share.enter(t.Context(), busy)
			if err != nil {
				t.Error(err)
			}
			entered <- l
		}()
		synctest.Wait()
		if len(entered) > 0 {
			t.Fatal("the tenant has more than its share")
		}
		l, err := share.enter(t.Context(), other)
		if err != nil {
			t.Fatal(err)
		}
		l()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the client has gone")
		cancel(why)
		if _, err := share.enter(ctx, busy); !errors.Is(err, why) {
			t.Errorf("a query that was given up gets %v, want %v", err, why)
		}
		leave[0]()
		(<-entered)()
		for _, l := range leave[1:] {
			l()
		}
		if len(share.tenants) > 0 {
			t.Errorf("%d tenants are remembered with nothing under way", len(share.tenants))
		}
	})
}
