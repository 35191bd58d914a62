package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	// As the migrator, the setting cannot be read. As a superuser it can, on every node.
	if o := run(t, []string{"MANIFOLD_DATABASE_URL=" + db.URL(pgtest.RoleMigrator)}, nil, "cluster", "status"); o.code != 0 || !strings.Contains(o.out, "output_plugin_libraries cannot be read") {
		t.Errorf("status for the migrator: %+v", o)
	}
	everywhere := func(statement string) {
		t.Helper()
		for _, node := range db.Nodes(t) {
			if _, err := node.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	everywhere("alter database " + db.Name + " set output_plugin_libraries = 'test_decoding'")
	if o := cluster("status"); o.code != 0 || !strings.Contains(o.out, "no shard can move") {
		t.Errorf("status where no shard can move: %+v", o)
	}
	if o := cluster("rebalance"); o.code == 0 || !strings.Contains(o.err, "does not allow pgoutput") {
		t.Errorf("rebalance where no shard can move: %+v", o)
	}
	if o := cluster("isolate", domain.NewTenantID().String()); o.code != 0 { // it copies, and replicates nothing
		t.Errorf("isolate where no shard can move: %+v", o)
	}
	everywhere("alter database " + db.Name + " reset output_plugin_libraries")
	// Citus fails like this while another database on the nodes moves a shard that this one does not have.
	foreign("set citus.enable_ddl_propagation = off")
	foreign("alter function pg_catalog.get_rebalance_progress() rename to renamed")
	foreign(`create function pg_catalog.get_rebalance_progress() returns table (operation_type text, shardid bigint, table_name text, targetname text,
		targetport int, status text, target_shard_size bigint, source_shard_size bigint, progress bigint) language plpgsql as $$
		begin raise exception 'could not find valid entry for shard 1' using errcode = 'XX000'; end $$`)
	if o := cluster("status"); o.code != 0 || !strings.Contains(o.out, "moves of shards cannot be read now") {
		t.Errorf("status where moves are unknown: %+v", o)
	}
}

// openLog opens the log's database, until the test ends.
func openLog(t *testing.T, db pgtest.DB) *tables.Tables {
	t.Helper()
	log, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	return log
}

// appendOne appends an event to a tenant's log.
func appendOne(ctx context.Context, log *tables.Tables, tenant domain.TenantID) error {
	_, err := log.Append(ctx, tenant, domain.Append{Streams: []domain.StreamAppend{{
		Stream: "order-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Placed", Data: json.RawMessage(`{}`)}},
	}}})
	return err
}

// A tenant gets separate shards while all append. No acknowledged event is lost. Appends wait meanwhile. Those that
// wait longer than the app login's lock_timeout may be refused as unavailable.
func TestIsolateUnderAppends(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if !db.Distributed() {
		t.Skip("needs a Citus cluster: set MANIFOLD_TEST_CITUS_URLS")
	}
	ctx, log := t.Context(), openLog(t, db)
	const tenants, before = 8, 25 // before: events of each tenant when the isolation begins
	var all [tenants]domain.TenantID
	var acknowledged, refused [tenants]int
	var longest [tenants]time.Duration
	isolated := make(chan struct{})
	var begun, appending sync.WaitGroup
	begun.Add(tenants)
	for i := range all {
		all[i] = domain.NewTenantID()
		if err := log.CreateTenant(ctx, domain.Tenant{ID: all[i], Name: all[i].String()}); err != nil {
			t.Fatal(err)
		}
		appending.Go(func() {
			begin := sync.OnceFunc(begun.Done)
			defer begin()
			for {
				select {
				case <-isolated:
					return
				default:
				}
				sent := time.Now()
				switch err := appendOne(ctx, log, all[i]); {
				case err == nil:
					acknowledged[i]++
				case domain.IsCode(err, domain.CodeUnavailable):
					refused[i]++
				default:
					t.Errorf("append number %d: %v", acknowledged[i], err)
					return
				}
				if acknowledged[i] == before {
					begin()
				}
				if acknowledged[i] > before {
					longest[i] = max(longest[i], time.Since(sent))
				}
			}
		})
	}
	begun.Wait()
	began := time.Now()
	o := run(t, []string{"MANIFOLD_DATABASE_URL=" + db.URL(pgtest.RoleMigrator)}, nil, "cluster", "isolate", all[0].String())
	took := time.Since(began)
	close(isolated)
	appending.Wait()
	if o.code != 0 || !strings.Contains(o.out, "the tenant's log is alone in shard") {
		t.Fatalf("isolate: %+v", o)
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	shards := make(map[int64]int)
	var own int64
	for _, tenant := range slices.Backward(all[:]) {
		if err := super.QueryRow(ctx, "select get_shard_id_for_distribution_column('manifold.logs', $1::text::uuid)", tenant.String()).Scan(&own); err != nil {
			t.Fatal(err)
		}
		shards[own]++
	}
	if shards[own] != 1 {
		t.Errorf("%d tenants are in the isolated tenant's shard", shards[own])
	}
	for i, tenant := range all {
		events, err := log.ReadLog(ctx, tenant, domain.LogQuery{From: 1, To: int64(acknowledged[i] + refused[i]), Limit: acknowledged[i] + refused[i]})
		if err != nil || len(events) < acknowledged[i] {
			t.Errorf("%d events are left of %d, %v", len(events), acknowledged[i], err)
		}
	}
	t.Logf("isolating took %s; the longest wait of each tenant, its own first: %s; refused: %d; events: %d", took, longest, refused, acknowledged)
}

// A rebalance moves the shards of the log and of documents, while events are appended and documents saved. None is
// lost.
func TestRebalanceUnderLoad(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if !db.Distributed() {
		t.Skip("needs a Citus cluster: set MANIFOLD_TEST_CITUS_URLS")
	}
	ctx := t.Context()
	log := openLog(t, db)
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
		repeat(appended, func(int64) error { return appendOne(ctx, log, tenant) })
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
