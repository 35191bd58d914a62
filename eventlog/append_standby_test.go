package eventlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// While no synchronous standby has confirmed a commit, its events are not acknowledged: not by the append that wrote
// them, and not by one that finds them. PostgreSQL shows them already, because the first connection gave up waiting.
func TestAppendsWaitForTheSynchronousStandby(t *testing.T) {
	t.Parallel()
	pgtest.NotOnCluster(t, "it changes the settings of its server")
	server := pgtest.Private(t, pgtest.Replicated())
	db := pgtest.Migrated(t, server)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	standby := func(names string) {
		t.Helper()
		for _, statement := range []string{"alter system set synchronous_standby_names = '" + names + "'", "select pg_reload_conf()"} {
			_, err := super.Exec(t.Context(), statement)
			tablestest.Must(t, err)
		}
	}
	waits := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := super.Exec(ctx, "create temporary table t (); drop table t")
		return err != nil
	}
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 4, AppendTimeout: 2 * time.Second,
	})
	tablestest.Must(t, err)
	defer s.Close()
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
	request := tablestest.Counted("order-1", domain.Any, 2)
	for i := range request.Streams[0].Events {
		request.Streams[0].Events[i].ID = domain.NewEventID()
	}

	standby("nobody")
	for !waits() { // until all of the server has read the setting
	}
	for n := range 2 {
		appended, err := s.Append(t.Context(), tenant, request)
		if problem, ok := errors.AsType[*domain.Error](err); !ok || problem.Code != domain.CodeOutcomeUnknown {
			t.Fatalf("append %d without a standby: %+v, %v", n, appended, err)
		}
	}
	if events := tablestest.WholeLog(t, s, tenant); len(events) != 3 {
		t.Errorf("%d events are visible; the test expects those of the first attempt", len(events))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.AwaitCommits(ctx, tenant); err == nil {
		t.Error("commits without a standby are awaited")
	}
	standby("")
	tablestest.Must(t, s.AwaitCommits(t.Context(), tenant))
	appended, err := s.Append(t.Context(), tenant, request)
	tablestest.Must(t, err)
	if !appended.Duplicate || appended.Position != 3 || len(tablestest.WholeLog(t, s, tenant)) != 3 {
		t.Errorf("it is answered with %+v", appended)
	}
}
