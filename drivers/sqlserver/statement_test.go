package sqlserver

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

var update = flag.Bool("update", false, "write testdata instead of holding the statements against it")

// The functions that build the driver's statements build them here too, and the results are compared with testdata. So
// a change shows what the server will receive.

var (
	tenant = domain.TenantID{0x01, 0x90, 0xd3, 0xa4, 0x5b, 0x6c, 0x7d, 0xef, 0x81, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}
	shared = domain.Build{ProjectionID: domain.ProjectionID{Name: "order-summary"}, Number: 12}
	own    = domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "mine"}, Number: 3}
)

// indexed is the shared build's table with key columns.
func indexed() table {
	table := tableOf(shared)
	table.keys = []string{"status", "customer.name"}
	return table
}

// partitioned is indexed with a partition.
func partitioned() table {
	table := indexed()
	table.partition = "customer.id"
	return table
}

// keyed is the table of a tenant's own build that declares paths.
func keyed() table {
	table := tableOf(own)
	table.places = []string{"status", "customer.name"}
	return table
}

func document(id, data string) domain.Document {
	return domain.Document{ID: id, Version: 9, Data: []byte(data)}
}

func golden(t *testing.T, name string, statements ...statement) {
	t.Helper()
	var text strings.Builder
	for i, s := range statements {
		if i > 0 {
			text.WriteString("\n-- and then\n\n")
		}
		for _, arg := range s.args {
			named := arg.(sql.NamedArg)
			value := fmt.Sprint(named.Value)
			fmt.Fprintf(&text, "-- @%s %T: %s\n", named.Name, named.Value, value)
		}
		text.WriteString(s.sql)
	}
	path := filepath.Join("testdata", name+".sql")
	if *update {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("the statements are not those of %s; run the test with -update if that is meant, and read the difference. They are now:\n%s", path, text.String())
	}
}

func TestSaveStatements(t *testing.T) {
	t.Parallel()
	batch := drivers.Batch{From: 5, To: 9,
		Upserts: []domain.Document{document("é 1", `{"status": "placed", "customer": {"name": 12.50}, "a": 1, "a": 2}`)},
		Deletes: []drivers.Deletion{{ID: "gone", Version: 8}}}
	first := batch
	first.From = 0
	part := rowsOf(t, batch, indexed())
	golden(t, "save", indexed().saveInOneTrip(tenant, batch, part))
	golden(t, "save_partitioned", partitioned().saveInOneTrip(tenant, first, rowsOf(t, batch, partitioned())))
	deletes := part
	deletes.upserts = nil
	golden(t, "save_parts", indexed().moveCheckpoint(tenant, batch), indexed().createStage(), indexed().saveStage(tenant), indexed().savePart(tenant, deletes))
	golden(t, "save_parts_partitioned", partitioned().createStage(), partitioned().saveStage(tenant))
	golden(t, "save_first", indexed().saveInOneTrip(tenant, first, part))
	repair := batch
	repair.From = 9
	golden(t, "save_repair", indexed().saveInOneTrip(tenant, repair, part))
	repair.From, repair.To = 0, 0
	golden(t, "save_without_checkpoint", indexed().saveInOneTrip(tenant, repair, part), indexed().removeMark(tenant))
	empty := drivers.Batch{From: 5, To: 9}
	golden(t, "save_checkpoint", tableOf(own).saveInOneTrip(tenant, empty, rowsOf(t, empty, tableOf(own))))
	one := drivers.Batch{From: 5, To: 9, Upserts: []domain.Document{document("a", `{}`)}}
	golden(t, "save_own", tableOf(own).saveInOneTrip(tenant, one, rowsOf(t, one, tableOf(own))))
}

// Keys are written before their documents, so that the condition on what is stored holds for both.
func TestKeysStatements(t *testing.T) {
	t.Parallel()
	var statements []statement
	for _, sql := range createKeysSQL() {
		statements = append(statements, statement{sql: sql})
	}
	golden(t, "keys_create_table", statements...)
	batch := drivers.Batch{From: 5, To: 9, Upserts: []domain.Document{document("a", `{"status": "placed"}`)}, Deletes: []drivers.Deletion{{ID: "gone", Version: 8}}}
	rows := rowsOf(t, batch, keyed())
	golden(t, "keys_save", keyed().saveInOneTrip(tenant, batch, rows))
	first := batch
	first.From = 0
	golden(t, "keys_save_parts", keyed().createStage(), keyed().saveStage(tenant), keyed().moveKeys(tenant, first))
	golden(t, "keys_drop", keyed().dropKeysSlice(tenant))
	repair := batch
	repair.From = 9
	if keyed().moveKeysSQL(repair) != "" || tableOf(own).moveKeysSQL(batch) != "" || tableOf(own).saveKeysSQL("@b") != "" {
		t.Error("keys are written that should not be")
	}
	status, name := domain.Path{"status"}, domain.Path{"customer", "name"}
	open := domain.Compare{Path: status, Comparison: domain.Equal, Value: text("open")}
	above := domain.Compare{Path: name, Comparison: domain.Greater, Value: whole(3)}
	for file, c := range map[string]struct {
		query domain.DocumentQuery
		ways  []byKeys
	}{
		"order":            {domain.DocumentQuery{Order: []domain.Order{{Path: status}}, Where: domain.And{open, above}, After: &domain.SortKey{Values: []domain.Scalar{text("b")}, ID: "a"}}, []byKeys{{path: status}}},
		"order_descending": {domain.DocumentQuery{Order: []domain.Order{{Path: status, Descending: true}}, After: &domain.SortKey{Values: []domain.Scalar{text("b")}, ID: "a"}}, []byKeys{{path: status}}},
		"equal":            {domain.DocumentQuery{Order: []domain.Order{{Path: name}}, Where: domain.And{above, open}}, []byKeys{{path: status, atMost: maxLookups}, {path: name}}},
		"range":            {domain.DocumentQuery{Where: above, After: &domain.SortKey{ID: "a"}}, []byKeys{{path: name, atMost: maxLookups}}},
		"range_first":      {domain.DocumentQuery{Order: []domain.Order{{Path: status}}, Where: above}, []byKeys{{path: name, atMost: narrowLookups}, {path: status}}},
		"range_order":      {domain.DocumentQuery{Order: []domain.Order{{Path: name}, {Path: domain.Path{"total"}, Descending: true}}, Where: above}, []byKeys{{path: name, atMost: maxLookups}}},
	} {
		c.query.Limit = 10
		if ways := keyed().waysByKeys(c.query.Where, c.query.Order); fmt.Sprint(ways) != fmt.Sprint(c.ways) {
			t.Errorf("%s: the ways are %v, want %v", file, ways, c.ways)
			continue
		}
		page, err := keyed().pageByKeys(false, tenant, c.ways[0], c.query)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		golden(t, "keys_"+file, page)
	}
	count, err := keyed().countByKeys(true, tenant, byKeys{path: name, atMost: maxLookups}, domain.And{above, open})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "keys_count_locking", count)
	// What keys cannot find.
	for what, where := range map[string]domain.Predicate{
		"nothing":         nil,
		"another path":    domain.Compare{Path: domain.Path{"total"}, Comparison: domain.Equal, Value: whole(1)},
		"one of two":      domain.Or{open, above},
		"everything else": domain.Compare{Path: status, Comparison: domain.NotEqual, Value: text("open")},
		"bools":           domain.Compare{Path: status, Comparison: domain.Less, Value: boolean(true)},
		"the end":         domain.Text{Path: status, Test: domain.EndsWith, Text: "n"},
	} {
		if ways := keyed().waysByKeys(where, []domain.Order{{Path: domain.Path{"total"}}}); len(ways) > 0 {
			t.Errorf("%s: the ways are %v", what, ways)
		}
	}
	if ways := indexed().waysByKeys(open, []domain.Order{{Path: status}}); len(ways) > 0 {
		t.Errorf("a shared build has the ways %v", ways)
	}
}

// rowsOf returns a batch that is one part, encoded for a table.
func rowsOf(t *testing.T, batch drivers.Batch, table table) part {
	t.Helper()
	first, rest := nextPart(batch)
	if len(rest.Upserts)+len(rest.Deletes) > 0 {
		t.Fatal("the batch is more than one part")
	}
	rows, err := encodePart(first, table)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestReadStatements(t *testing.T) {
	t.Parallel()
	golden(t, "checkpoint", tableOf(own).checkpoint(tenant))
	golden(t, "checkpoints", tableOf(shared).checkpoints())
	golden(t, "own_checkpoints", ownCheckpoints())
	golden(t, "load", tableOf(shared).load(false, tenant, []string{"a", "é"}))
	golden(t, "load_locking", tableOf(shared).load(true, tenant, []string{"a"}))
	golden(t, "get", tableOf(shared).get(tenant, "a"))
	golden(t, "drop_tenant", tableOf(own).dropCheckpoint(tenant), tableOf(own).dropSlice(tenant, nil), tableOf(own).dropSlice(tenant, []byte("last")))
}

func TestSchemaStatements(t *testing.T) {
	t.Parallel()
	var statements []statement
	for _, sql := range indexed().createSQL() {
		statements = append(statements, statement{sql: sql})
	}
	golden(t, "create_table", append([]statement{lockName(indexed().name), exists(indexed().name)}, statements...)...)
	statements = nil
	for _, sql := range partitioned().createSQL() {
		statements = append(statements, statement{sql: sql})
	}
	golden(t, "create_table_partitioned", statements...)
	golden(t, "index_table_partitioned", statement{sql: partitioned().partitionIndexSQL()}, statement{sql: partitioned().indexSQL("status")}, statement{sql: partitioned().descendingIndexSQL("status")})
	golden(t, "open", statement{sql: probe})
	golden(t, "index_table", columnNames(indexed().name), statement{sql: indexed().indexSQL("customer.name")}, statement{sql: indexed().descendingIndexSQL("customer.name")})
	online := indexed()
	online.server.online = true
	golden(t, "index_table_online", statement{sql: online.indexSQL("status")}, statement{sql: online.descendingIndexSQL("status")})
	plain := dialect.PublicView(shared, nil).Query
	golden(t, "swap_table", viewText(dialect.ViewName(shared.Name)),
		statement{sql: viewSQL(dialect.ViewName(shared.Name), plain, false)}, statement{sql: viewSQL(dialect.ViewName(shared.Name), plain, true)})
	golden(t, "drop_table", viewShows(dialect.ViewName(shared.Name), indexed().name))
	other, another, second := shared, shared, tenant
	other.Number, another.Number, second[15] = 13, 14, 0
	groups, err := drivers.GroupOverrides(shared, []drivers.Override{{Tenant: tenant, Build: other}, {Tenant: second, Build: other}, {Tenant: domain.TenantID{1}, Build: another}})
	if err != nil {
		t.Fatal(err)
	}
	overridden := dialect.PublicView(shared, groups).Query
	golden(t, "swap_table_overrides", statement{sql: viewSQL(dialect.ViewName(shared.Name), overridden, true)})
	// The server stores the text, with the verb that creates a view.
	for _, query := range []string{plain, overridden} {
		for _, text := range []string{viewSQL(dialect.ViewName(shared.Name), plain, false), viewSQL(dialect.ViewName(shared.Name), overridden, false)} {
			if made := text == viewSQL(dialect.ViewName(shared.Name), query, false); showsQuery(text, query) != made {
				t.Errorf("a view made by %q is taken for showing %q: %t", text, query, !made)
			}
		}
	}
}

func text(s string) domain.Scalar    { return domain.Scalar{Kind: domain.ScalarText, Text: s} }
func whole(i int64) domain.Scalar    { return domain.Scalar{Kind: domain.ScalarInt, Int: i} }
func double(f float64) domain.Scalar { return domain.Scalar{Kind: domain.ScalarDouble, Double: f} }
func boolean(b bool) domain.Scalar   { return domain.Scalar{Kind: domain.ScalarBool, Bool: b} }

func TestQueryStatements(t *testing.T) {
	t.Parallel()
	status, name, total := domain.Path{"status"}, domain.Path{"customer", "name"}, domain.Path{"total"}
	long := text(strings.Repeat("x", 251))
	predicates := map[string]domain.Predicate{
		"has":             domain.And{domain.Has{Path: status}, domain.Has{Path: status, Not: true}, domain.Has{Path: name, Not: true}},
		"equal":           domain.And{domain.Compare{Path: status, Comparison: domain.Equal, Value: text("open ")}, domain.Compare{Path: total, Comparison: domain.Equal, Value: double(0.1)}, domain.Compare{Path: total, Comparison: domain.Equal}},
		"not_equal":       domain.Or{domain.Compare{Path: status, Comparison: domain.NotEqual, Value: boolean(true)}, domain.Compare{Path: total, Comparison: domain.NotEqual}},
		"range_number":    domain.And{domain.Compare{Path: total, Comparison: domain.Greater, Value: whole(100)}, domain.Compare{Path: name, Comparison: domain.LessOrEqual, Value: double(-1e300)}},
		"range_text":      domain.And{domain.Compare{Path: total, Comparison: domain.Less, Value: text("a")}, domain.Compare{Path: status, Comparison: domain.GreaterOrEqual, Value: text("a")}, domain.Compare{Path: status, Comparison: domain.Less, Value: long}},
		"range_bool":      domain.Or{domain.Compare{Path: total, Comparison: domain.LessOrEqual, Value: boolean(true)}, domain.Compare{Path: total, Comparison: domain.Less, Value: boolean(true)}, domain.Compare{Path: total, Comparison: domain.Greater, Value: boolean(true)}},
		"range_null":      domain.Compare{Path: total, Comparison: domain.Less},
		"one_of":          domain.And{domain.OneOf{Path: status, Values: []domain.Scalar{text("a"), whole(1), {}}}, domain.OneOf{Path: total, Values: []domain.Scalar{boolean(true)}, Not: true}},
		"contains":        domain.And{domain.Contains{Path: status, Value: text("a")}, domain.Contains{Path: total, Value: whole(1), Not: true}},
		"text":            domain.And{domain.Text{Path: status, Test: domain.StartsWith, Text: "a%"}, domain.Text{Path: total, Test: domain.EndsWith, Text: "\U0001f600", Not: true}, domain.Text{Path: total, Test: domain.Includes, Text: "[_]"}, domain.Text{Path: total, Test: domain.Includes}},
		"nothing_and_all": domain.Or{domain.And{}, domain.Or{}},
		"odd_names":       domain.Compare{Path: domain.Path{`a"b`, "'; drop table t --", ""}, Comparison: domain.Equal, Value: text("'")},
	}
	for file, predicate := range predicates {
		made, err := indexed().count(false, tenant, predicate)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		golden(t, "where_"+file, made)
	}
	for file, query := range map[string]domain.DocumentQuery{
		"first":                      {Limit: 10},
		"next":                       {Limit: 10, After: &domain.SortKey{ID: "a"}},
		"filtered":                   {Limit: 10, Where: predicates["equal"], After: &domain.SortKey{ID: "a"}},
		"order_column":               {Limit: 10, Order: []domain.Order{{Path: status}}, After: &domain.SortKey{Values: []domain.Scalar{text("b")}, ID: "a"}},
		"order_descending":           {Limit: 10, Where: predicates["text"], Order: []domain.Order{{Path: status, Descending: true}}},
		"order_descending_next":      {Limit: 10, Order: []domain.Order{{Path: status, Descending: true}}, After: &domain.SortKey{Values: []domain.Scalar{text("b")}, ID: "a"}},
		"order_descending_unordered": {Limit: 10, Order: []domain.Order{{Path: status, Descending: true}}, After: &domain.SortKey{Unordered: true, ID: "a"}},
		"order_path":                 {Limit: 10, Order: []domain.Order{{Path: total, Descending: true}}},
		"order_several":              {Limit: 10, Where: predicates["range_null"], Order: []domain.Order{{Path: total, Descending: true}, {Path: name}, {Path: status, Descending: true}}, After: &domain.SortKey{Values: []domain.Scalar{whole(1), {}, boolean(true)}, ID: "a"}},
		"order_twice":                {Limit: 10, Order: []domain.Order{{Path: status}, {Path: total}, {Path: status, Descending: true}}, After: &domain.SortKey{Values: []domain.Scalar{text("b"), whole(1), text("b")}, ID: "a"}},
		"order_unordered":            {Limit: 10, Order: []domain.Order{{Path: total}, {Path: status}}, After: &domain.SortKey{Unordered: true, ID: "a"}},
	} {
		made, err := indexed().query(false, tenant, query)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		golden(t, "query_"+file, made)
	}
	pattern, err := domain.ParsePattern("^a+$")
	if err != nil {
		t.Fatal(err)
	}
	modern := indexed()
	modern.server.patterns = true
	made, err := modern.count(false, tenant, domain.And{domain.Matches{Path: status, Pattern: pattern}, domain.Matches{Path: total, Pattern: pattern, Not: true}})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "where_matches", made)
	one := domain.Compare{Path: domain.Path{"customer", "id"}, Comparison: domain.Equal, Value: text("c-17")}
	for file, query := range map[string]domain.DocumentQuery{
		"partitioned":         {Limit: 10, Where: one},
		"partitioned_equal":   {Limit: 10, Where: domain.And{one, domain.Compare{Path: status, Comparison: domain.Equal, Value: text("open")}}},
		"partitioned_ordered": {Limit: 10, Where: one, Order: []domain.Order{{Path: status}}},
	} {
		made, err := partitioned().query(false, tenant, query)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		golden(t, "query_"+file, made)
	}
	made, err = tableOf(shared).query(true, tenant, domain.DocumentQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "query_locking", made)
	made, err = tableOf(shared).count(true, tenant, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "count_locking", made)
	golden(t, "explain", statement{sql: declarations(made.args) + made.sql})
}

// Every golden file belongs to a test.
func TestGoldenFilesAreUsed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.sql")
	if err != nil || len(files) < 30 {
		t.Fatalf("there are %d golden files, %v", len(files), err)
	}
	source, err := os.ReadFile("statement_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sql")
		short := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "where_"), "query_"), "keys_")
		if !strings.Contains(string(source), `"`+name+`"`) && !strings.Contains(string(source), `"`+short+`"`) {
			t.Errorf("no test makes %s", file)
		}
	}
}

func TestWhatCannotBeAsked(t *testing.T) {
	t.Parallel()
	pattern, err := domain.ParsePattern("a+")
	if err != nil {
		t.Fatal(err)
	}
	many := make(domain.And, maxParams+1)
	for i := range many {
		many[i] = domain.Compare{Path: domain.Path{"a"}, Comparison: domain.Equal, Value: whole(int64(i))}
	}
	for name, predicate := range map[string]domain.Predicate{
		"a pattern":           domain.And{domain.Matches{Path: domain.Path{"a"}, Pattern: pattern, Place: "line 1, column 5"}},
		"a very long text":    domain.Text{Path: domain.Path{"a"}, Test: domain.Includes, Text: strings.Repeat("x", maxSearched+1), Place: "line 1, column 5"},
		"very many constants": many,
	} {
		where := "filter, line 1, column 5"
		if name == "very many constants" {
			where = "filter"
		}
		_, err := tableOf(shared).count(false, tenant, predicate)
		refused, ok := errors.AsType[*domain.Error](err)
		if !ok || refused.Code != domain.CodeUnsupported || refused.Where != where {
			t.Errorf("%s: the error is %v, want one with the code %s of %s", name, err, domain.CodeUnsupported, where)
		}
	}
}

// The driver determines the server's abilities once, from the server's own description.
func TestAbilities(t *testing.T) {
	t.Parallel()
	const standard = 2
	for _, c := range []struct {
		of   settings
		want abilities
	}{
		{settings{codePage: 65001, level: 150, edition: standard, snapshot: true}, abilities{}},
		{settings{codePage: 65001, level: 150, edition: standard}, abilities{locking: true}},
		{settings{codePage: 65001, level: 160, edition: editionEnterprise, snapshot: true}, abilities{online: true}},
		{settings{codePage: 65001, level: 170, edition: standard, snapshot: true}, abilities{patterns: true}},
		{settings{codePage: 65001, level: 170, edition: editionDatabase, snapshot: true}, abilities{patterns: true, online: true}},
		{settings{codePage: 65001, level: 150, edition: editionInstance, snapshot: true}, abilities{online: true}},
	} {
		if got, err := c.of.abilities(); err != nil || got != c.want {
			t.Errorf("%+v gives %+v, %v; want %+v", c.of, got, err, c.want)
		}
	}
	for _, refused := range []settings{{level: 150}, {codePage: 65001, level: 130}} {
		if _, err := refused.abilities(); err == nil {
			t.Errorf("%+v is taken", refused)
		}
	}
}

func TestPatternsThatAreTooLong(t *testing.T) {
	t.Parallel()
	pattern, err := domain.ParsePattern(strings.Repeat("é", maxPattern/2) + strings.Repeat("x", maxPattern/2+1))
	if err != nil {
		t.Skip("no pattern is that long")
	}
	modern := tableOf(shared)
	modern.server.patterns = true
	_, err = modern.count(false, tenant, domain.Matches{Path: domain.Path{"a"}, Pattern: pattern})
	if refused, ok := errors.AsType[*domain.Error](err); !ok || refused.Code != domain.CodeUnsupported {
		t.Errorf("the error is %v", err)
	}
}

func TestUnverifiedConnectionsAreNamed(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"sqlserver://u:p@db:1433?database=d":                                            true,
		"sqlserver://u:p@db:1433?database=d&encrypt=disable":                            true,
		"sqlserver://u:p@db:1433?database=d&encrypt=true&TrustServerCertificate=true":   true,
		"sqlserver://u:p@db:1433?database=d&encrypt=false&TrustServerCertificate=false": true,
		"sqlserver://u:p@db:1433?database=d&encrypt=true&TrustServerCertificate=false":  false,
		"sqlserver://u:p@db:1433?database=d&encrypt=strict":                             false,
		"sqlserver://u:p@localhost:1433?database=d":                                     false,
		"sqlserver://u:p@127.0.0.1:1433?database=d":                                     false,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // no connection is made
		var log bytes.Buffer
		driver, err := Open(ctx, Config{URL: address, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			driver.Close()
			t.Fatalf("%s: the driver was opened", address)
		}
		if got := strings.Contains(log.String(), "does not verify the server's certificate"); got != want {
			t.Errorf("%s: warned: %t, want %t", address, got, want)
		}
	}
}

// The content of names and constants gets into a statement only as parameters.
func TestStatementsHoldNoValues(t *testing.T) {
	t.Parallel()
	const marker = "x'\"]\\marker"
	made, err := tableOf(shared).query(true, tenant, domain.DocumentQuery{
		Where: domain.And{
			domain.Compare{Path: domain.Path{marker}, Comparison: domain.Less, Value: text(marker)},
			domain.OneOf{Path: domain.Path{"a", marker}, Values: []domain.Scalar{text(marker)}},
			domain.Contains{Path: domain.Path{marker, marker}, Value: text(marker)},
			domain.Text{Path: domain.Path{marker}, Test: domain.Includes, Text: marker},
		},
		Order: []domain.Order{{Path: domain.Path{marker}}},
		After: &domain.SortKey{Values: []domain.Scalar{text(marker)}, ID: marker},
		Limit: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(made.sql, "marker") {
		t.Errorf("a value stands in the statement:\n%s", made.sql)
	}
}

func TestErrorsAreSortedByNumber(t *testing.T) {
	t.Parallel()
	native := func(number int32, all ...int32) error {
		err := mssql.Error{Number: number}
		for _, one := range all {
			err.All = append(err.All, mssql.Error{Number: one})
		}
		return fmt.Errorf("wrapped: %w", err)
	}
	for _, c := range []struct {
		err       error
		code      domain.Code
		is        error
		transient bool
	}{
		{err: native(errorNoObject), is: drivers.ErrNoTable},
		{err: native(266, errorNoObject, 266), is: drivers.ErrNoTable},
		{err: native(18456, 4060, 18456), code: domain.CodeUnavailable, transient: true},
		{err: native(errorDeadlock), transient: true},
		{err: native(errorConflict), transient: true},
		{err: native(40613), code: domain.CodeUnavailable, transient: true},
		{err: native(10928), code: domain.CodeUnavailable, transient: true},
		{err: native(3906), code: domain.CodeUnavailable, transient: true},
		{err: native(errorLockTimeout), code: domain.CodeUnavailable},
		{err: mssql.StreamError{InnerError: errors.New("cut off")}, code: domain.CodeUnavailable, transient: true},
		{err: native(errorCheck)},
		{err: native(18456)}, // login failed: waiting does not help
		{err: context.Canceled, is: context.Canceled},
		{err: domain.Errorf(domain.CodeUnsupported, "x", "y"), code: domain.CodeUnsupported},
	} {
		if got := transient(c.err); got != c.transient {
			t.Errorf("%v: transient is %t", c.err, got)
		}
		converted := dialect.Error(c.err)
		if !errors.Is(converted, c.err) {
			t.Errorf("%v became %v, which does not hold it", c.err, converted)
		}
		if c.is != nil && !errors.Is(converted, c.is) {
			t.Errorf("%v became %v, want %v", c.err, converted, c.is)
		}
		sorted, ok := errors.AsType[*domain.Error](converted)
		if ok != (c.code != "") || ok && sorted.Code != c.code {
			t.Errorf("%v became %v, want the code %q", c.err, converted, c.code)
		}
	}
}
