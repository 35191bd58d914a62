package manifold_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/manifold-es/manifold"

// imports says which of our packages may import which others of ours. "manifold" is the root package. Every package
// must be listed here. A change here is a change of the architecture (docs/architecture.md).
var imports = map[string][]string{
	"domain":     {},
	"migrations": {},
	"telemetry":  {},
	"client":     {},
	// Spans of the service's work. Packages record them where they do the work, because a span begins before it.
	"telemetry/tracing": {"domain"},

	"config":                {"domain", "atrest", "auth/oidc"}, // it refuses what the verifier of tokens could not use
	"listen":                {},
	"expr":                  {"domain", "expr/scan"},
	"expr/filter":           {"domain", "expr", "expr/scan"},
	"expr/scan":             {},
	"drivers":               {"domain"},
	"auth":                  {"domain", "pg", "tenant", "auth/oidc", "limits"},
	"auth/oidc":             {"domain"},
	"fairshare":             {"domain"},
	"audit":                 {"domain"},
	"members":               {"domain", "pg"},
	"cloudevents":           {"domain"},
	"delivery/consume":      {"domain", "delivery/group", "projection"},
	"delivery/egress":       {"domain", "telemetry/tracing", "cloudevents", "delivery/consume", "delivery/group"},
	"delivery/egress/nats":  {"cloudevents", "delivery/egress"},
	"delivery/egress/kafka": {"delivery/egress"},
	"delivery/webhook":      {"domain", "atrest", "telemetry/tracing", "pg", "eventlog", "cloudevents", "delivery/consume", "expr", "projection", "delivery/group", "delivery/selection", "limits"},

	// For producers, which need nothing from the service.
	"outbox":          {"domain"},
	"outbox/postgres": {"outbox"},
	"outbox/mongo":    {"outbox"},
	"outbox/sqlite":   {"outbox"},

	"drivers/relational": {"domain", "drivers"},
	"drivers/postgres":   {"domain", "drivers", "drivers/relational", "migrations", "pg"}, // migrations distributes its tables, too
	"drivers/mongo":      {"domain", "drivers"},
	"drivers/sqlserver":  {"domain", "drivers", "drivers/relational"},

	// Manifold's own database, and the owners of its tables.
	"pg":                  {"domain", "migrations", "fairshare"},
	"eventlog":            {"domain", "telemetry/tracing", "pg"},
	"tenant":              {"domain", "pg"},
	"limits":              {"domain", "pg", "tenant"},
	"usage":               {"domain", "pg"},
	"signing":             {"domain", "atrest", "pg"},
	"proof":               {}, // also for whoever verifies
	"seal":                {"domain", "pg", "eventlog", "proof", "signing"},
	"projection/registry": {"domain", "pg", "eventlog", "limits"},
	"tables": {
		"domain", "atrest", "telemetry/tracing", "pg", "eventlog", "tenant", "limits", "usage", "auth", "members", "aggregate", "schema", "projection/registry", "projection/totals", "delivery/group", "delivery/report", "delivery/webhook", "retention", "erasure", "erasure/subjects", "seal", "signing",
	},

	"atrest":             {},
	"budget":             {"domain", "expr", "fairshare"},
	"upcasting":          {"domain", "expr", "budget", "eventlog", "projection/registry"},
	"aggregate":          {"domain", "pg", "eventlog", "expr", "budget", "upcasting", "projection/registry", "schema"},
	"schema":             {"domain", "pg", "eventlog", "expr", "budget", "upcasting"},
	"schema/codegen":     {}, // for clients, which have only the schemas' texts
	"erasure":            {"domain", "pg", "drivers", "tenant", "projection/registry", "delivery/webhook", "signing"},
	"erasure/subjects":   {"domain", "pg", "eventlog", "drivers", "limits", "projection", "projection/registry", "rebuild", "signing"}, // it rebuilds documents
	"retention":          {"domain", "pg", "eventlog", "projection/registry", "delivery/group", "limits", "proof", "seal"},
	"projection":         {"domain", "telemetry/tracing", "expr", "expr/filter", "budget", "drivers", "eventlog", "members", "projection/registry", "tenant", "upcasting", "fairshare", "projection/folding"},
	"rebuild":            {"domain", "drivers", "eventlog", "projection", "projection/folding", "projection/registry", "tenant", "upcasting"},
	"delivery/selection": {"domain", "expr", "eventlog"},
	"delivery/tail":      {"domain", "expr", "eventlog", "delivery/selection"},
	"delivery/group":     {"domain", "pg", "eventlog", "expr", "members", "delivery/selection", "limits"},
	"delivery/report":    {"domain", "pg", "eventlog", "delivery/consume", "delivery/group", "delivery/webhook", "projection", "projection/registry"},
	// Reactors deduplicate as webhooks do, with their code and table.
	"delivery/reactor": {"domain", "telemetry/tracing", "delivery/consume", "delivery/webhook", "projection", "projection/folding", "delivery/group", "delivery/selection", "eventlog", "projection/registry"},

	"projection/folding": {"domain", "expr", "budget", "upcasting"},
	"projection/totals":  {"domain", "drivers", "pg", "projection/registry"},

	"api": {
		"domain", "telemetry/tracing", "audit", "auth", "auth/oidc", "members", "tenant", "aggregate", "eventlog", "retention", "delivery/webhook", "fairshare", "cloudevents", "expr", "expr/filter", "projection",
		"projection/folding", "projection/totals", "rebuild", "delivery/group", "delivery/report", "delivery/tail", "upcasting", "schema", "erasure/subjects",
		"api/access", "api/docs", "api/gateway", "api/openapi", "api/problem", "api/socket", "api/transfer", "api/wire", "console", "limits", "usage", "proof", "seal", "signing",
	},
	// Files, which know only the contract.
	"console":      {},
	"api/docs":     {"api/openapi", "api/problem"},
	"api/gateway":  {"telemetry/tracing", "aggregate", "api/access", "api/problem", "api/socket", "api/transfer", "api/wire", "auth", "auth/oidc", "delivery/group", "delivery/tail", "domain", "fairshare"},
	"api/wire":     {"aggregate", "api/access", "auth", "api/problem", "api/socket", "cloudevents", "delivery/group", "delivery/tail", "domain"},
	"api/access":   {"api/problem", "auth", "delivery/group", "domain", "fairshare", "limits"},
	"api/socket":   {"api/problem", "domain"},
	"api/transfer": {"api/problem", "domain", "fairshare"},
	"api/problem":  {"api/openapi", "domain"},
	// The code generated from openapi.yaml for the server.
	"api/openapi": {"domain"},

	"embedded": {},

	// The composition root.
	"service": {
		"domain", "telemetry/tracing", "config", "telemetry", "listen", "pg", "eventlog", "tables", "audit", "auth", "auth/oidc", "limits", "usage", "budget", "upcasting", "aggregate", "schema", "projection", "projection/folding", "projection/totals", "rebuild", "members",
		"drivers", "drivers/postgres", "drivers/mongo", "drivers/sqlserver", "delivery/group", "delivery/tail", "delivery/consume", "delivery/webhook", "delivery/reactor", "delivery/report",
		"delivery/egress", "delivery/egress/nats", "delivery/egress/kafka", "retention", "erasure", "erasure/subjects", "seal", "signing", "api", "api/problem",
	},
	"cli":        {"aggregate", "api/docs", "cli/doctor", "service", "domain", "config", "console", "embedded", "listen", "migrations", "projection/folding", "telemetry"},
	"cli/remote": {"auth/oidc", "cli", "client", "domain", "outbox", "outbox/mongo", "outbox/postgres", "outbox/sqlite", "projection/folding", "proof", "schema/codegen"},
	"cli/doctor": {"service", "domain", "config", "drivers", "listen", "migrations", "projection/folding", "pg", "seal", "tables"},
	// The facade.
	"manifold": {"cli", "service", "domain", "config", "projection/folding", "delivery/reactor", "aggregate"},

	"cmd/manifold": {"manifold", "cli/remote", "cmd/manifold/bench"},
	// The benchmarks also measure the log alone, on a separate database.
	"cmd/manifold/bench": {"auth", "embedded", "config", "domain", "migrations", "eventlog", "tables", "projection", "projection/folding", "drivers", "drivers/postgres"},
}

// testPackages are only for tests: only tests and these packages may import them. The same applies to packages below
// internal.
var testPackages = map[string][]string{
	"expr/exprtest":                   {"domain"},
	"drivers/drivertest":              {"domain", "drivers", "drivers/drivertest/proxy"},
	"drivers/drivertest/proxy":        {},
	"drivers/mongo/mongotest":         {"embedded/pgtest"},
	"drivers/sqlserver/sqlservertest": {},
	"outbox/outboxtest":               {"outbox"},
	"delivery/egress/egresstest":      {"delivery/consume", "domain", "delivery/egress", "embedded/pgtest", "migrations", "tables", "delivery/group"},
	"auth/oidc/oidctest":              {},
	"embedded/pgtest":                 {"embedded", "migrations"},
	"tables/plantest":                 {"domain", "embedded/pgtest", "migrations", "pg"},
	"tables/tablestest":               {"auth", "domain", "embedded/pgtest", "migrations", "proof", "tables"},
	"systemtest":                      {},
	"examples":                        {},
}

// foreign says which of our packages may import a third-party module. A package represents those below it, too.
// Modules that are not listed may be imported anywhere except in domain.
var foreign = map[string][]string{
	"github.com/labstack/echo":      {"api"},
	"github.com/coder/websocket":    {"api"},
	"github.com/swaggest/swgui":     {"api"},
	"github.com/yuin/goldmark":      {"api/docs"},
	"github.com/cloudevents/sdk-go": {}, // the tests' other end
	"github.com/evanw/esbuild":      {}, // parses TypeScript in tests
	"cel.dev":                       {"expr"},
	"github.com/jackc/pgx": {
		"pg", "eventlog", "tenant", "limits", "usage", "auth", "members", "aggregate", "schema", "projection/registry", "projection/totals", "delivery/group", "delivery/report", "delivery/webhook", "retention", "erasure", "seal", "signing",
		"migrations", "embedded", "drivers/postgres", "cmd/manifold", "outbox/postgres", "cli",
	},
	"github.com/golang-migrate/migrate": {"migrations"},
	// The benchmarks compare a driver with its database.
	"go.mongodb.org/mongo-driver":                {"drivers/mongo", "cmd/manifold", "outbox/mongo", "cli/remote"},
	"modernc.org/sqlite":                         {"cli/remote"},
	"github.com/microsoft/go-mssqldb":            {"drivers/sqlserver", "cmd/manifold"},
	"github.com/fergusstrange/embedded-postgres": {"embedded"},
	"github.com/nats-io":                         {"delivery/egress/nats"},
	"github.com/twmb/franz-go":                   {"delivery/egress/kafka"},
	"github.com/Shopify/toxiproxy":               {"drivers/drivertest/proxy"},
	"github.com/spf13/cobra":                     {"cli", "cmd/manifold", "manifold"},
	// Packages use only the API, through telemetry/tracing where they can.
	"go.opentelemetry.io/otel/sdk":       {"telemetry"},
	"go.opentelemetry.io/otel/exporters": {"telemetry"},
	"code.dny.dev/ssrf":                  {"delivery/webhook"},
	"github.com/pires/go-proxyproto":     {"listen"},
	"github.com/go-jose/go-jose":         {"auth/oidc"},
	"golang.org/x/oauth2":                {"cli/remote"},
}

// goPackage is the part of the output of `go list -json` that these tests read.
type goPackage struct {
	ImportPath   string
	Dir          string
	Doc          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
}

// name returns the package's path below the module, as in the tables above.
func (p goPackage) name() string { return ours(p.ImportPath) }

// ours returns the name of one of our packages, or "" for a third-party package.
func ours(path string) string {
	if path == module {
		return "manifold"
	}
	name, _ := strings.CutPrefix(path, module+"/")
	if name == path {
		return ""
	}
	return name
}

func forTests(name string) bool {
	_, listed := testPackages[name]
	return listed || strings.HasPrefix(name, "internal/")
}

var list = sync.OnceValues(func() ([]goPackage, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list printed something else than JSON: %w", err)
		}
		packages = append(packages, p)
	}
})

func packages(t *testing.T) []goPackage {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

func TestImportTable(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		name := p.name()
		allowed, known := imports[name]
		if !known {
			allowed, known = testPackages[name]
		}
		if !known && !forTests(name) {
			t.Errorf("package %s is not in the import table", name)
			continue
		}
		for _, path := range p.Imports {
			imported := ours(path)
			switch {
			case imported == "", strings.HasPrefix(name, "internal/"):
			case forTests(imported) && !forTests(name):
				t.Errorf("package %s imports %s, which is for tests alone", name, imported)
			case !slices.Contains(allowed, imported):
				t.Errorf("package %s may not import %s: only %v", name, imported, allowed)
			}
		}
	}
}

func TestForeignImports(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		name := p.name()
		if forTests(name) {
			continue
		}
		for _, path := range p.Imports {
			host, _, _ := strings.Cut(path, "/")
			if name == "domain" && strings.Contains(host, ".") {
				t.Errorf("domain imports %s: only the standard library is allowed", path)
			}
			for library, users := range foreign {
				if within(path, library) && !slices.ContainsFunc(users, func(user string) bool { return within(name, user) }) {
					t.Errorf("package %s may not import %s: only %v", name, path, users)
				}
			}
		}
	}
}

// within reports whether path is the folder itself or below it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

func TestEveryPackageIsDocumented(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("package %s has no doc comment", p.name())
		}
	}
}

// A test waits for a signal, never for time.
func TestNoTestSleeps(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		files := slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		if forTests(p.name()) {
			files = append(files, p.GoFiles...)
		}
		for _, file := range files {
			for _, place := range sleeps(t, filepath.Join(p.Dir, file)) {
				t.Errorf("%s: a test calls time.Sleep", place)
			}
		}
	}
}

// sleeps finds the uses of time.Sleep in a file.
func sleeps(t *testing.T, path string) []token.Position {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	for _, spec := range file.Imports {
		if imported, err := strconv.Unquote(spec.Path.Value); err == nil && imported == "time" {
			name = "time"
			if spec.Name != nil {
				name = spec.Name.Name
			}
		}
	}
	var found []token.Position
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok && selector.Sel.Name == "Sleep" {
			if x, ok := selector.X.(*ast.Ident); ok && x.Name == name {
				found = append(found, set.Position(n.Pos()))
			}
		}
		return true
	})
	return found
}
