package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func TestTenantsAndKeys(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	operator := []string{"MANIFOLD_URL=" + url, "MANIFOLD_OPERATOR_KEY=" + operatorKey}
	acme := newTenant(t, url, "acme")
	must(t, acme, "projection", "list")

	if list := must(t, operator, "tenant", "list"); !strings.Contains(list, "acme") || !strings.Contains(list, "active") {
		t.Errorf("the tenants are\n%s", list)
	}
	if o := run(t, operator, nil, "tenant", "create", "acme"); o.code == 0 || !strings.Contains(o.err, "already-exists") {
		t.Errorf("a name that is taken: %+v", o)
	}

	must(t, operator, "tenant", "suspend", "acme")
	if o := run(t, acme, nil, "projection", "list"); o.code == 0 || !strings.Contains(o.err, "tenant-suspended") {
		t.Errorf("a suspended tenant is answered: %+v", o)
	}
	must(t, operator, "tenant", "resume", "acme")
	must(t, acme, "projection", "list")

	// A tenant's administrator makes and revokes keys without the operator.
	reader := []string{acme[0], "MANIFOLD_KEY=" + strings.TrimSpace(must(t, acme, "key", "create", "reader", "--scope", "events:read"))}
	must(t, reader, "export")
	if o := run(t, reader, nil, "key", "list"); o.code == 0 || !strings.Contains(o.err, "forbidden") {
		t.Errorf("a reader lists keys: %+v", o)
	}
	var id string
	for line := range strings.Lines(must(t, acme, "key", "list")) {
		if fields := strings.Fields(line); fields[1] == "reader" {
			id = fields[0]
		}
	}
	// A key for some categories: what it is for is shown as it was given, and it does nothing else.
	probe := []string{acme[0], "MANIFOLD_KEY=" + strings.TrimSpace(must(t, acme, "key", "create", "probe",
		"--scope", "!events:append:heartbeat.test,events:append:heartbeat.*", "--scope", "events:append:ping"))}
	if list := must(t, acme, "key", "list"); !strings.Contains(list, "!events:append:heartbeat.test,events:append:heartbeat.*,events:append:ping ") {
		t.Errorf("the list of keys: %s", list)
	}
	must(t, probe, "import", writeFile(t, "probe.ndjson", []byte(`{"id":"0190d3a4-5b6c-7def-8123-4567000000aa","stream":"heartbeat.web-1","type":"T","data":1}`+"\n")))
	if o := run(t, probe, nil, "import", writeFile(t, "probe.ndjson", []byte(`{"id":"0190d3a4-5b6c-7def-8123-4567000000bb","stream":"heartbeat.test-1","type":"T","data":1}`+"\n"))); o.code == 0 || !strings.Contains(o.out+o.err, "events:append for the category heartbeat.test") {
		t.Errorf("a category that is denied: %+v", o)
	}
	// With both keys in the environment, each call takes the one that it means.
	both := append(slices.Clone(operator), acme[1])
	if own, named := must(t, both, "key", "list"), must(t, both, "key", "list", "--tenant", "acme"); own != named || !strings.Contains(own, id) {
		t.Errorf("with both keys one's own are\n%s\nand those of acme\n%s", own, named)
	}
	// Keys expire, work from some networks, and are rotated.
	must(t, acme, "key", "create", "partner", "--scope", "events:read", "--expires", "90d", "--network", "203.0.113.0/24,10.0.0.0/8")
	day := time.Now().Add(90 * 24 * time.Hour).Format("2006-01-02")
	if list := must(t, acme, "key", "list"); !strings.Contains(list, "203.0.113.0/24,10.0.0.0/8") || !strings.Contains(list, day) {
		t.Errorf("the list of keys: %s", list)
	}
	must(t, acme, "key", "limit", id, "--requests", "1000:5000")
	if list := must(t, acme, "key", "list", "-o", "ndjson"); !strings.Contains(list, `"limits":{"requests":{"perSecond":1000,"burst":5000}}`) {
		t.Errorf("the keys after one was limited: %s", list)
	}
	must(t, operator, "key", "limit", id, "--none", "--tenant", "acme")
	if list := must(t, acme, "key", "list", "-o", "ndjson"); strings.Contains(list, "limits") {
		t.Errorf("the keys after the limits were removed: %s", list)
	}
	rotated := []string{acme[0], "MANIFOLD_KEY=" + strings.TrimSpace(must(t, acme, "key", "rotate", id, "--overlap", "7d"))}
	must(t, rotated, "export")
	must(t, reader, "export")
	if o := run(t, both, nil, "key", "rotate", id, "--tenant", "acme"); o.code == 0 || !strings.Contains(o.err, "already rotated, to key ") {
		t.Errorf("a second rotation: %+v", o)
	}
	must(t, acme, "key", "revoke", id)
	if o := run(t, reader, nil, "export"); o.code == 0 || !strings.Contains(o.err, "unauthenticated") {
		t.Errorf("a revoked key works: %+v", o)
	}

	for _, refused := range []struct {
		args []string
		want string
	}{
		{[]string{"tenant", "creat", "acme"}, `unknown command "creat" for "manifold tenant"; see manifold tenant --help`},
		{[]string{"tenant", "create"}, "usage: manifold tenant create NAME"},
		{[]string{"projection", "documents", "orders", "--explain"}, "--explain and --tenant must be given together: --tenant is missing"},
		{[]string{"tenant", "list", "--al"}, "unknown flag: --al; see manifold tenant list --help"},
		{[]string{"tenant", "list", "--url", "http://127.0.0.1:1"}, "no service answers at http://127.0.0.1:1 (nothing listens there)"},
		{[]string{"export", "--key", "k", "--url", "http://127.0.0.1:1"}, "no service answers at http://127.0.0.1:1 (nothing listens there)"},
		{[]string{"tenant", "delete", "acme"}, "--confirm"},
		{[]string{"tenant", "delete", "acme", "--confirm", "umbrella"}, "invalid-request"},
		{[]string{"tenant", "suspend", "umbrella"}, `there is no tenant "umbrella"`},
		{[]string{"key", "create", "k", "--tenant", "acme"}, "--scope"},
		{[]string{"key", "create", "k", "--tenant", "acme", "--scope", "everything"}, `"everything" is not a scope; there are `},
		{[]string{"key", "create", "k", "--tenant", "acme", "--scope", "events:read,events:read:order"}, "scopes[1]: events:read:order never decides anything"},
		{[]string{"key", "create", "k", "--tenant", "acme", "--scope", "events:read", "--expires", "soon"}, `--expires "soon" is not a time in the future; write 90d`},
		{[]string{"key", "create", "k", "--tenant", "acme", "--scope", "events:read", "--network", "203.0.113.7"}, "networks[0]: 203.0.113.7 is an address; for only this address, write 203.0.113.7/32"},
		{[]string{"key", "rotate", "0190d3a4-5b6c-7def-8123-456789abcdef", "--tenant", "acme", "--overlap", "x"}, `--overlap "x" is not a duration in whole seconds`},
		{[]string{"key", "rotate", "0190d3a4-5b6c-7def-8123-456789abcdef", "--tenant", "acme"}, "not-found"},
		{[]string{"key", "limit", "0190d3a4-5b6c-7def-8123-456789abcdef", "--tenant", "acme"}, "or --none to remove them"},
		{[]string{"key", "limit", "0190d3a4-5b6c-7def-8123-456789abcdef", "--tenant", "acme", "--none"}, "not-found"},
		{[]string{"key", "revoke", "0190d3a4-5b6c-7def-8123-456789abcdef", "--tenant", "acme"}, "not-found"},
	} {
		if o := run(t, operator, nil, refused.args...); o.code != 1 || !strings.Contains(o.err, refused.want) {
			t.Errorf("%v: %+v; it should say %s", refused.args, o, refused.want)
		}
	}
	must(t, operator, "tenant", "delete", "acme", "--confirm", "acme")
	if o := run(t, acme, nil, "export"); o.code == 0 {
		t.Error("a tenant that is being deleted is answered")
	}
	if o := run(t, nil, nil, "tenant", "list"); o.code == 0 || !strings.Contains(o.err, "no key") {
		t.Errorf("without a key: %+v", o)
	}
	// Neither help nor an error shows a key from the environment.
	if help := must(t, operator, "tenant", "list", "--help"); strings.Contains(help, operatorKey) {
		t.Error("the help shows the key")
	}
}

// Without its database the service waits, and a signal ends it like a working one. It reports mistakes in its
// configuration at once.
func TestServeWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	const nowhere = "postgres://127.0.0.1:1/manifold"
	environ := []string{"MANIFOLD_LISTEN=127.0.0.1:0", "MANIFOLD_LOG_FORMAT=json", "MANIFOLD_OPERATOR_KEY=" + operatorKey, "MANIFOLD_DATABASE_URL=" + nowhere}
	service := launch(t, environ, "", "serve")
	var entry struct{ Address string }
	if err := json.Unmarshal([]byte(service.await("waiting for the database: nothing listens")), &entry); err != nil {
		t.Fatal(err)
	}
	r, err := http.Get("http://" + entry.Address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz is answered %s", r.Status)
	}
	began := time.Now()
	if code := service.end(syscall.SIGTERM); code != 0 {
		t.Errorf("it ends with %d:\n%s", code, service.output())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("its end took %s", took)
	}
	if o := run(t, append(environ, "MANIFOLD_OPERATOR_KEY=short"), nil, "serve"); o.code != 1 || !strings.Contains(o.err, "operatorKey: ") {
		t.Errorf("with a key that is too short: %+v", o)
	}
}

// `manifold migrate up --distribute` distributes what is not distributed, and sets what every session needs.
func TestMigrateUpDistributes(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	environ := []string{"MANIFOLD_DATABASE_URL=" + db.URL(pgtest.RoleMigrator), "MANIFOLD_DATABASE_MIGRATOR_URL=" + db.URL(pgtest.RoleSuperuser)}
	if !db.Distributed() {
		o := run(t, environ, nil, "migrate", "up", "--distribute")
		configured := run(t, append(environ, "MANIFOLD_DATABASE_DISTRIBUTED=true"), nil, "migrate", "up")
		if !strings.Contains(o.err, "it has no extension citus") || configured != o {
			t.Errorf("without Citus: %+v; if configured: %+v", o, configured)
		}
	}
	pgtest.PretendDistributed(t, db)
	super := db.Nodes(t)[0]
	undistribute := "delete from pg_dist_partition where logicalrelid = 'manifold.totals'::regclass"
	if db.Distributed() {
		undistribute = "select undistribute_table('manifold.totals')"
	}
	for _, statement := range []string{undistribute, "alter database " + db.Name + " set citus.propagate_set_commands = 'none'"} {
		if _, err := super.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		must(t, environ, "migrate", "up", "--distribute")
	}
	if missing, err := migrations.Undistributed(t.Context(), super); err != nil || len(missing) > 0 {
		t.Errorf("not distributed: %q, %v", missing, err)
	}
	app := db.Pool(t, migrations.RoleApp, 1)
	if problem, err := migrations.PropagationProblem(t.Context(), app); err != nil || problem != "" {
		t.Errorf("%s, %v", problem, err)
	}
	var planner string
	if err := app.QueryRow(t.Context(), "select current_setting('enable_seqscan')").Scan(&planner); err != nil || planner != "off" {
		t.Errorf("the app login's default of enable_seqscan is %q, %v", planner, err)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	config := filepath.Join(t.TempDir(), "manifold.yaml")
	// What a user writes; the migrator's password is in a file, as orchestrators have it.
	secret := filepath.Join(t.TempDir(), "migrator")
	text, err := json.Marshal(map[string]any{"database": map[string]any{
		"url":      strings.Replace(db.URL(pgtest.RoleMigrator), "manifold_migrator:migrator%27s@", "", 1),
		"migrator": map[string]any{"user": string(pgtest.RoleMigrator), "passwordFile": secret},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{config: text, secret: []byte("migrator's\n")} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out := must(t, nil, "migrate", "version", "--config", config); !strings.Contains(out, "is at version 2; this program needs 2") && migrations.Latest() == 2 {
		t.Errorf("the version is: %s", out)
	}
	if o := run(t, nil, nil, "migrate", "down", "--config", config); o.code == 0 || !strings.Contains(o.err, "--yes-remove-everything") {
		t.Errorf("down without a word: %+v", o)
	}
	if down := run(t, nil, nil, "migrate", "down", "--config", config, "--yes-remove-everything"); db.Distributed() {
		if down.code == 0 || !strings.Contains(down.err, "drop the database on every node instead") {
			t.Errorf("down on a cluster: %+v", down)
		}
	} else if out := must(t, nil, "migrate", "version", "--config", config); down.code != 0 || !strings.Contains(out, "is at version 0") {
		t.Errorf("after down, %+v, the version is: %s", down, out)
	}
	must(t, nil, "migrate", "up", "--config", config)
	must(t, nil, "migrate", "up", "--config", config)

	if o := run(t, nil, nil, "serve", "--config", filepath.Join(t.TempDir(), "none.yaml")); o.code != 1 || !strings.Contains(o.err, "none.yaml") {
		t.Errorf("serve without its file: %+v", o)
	}
	if o := run(t, []string{"MANIFOLD_LISSTEN=x"}, nil, "serve", "--config", config); o.code != 1 || !strings.Contains(o.err, "there is no setting MANIFOLD_LISSTEN") {
		t.Errorf("serve with a variable that is no setting: %+v", o)
	}
}
