package config_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/config"
)

const url = "MANIFOLD_DATABASE_URL=postgres://db:5432/manifold"

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaultsNeedOnlyADatabase(t *testing.T) {
	t.Parallel()
	want := config.Default()
	want.Database.URL = "postgres://db:5432/manifold"
	for name, file := range map[string]string{
		"no file":       "",
		"only comments": write(t, "a.yaml", "# nothing\n"),
		"part of a map": write(t, "b.yaml", "database:\n  app: {user: manifold_app}\nlog: {format: text}\n"),
	} {
		got, err := config.Load(file, []string{url})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := config.Load("", nil); err == nil || !strings.Contains(err.Error(), "database.url") {
		t.Errorf("without a database: %v", err)
	}
}

func TestFileEnvironmentAndSecrets(t *testing.T) {
	t.Parallel()
	secret := write(t, "secret", "p:w/d@\n")
	keys := write(t, "keys", "new-operator-key\nold-operator-key\n")
	file := write(t, "manifold.yaml", `
listen: 127.0.0.1:9000
publicUrl: https://events.example.com/manifold
role: worker
database:
  url: postgres://db:5432/manifold?sslmode=require
  app: {user: someone, passwordFile: `+secret+`}
  maxConns: 40
  distributed: true
databases:
  reporting: {driver: postgres, url: 'postgres://reports@r:5432/d', passwordFile: `+secret+`}
projections: [a, b]
usage: false
operatorKeyFile: `+keys+`
limits: {queueBytes: 64MiB, tenantQueueBytes: 9000000, projectionWorkers: 3, projectionCeiling: 2, tailBytes: 2MiB, tenantFollowers: 7, groupBytes: 32MiB}
webhooks: {allow: [10.0.0.0/8, '::1'], allowHttp: true}
retention: {grace: 10m, every: 5s, share: 0.5}
log: {level: debug, format: json}
shutdownDeadline: 1m30s
rebuildKeep: 0s
`)
	c, err := config.Load(file, []string{
		"MANIFOLD_LISTEN=:1", "MANIFOLD_LOG_LEVEL=WARN", "MANIFOLD_DATABASE_SYSTEM_PASSWORD=s", "MANIFOLD_LIMITS_REBUILD_WORKERS=5",
		"HOME=/", "MANIFOLD_URL=http://localhost", "MANIFOLD_TEST_MONGO_URL=mongodb://x", "MANIFOLD_SERVICE_HOST=10.0.0.1", "MANIFOLD_PORT_8080_TCP_ADDR=10.0.0.1", "MANIFOLD_WEB_SERVICE_PORT_HTTP=80",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Listen, want.Role, want.Projections = ":1", config.RoleWorker, []string{"a", "b"}
	want.PublicURL = "https://events.example.com/manifold"
	want.Database.URL, want.Database.MaxConns = "postgres://db:5432/manifold?sslmode=require", 40
	want.Database.Distributed = config.DistributedTrue
	want.Database.App = config.Login{User: "someone", Password: "p:w/d@", PasswordFile: secret}
	want.Database.System.Password, want.Usage = "s", false
	want.Databases = map[string]config.DocumentsDatabase{"reporting": {Driver: "postgres", URL: "postgres://reports@r:5432/d", Password: "p:w/d@", PasswordFile: secret}}
	want.OperatorKeyFile, want.OperatorKeys = keys, []string{"new-operator-key", "old-operator-key"}
	want.Limits.QueueBytes, want.Limits.TenantQueueBytes, want.Limits.ProjectionWorkers, want.Limits.RebuildWorkers = 64<<20, 9_000_000, 3, 5
	want.Limits.ProjectionCeiling, want.Limits.TailBytes, want.Limits.TenantFollowers, want.Limits.GroupBytes = 2, 2<<20, 7, 32<<20
	want.Webhooks = config.Webhooks{Allow: []string{"10.0.0.0/8", "::1"}, AllowHTTP: true}
	want.Retention = config.Retention{Grace: 10 * time.Minute, Every: 5 * time.Second, Share: 0.5}
	want.Log = config.Log{Level: slog.LevelWarn, Format: "json"}
	want.ShutdownDeadline, want.RebuildKeep = 90*time.Second, 0
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %#v\nwant %#v", c, want)
	}

	app, err := c.Database.URLFor(c.Database.App)
	if err != nil || app != "postgres://someone:p%3Aw%2Fd%40@db:5432/manifold?sslmode=require" {
		t.Errorf("the app login connects to %s, %v", app, err)
	}
	pooled := config.Login{User: "someone", URL: "postgres://u:p@pooler:6432/manifold"}
	if through, err := c.Database.URLFor(pooled); err != nil || through != pooled.URL {
		t.Errorf("a login with a URL connects to %s, %v", through, err)
	}
	reporting := c.Databases["reporting"]
	if address, err := reporting.Address(); err != nil || address != "postgres://reports:p%3Aw%2Fd%40@r:5432/d" {
		t.Errorf("reporting is at %s, %v", address, err)
	}
	for _, shown := range []string{fmt.Sprintf("%v %+v %#v", c, c, c)} {
		if strings.Contains(shown, "p:w/d@") {
			t.Errorf("the password is shown: %s", shown)
		}
	}
}

// A URL may name several hosts if its connections go to the one that accepts writes. Logins get the same hosts.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://a:5432,b:5433/c?sslmode=verify-full&target_session_attrs=read-write", "postgres:///c?host=a,b&target_session_attrs=primary",
	} {
		c, err := config.Load("", []string{"MANIFOLD_DATABASE_URL=" + url, "MANIFOLD_DATABASE_APP_PASSWORD=p"})
		if err != nil {
			t.Fatal(err)
		}
		login, err := c.Database.URLFor(c.Database.App)
		if want := strings.Replace(url, "://", "://manifold_app:p@", 1); err != nil || login != want {
			t.Errorf("the app login connects to %s (%v), not %s", login, err, want)
		}
	}
}

// The app login connects to each replica, wherever its own URL leads.
func TestReplicas(t *testing.T) {
	t.Parallel()
	for _, app := range []string{"MANIFOLD_DATABASE_APP_PASSWORD=p", "MANIFOLD_DATABASE_APP_URL=postgres://manifold_app:p@pooler/c"} {
		c, err := config.Load("", []string{"MANIFOLD_DATABASE_URL=postgres://a/c", "MANIFOLD_DATABASE_REPLICAS=postgres://b:5433/c?sslmode=require,postgres://d/c", app})
		if err != nil {
			t.Fatal(err)
		}
		urls, err := c.Database.ReplicaURLs()
		if want := []string{"postgres://manifold_app:p@b:5433/c?sslmode=require", "postgres://manifold_app:p@d/c"}; err != nil || !slices.Equal(urls, want) {
			t.Errorf("%v, %v; want %v", urls, err, want)
		}
	}
}

// An empty variable counts as not set: the setting's default applies.
func TestEmptyVariables(t *testing.T) {
	t.Parallel()
	c, err := config.Load("", []string{url, "MANIFOLD_DATABASE_MAX_CONNS=", "MANIFOLD_LOG_LEVEL=", "MANIFOLD_LISTEN="})
	if err != nil || c.Database.MaxConns != 16 || c.Listen != "127.0.0.1:8080" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	empty := write(t, "empty", "\n")
	for name, c := range map[string]struct {
		yaml string
		env  []string
		want string
	}{
		"unknown":          {"role: all\nlimits:\n  queuebytes: 1\n", nil, "line 3: there is no setting limits.queuebytes; the settings there are addressConnections, "},
		"unknown on top":   {"lissten: ':1'\n", nil, "line 1: there is no setting lissten; the settings there are admin, "},
		"unknown database": {"databases: {r: {driver: postgres, uri: x}}\n", nil, "there is no setting databases.r.uri; the settings there are driver, "},
		"two unknown":      {"a: 1\nrolle: web\n", nil, "line 2: there is no setting rolle; the settings there are admin, "},
		"unknown variable": {"", []string{"MANIFOLD_LOGLEVEL=x"}, "there is no setting MANIFOLD_LOGLEVEL; the configuration reference lists"},
		"variable's value": {"", []string{"MANIFOLD_LIMITS_QUEUE_BYTES=many"}, `MANIFOLD_LIMITS_QUEUE_BYTES: "many" is not a size`},
		"variable's time":  {"", []string{"MANIFOLD_SHUTDOWN_DEADLINE=soon"}, `MANIFOLD_SHUTDOWN_DEADLINE: "soon" is not a duration`},
		"variable's level": {"", []string{"MANIFOLD_LOG_LEVEL=loud"}, `MANIFOLD_LOG_LEVEL: "loud" is not a level`},
		"variable's count": {"", []string{"MANIFOLD_DATABASE_MAX_CONNS=many"}, `MANIFOLD_DATABASE_MAX_CONNS: "many" is not a whole number`},
		"size":             {"limits:\n  queueBytes: 3 bananas\n", nil, `line 2: limits.queueBytes: "3 bananas" is not a size`},
		"time":             {"shutdownDeadline: fast\n", nil, `line 1: shutdownDeadline: "fast" is not a duration`},
		"time's unit":      {"shutdownDeadline: 30\n", nil, `line 1: shutdownDeadline: "30" is not a duration`},
		"count":            {"database: {maxConns: many}\n", nil, `line 1: database.maxConns: "many" is not a whole number`},
		"databases":        {"", []string{"MANIFOLD_DATABASES={r: {drivr: postgres}}"}, `MANIFOLD_DATABASES: [1:6] unknown field "drivr"`},
		"distributed":      {"database: {distributed: maybe}", nil, `database.distributed: invalid value "maybe"; write auto, true or false`},
		"role":             {"role: master", nil, `role: "master" is not a role`},
		"listen":           {"listen: '8080'", nil, "listen: "},
		"admin":            {"admin: {listen: '9080'}", nil, `admin.listen: "9080" is not host:port`},
		"no admin":         {"admin: {listen: none, exclusive: true}", nil, "admin.exclusive: without an admin listener"},
		"half of TLS":      {"tls: {certFile: /there/is/none}", nil, "tls: give both certFile and keyFile, or neither"},
		"no certificate":   {"admin: {tls: {certFile: /there/is/none, keyFile: /there/is/none}}", nil, "admin.tls.certFile: stat /there/is/none"},
		"proxies":          {"proxies: {trusted: [proxy.example]}", nil, `proxies.trusted: "proxy.example" is neither an address nor a network`},
		"anybody's word":   {"proxies: {protocol: true}", nil, "proxies.protocol: it needs proxies.trusted"},
		"proxies' header":  {"proxies: {header: X-Real-IP}", nil, `proxies.header: "X-Real-IP" is not supported`},
		"public address":   {"publicUrl: events.example.com", nil, "publicUrl: it is not a URL such as https://events.example.com"},
		"public scheme":    {"publicUrl: 'ftp://events.example.com'", nil, "publicUrl: it is not a URL"},
		"public query":     {"publicUrl: 'https://events.example.com?a=b'", nil, "publicUrl: it has a user, a query or a fragment"},
		"public slash":     {"publicUrl: 'https://events.example.com/'", nil, "publicUrl: it ends with a slash"},
		"one address":      {"limits: {addressConnections: 0}", nil, "limits.addressConnections: 0 is too low"},
		"kind":             {"role: {a: b}", nil, "role"},
		"not yaml":         {"role: [", nil, "role"},
		"two documents":    {"role: all\n---\nrole: web\n", nil, "several YAML documents"},
		"scheme":           {"database: {url: 'mysql://a/b'}", nil, `database.url: its scheme is "mysql"`},
		"several hosts":    {"database: {url: 'postgres://a:5432,b:5432/c'}", nil, "database.url: it names several hosts: add target_session_attrs=read-write"},
		"a replica's user": {"database: {url: 'postgres://a/c', replicas: ['postgres://u:secret@b/c']}", nil, "database.replicas[0]: it has a user; remove it"},
		"replica's login":  {"database: {url: 'postgres://a/c', replicas: ['postgres://b/c?user=u&password=secret']}", nil, "database.replicas[0]: it has a user; remove it"},
		"the same replica": {"database: {url: 'postgres://a/c', replicas: ['postgres://b/c', 'postgres://b/d']}", nil, "database.replicas[1]: b is listed twice"},
		"replicas in one":  {"database: {url: 'postgres://a/c', replicas: ['postgres://b/c', 'postgres://c,d/c']}", nil, "database.replicas[1]: it names several hosts; list each"},
		"no replica":       {"database: {url: 'postgres://a/c', replicas: [b]}", nil, "database.replicas[0]: it is not a URL such as postgres://replica"},
		"replicas' lag":    {"database: {url: 'postgres://a/c', replicaLag: 10ms}", nil, "database.replicaLag: 10ms is not between 2s and 1m0s"},
		"cluster's":        {"database: {url: 'postgres://a/c', distributed: 'true', replicas: ['postgres://b/c']}", nil, "database.replicas: a distributed database has no replicas"},
		"no list":          {"database: {url: 'postgres://a/c', replicaDocuments: true}", nil, "database.replicaDocuments: there are no database.replicas"},
		"documents' list":  {"{database: {url: 'postgres://a/c', replicas: ['postgres://b/c'], replicaDocuments: true}, databases: {default: {driver: postgres, url: 'postgres://a/d'}}}", nil, "database.replicaDocuments: the documents are in databases.default"},
		"mongo's replicas": {"{database: {url: 'postgres://a/c'}, databases: {d: {driver: mongo, url: 'mongodb://a/d', replicas: ['postgres://b/d']}}}", nil, "databases.d.replicas: replicas are for the driver postgres"},
		"login of another": {"{database: {url: 'postgres://a/c'}, databases: {d: {driver: postgres, url: 'postgres://a/d', replicas: ['postgres://u:secret@b/d']}}}", nil, "databases.d.replicas[0]: it has a user; remove it: the login of the URL connects"},
		"any of them":      {"database: {url: 'postgres:///c?host=a,b&target_session_attrs=any'}", nil, `database.url: it names several hosts with target_session_attrs="any"`},
		"a login's hosts":  {"database: {url: 'postgres://a/b', app: {url: 'postgres://a,b/c'}}", nil, "database.app.url: it names several hosts"},
		"documents' hosts": {"{database: {url: 'postgres://a/b'}, databases: {d: {driver: postgres, url: 'postgres://a,b/c'}}}", nil, "databases.d.url: it names several hosts"},
		"secret in url":    {"database: {url: 'postgres://u:topsecret@%zz/b'}", nil, "database.url: it is not a URL"},
		"both":             {"operatorKey: a\noperatorKeyFile: b\n", nil, "operatorKey: both this and operatorKeyFile are given"},
		"no such file":     {"database: {app: {passwordFile: /there/is/none}}", nil, "database.app.passwordFile: open /there/is/none"},
		"empty file":       {"operatorKeyFile: " + empty, nil, "is empty"},
		"queue":            {"limits: {queueBytes: 1MiB}", nil, "limits.queueBytes: 1MiB is less than the largest request, 8MiB"},
		"password no user": {"databases: {r: {url: 'postgres://h/d'}}", nil, "databases.r.driver: missing"},
		"negative":         {"rebuildKeep: -1s", nil, "rebuildKeep: -1s is negative"},
		"login's url":      {"database: {app: {url: 'mysql://a/b'}}", nil, `database.app.url: its scheme is "mysql"`},
		"url and password": {"database: {app: {url: 'postgres://a/b', password: c}}", nil, "database.app.url: a password is given separately"},
		"format":           {"log: {format: xml}", nil, `log.format: "xml" is not a format`},
		"level":            {"log: {level: loud}", nil, `line 1: log.level: "loud" is not a level; write DEBUG, INFO, WARN or ERROR`},
		"no url":           {"databases: {r: {driver: x, url: 'just text'}}", nil, "databases.r.url: it is not a URL"},
		"other's settings": {"databases: {r: {driver: postgres, url: 'postgres://a/x', mongo: {shardBuilds: true}}}", nil, "databases.r.mongo: these settings are for the driver mongo"},
		"layout":           {"databases: {r: {driver: mongo, url: 'mongodb://a/x', mongo: {layout: 3}}}", nil, "databases.r.mongo.layout: there is no layout 3"},
		"two passwords":    {"databases: {r: {driver: mongo, url: 'mongodb://u:topsecret@a,b/x', password: y}}", nil, "databases.r.url: it contains a password, and another one"},
		"bare slash":       {"databases: {r: {driver: mongo, url: 'mongodb://u:topsecret/@a,b/x'}}", nil, "must be percent-encoded"},
		"bare percent":     {"databases: {r: {driver: mongo, url: 'mongodb://u:topsecret%@a,b/x'}}", nil, "write %25 for a % itself"},
		"groups":           {"limits: {groupBytes: 0}", nil, "limits.groupBytes: 0 leaves no memory; write 128MiB"},
		"answers":          {"limits: {answerBytes: 23MiB}", nil, "limits.answerBytes: 23MiB is too low; the minimum is 24MiB"},
		"tenant's answers": {"limits: {tenantAnswerBytes: 23MiB}", nil, "limits.tenantAnswerBytes: 23MiB is too low; the minimum is 24MiB"},
		"tail":             {"limits: {tailBytes: 1000KiB}", nil, "limits.tailBytes: 1000KiB is too low; the minimum is 1MiB"},
		"followers":        {"limits: {tenantFollowers: 0}", nil, "limits.tenantFollowers: 0 allows no followers; write 5000"},
		"no grace":         {"retention: {grace: -1s}", nil, "retention.grace: -1s is negative"},
		"no pause":         {"retention: {every: 1ms}", nil, "retention.every: 1ms is too short"},
		"no share":         {"retention: {share: 1.5}", nil, "retention.share: 1.5 is not a share of a connection's time"},
		"networks":         {"webhooks: {allow: [localhost]}", nil, `webhooks: allow[0]: "localhost" is not a network; write one such as 10.1.0.0/16`},
		"connections":      {"limits: {connections: 0}", nil, "limits.connections: 0 is too low"},
	} {
		environ := c.env
		if !strings.Contains(c.yaml, "database: {url") {
			environ = append(environ, url)
		}
		_, err := config.Load(write(t, "manifold.yaml", c.yaml), environ)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v; it should say %s", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: the error shows a password: %v", name, err)
		}
	}
	if _, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"), nil); err == nil {
		t.Error("a file that does not exist is no error")
	}
}

// By default the admin listener accepts connections only from this machine, next to the public listener.
func TestAdminListen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ listen, admin, want string }{
		{"127.0.0.1:8080", "", "127.0.0.1:9080"}, {":8081", "", "127.0.0.1:9081"}, {"[::]:65000", "", "127.0.0.1:64000"},
		{"127.0.0.1:0", "", "127.0.0.1:0"}, {":8080", "none", ""}, {":8080", ":9090", ":9090"},
	} {
		settings := config.Default()
		settings.Listen, settings.Admin.Listen = c.listen, c.admin
		if got := settings.AdminListen(); got != c.want {
			t.Errorf("beside %q, %q listens at %q, want %q", c.listen, c.admin, got, c.want)
		}
	}
}

// A warning is due if the service listens for other machines without TLS and without a proxy in front of it.
func TestExposed(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]bool{"127.0.0.1:1": false, "[::1]:1": false, "localhost:1": false, ":1": true, "0.0.0.0:1": true, "10.0.0.1:1": true, "name:1": true} {
		c := config.Default()
		c.Listen, c.Admin.Listen = listen, listen
		if c.Exposed() != want || c.AdminExposed() != want {
			t.Errorf("%s: %t, %t; want %t", listen, c.Exposed(), c.AdminExposed(), want)
		}
		c.TLS.CertFile, c.Admin.TLS.CertFile = "x", "x"
		if c.Exposed() || c.AdminExposed() {
			t.Errorf("%s with TLS is exposed", listen)
		}
		c.TLS.CertFile, c.Proxies.Trusted = "", []string{"10.0.0.2"}
		if c.Exposed() {
			t.Errorf("%s behind a proxy is exposed", listen)
		}
	}
}

// Every size survives being written and read.
func TestSizes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := config.Size(rapid.Int64Min(0).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "round") {
			size = size >> 30 << rapid.SampledFrom([]int{0, 10, 20, 30}).Draw(t, "shift")
		}
		var back config.Size
		if err := back.UnmarshalText([]byte(size.String())); err != nil || back != size {
			t.Fatalf("%d is written %s and read as %d, %v", int64(size), size, int64(back), err)
		}
	})
	for _, bad := range []string{"", "x", "-1", "1.5MiB", "1 XB", "MiB", "9223372036854775807KiB"} {
		var size config.Size
		if err := size.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is read as %d", bad, size)
		}
	}
}

// Any text is a configuration or an error, and none causes a panic.
func TestAnyText(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.OneOf(
			rapid.StringMatching(`[a-z: {}\[\]\-#'"&*!|>%@0-9]{0,20}`),
			rapid.SampledFrom([]string{"listen: ':1'", "limits:", "  queueBytes: 1", "databases:", "  a: b", "  a: {driver: x}", "database: &x", "log: *x", "<<: *x"}),
		), 0, 8).Draw(t, "lines")
		path := filepath.Join(folder, "fuzz.yaml")
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path, []string{url})
		if err == nil && c.Check() != nil {
			t.Fatalf("Load passes what Check refuses: %v", c.Check())
		}
	})
}

// defaultCell is the default of a setting in the guide's tables, after the setting's variable.
var defaultCell = regexp.MustCompile("\\| `(MANIFOLD_[A-Z_]+)` \\| `([^`]+)` \\|")

// The guide names every setting and variable, its tables have the defaults, and its example is valid.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	guide := string(text)
	settings, variables := config.Settings(), config.Variables()
	for _, setting := range settings {
		if i := strings.LastIndex(setting, "."); !strings.Contains(guide, setting[i+1:]) {
			t.Errorf("docs/reference/configuration.md does not name %s", setting)
		}
		if strings.HasPrefix(setting, "databases.") || strings.HasPrefix(setting, "egress.") || strings.HasPrefix(setting, "issuers.") {
			continue
		}
		variable := config.Prefix + shout(setting)
		if !strings.Contains(guide, "| `"+setting+"` | `"+variable+"` |") {
			t.Errorf("docs/reference/configuration.md lacks this row:\n| `%s` | `%s` |", setting, variable)
		}
		found := false
		for _, v := range variables {
			found = found || v == variable
		}
		if !found {
			t.Errorf("%s has no variable %s", setting, variable)
		}
	}

	_, example, _ := strings.Cut(guide, "```yaml\n")
	example, _, found := strings.Cut(example, "```")
	if !found {
		t.Fatal("docs/reference/configuration.md has no example")
	}
	secrets := t.TempDir()
	for _, name := range []string{"app", "system", "documents", "retention", "migrator", "documents-mongo", "reporting", "operator"} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte("secret of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var defaults []string
	for _, cell := range defaultCell.FindAllStringSubmatch(guide, -1) {
		defaults = append(defaults, cell[1]+"="+cell[2])
	}
	got, err := config.Load(write(t, "manifold.yaml", strings.ReplaceAll(example, "/run/secrets", secrets)), defaults)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	got.Database.URL, got.Databases, got.Projections, got.OperatorKeyFile, got.OperatorKeys = "", nil, nil, "", nil
	for _, login := range []*config.Login{&got.Database.App, &got.Database.System, &got.Database.Documents, &got.Database.Retention, &got.Database.Migrator} {
		login.Password, login.PasswordFile = "", ""
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the example and the tables hold\n%+v\nand the defaults are\n%+v", got, want)
	}
}

// shout turns database.app.maxConns into DATABASE_APP_MAX_CONNS.
func shout(setting string) string {
	var b strings.Builder
	for _, c := range setting {
		switch {
		case c == '.':
			b.WriteByte('_')
		case 'A' <= c && c <= 'Z':
			b.WriteByte('_')
			b.WriteRune(c)
		default:
			b.WriteRune(c - 'a' + 'A')
		}
	}
	return b.String()
}
