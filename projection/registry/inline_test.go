package registry_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// opening counts how often inline builds are opened, and folds nothing.
type opening struct {
	opened int
	before func() // called while they are opened, the first time
}

func (o *opening) Open(_ context.Context, _ domain.TenantID, head int64, builds []domain.TenantBuild) (eventlog.InlineFolds, []domain.Statement, []domain.TenantBuild, error) {
	if o.opened++; o.opened == 1 {
		o.before()
	}
	atHead := domain.Statement{Name: "at_head", SQL: "select $1::bigint", Params: [][]byte{binary.BigEndian.AppendUint64(nil, uint64(head))}}
	return o, slices.Repeat([]domain.Statement{atHead}, len(builds)), nil, nil
}

func (o *opening) CatchUp(context.Context, domain.TenantID, int64, []domain.TenantBuild) ([]domain.TenantBuild, error) {
	return nil, nil
}

func (o *opening) Begin(int64)                                        {}
func (o *opening) Fold(context.Context, []domain.Event) (bool, error) { return false, nil }
func (o *opening) Load(context.Context) (bool, error)                 { return true, nil }
func (o *opening) Save(int64) ([]domain.Statement, error)             { return nil, nil }
func (o *opening) Full() bool                                         { return false }
func (o *opening) Committed()                                         {}
func (o *opening) Forget()                                            {}

// An upcaster that changes during a log's first append does not see its inline builds, which are invisible before the
// commit. They are opened again after it, exactly once.
func TestUpcastersChangeDuringAFirstAppend(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	folds := &opening{}
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 8, Inline: folds,
	})
	tablestest.Must(t, err)
	t.Cleanup(s.Close)
	tenant := tablestest.NewTenant(t, s)
	folds.before = func() {
		_, _, err := s.PutUpcaster(t.Context(), upcaster(domain.Everyone, "Counted", 1, "event.data"))
		if err != nil {
			t.Error(err)
		}
	}
	number, err := s.NextBuild(t.Context(), domain.Everyone)
	tablestest.Must(t, err)
	id := domain.ProjectionID{Owner: domain.Everyone, Name: "inline"}
	tablestest.Must(t, s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: domain.Definition{Name: id.Name, Mode: domain.ModeInline}, Build: number}, "test"))
	for i, opened := range []int{1, 2, 2} {
		tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
		if folds.opened != opened {
			t.Errorf("after append %d the builds were opened %d times, want %d", i+1, folds.opened, opened)
		}
	}
}

// An inline build may have a definition of the next release, whose process runs beside this one. The build is given up,
// and appends continue.
func TestAnInlineBuildOfAnotherRelease(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	folds := &opening{before: func() {}}
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 8, Inline: folds,
	})
	tablestest.Must(t, err)
	t.Cleanup(s.Close)
	tenant := tablestest.NewTenant(t, s)
	number, err := s.NextBuild(t.Context(), domain.Everyone)
	tablestest.Must(t, err)
	id := domain.ProjectionID{Owner: domain.Everyone, Name: "inline"}
	tablestest.Must(t, s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: domain.Definition{Name: id.Name, Mode: domain.ModeInline}, Build: number}, "test"))
	_, err = db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `update manifold.projections set definition = definition || '{"another": 1}'`)
	tablestest.Must(t, err)
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
	builds, err := s.TenantBuilds(t.Context(), time.Time{})
	tablestest.Must(t, err)
	if folds.opened != 0 || len(builds) > 1 || len(builds) == 1 && builds[0].Base == 0 {
		t.Errorf("opened %d times; the tenants' builds are %+v", folds.opened, builds)
	}
}

// A change of inline builds holds one connection and reads the log with another. Many concurrent changes leave
// connections for that, and for appends.
func TestManyInlineBuildsBeginAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t) // with 8 connections
	id := domain.ProjectionID{Owner: domain.Everyone, Name: "inline"}
	number, err := s.NextBuild(t.Context(), id.Owner)
	tablestest.Must(t, err)
	definition := domain.Definition{Name: id.Name, Mode: domain.ModeInline}
	var tenants []domain.TenantID
	for range 16 {
		tenant := tablestest.NewTenant(t, s)
		tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
		tenants = append(tenants, tenant)
	}
	tablestest.Must(t, s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: definition, Build: number}, "test"))
	var all sync.WaitGroup
	for _, tenant := range tenants {
		all.Go(func() {
			begun, err := s.BeginInline(t.Context(), tenant, domain.Projection{ProjectionID: id, Build: number}, func(ctx context.Context, head int64) (bool, error) {
				events, err := s.ReadLog(ctx, tenant, domain.LogQuery{From: 1, Limit: 10})
				if err == nil && len(events) != int(head) {
					err = fmt.Errorf("%d events of %d", len(events), head)
				}
				return true, err
			})
			if !begun || err != nil {
				t.Errorf("begun: %v, %v", begun, err)
			}
		})
		all.Go(func() {
			if _, err := s.Append(t.Context(), tenant, tablestest.Counted("order-2", domain.None, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A build on which a rebuild has left its tenant can be ended like any other, and the append that ends it succeeds.
func TestAPinnedInlineBuildIsEnded(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 8,
		Inline: &opening{before: func() {}},
	})
	tablestest.Must(t, err)
	t.Cleanup(s.Close)
	tenant := tablestest.NewTenant(t, s)
	number, err := s.NextBuild(t.Context(), domain.Everyone)
	tablestest.Must(t, err)
	id := domain.ProjectionID{Owner: domain.Everyone, Name: "inline"}
	tablestest.Must(t, s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: domain.Definition{Name: id.Name, Mode: domain.ModeInline}, Build: number}, "test"))
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	pinned, err := super.Exec(t.Context(), `
		update manifold.tenant_builds set pinned_to = build, fault = 'why', fault_position = 1, definition = definition || '{"another": 1}'
		where tenant_id = $1 and base is null`, tenant)
	tablestest.Must(t, err)
	if pinned.RowsAffected() != 1 {
		t.Fatalf("the tenant has %d inline builds; want 1", pinned.RowsAffected())
	}
	_, err = super.Exec(t.Context(), "update manifold.logs set inline_revision = inline_revision + 1 where tenant_id = $1", tenant)
	tablestest.Must(t, err)
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
	var ended bool
	tablestest.Must(t, super.QueryRow(t.Context(), "select base = -1 and pinned_to is null and fault is null from manifold.tenant_builds where tenant_id = $1", tenant).Scan(&ended))
	if !ended {
		t.Error("the build is not ended")
	}
}
