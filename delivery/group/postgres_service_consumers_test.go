package group_test

import (
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestConsumerIsDeclaredOnce(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	// Many processes that start at the same moment agree.
	born := make([]time.Time, 8)
	var all sync.WaitGroup
	for i := range born {
		all.Go(func() {
			var err error
			if born[i], err = s.Declare(t.Context(), domain.Everyone, "reactor", "mail", time.Time{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i, at := range born {
		if at.IsZero() || !at.Equal(born[0]) || time.Since(at).Abs() > time.Minute {
			t.Errorf("call %d got %s, and the first one %s", i, at, born[0])
		}
	}
	since := time.Date(2026, 3, 1, 9, 30, 0, 123456000, time.UTC)
	declare := func(owner domain.TenantID, kind, name string, asked, want time.Time) {
		t.Helper()
		got, err := s.Declare(t.Context(), owner, kind, name, asked)
		tablestest.Must(t, err)
		if !got.Equal(want) {
			t.Errorf("%s %s is there since %s; want %s", kind, name, got, want)
		}
	}
	// Owner, kind and name tell consumers apart.
	declare(tenant, "changes", "mail", since, since)
	declare(domain.Everyone, "changes", "mail", since.Add(time.Hour), since.Add(time.Hour))
	declare(domain.Everyone, "reactor", "mail", since, born[0])
	declare(tenant, "changes", "mail", since.Add(time.Minute), since)
	tablestest.Must(t, s.Withdraw(t.Context(), tenant, "changes", "mail"))
	tablestest.Must(t, s.Withdraw(t.Context(), tenant, "changes", "mail"))
	declare(tenant, "changes", "mail", since.Add(time.Minute), since.Add(time.Minute))
	declare(domain.Everyone, "changes", "mail", since, since.Add(time.Hour))

	// What was declared is not written again: a cluster with a node that is down could not.
	writer, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	tablestest.Must(t, err)
	_, err = writer.Exec(t.Context(), "lock table manifold.service_consumers in share mode")
	tablestest.Must(t, err)
	declare(domain.Everyone, "reactor", "mail", since, born[0])
	tablestest.Must(t, writer.Rollback(t.Context()))

	// What was a tenant's own goes with the tenant.
	tablestest.Must(t, s.SetTenantState(t.Context(), tenant, domain.TenantDeleting))
	tablestest.Must(t, s.EraseTenant(t.Context(), tenant))
	declare(tenant, "changes", "mail", since, since)
	declare(domain.Everyone, "reactor", "mail", since, born[0])
}
