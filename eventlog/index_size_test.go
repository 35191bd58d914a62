package eventlog_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestIndexSize(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 100))
	if _, _, err := s.IndexSize(t.Context()); err != nil {
		t.Fatalf("before anything has counted the events: %v", err)
	}
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "analyze manifold.events")
	tablestest.Must(t, err)
	bytes, events, err := s.IndexSize(t.Context())
	if err != nil || events != 100 || bytes < 4*8192 || bytes > 1<<20 {
		t.Errorf("it says %d bytes for %d events, %v", bytes, events, err)
	}
}
