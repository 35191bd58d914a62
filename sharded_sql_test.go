package manifold_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/migrations"
)

// acrossTenants lists the functions and variables with statements that name no tenant, and why they may.
var acrossTenants = map[string]string{
	"auth.recordUses":                        "stores the last use of all tenants' keys",
	"eventlog.Heads":                         "wakes every tenant's readers",
	"eventlog.TenantFloors":                  "for metrics, and for all tenants of a shared projection",
	"members.Announce":                       "divides all tenants between the processes",
	"drivers/postgres.Checkpoints":           "the checkpoints of all tenants",
	"drivers/postgres.OwnCheckpoints":        "the checkpoints of all tenants' builds",
	"delivery/webhook.WebhookTenants":        "finds the tenants to serve",
	"delivery/report.ReportingTenants":       "finds the tenants with reports",
	"projection/totals.states":               "finds the tenants whose totals are due",
	"projection/totals.deleteOthers":         "totals of removed projections",
	"projection/totals.sumsStatement":        "adds up all tenants' totals",
	"limits.DeletePlan":                      "whether any tenant has the plan",
	"limits.all":                             "the limits of all tenants, for the memory of processes",
	"limits.forgetLedgers":                   "deletes all tenants' unused ledgers",
	"limits.uncounted":                       "finds the tenants whose events to count",
	"seal.unsealed":                          "finds the logs to seal",
	"seal.SealedLogs":                        "finds the seals of deleted tenants",
	"seal.Lagging":                           "finds the logs whose sealing lags",
	"usage.EachUsageDay":                     "the usage of all tenants",
	"usage.prune":                            "deletes all tenants' old days",
	"retention.RetentionDue":                 "finds the policies to run",
	"erasure/subjects.ErasuresDue":           "finds the erasures to continue",
	"erasure/subjects.TenantsWithErasures":   "finds the erasures of deleted tenants",
	"schema.RetagsDue":                       "finds the types whose events to retag",
	"schema.RetaggedTenants":                 "finds the tenants whose upcasters to compare",
	"projection/registry.Faults":             "a shared projection's faults of all tenants",
	"projection/registry.InlineBuilds":       "a shared projection's builds of all tenants",
	"projection/registry.StrayInlineBuilds":  "repairs all tenants' builds",
	"projection/registry.SettleTenantBuilds": "settles all tenants' builds",
	"projection/registry.TenantBuilds":       "changes of all tenants' builds, for the caches of processes",
	"projection/registry.TenantBuildsOf":     "a shared projection's builds of all tenants",
	"projection/registry.isNamed":            "whether any tenant has a build",
	"projection/registry.DueParked":          "finds the tenants whose parked documents to replay",
	"projection/registry.ParkedIDs":          "a shared projection's parked documents of all tenants",
	"projection/registry.deleteLosses":       "finds the tenants whose rows to delete",
	"projection/registry.reopenInline":       "finds the tenants whose logs to reopen",
}

// partsOfStatements lists the functions with parts that name no tenant, or no row of its, because the statement around
// them does.
var partsOfStatements = map[string]string{
	"drivers/postgres.SaveIn":           "inserts beside the checkpoint that the statement has moved, a row of the same tenant",
	"drivers/postgres.add":              "counts what the same statement has found",
	"drivers/postgres.readFrom":         "the table of a query that names the tenant; the setting has it, too",
	"drivers/postgres.tenantViewQuery":  "likewise",
	"drivers/postgres.createTenantView": "a view, which a distributed database does not have",
}

// kinds are those of migrations.Tables, and of the driver's tables of documents.
var kinds = func() map[string]migrations.Kind {
	kinds := maps.Clone(migrations.Tables)
	kinds["documents"], kinds["document_keys"] = migrations.Distributed, migrations.Distributed
	return kinds
}()

// documentsTable matches a table whose name the driver of documents composes.
var documentsTable = regexp.MustCompile(`\b(from|into|update|join)\s+` + unknown)

// Every statement on Manifold's own database has a form that Citus accepts as well
// (docs/decisions/0078-statements-that-a-sharded-database-accepts.md).
func TestStatementsSuitAShardedDatabase(t *testing.T) {
	t.Parallel()
	checked, excepted, all := 0, map[string]bool{}, packages(t)
	shared := sharedSQL(t, all)
	for _, p := range all {
		name := p.name()
		usesLog := slices.Contains(p.Imports, module+"/pg") || name == "pg"
		if forTests(name) || !usesLog {
			continue
		}
		for _, literal := range sqlOf(t, p, shared) {
			if name == "drivers/postgres" {
				literal.sql = documentsTable.ReplaceAllString(literal.sql, "$1 documents")
			}
			problems := checkSQL(literal.sql)
			if len(problems) == 0 {
				checked++
				continue
			}
			key := name + "." + literal.declaration
			refused := slices.ContainsFunc(problems, func(p string) bool { return !strings.HasSuffix(p, noTenant) })
			_, across := acrossTenants[key]
			_, part := partsOfStatements[key]
			if across && !refused || part {
				excepted[key] = true
				continue
			}
			t.Errorf("%s: %s\n%s", key, strings.Join(problems, "; "), literal.sql)
		}
	}
	if checked < 200 {
		t.Errorf("only %d statements were found", checked)
	}
	for _, exceptions := range []map[string]string{acrossTenants, partsOfStatements} {
		for key := range exceptions {
			if !excepted[key] {
				t.Errorf("%s is excepted, but all of its statements name their tenant", key)
			}
		}
	}
}

func TestCheckSQL(t *testing.T) {
	t.Parallel()
	for want, statements := range map[string][]string{
		"": {
			"select e.position from events as e where e.tenant_id = $1::uuid and e.position > $2",
			"select l.head from logs l where l.tenant_id = @tenant",
			"update upcaster_sets set revision = $2 where tenant_id = $1",
			"delete from … t where t.tenant_id = $1",
			"select t.name from tenants t",
			"select from tenant_builds b left join projections p on p.tenant_id = b.owner where b.tenant_id = $1",
			"select from webhooks w join logs l on l.tenant_id = w.tenant_id where w.tenant_id = $1",
			"select s.n from (select w.tenant_id from webhooks w where w.tenant_id = $1) s join logs l on l.tenant_id = s.tenant_id",
			"insert into logs (tenant_id, head) values ($1, 0) on conflict (tenant_id) do update set last_at = excluded.last_at",
			"insert into faults (tenant_id, name) select l.tenant_id, p.name from logs l, projections p where l.tenant_id = $1",
			"with m as (update logs l set head = 1 where l.tenant_id = $1 returning l.head) select clock_timestamp() from m",
			"select coalesce((select l.head from logs l where l.tenant_id = $1), 0) union all select 1 from events e where e.tenant_id = $1",
			"update logs l set last_at = now() + $2::bigint * interval '1 second' where l.tenant_id = $1 and l.last_at <= now()",
			"select from tenants t where t.tenant_id = $1 for no key update",
			"select from webhooks w where w.tenant_id = $1 for share",
			"a message about events from keys",
		},
		"logs: no tenant": {
			"select l.head from logs l",
			"select l.head from logs as l where l.head > $1",
			"select l.head from manifold.logs l",
			"select l.tenant_id = $1 from logs l",
			"select l.head from logs l where l.tenant_id = $1 or l.head = 0",
			"select l.head from logs l where ($2 or l.tenant_id = $1)",
			"select l.head from logs l where l.tenant_id in ($1, $2)",
			"update logs set head = 1, tenant_id = $1",
			"select from events e where e.tenant_id = $1 union select from logs l",
			"select from events e where e.tenant_id = $1 and exists (select 1 from logs l where l.head = e.position)",
			"insert into logs (head) values (1)",
			"insert into logs values ($1)",
		},
		"…: no tenant":                         {"delete from … t where t.name = $1"},
		"webhooks: no tenant; logs: no tenant": {"select from webhooks w join logs l on l.tenant_id = w.tenant_id"},
		"events: no tenant": {
			"select from logs l, events e where l.tenant_id = $1",
			"select from logs l join events e on true where l.tenant_id = $1",
		},
		"tenant_builds: a subquery across tenants without a column": {
			"select exists (select from tenant_builds b where b.owner = $1)",
		},
		"a system catalog beside members": {"select m.name, exists (select from pg_stat_activity) from members m"},
		"tenant_builds: no tenant": {
			"select from retired_builds d where exists (select 1 from tenant_builds b where b.tenant_id = d.tenant_id)",
		},
		"dead_letters: no tenant": {
			"delete from dead_letters d using subscription_ledgers l where l.tenant_id = $1 and d.name = l.name",
		},
		"keys: the tenant is not from a row of the same tenant": {
			"insert into keys (tenant_id, name) select t.tenant_id, $2 from tenants t where t.tenant_id = $1",
		},
		"events: the tenant is not from a row of the same tenant": {
			"insert into events (tenant_id, position) select e.tenant_id, e.position from unnest($1::uuid[]) as e (tenant_id)",
		},
		"on conflict: now() is not immutable; use excluded": {
			"insert into members (member_id) values ($1) on conflict (member_id) do update set alive_at = now()",
			"insert into logs as l (tenant_id) values ($1) on conflict (tenant_id) do update set head = 1 where l.last_at < now()",
		},
		"on conflict: now() is not immutable; use excluded; now() + l.head: not immutable, with a column": {
			"insert into logs as l (tenant_id) values ($1) on conflict (tenant_id) do update\n set last_at = now() + interval '1 s' * least($2, l.head)",
		},
		"now() + l.head: not immutable, with a column": {
			"update logs l set last_at = now() + interval '1 second' * power(2, least(l.head, 30)) where l.tenant_id = $1",
		},
		"on conflict: a subquery": {
			"insert into logs as l (tenant_id) values ($1) on conflict (tenant_id) do update set head = (select 1)",
		},
		"values: a subquery": {"insert into logs (tenant_id, head) values ($1, 1 + coalesce((select 1), 0))"},
		"clock_timestamp() is volatile": {
			"update logs l set last_at = clock_timestamp() where l.tenant_id = $1",
			"delete from tickets t where t.tenant_id = $1 and t.expires_at < clock_timestamp()",
		},
		"gen_random_uuid() is volatile": {
			"insert into keys (tenant_id, key_id) select l.tenant_id, gen_random_uuid() from logs l where l.tenant_id = $1",
		},
		"coalesce or case: now() is not immutable; use least": {
			"update keys k set revoked_at = coalesce(k.revoked_at, now()) where k.tenant_id = $1",
			"update keys k set revoked_at = case when $2 then now() end where k.tenant_id = $1",
		},
		"case: pg_column_size() is not immutable; select the rows in a subquery of using": {
			"delete from snapshots s where s.tenant_id = $1 and case when pg_column_size(s.state) > 9 then true end",
		},
		"case: not the searched form": {
			"update rebuilds r set state = case r.state when 'queued' then 'building' end where r.tenant_id = $1",
		},
		"l.last_at + interval: not immutable, on a column": {
			"delete from logs l where l.tenant_id = $1 and l.last_at + interval '1 day' < now()",
		},
		"returning: now() is not immutable": {"update logs l set head = 1 where l.tenant_id = $1 returning now()"},
		"tenants: a shared lock of a reference table; use no key update": {
			"select from tenants t where t.tenant_id = $1 for share",
			"select from keys k where k.tenant_id = $1 and exists (select 1 from tenants t where t.tenant_id = $1 for key share)",
		},
		"members: a local table beside another; use two statements": {
			"select from members m, tenants t where m.name = t.name",
			"select from tenants t where exists (select 1 from members m where m.name = t.name)",
		},
		"ctid":       {"delete from events e where e.tenant_id = $1 and e.ctid = any ($2)"},
		"set_config": {"select set_config('manifold.tenant', $1, true)"},
	} {
		for _, sql := range statements {
			if got := strings.Join(checkSQL(sql), "; "); got != want {
				t.Errorf("%s\ngot  %q\nwant %q", sql, got, want)
			}
		}
	}
}

// sqlLiteral is a string that a package may send to the database.
type sqlLiteral struct {
	declaration string // function, variable or constant
	sql         string
}

// unknown replaces the parts of an sqlLiteral that are not constant.
const unknown = "…"

// sqlOf returns a package's strings, concatenated as far as they are constant. shared is what the other packages share.
func sqlOf(t *testing.T, p goPackage, shared map[string]ast.Expr) (literals []sqlLiteral) {
	t.Helper()
	declarations, constants := parse(t, p)
	maps.Copy(constants, shared)
	for _, declaration := range declarations {
		for name, node := range namedNodes(declaration) {
			ast.Inspect(node, func(n ast.Node) bool {
				expression, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				text, constant := stringOf(expression, constants, 0)
				if constant {
					literals = append(literals, sqlLiteral{name, text})
				}
				return !constant
			})
		}
	}
	return literals
}

// parse returns a package's declarations, and the values of its variables, constants and functions that only compose
// SQL.
func parse(t *testing.T, p goPackage) (declarations []ast.Decl, constants map[string]ast.Expr) {
	t.Helper()
	constants = map[string]ast.Expr{}
	for _, file := range p.GoFiles {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		declarations = append(declarations, parsed.Decls...)
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if len(n.Names) == len(n.Values) {
					for i, name := range n.Names {
						constants[name.Name] = n.Values[i]
					}
				}
			case *ast.FuncDecl:
				if n.Body != nil && len(n.Body.List) == 1 {
					if result, ok := n.Body.List[0].(*ast.ReturnStmt); ok && len(result.Results) == 1 {
						constants[n.Name.Name] = result.Results[0]
					}
				}
			}
			return true
		})
	}
	return declarations, constants
}

// sharedSQL returns the SQL that packages export for others, as literals, by names such as eventlog.PrintedSQL.
func sharedSQL(t *testing.T, all []goPackage) map[string]ast.Expr {
	t.Helper()
	shared := map[string]ast.Expr{}
	for _, p := range all {
		_, constants := parse(t, p)
		for name, value := range constants {
			if text, ok := stringOf(value, constants, 0); ok && ast.IsExported(name) {
				shared[path.Base(p.ImportPath)+"."+name] = &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(text)}
			}
		}
	}
	return shared
}

// namedNodes returns a function by its name, or the values of variables and constants by theirs.
func namedNodes(declaration ast.Decl) map[string]ast.Node {
	if function, ok := declaration.(*ast.FuncDecl); ok {
		return map[string]ast.Node{function.Name.Name: function}
	}
	nodes := map[string]ast.Node{}
	for _, spec := range declaration.(*ast.GenDecl).Specs {
		if spec, ok := spec.(*ast.ValueSpec); ok {
			nodes[spec.Names[0].Name] = spec
		}
	}
	return nodes
}

var formatVerb = regexp.MustCompile(`%(\[\d+\])?[sdq]`)

// stringOf returns the text of an expression. ok is false if no part of it is a string literal.
func stringOf(expression ast.Expr, constants map[string]ast.Expr, depth int) (text string, ok bool) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, leftOK := stringOf(e.X, constants, depth)
		right, rightOK := stringOf(e.Y, constants, depth)
		return left + right, e.Op == token.ADD && (leftOK || rightOK)
	case *ast.CallExpr:
		switch function := e.Fun.(type) {
		case *ast.SelectorExpr:
			if function.Sel.Name == "Sprintf" {
				text, ok := stringOf(e.Args[0], constants, depth)
				return formatVerb.ReplaceAllString(text, unknown), ok
			}
			return stringOf(function, constants, depth)
		case *ast.Ident:
			return stringOf(function, constants, depth)
		}
	case *ast.SelectorExpr: // another package's
		if from, ok := e.X.(*ast.Ident); ok {
			if value, known := constants[from.Name+"."+e.Sel.Name]; known {
				text, _ := stringOf(value, constants, depth)
				return text, depth > 0
			}
		}
	case *ast.Ident:
		if value, known := constants[e.Name]; known && depth < 5 {
			if text, ok := stringOf(value, constants, depth+1); ok {
				return text, depth > 0
			}
		}
	}
	return unknown, false
}

// noTenant ends the problem of a statement that names no tenant for a distributed table.
const noTenant = ": no tenant"

var (
	statementStart = regexp.MustCompile(`^\s*(with|select|insert into|update|delete from)\b`)
	modification   = regexp.MustCompile(`\binsert into|\bdelete from|(?:^|\))\s*update\s`)
	mention        = regexp.MustCompile(`(\bfrom|\bjoin|\binto|\busing|\bupdate|,)\s+(?:manifold(?:_documents)?\.)?` + anyTable + `(?:\s+(?:as\s+)?([a-z]\w*))?`)
	anyTable       = `((?:` + strings.Join(slices.Collect(maps.Keys(kinds)), "|") + `)\b|` + unknown + `)`
	notAnAlias     = regexp.MustCompile(`^(where|set|on|order|left|join|cross|limit|for|values|select|returning|group|union|using)$`)
	conditions     = regexp.MustCompile(`(?s)\b(?:where|on)\b.*`)
	endOfClause    = regexp.MustCompile(`(?s)\b(on conflict|returning)\b.*`)
	orWord         = regexp.MustCompile(`\bor\b`)
	equality       = regexp.MustCompile(`((?:\w+\.)?tenant_id)\s*=\s*([$@]\w+|'[^']*'|` + unknown + `|\w+\.\w+)`)
	insertion      = regexp.MustCompile(`(?s)\binsert into\s+(?:manifold(?:_documents)?\.)?(\w+)(?:\s+as)?(?:\s+[a-z]\w*)?\s*(\([^)]*\))?\s*` +
		`(?:(values)|select\s+(?:(\w+)\.tenant_id)?)`)
	mutable      = regexp.MustCompile(`\b(now|statement_timestamp|transaction_timestamp|clock_timestamp|random|gen_random_uuid)\(\)`)
	stored       = regexp.MustCompile(`\bpg_column_(?:size|compression)\(`)
	volatile     = regexp.MustCompile(`\b(clock_timestamp|random|gen_random_uuid|nextval|timeofday)\(`)
	doUpdate     = regexp.MustCompile(`(?s)\bdo update\s+set\b(.*?)(?:\breturning\b|$)`)
	valuesClause = regexp.MustCompile(`(?s)\bvalues\s*\((.*?)(?:\bon conflict\b|\breturning\b|$)`)
	returning    = regexp.MustCompile(`(?s)\breturning\b(.*)`)
	simpleCase   = regexp.MustCompile(`\bcase\s+(\w+)`)
	onColumn     = regexp.MustCompile(`\b[a-z]\w*(?:\.\w+)? [-+] \S*\binterval\b`)
	onNow        = regexp.MustCompile(`\bnow\(\) [-+] `)
	columnOf     = regexp.MustCompile(`\b[a-z]\w*\.[a-z]\w*`)
	sharedLock   = regexp.MustCompile(`\bfor (?:key )?share\b`)
	caseClause   = regexp.MustCompile(`(?s)\bcase\b.*?\bend\b`)
)

// block is a query without its subqueries.
type block struct {
	text   string            // subqueries are replaced by nested
	raw    string            // with subqueries
	tables map[string]string // by alias
	named  map[string]bool   // aliases whose tenant is given
	outer  *block
}

const nested = "(†)"

// checkSQL returns what Citus would refuse about a statement, or what would make it visit all shards.
func checkSQL(sql string) []string {
	if !statementStart.MatchString(sql) && !strings.Contains(sql, "select ") {
		return nil
	}
	return checkBlock(sql, nil)
}

func checkBlock(sql string, outer *block) (problems []string) {
	text, subqueries := split(sql)
	for _, part := range regexp.MustCompile(`\bunion(?: all)?\b`).Split(text, -1) {
		b := &block{text: part, raw: sql, outer: outer}
		problems = append(problems, b.checkForms()...)
		problems = append(problems, b.checkTenants()...)
		for range strings.Count(part, nested) {
			problems = append(problems, checkBlock(subqueries[0], b)...)
			subqueries = subqueries[1:]
		}
	}
	return problems
}

// split replaces the subqueries of a query.
func split(sql string) (text string, subqueries []string) {
	var own strings.Builder
	for i := 0; i < len(sql); i++ {
		if sql[i] == '(' {
			inner := sql[i+1 : closing(sql, i)]
			if statementStart.MatchString(inner) {
				own.WriteString(nested)
				subqueries = append(subqueries, inner)
				i += len(inner) + 1
				continue
			}
		}
		own.WriteByte(sql[i])
	}
	return own.String(), subqueries
}

// closing returns the index of the parenthesis that closes the one at open, or the end of a fragment.
func closing(sql string, open int) int {
	depth := 0
	for i := open; i < len(sql); i++ {
		switch sql[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(sql)
}

var endOfOperand = regexp.MustCompile(`^(?:\)|,|\b(?:where|from|returning|and|or|then|else|end|on|order)\b)`)

// operand returns the expression at the beginning of a query's rest.
func operand(rest string) string {
	for i := 0; i < len(rest); i++ {
		switch {
		case rest[i] == '(':
			i = closing(rest, i)
		case endOfOperand.MatchString(rest[i:]):
			return rest[:i]
		}
	}
	return rest
}

// checkForms returns the forms in the query that Citus refuses.
func (b *block) checkForms() (problems []string) {
	for _, name := range []string{"ctid", "set_config"} {
		if regexp.MustCompile(`\b` + name + `\b`).MatchString(b.text) {
			problems = append(problems, name)
		}
	}
	if !modification.MatchString(b.text) {
		return problems
	}
	find := func(clause *regexp.Regexp, what *regexp.Regexp, format string) {
		for _, part := range clause.FindAllString(b.text, -1) {
			if found := what.FindString(part); found != "" {
				problems = append(problems, fmt.Sprintf(format, found))
			}
		}
	}
	if found := volatile.FindString(b.raw); found != "" {
		return append(problems, found+") is volatile")
	}
	subquery := regexp.MustCompile(regexp.QuoteMeta(nested))
	find(doUpdate, mutable, "on conflict: %s is not immutable; use excluded")
	find(doUpdate, subquery, "on conflict: a subquery%.0s")
	find(valuesClause, subquery, "values: a subquery%.0s")
	find(returning, mutable, "returning: %s is not immutable")
	if !strings.Contains(b.text, "insert into") {
		find(caseClause, mutable, "coalesce or case: %s is not immutable; use least")
		find(caseClause, stored, "case: %s) is not immutable; select the rows in a subquery of using")
		for _, at := range regexp.MustCompile(`\bcoalesce\(`).FindAllStringIndex(b.text, -1) {
			if found := mutable.FindString(b.text[at[0]:closing(b.text, at[1]-1)]); found != "" {
				problems = append(problems, "coalesce or case: "+found+" is not immutable; use least")
			}
		}
	}
	if found := onColumn.FindString(b.text); found != "" {
		problems = append(problems, found+": not immutable, on a column")
	}
	for _, at := range onNow.FindAllStringIndex(b.text, -1) {
		if found := columnOf.FindString(operand(b.text[at[1]:])); found != "" {
			problems = append(problems, b.text[at[0]:at[1]]+found+": not immutable, with a column")
		}
	}
	for _, found := range simpleCase.FindAllStringSubmatch(b.text, -1) {
		if found[1] != "when" {
			problems = append(problems, "case: not the searched form")
		}
	}
	return problems
}

// checkTenants returns the distributed tables whose tenant the query does not give.
func (b *block) checkTenants() (problems []string) {
	b.tables, b.named = map[string]string{}, map[string]bool{}
	var aliases []string
	for _, found := range mention.FindAllStringSubmatch(b.text, -1) {
		keyword, table, alias := found[1], found[2], found[3]
		if notAnAlias.MatchString(alias) {
			alias = ""
		}
		if keyword == "into" || alias == "" && (table == unknown || keyword == ",") || keyword == "," && table == unknown {
			continue
		}
		if alias == "" {
			alias = table
		}
		b.tables[alias] = table
		aliases = append(aliases, alias)
	}
	given := equality.FindAllStringSubmatch(requirements(b.text), -1)
	for range given { // each pass may give another table its tenant
		for _, found := range given {
			left, right, value := strings.TrimSuffix(found[1], ".tenant_id"), "", found[2]
			if left == "tenant_id" && len(aliases) == 1 {
				left = aliases[0]
			}
			if name, column, isColumn := strings.Cut(value, "."); isColumn && value[0] != '\'' {
				right = name
				if column != "tenant_id" && b.find(name) != nil {
					continue
				}
			}
			if right == "" || b.isNamed(right) {
				b.named[left] = true
			} else if b.named[left] && b.tables[right] != "" {
				b.named[right] = true
			}
		}
	}
	for _, alias := range aliases {
		table := b.tables[alias]
		if kinds[table] == migrations.Reference && sharedLock.MatchString(b.text) {
			problems = append(problems, table+": a shared lock of a reference table; use no key update")
		}
		switch {
		case kinds[table] == migrations.Local:
			if len(aliases) > 1 || b.outer != nil {
				problems = append(problems, table+": a local table beside another; use two statements")
			}
		case b.named[alias] || kinds[table] == migrations.Reference:
		case b.outer != nil && strings.HasPrefix(b.text, "select from"):
			problems = append(problems, table+": a subquery across tenants without a column")
		default:
			problems = append(problems, table+noTenant)
		}
	}
	if len(aliases) > 0 && strings.Contains(b.raw, "from pg_") {
		problems = append(problems, "a system catalog beside "+b.tables[aliases[0]])
	}
	for _, found := range insertion.FindAllStringSubmatch(b.text, -1) {
		table, columns, values, from := found[1], found[2], found[3] != "", found[4]
		_, row := kinds[b.tables[from]]
		derived := from != "" && regexp.MustCompile(regexp.QuoteMeta(nested)+`\s+(as\s+)?`+from+`\b`).MatchString(b.text)
		switch {
		case kinds[table] != migrations.Distributed:
		case !strings.HasPrefix(columns, "(tenant_id"):
			problems = append(problems, table+noTenant)
		case !values && !derived && (!row || kinds[b.tables[from]] == migrations.Reference):
			problems = append(problems, table+": the tenant is not from a row of the same tenant")
		}
	}
	return problems
}

// find returns the query, this one or an outer one, that has a table of this alias; nil if it is a subquery's.
func (b *block) find(alias string) *block {
	for ; b != nil; b = b.outer {
		if b.tables[alias] != "" {
			return b
		}
	}
	return nil
}

// isNamed reports whether the alias has rows of one tenant.
func (b *block) isNamed(alias string) bool {
	of := b.find(alias)
	return of == nil || of.named[alias]
}

// requirements returns those conditions of a query that hold for all of its rows.
func requirements(text string) string {
	text = caseClause.ReplaceAllString(conditions.FindString(endOfClause.ReplaceAllString(text, "")), "case")
	var all strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '(' {
			if end := closing(text, i); orWord.MatchString(text[i:end]) {
				i = end
				continue
			}
		}
		all.WriteByte(text[i])
	}
	if orWord.MatchString(all.String()) {
		return ""
	}
	return all.String()
}
