package cli_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// The commands of docs/guides/cluster.md move a cluster's log, documents, keys and groups to one PostgreSQL, and the
// service continues there, with the same isolation of tenants. Without a cluster, they move one PostgreSQL to another.
func TestBackFromACluster(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pg_dump", "psql"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("the guide's commands were not run: ", err)
		}
	}
	ctx := t.Context()
	page, err := os.ReadFile(filepath.Join("..", "docs", "guides", "cluster.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, commands, found := strings.Cut(string(page), "\n## Back up and go back\n")
	if !found {
		t.Fatal("the guide has no such section")
	}

	before := pgtest.Database(t)
	url, service := serveOn(t, before)
	operator := []string{"MANIFOLD_URL=" + url, "MANIFOLD_KEY=" + operatorKey}
	must(t, operator, "projection", "apply", writeFile(t, "shared.yaml", []byte("name: counts\nsource: {categories: [order]}\nindexes: [n]\non: {Placed: '{\"n\": event.data.n}'}\n")))
	const events = 50
	tenants := 2
	if before.Distributed() {
		tenants = 5 // on several nodes
	}
	users := make([][]string, tenants)
	states := func(user []string) (all string) {
		for _, command := range []string{"export", "key list", "group get mail --json"} {
			all += must(t, user, strings.Fields(command)...)
		}
		for _, name := range []string{"counts", "own"} {
			all += fmt.Sprint(documents(t, clientOf(t, user), name, events)) // of a map: sorted
		}
		return all
	}
	want := make([]string, tenants)
	for i := range users {
		users[i] = newTenant(t, url, fmt.Sprint("tenant-", i))
		var lines strings.Builder
		for n := range events {
			fmt.Fprintf(&lines, `{"id":"0190d3a4-5b6c-7def-8123-%012d","stream":"order-%d","type":"Placed","data":{"n":%d}}`+"\n", n, n%10, n*i)
		}
		must(t, users[i], "import", writeFile(t, "events.ndjson", []byte(lines.String())))
		must(t, users[i], "projection", "apply", writeFile(t, "own.yaml", []byte("name: own\nsource: {categories: [order]}\nindexes: [n]\non: {Placed: '{\"n\": event.data.n}'}\n")))
		must(t, users[i], "group", "put", "mail", "--category", "order", "--from", "start")
		must(t, users[i], "group", "receive", "mail", "--ack")
		must(t, users[i], "webhook", "put", "hook", "--category", "invoice", "--to", "https://hooks.example.com/")
		want[i] = states(users[i])
	}
	if code := service.end(syscall.SIGTERM); code != 0 {
		t.Fatalf("serve ends with %d:\n%s", code, service.output())
	}

	after := pgtest.Plain(t)
	findings := func() string {
		o := run(t, configurationOf(after), nil, "doctor")
		if o.code != 0 {
			t.Errorf("the doctor ends with %d:\n%s%s", o.code, o.out, o.err)
		}
		var names []string
		for line := range strings.Lines(o.out) {
			if name, _, found := strings.Cut(line, ": "); found && !strings.HasPrefix(name, "ok") {
				names = append(names, name)
			}
		}
		return strings.Join(names, "\n")
	}
	healthy := findings() // of an empty database
	super := after.Nodes(t)[0]
	for _, dropped := range []string{"schema manifold cascade", "schema manifold_documents cascade", "table manifold_schema"} {
		if _, err := super.Exec(ctx, "drop "+dropped); err != nil {
			t.Fatal(err)
		}
	}
	runText(t, commands, 2, append(configurationOf(after), "MANIFOLD_DATABASE_MIGRATOR_URL="+after.URL(pgtest.RoleMigrator),
		"CLUSTER="+before.URL(pgtest.RoleSuperuser), "POSTGRES="+after.URL(pgtest.RoleSuperuser)))

	// No row is missing.
	old, restored := rowsOf(t, before.Nodes(t)[0]), rowsOf(t, super)
	for _, table := range slices.Sorted(maps.Keys(old)) {
		if restored[table] != old[table] {
			t.Errorf("the table %s differs: before\n%.2000s\nafter\n%.2000s", table, old[table], restored[table])
		}
	}
	if len(old["manifold.events"]) == 0 || len(old) <= len(migrations.Tables) {
		t.Errorf("%d tables were compared", len(old))
	}
	if got := findings(); got != healthy {
		t.Errorf("before the first start the doctor finds\n%s\nand on a new database\n%s", got, healthy)
	}

	url, _ = serveOn(t, after)
	for i, user := range users {
		user[0] = "MANIFOLD_URL=" + url
		if got := states(user); got != want[i] {
			t.Errorf("tenant %d was\n%s\nand is\n%s", i, want[i], got)
		}
		must(t, user, "import", writeFile(t, "more.ndjson", []byte(`{"id":"0190d3a4-5b6c-7def-8123-4567000000aa","stream":"order-new","type":"Placed","data":{"n":-1}}`+"\n")))
		for _, name := range []string{"counts", "own"} {
			if all := documents(t, clientOf(t, user), name, events+1); len(all) != 11 || string(all["order-new"]) != `{"n":-1}` {
				t.Errorf("tenant %d: after an append, %s has %s", i, name, all)
			}
		}
		if received := must(t, user, "group", "receive", "mail", "--batch", "100", "--ack"); !strings.Contains(received, "order-new") {
			t.Errorf("tenant %d receives\n%s", i, received)
		}
	}
	if got := findings(); got != healthy {
		t.Errorf("the doctor finds\n%s\nand on a new database\n%s", got, healthy)
	}
	checkProtection(t, after, super, tenants)
	var public int
	if err := super.QueryRow(ctx, "select count(*) from manifold_documents.counts").Scan(&public); err != nil || public != 11*tenants {
		t.Errorf("the public view has %d documents, %v", public, err)
	}
}

// rowsOf returns the rows of each table of the log and of documents, as text.
func rowsOf(t *testing.T, super *pgx.Conn) map[string]string {
	t.Helper()
	rows, _ := super.Query(t.Context(), `
		select n.nspname || '.' || quote_ident(c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname in ('manifold', 'manifold_documents') and c.relkind = 'r' and not c.relname ~ '_\d{6,}$'`) // not the shards
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, table := range tables {
		rows, _ := super.Query(t.Context(), "select t::text from "+table+" t")
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", table, err)
		}
		slices.Sort(lines)
		all[table] = strings.Join(lines, "\n")
	}
	return all
}

// checkProtection checks that row-level security binds every login, and that no login sees another tenant's rows.
func checkProtection(t *testing.T, db pgtest.DB, super *pgx.Conn, tenants int) {
	t.Helper()
	ctx := t.Context()
	rows, _ := super.Query(ctx, `
		select oid::regclass::text from pg_class
		where relnamespace in ('manifold'::regnamespace, 'manifold_documents'::regnamespace) and relkind = 'r'
		  and (not relrowsecurity or not relforcerowsecurity or relowner = $1::regrole)`, migrations.RoleViews)
	if unprotected, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(unprotected) > 0 {
		t.Errorf("without forced row-level security, or owned by %s: %s, %v", migrations.RoleViews, unprotected, err)
	}
	rows, _ = super.Query(ctx, "select tenant_id::text from manifold.logs where substr(tenant_id::text, 15, 1) <> 'a' order by head") // without audit logs
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(ids) != tenants {
		t.Fatalf("%d tenants have logs, %v", len(ids), err)
	}
	var shared string // the table of documents of a shared projection
	err = super.QueryRow(ctx, "select oid::regclass::text from pg_class where relname ~ '^counts\\.\\d+$'").Scan(&shared)
	if err != nil {
		t.Fatal(err)
	}
	for role, tables := range map[migrations.Role][]string{
		migrations.RoleApp:       {"manifold.logs", "manifold.events", "manifold.subscriptions", shared, "manifold_documents.documents"},
		migrations.RoleDocuments: {shared, "manifold_documents.documents", "manifold_documents.document_keys"},
		pgtest.RoleMigrator:      {"manifold.logs", "manifold.events"}, // it owns them, and no policy is for it
	} {
		login := db.Pool(t, role, 1)
		for _, table := range tables {
			for _, id := range append(ids, "") {
				var own, others int
				err := pgx.BeginFunc(ctx, login, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "set local manifold.tenant = '"+id+"'"); err != nil {
						return err
					}
					return tx.QueryRow(ctx, `select count(*) filter (where tenant_id::text = $1), count(*) filter (where tenant_id::text <> $1)
						from `+table+` t where coalesce(to_jsonb(t) ->> 'id', '-') <> ''`, id).Scan(&own, &others) // no checkpoints
				})
				if err != nil || others > 0 || (own > 0) != (id != "" && role != pgtest.RoleMigrator) {
					t.Errorf("%s sees %d rows of the tenant %q in %s, and %d of others, %v", role, own, id, table, others, err)
				}
			}
		}
	}
}
