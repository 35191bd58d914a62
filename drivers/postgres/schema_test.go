package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func TestManyProcessesOpenAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			driver, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 1})
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			driver.Close()
		})
	}
	wait.Wait()
}

// A person's own login reads a public view once it was granted, and the grant survives swaps.
func TestViewIsForPeople(t *testing.T) {
	pgtest.NotOnCluster(t, "it has no public views")
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	defer driver.Close()
	one, two := domain.NewTenantID(), domain.NewTenantID()
	for number := range int64(2) {
		build := shared("order-summary", number+1)
		if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
			t.Fatal(err)
		}
		for _, tenant := range []domain.TenantID{one, two} {
			save(t, driver, build, tenant, drivers.Batch{To: number + 1, Upserts: documents(number+1, "a")})
		}
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	person := db.Pool(t, migrations.RoleSystem, 1) // any login that owns nothing here and has no rights on the tables
	for number := range int64(2) {
		if err := driver.SwapTable(t.Context(), shared("order-summary", number+1), nil); err != nil {
			t.Fatal(err)
		}
		if number == 0 {
			if _, err := super.Exec(t.Context(), `grant usage on schema manifold_documents to manifold_system; grant select on manifold_documents."order-summary" to manifold_system`); err != nil {
				t.Fatal(err)
			}
		}
		var rows, tenants, checkpoints, versions int
		err := person.QueryRow(t.Context(), `select count(*), count(distinct tenant_id), count(*) filter (where id = ''), count(*) filter (where version = $1)
			from manifold_documents."order-summary"`, number+1).Scan(&rows, &tenants, &checkpoints, &versions)
		if err != nil || rows != 2 || tenants != 2 || checkpoints != 0 || versions != 2 {
			t.Errorf("after swap %d: %d rows of %d tenants, %d checkpoints, %d of the version (%v)", number+1, rows, tenants, checkpoints, versions, err)
		}
	}
	var native *pgconn.PgError
	if _, err := person.Exec(t.Context(), `select from manifold_documents."order-summary.2"`); !errors.As(err, &native) || native.Code != "42501" {
		t.Errorf("the view's reader reads the underlying table: %v", err)
	}
}

// A table is created although the first transaction that creates it is rolled back because of a deadlock.
func TestATableIsCreatedDespiteADeadlock(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	defer driver.Close()
	build := shared("orders", 1)
	lock := "select pg_advisory_xact_lock(hashtext('manifold documents'), hashtext('manifold_documents.\"orders.1\"'))"
	if db.Distributed() {
		lock = "select pg_advisory_xact_lock(hashtext('manifold documents'), hashtext('manifold distribution'))"
	}
	other, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback(context.WithoutCancel(t.Context()))
	// The driver's session is to find the deadlock.
	for _, statement := range []string{"set local deadlock_timeout = '1min'", `create table manifold_documents."orders.1" ()`} {
		if _, err := other.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	created := make(chan error, 1)
	go func() { created <- driver.CreateTemporaryTable(t.Context(), build) }()
	db.WaitForLock(t)
	if _, err := other.Exec(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	save(t, driver, build, domain.NewTenantID(), drivers.Batch{To: 1, Upserts: documents(1, "a")})
}

// A reader that keeps the view busy for long delays neither a swap nor, through the swap, other readers.
func TestSwapBesideALongReader(t *testing.T) {
	pgtest.NotOnCluster(t, "it has no public views")
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	defer driver.Close()
	tenant := domain.NewTenantID()
	for number := range int64(2) {
		build := shared("orders", number+1)
		if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
			t.Fatal(err)
		}
		save(t, driver, build, tenant, drivers.Batch{To: number + 1, Upserts: documents(number+1, "a")})
	}
	if err := driver.SwapTable(t.Context(), shared("orders", 1), nil); err != nil {
		t.Fatal(err)
	}
	readers := db.Pool(t, pgtest.RoleSuperuser, 2)
	const read = `select version from manifold_documents.orders`
	long, err := readers.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := long.Exec(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := driver.SwapTable(t.Context(), shared("orders", 1), nil); err != nil {
		t.Errorf("a swap that changes nothing waits for the reader: %v", err)
	}
	done := make(chan error)
	go func() { done <- driver.SwapTable(t.Context(), shared("orders", 2), nil) }()
	others := 0
	for swapping := true; swapping; others++ {
		select {
		case err := <-done:
			swapping = false
			var native *pgconn.PgError
			if !errors.As(err, &native) || native.Code != "55P03" {
				t.Errorf("the swap ends with %v, want lock_not_available", err)
			}
		default:
			// A statement timeout: without it, a wait as long as the long reader's would never end.
			err := pgx.BeginFunc(t.Context(), readers, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "set local statement_timeout = '5s'"); err != nil {
					return err
				}
				_, err := tx.Exec(t.Context(), read)
				return err
			})
			if err != nil {
				t.Errorf("another reader, beside the swap: %v", err)
			}
		}
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the swap gave up after %s only", took)
	}
	if others < 3 {
		t.Errorf("%d readers came through beside the swap", others)
	}
	if err := long.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := driver.SwapTable(t.Context(), shared("orders", 2), nil); err != nil {
		t.Fatal(err)
	}
	var version int64
	if err := readers.QueryRow(t.Context(), read).Scan(&version); err != nil || version != 2 {
		t.Errorf("the view shows version %d (%v)", version, err)
	}
}

// Outside the log's database there are no migrations: the driver creates what it needs.
func TestDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, login := range map[string]struct {
		attributes string
		more       []string // what an administrator has created besides
		warning    string
	}{
		"may make roles":     {"createrole noinherit", nil, ""},
		"was given the role": {"noinherit", []string{"create role manifold_views nologin", "grant manifold_views to owner"}, ""},
		"may not":            {"noinherit", nil, "cannot hand views"},
		"inherits by itself": {"superuser", nil, "above row-level security"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Private(t, pgtest.Options{Empty: true})
			ctx := t.Context()
			admin, err := pgx.Connect(ctx, server.URL("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			for _, sql := range append([]string{
				"create role owner login password 'secret' " + login.attributes,
				"create database elsewhere owner owner",
			}, login.more...) {
				if _, err := admin.Exec(ctx, sql); err != nil {
					t.Fatal(err)
				}
			}
			if err := admin.Close(ctx); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			driver, err := postgres.Open(ctx, postgres.Config{
				URL: server.URLAs("elsewhere", "owner", "secret"),
				Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			defer driver.Close()
			if login.warning == "" && log.Len() > 0 || !strings.Contains(log.String(), login.warning) {
				t.Errorf("Open warns %q, want %q", log.String(), login.warning)
			}
			build, tenant := shared("orders", 1), domain.NewTenantID()
			if err := driver.CreateTemporaryTable(ctx, build); err != nil {
				t.Fatal(err)
			}
			save(t, driver, build, tenant, drivers.Batch{To: 1, Upserts: documents(1, "a")})
			if err := driver.SwapTable(ctx, build, nil); err != nil {
				t.Fatalf("SwapTable: %v", err)
			}
			person, err := pgx.Connect(ctx, server.URL("elsewhere"))
			if err != nil {
				t.Fatal(err)
			}
			defer person.Close(ctx)
			var rows int
			// With the setting, a view without the views' role also shows the tenant's documents.
			if err := person.QueryRow(ctx, fmt.Sprintf("select count(*) from (select set_config('manifold.tenant', '%s', false)) s, manifold_documents.orders", tenant)).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			if err := person.QueryRow(ctx, "select count(*) from manifold_documents.orders").Scan(&rows); err != nil || rows != 1 {
				t.Errorf("the view shows %d rows (%v)", rows, err)
			}
			if err := driver.DropTable(ctx, build); err != nil {
				t.Fatalf("DropTable: %v", err)
			}
			// The database comes back empty, and is filled again without a restart.
			own := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "mine"}, Number: 1}
			if _, err := person.Exec(ctx, "drop schema manifold_documents cascade"); err != nil {
				t.Fatal(err)
			}
			for _, build := range []domain.Build{own, build} {
				if err := driver.CreateTemporaryTable(ctx, build); err != nil {
					t.Fatalf("CreateTemporaryTable: %v", err)
				}
				save(t, driver, build, tenant, drivers.Batch{To: 1, Upserts: documents(1, "a", "b")})
				found, err := driver.Query(ctx, build, tenant, domain.DocumentQuery{Limit: 10, Where: compared("version", domain.Equal, number(1)),
					Order: []domain.Order{{Path: domain.Path{"version"}, Descending: true}}})
				if err != nil || len(found) != 2 {
					t.Errorf("Query gives %d documents, %v", len(found), err)
				}
			}
		})
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleApp)}); err == nil || !strings.Contains(err.Error(), "grant all on schema") {
		t.Errorf("Open with a login that may not make tables: %v", err)
	}
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: "postgres://127.0.0.1:1/nothing?connect_timeout=2"}); err == nil {
		t.Error("Open where nothing listens succeeds")
	} else if sorted, ok := errors.AsType[*domain.Error](err); !ok || sorted.Code != domain.CodeUnavailable {
		t.Errorf("Open where nothing listens: %v, want the code %s", err, domain.CodeUnavailable)
	}
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: "postgres://%zz"}); err == nil {
		t.Error("Open with a broken URL succeeds")
	}
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: "mysql://127.0.0.1:1/nothing?sslmode=disable"}); err == nil || !strings.Contains(err.Error(), `"mysql"`) {
		t.Errorf("Open with another database's URL: %v", err)
	}
	open(t, db).Close()
	// As by an earlier release, for a shared projection of that name.
	super := db.Pool(t, pgtest.RoleSuperuser, 1) // on a cluster, no login owns the table
	for _, statement := range []string{"drop table " + postgres.KeysTable, "create view " + postgres.KeysTable + " as select"} {
		if _, err := super.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments)}); err == nil || !strings.Contains(err.Error(), "document_keys is not a table: drop it") {
		t.Errorf("Open where a view has the name of a table: %v", err)
	}
}

// A driver opens a distributed database only if row-level security lets its login find rows there. People have no views
// in it: a swap makes none, and drops the one that an earlier release has made.
func TestViewsOfADistributedDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	pgtest.PretendDistributed(t, db)
	super := db.Nodes(t)[0]
	exec := func(statement string) {
		t.Helper()
		if _, err := super.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	const ofLogin = "alter role manifold_documents in database %s %s citus.propagate_set_commands"
	exec(fmt.Sprintf(ofLogin, db.Name, "set") + " = 'none'")
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments)}); err == nil || !strings.Contains(err.Error(), "citus.propagate_set_commands is none") {
		t.Errorf("Open without the setting: %v", err)
	}
	exec(fmt.Sprintf(ofLogin, db.Name, "reset"))
	driver := open(t, db)
	defer driver.Close()
	build := shared("orders", 1)
	if driver.PublicNames() {
		t.Error("the driver promises public names")
	}
	if err := driver.SwapTable(t.Context(), build, nil); !errors.Is(err, drivers.ErrNoTable) {
		t.Errorf("a swap without the table: %v", err)
	}
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	exec("create view manifold_documents.orders as select 1 as old")
	owner := migrations.RoleDocuments
	if db.Distributed() {
		owner = migrations.RoleViews
	}
	exec("alter view manifold_documents.orders owner to " + string(owner))
	for range 2 {
		if err := driver.SwapTable(t.Context(), build, nil); err != nil {
			t.Fatal(err)
		}
	}
	var views int
	if err := super.QueryRow(t.Context(), "select count(*) from pg_views where schemaname = 'manifold_documents' and viewname = 'orders'").Scan(&views); err != nil || views > 0 {
		t.Errorf("%d public views are left, %v", views, err)
	}
	// A view that cannot be dropped keeps no build from being swapped in.
	exec("create view manifold_documents.orders as select 1 as old")
	if err := driver.SwapTable(t.Context(), build, nil); err != nil {
		t.Errorf("a swap beside another owner's view: %v", err)
	}
	exec("alter view manifold_documents.orders owner to " + string(owner))
	exec("create view public.report as select old from manifold_documents.orders")
	if err := driver.SwapTable(t.Context(), build, nil); err != nil {
		t.Errorf("a swap beside a view that another one reads: %v", err)
	}
}

// The documents of a database that is distributed later move to the nodes when a driver opens it, with the isolation of
// tenants.
func TestTablesAreDistributed(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if !db.Distributed() {
		t.Skip("needs a Citus cluster: set MANIFOLD_TEST_CITUS_URLS")
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, schema := range []string{"schema manifold cascade", "schema manifold_documents cascade", "table manifold_schema"} {
		if _, err := super.Exec(t.Context(), "drop "+schema); err != nil {
			t.Fatal(err)
		}
	}
	if err := migrations.Up(t.Context(), db.URL(pgtest.RoleMigrator), nil); err != nil {
		t.Fatal(err)
	}
	driver := open(t, db)
	tenants := []domain.TenantID{domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()}
	build := shared("orders", 1)
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	own := func(tenant domain.TenantID) domain.Build {
		return domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "mine"}, Number: 1, Indexes: []string{"version"}}
	}
	for _, tenant := range tenants {
		for _, build := range []domain.Build{build, own(tenant)} {
			save(t, driver, build, tenant, drivers.Batch{To: 1, Upserts: documents(1, "a", "b")})
		}
	}
	driver.Close()
	if err := migrations.Distribute(t.Context(), db.URL(pgtest.RoleMigrator)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing to do
		driver = open(t, db)
		for _, tenant := range tenants {
			for _, build := range []domain.Build{build, own(tenant)} {
				found, err := driver.Query(t.Context(), build, tenant, domain.DocumentQuery{Limit: 10, Order: []domain.Order{byPath("version", true)}})
				if err != nil || len(found) != 2 {
					t.Errorf("tenant %s has %d documents of 2, %v", tenant, len(found), err)
				}
			}
		}
		driver.Close()
	}
	var tables, groups int
	err := super.QueryRow(t.Context(), `
		select count(*), count(distinct p.colocationid) from pg_class c join pg_dist_partition p on p.logicalrelid = c.oid
		where c.relnamespace = 'manifold_documents'::regnamespace and c.relrowsecurity and not c.relforcerowsecurity and c.relowner = 'manifold_views'::regrole
		  and p.colocationid <> (select colocationid from pg_dist_partition where logicalrelid = 'manifold.logs'::regclass)`).Scan(&tables, &groups)
	if err != nil || tables != 3 || groups != 1 {
		t.Errorf("%d tables are distributed, in %d groups, %v; want 3 in one", tables, groups, err)
	}
	if documents, checkpoint := keys(t, db, own(tenants[0])); documents != 2 || checkpoint != 1 {
		t.Errorf("%d documents have keys, at %d; want 2, at 1", documents, checkpoint)
	}
	var seen int
	login := db.Pool(t, migrations.RoleDocuments, 1)
	if err := login.QueryRow(t.Context(), `select count(*) from manifold_documents."orders.1" where id <> ''`).Scan(&seen); err != nil || seen != 0 {
		t.Errorf("the login sees %d documents without a tenant, %v", seen, err)
	}
}

// describeTables describes the tables of a database and their functions, a line each: owners, privileges, policies.
func describeTables(t *testing.T, super *pgxpool.Pool) (described string) {
	t.Helper()
	err := super.QueryRow(t.Context(), `
		select string_agg(line, E'\n' order by line) from (
		  select concat_ws(' ', c.oid::regclass, c.relowner::regrole, c.relrowsecurity, c.relforcerowsecurity,
		    (select array_agg(a order by a) from unnest(c.relacl::text[]) a),
		    (select array_agg(concat_ws(' ', p.polname, p.polcmd, p.polroles::regrole[], pg_get_expr(p.polqual, p.polrelid)) order by p.polname)
		      from pg_policy p where p.polrelid = c.oid)) as line
		  from pg_class c where c.relnamespace in ('manifold'::regnamespace, 'manifold_documents'::regnamespace) and c.relkind in ('r', 'v')
		  union all
		  select concat_ws(' ', oid::regprocedure, proowner::regrole) from pg_proc where pronamespace = 'manifold_documents'::regnamespace
		  union all
		  select concat_ws(' ', stxname, stxowner::regrole) from pg_statistic_ext where stxnamespace = 'manifold_documents'::regnamespace
		) lines`).Scan(&described)
	if err != nil {
		t.Fatal(err)
	}
	return described
}

// asOnACluster are statements that give tables the owners, policies and row-level security of a distributed database.
const asOnACluster = `
	with documents as (select oid, oid::regclass as name from pg_class where relnamespace = 'manifold_documents'::regnamespace and relkind = 'r')
	select format('alter table %s no force row level security', oid::regclass) from pg_class
	where relnamespace in ('manifold'::regnamespace, 'manifold_documents'::regnamespace) and relkind = 'r'
	union all
	select format('drop policy views on %s', polrelid::regclass) from pg_policy where polname = 'views'
	union all
	select format('alter policy tenant on %s using (tenant_id = nullif(current_setting(''manifold.tenant'', true), '''')::uuid)', name) from documents
	union all
	select format('drop view %s', oid::regclass) from pg_class where relnamespace = 'manifold_documents'::regnamespace and relkind = 'v'
	union all
	select format('alter table %s owner to manifold_views', name) from documents
	union all
	select format('grant select, insert, update, delete on %s to manifold_documents', name) from documents
	union all
	select format('alter function %s owner to manifold_views', oid::regprocedure) from pg_proc
	where pronamespace = 'manifold_documents'::regnamespace and proowner = 'manifold_documents'::regrole
	union all
	select format('alter statistics manifold_documents.%I owner to manifold_views', stxname) from pg_statistic_ext
	where stxnamespace = 'manifold_documents'::regnamespace`

// A dump of a distributed database has other owners, policies and row-level security than one PostgreSQL. There, the
// migrations and the driver restore them.
func TestTablesReturnFromACluster(t *testing.T) {
	t.Parallel()
	pgtest.NotOnCluster(t, "it is about one PostgreSQL; TestBackFromACluster in cli restores a dump of a cluster")
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	tenant := domain.NewTenantID()
	build := shared("orders", 1)
	build.Indexes = []string{"version"}
	own := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "mine"}, Number: 1, Indexes: []string{"version"}}
	driver := open(t, db)
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	if err := driver.IndexTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	// use must make the views that are missing.
	use := func() {
		t.Helper()
		if err := driver.SwapTable(t.Context(), build, nil); err != nil {
			t.Error(err)
		}
		var public int
		if err := super.QueryRow(t.Context(), "select count(*) from manifold_documents.orders").Scan(&public); err != nil || public != 2 {
			t.Errorf("the public view has %d documents of 2, %v", public, err)
		}
		for _, build := range []domain.Build{build, own} {
			found, err := driver.Query(t.Context(), build, tenant, domain.DocumentQuery{Limit: 10, Order: []domain.Order{byPath("version", true)}})
			if err != nil || len(found) != 2 {
				t.Errorf("%d documents of 2 are found, %v", len(found), err)
			}
		}
	}
	for _, build := range []domain.Build{build, own} {
		save(t, driver, build, tenant, drivers.Batch{To: 1, Upserts: documents(1, "a", "b")})
	}
	use()
	driver.Close()
	want := describeTables(t, super)
	rows, _ := super.Query(t.Context(), asOnACluster)
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		if _, err := super.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	_, err = postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments)})
	if err == nil || !strings.Contains(err.Error(), "run `manifold migrate up`") {
		t.Errorf("before the migrations it says %v", err)
	}
	for range 2 { // the second finds nothing to do
		if err := migrations.Up(t.Context(), db.URL(pgtest.RoleMigrator), nil); err != nil {
			t.Fatal(err)
		}
		driver = open(t, db)
		use()
		driver.Close()
	}
	if got := describeTables(t, super); got != want {
		t.Errorf("after the return:\n%s\nwant:\n%s", got, want)
	}
	var member bool
	err = super.QueryRow(t.Context(), "select pg_has_role($1, $2, 'usage') or pg_has_role($1, $3, 'usage')",
		pgtest.RoleMigrator, migrations.RoleViews, migrations.RoleDocuments).Scan(&member)
	if err != nil || member {
		t.Errorf("the migrator keeps the rights of the documents' roles: %v, %v", member, err)
	}
}
