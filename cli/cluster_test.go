package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

func TestClusterCommands(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	cluster := func(arguments ...string) outcome {
		return run(t, []string{"MANIFOLD_DATABASE_URL=" + db.URL(pgtest.RoleMigrator)}, nil, append([]string{"cluster", "--url", db.URL(pgtest.RoleSuperuser)}, arguments...)...)
	}
	if o := cluster("isolate", "nobody"); o.code == 0 {
		t.Errorf("isolate takes any text: %s", o.out)
	}
	if !db.Distributed() {
		for _, command := range [][]string{{"status"}, {"rebalance"}, {"isolate", domain.NewTenantID().String()}} {
			if o := cluster(command...); o.code == 0 || !strings.Contains(o.err, "manifold migrate up --distribute") {
				t.Errorf("%s without a cluster: %+v", command, o)
			}
		}
		return
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	foreign := func(statement string) {
		t.Helper()
		if _, err := super.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	foreign("create table public.foreign_table (tenant_id uuid primary key)")
	foreign("select create_distributed_table('public.foreign_table', 'tenant_id', colocate_with => 'manifold.logs')")
	if o := cluster("rebalance"); o.code == 0 || !strings.Contains(o.err, "foreign_table of postgres") {
		t.Errorf("rebalance with a table of another owner beside the log: %+v", o)
	}
	foreign("drop table public.foreign_table")
	for _, c := range []struct {
		says      string
		arguments []string
	}{
		{"SHARDS", []string{"status"}},
		{"balanced", []string{"rebalance"}},
		{"the tenant's log is alone in shard", []string{"isolate", domain.NewTenantID().String()}},
	} {
		if o := cluster(c.arguments...); o.code != 0 || !strings.Contains(o.out, c.says) {
			t.Errorf("%s: %+v", c.arguments, o)
		}
	}
}

// A rebalance moves the shards of the log and of documents, while events are appended and documents saved. None is lost.
func TestRebalanceUnderLoad(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if !db.Distributed() {
		t.Skip("needs a Citus cluster: set MANIFOLD_TEST_CITUS_URLS")
	}
	ctx := t.Context()
	log, err := tables.Open(ctx, tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	driver, err := postgres.Open(ctx, postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	build := domain.Build{ProjectionID: domain.ProjectionID{Name: "orders"}, Number: 1}
	if err := driver.CreateTemporaryTable(ctx, build); err != nil {
		t.Fatal(err)
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	groups := []string{"manifold.logs", "manifold_documents.documents"}
	for _, table := range groups { // one node has more shards than the others
		_, err = super.Exec(ctx, `
			select citus_move_shard_placement(s.shardid, s.nodename, s.nodeport, o.nodename, o.nodeport, 'block_writes')
			from (select * from pg_dist_node where shouldhaveshards order by nodeid limit 1) o, lateral (
			  select * from citus_shards s
			  where s.table_name = $1::text::regclass and (s.nodename, s.nodeport) <> (o.nodename, o.nodeport) order by s.shardid limit 5) s`, table)
		if err != nil {
			t.Fatal(err)
		}
	}
	balanced := make(chan struct{})
	var loading sync.WaitGroup
	appended, saved := make(map[domain.TenantID]int64), make(map[domain.TenantID]int64)
	var mu sync.Mutex
	for range 24 { // tenants: some of them are in the shards that move
		tenant := domain.NewTenantID()
		if err := log.CreateTenant(ctx, domain.Tenant{ID: tenant, Name: tenant.String()}); err != nil {
			t.Fatal(err)
		}
		repeat := func(counts map[domain.TenantID]int64, do func(n int64) error) {
			loading.Go(func() {
				for n := int64(1); ; n++ {
					select {
					case <-balanced:
						return
					default:
					}
					if err := do(n); err != nil {
						t.Errorf("write number %d: %v", n, err)
						return
					}
					mu.Lock()
					counts[tenant] = n
					mu.Unlock()
				}
			})
		}
		repeat(appended, func(int64) error {
			_, err := log.Append(ctx, tenant, domain.Append{Streams: []domain.StreamAppend{{
				Stream: "order-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Placed", Data: json.RawMessage(`{}`)}},
			}}})
			return err
		})
		repeat(saved, func(n int64) error {
			document := domain.Document{ID: fmt.Sprint("d", n), Version: n, Data: json.RawMessage(`{"customer": "c"}`)}
			return driver.Save(ctx, build, tenant, drivers.Batch{From: n - 1, To: n, Upserts: []domain.Document{document}, New: 1})
		})
	}
	o := run(t, []string{"MANIFOLD_DATABASE_URL=" + db.URL(pgtest.RoleMigrator)}, nil, "cluster", "--url", db.URL(pgtest.RoleSuperuser), "rebalance")
	close(balanced)
	loading.Wait()
	if o.code != 0 || !strings.Contains(o.out, "finished") {
		t.Errorf("rebalance: %+v", o)
	}
	for tenant, want := range appended {
		events, err := log.ReadLog(ctx, tenant, domain.LogQuery{From: 1, To: want, Limit: int(want)})
		if err != nil || int64(len(events)) != want {
			t.Errorf("%d events are left of %d, %v", len(events), want, err)
		}
		if n, err := driver.Count(ctx, build, tenant, nil); err != nil || n != saved[tenant] || n == 0 {
			t.Errorf("%d documents are left of %d, %v", n, saved[tenant], err)
		}
	}
}
