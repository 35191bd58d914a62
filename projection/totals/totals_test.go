package totals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/totals"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// bench is a separate database for a test, whose documents the test itself saves.
type bench struct {
	db      pgtest.DB
	store   *tables.Tables
	driver  drivers.Driver
	catalog *projection.Catalog
	totals  *totals.Totals
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s, db := tablestest.Open(t)
	d, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 4, Log: quiet})
	must(t, err)
	t.Cleanup(d.Close)
	b := &bench{db: db, store: s, driver: d}
	b.catalog = projection.NewCatalog(projection.CatalogConfig{
		Store: projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}, Drivers: map[string]drivers.Driver{"default": d},
		Progress: projection.NewProgress(), Log: quiet,
	})
	b.totals = b.process(d)
	return b
}

// process returns the totals of another process that owns all tenants.
func (b *bench) process(d drivers.Driver) *totals.Totals {
	return totals.New(totals.Config{
		Store: b.store.TotalTables, Registry: b.store.Registry, Drivers: map[string]drivers.Driver{"default": d}, Owns: func(domain.TenantID) bool { return true },
		Share: 1e9, Log: quiet, // do not wait
	})
}

// projection creates a shared projection whose orders are summed by day.
func (b *bench) projection(t *testing.T, name string) domain.Projection {
	t.Helper()
	p, err := b.catalog.Create(t.Context(), domain.Everyone, domain.Definition{
		Name: name, On: map[string]string{"*": "doc"}, Totals: &domain.Totals{Sum: []string{"orders", "price.net"}, By: "day"},
	}, "test")
	must(t, err)
	return p
}

// tenant returns a new tenant with an event.
func (b *bench) tenant(t *testing.T) domain.TenantID {
	t.Helper()
	tenant := tablestest.NewTenant(t, b.store)
	tablestest.AppendTo(t, b.store, tenant, "a-1", "A", "1")
	return tenant
}

// tester is a test, or one run of a property.
type tester interface {
	Helper()
	Fatal(args ...any)
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// documents saves documents as those of the event after the checkpoint; "" removes one.
func (b *bench) documents(t tester, build domain.Build, tenant domain.TenantID, changed map[string]string) {
	t.Helper()
	from, err := b.driver.Checkpoint(context.Background(), build, tenant)
	must(t, err)
	batch := drivers.Batch{From: from, To: from + 1}
	for id, data := range changed {
		if data == "" {
			batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: id, Version: batch.To})
		} else {
			batch.Upserts = append(batch.Upserts, domain.Document{ID: id, Version: batch.To, Data: json.RawMessage(data)})
		}
	}
	must(t, b.driver.Save(context.Background(), build, tenant, batch))
}

func (b *bench) read(t tester, name string, q totals.Query) totals.Answer {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 10_000
	}
	answer, err := b.totals.Read(context.Background(), name, q)
	must(t, err)
	return answer
}

// line describes a row in one line.
func line(row totals.Row) string {
	text := fmt.Sprintf("%s: %d", row.Key, row.Documents)
	for _, sum := range row.Sums {
		text += fmt.Sprintf(" %s(%d)", sum.Total, sum.Documents)
	}
	return text
}

func lines(rows []totals.Row) string {
	all := make([]string, len(rows))
	for i, row := range rows {
		all[i] = line(row)
	}
	return strings.Join(all, "; ")
}

// model is what the sums over a tenant's documents must be, by key.
type model map[string]*modelSums

type modelSums struct {
	documents, orders, net int
	sumOrders, sumNet      big.Rat
}

// generated is a value of a document's field, and what it counts for.
type generated struct {
	text   string
	number string // empty: none
}

var numbers = rapid.OneOf(
	rapid.Map(rapid.Int64(), func(n int64) generated { return generated{fmt.Sprint(n), fmt.Sprint(n)} }),
	rapid.Map(rapid.Int64Range(-1e12, 1e12), func(cents int64) generated {
		text := fmt.Sprintf("%d.%02d", cents/100, max(cents%100, -cents%100))
		return generated{text, text}
	}),
	rapid.SampledFrom([]generated{
		{"1e300", "1e300"}, {"-1e300", "-1e300"}, {"5e-324", "5e-324"}, {"0.1", "0.1"}, {"1.50", "1.5"}, {"0", "0"}, {"-0.0", "0"},
		{`"7"`, ""}, {"null", ""}, {"true", ""}, {"[1]", ""}, {`{"net": 1}`, ""},
	}),
)

// After every change has been computed, the totals of each tenant and of all are the sums over the documents.
func TestTotalsAreTheSumsOverDocuments(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.projection(t, "sums")
	tenants := []domain.TenantID{b.tenant(t), b.tenant(t), b.tenant(t)}
	type document struct {
		key         string
		orders, net generated
	}
	documents := map[domain.TenantID]map[string]document{}
	for _, tenant := range tenants {
		documents[tenant] = map[string]document{}
	}
	rapid.Check(t, func(r *rapid.T) {
		for range rapid.IntRange(1, 3).Draw(r, "saves") {
			tenant := rapid.SampledFrom(tenants).Draw(r, "tenant")
			changed := map[string]string{}
			for range rapid.IntRange(1, 5).Draw(r, "changes") {
				id := rapid.SampledFrom([]string{"a", "b", "c", "d", "é"}).Draw(r, "id")
				if rapid.IntRange(0, 4).Draw(r, "removed") == 0 {
					changed[id] = ""
					delete(documents[tenant], id)
					continue
				}
				d := document{rapid.SampledFrom([]string{"", "2026-11-01", "2026-11-02", "ü"}).Draw(r, "key"), numbers.Draw(r, "orders"), numbers.Draw(r, "net")}
				documents[tenant][id] = d
				changed[id] = fmt.Sprintf(`{"orders": %s, "more": {"orders": 5}, "price": {"net": %s, "gross": 1}, "day": %q}`, d.orders.text, d.net.text, d.key)
			}
			b.documents(r, p.LiveBuild(), tenant, changed)
		}
		must(r, b.totals.Compute(context.Background()))
		all := model{}
		for _, tenant := range tenants {
			own := model{}
			for _, d := range documents[tenant] {
				own.add(d.key, d.orders, d.net)
				all.add(d.key, d.orders, d.net)
			}
			own.check(r, b.read(r, "sums", totals.Query{Per: totals.PerBoth, Tenant: tenant}).Rows)
		}
		answer := b.read(r, "sums", totals.Query{Per: totals.PerKey})
		all.check(r, answer.Rows)
		if answer.Pending == nil || *answer.Pending != 0 {
			r.Fatalf("%v tenants are pending", answer.Pending)
		}
		whole := model{}
		for _, tenant := range tenants {
			for _, d := range documents[tenant] {
				whole.add("", d.orders, d.net)
			}
		}
		whole.check(r, []totals.Row{answer.All})
	})
}

func (m model) add(key string, orders, net generated) {
	of := m[key]
	if of == nil {
		of = &modelSums{}
		m[key] = of
	}
	of.documents++
	add := func(sum *big.Rat, count *int, value generated) {
		if number, ok := new(big.Rat).SetString(value.number); ok {
			*count++
			sum.Add(sum, number)
		}
	}
	add(&of.sumOrders, &of.orders, orders)
	add(&of.sumNet, &of.net, net)
}

func (m model) check(t *rapid.T, rows []totals.Row) {
	t.Helper()
	for _, row := range rows {
		want := m[row.Key]
		if want == nil {
			want = &modelSums{} // a tenant without documents
		}
		for i, sum := range []*big.Rat{&want.sumOrders, &want.sumNet} {
			got, ok := new(big.Rat).SetString(row.Sums[i].Total)
			if !ok || got.Cmp(sum) != 0 {
				t.Fatalf("the sum of %s for %q is %s, want %s", row.Sums[i].Field, row.Key, row.Sums[i].Total, sum.FloatString(330))
			}
		}
		if got, want := [3]int{int(row.Documents), int(row.Sums[0].Documents), int(row.Sums[1].Documents)}, [3]int{want.documents, want.orders, want.net}; got != want {
			t.Fatalf("for %q there are %v documents, want %v", row.Key, got, want)
		}
	}
	for key := range m {
		found := false
		for _, row := range rows {
			found = found || row.Key == key
		}
		if !found {
			t.Fatalf("there is no row for %q", key)
		}
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.projection(t, "paged")
	for i := range 3 {
		b.documents(t, p.LiveBuild(), b.tenant(t), map[string]string{
			"a": fmt.Sprintf(`{"day": "2026-10-31", "orders": %d}`, i), "b": `{"day": "2026-11-01", "orders": 0.5}`, "c": `{"day": 7}`, "d": `{"day": [1]}`,
		})
	}
	must(t, b.totals.Compute(t.Context()))
	for per, want := range map[totals.Per]string{
		totals.PerKey:    ": 3 0(0) 0(0); 2026-10-31: 3 3(3) 0(0); 2026-11-01: 3 1.5(3) 0(0); 7: 3 0(0) 0(0)",
		totals.PerTenant: ": 4 0.5(2) 0(0); : 4 1.5(2) 0(0); : 4 2.5(2) 0(0)",
		totals.PerBoth: ": 1 0(0) 0(0); 2026-10-31: 1 0(1) 0(0); 2026-11-01: 1 0.5(1) 0(0); 7: 1 0(0) 0(0); " +
			": 1 0(0) 0(0); 2026-10-31: 1 1(1) 0(0); 2026-11-01: 1 0.5(1) 0(0); 7: 1 0(0) 0(0); " +
			": 1 0(0) 0(0); 2026-10-31: 1 2(1) 0(0); 2026-11-01: 1 0.5(1) 0(0); 7: 1 0(0) 0(0)",
	} {
		for size := 1; size <= 13; size++ {
			var rows []totals.Row
			for q := (totals.Query{Per: per, Limit: size}); ; {
				page := b.read(t, "paged", q)
				rows = append(rows, page.Rows...)
				if !page.More {
					break
				}
				if len(page.Rows) != size {
					t.Fatalf("a page per %s has %d rows, want %d", per, len(page.Rows), size)
				}
				last := page.Rows[size-1]
				q.After = &totals.After{Tenant: last.Tenant, Key: last.Key}
			}
			if got := lines(rows); got != want {
				t.Errorf("per %s, in pages of %d, there are\n%s\nwant\n%s", per, size, got, want)
			}
		}
	}
	november := b.read(t, "paged", totals.Query{Per: totals.PerTenant, KeyPrefix: "2026-11"})
	if got, want := line(november.All)+" | "+lines(november.Rows), ": 3 1.5(3) 0(0) | : 1 0.5(1) 0(0); : 1 0.5(1) 0(0); : 1 0.5(1) 0(0)"; got != want {
		t.Errorf("the totals of November are %s, want %s", got, want)
	}
	for _, row := range november.Rows {
		if row.State == nil || row.State.Position != 1 || row.State.Build != p.Build || row.State.ComputedAt.IsZero() || row.TenantName != row.Tenant.String() {
			t.Errorf("the row's tenant is %q, with %+v", row.TenantName, row.State)
		}
	}
}

// Totals are computed from all pages of documents, and with too many keys under the empty one.
func TestManyDocumentsAndKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.projection(t, "many")
	tenant, other := b.tenant(t), b.tenant(t)
	changed := map[string]string{}
	for i := range totals.MaxKeys {
		changed[fmt.Sprintf("%05d", i)] = fmt.Sprintf(`{"day": "%d", "orders": %d}`, i, i)
	}
	b.documents(t, p.LiveBuild(), tenant, changed)
	b.documents(t, p.LiveBuild(), other, map[string]string{"a": `{"day": "1", "orders": 0.25}`})
	must(t, b.totals.Compute(t.Context()))
	answer := b.read(t, "many", totals.Query{Per: totals.PerBoth, Tenant: tenant})
	if len(answer.Rows) != totals.MaxKeys || answer.Rows[0].State.KeysDropped || answer.KeysDropped != 0 {
		t.Fatalf("there are %d rows, the first %+v", len(answer.Rows), answer.Rows[0])
	}
	b.documents(t, p.LiveBuild(), tenant, map[string]string{"x": `{"day": "x", "orders": -1.5}`})
	must(t, b.totals.Compute(t.Context()))
	answer = b.read(t, "many", totals.Query{Per: totals.PerBoth, Tenant: tenant})
	want := fmt.Sprintf(": %d %d.5(%[1]d) 0(0)", totals.MaxKeys+1, totals.MaxKeys*(totals.MaxKeys-1)/2-2)
	if got := lines(answer.Rows); got != want || !answer.Rows[0].State.KeysDropped {
		t.Errorf("with another key there are %s, want %s", domain.Clip(got, 200), want)
	}
	answer = b.read(t, "many", totals.Query{Per: totals.PerKey, KeyPrefix: "1"})
	if got := lines(answer.Rows); got != "1: 1 0.25(1) 0(0)" || answer.KeysDropped != 1 {
		t.Errorf("the other tenant's key has %s, and the keys of %d tenants were dropped, want 1", got, answer.KeysDropped)
	}
	b.documents(t, p.LiveBuild(), other, map[string]string{"b": fmt.Sprintf(`{"day": "%0100d"}`, 0), "c": fmt.Sprintf(`{"day": "%0101d"}`, 0)})
	must(t, b.totals.Compute(t.Context()))
	answer = b.read(t, "many", totals.Query{Per: totals.PerBoth, Tenant: other})
	if got, want := lines(answer.Rows), fmt.Sprintf(": 1 0(0) 0(0); %0100d: 1 0(0) 0(0); 1: 1 0.25(1) 0(0)", 0); got != want || answer.KeysDropped != 1 {
		t.Errorf("with a key that is too long there are %s, want %s", got, want)
	}
}

// A reset or another build makes the totals follow; removed documents, totals and projections leave nothing.
func TestTotalsFollowTheLiveBuild(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.projection(t, "followed")
	tenant, gone := b.tenant(t), b.tenant(t)
	for _, id := range []domain.TenantID{tenant, gone} {
		b.documents(t, p.LiveBuild(), id, map[string]string{"a": `{"orders": 1}`, "b": `{"orders": 2}`})
	}
	check := func(what, want string) {
		t.Helper()
		must(t, b.totals.Compute(t.Context()))
		if got := lines(b.read(t, "followed", totals.Query{Per: totals.PerTenant}).Rows); got != want {
			t.Errorf("%s: the totals are %s, want %s", what, got, want)
		}
	}
	check("at first", ": 2 3(2) 0(0); : 2 3(2) 0(0)")
	_, err := b.catalog.Reset(t.Context(), domain.Everyone, "followed", "test", false)
	must(t, err)
	if pending := b.read(t, "followed", totals.Query{Per: totals.PerTenant}).Pending; pending == nil || *pending != 2 {
		t.Errorf("after a reset %v tenants are pending, want 2", pending)
	}
	p, err = b.catalog.Get(t.Context(), domain.Everyone, "followed")
	must(t, err)
	b.documents(t, p.LiveBuild(), tenant, map[string]string{"a": `{"orders": 10, "price": {"net": 4}}`})
	check("after a reset", ": 1 10(1) 4(1)")

	definition := p.Definition
	definition.Totals = &domain.Totals{Sum: []string{"price.net"}}
	_, err = b.store.Registry.ChangeDefinition(t.Context(), p.ProjectionID, p.Definition, definition, "test")
	must(t, err)
	if answer := b.read(t, "followed", totals.Query{Per: totals.PerTenant}); len(answer.Rows) != 0 || answer.Tenants != 0 || *answer.Pending != 2 {
		t.Errorf("with other fields, before they are summed, there are %+v", answer)
	}
	check("with other fields", ": 1 4(1)")

	must(t, b.catalog.Delete(t.Context(), domain.Everyone, "followed", "test"))
	must(t, b.totals.Compute(t.Context()))
	_, err = b.totals.Read(t.Context(), "followed", totals.Query{Per: totals.PerTenant, Limit: 1})
	tablestest.WantCode(t, err, domain.CodeNotFound)
	b.wantRows(t, tenant, 0)
}

// Totals come from a tenant's own build while that is in force.
func TestTenantsOwnBuilds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.projection(t, "own")
	super := b.db.Pool(t, pgtest.RoleSuperuser, 1)
	tenants := []domain.TenantID{b.tenant(t), b.tenant(t), b.tenant(t)} // inline, a build of this base, and one of an earlier base
	for i, tenant := range tenants {
		b.documents(t, p.LiveBuild(), tenant, map[string]string{"a": `{"orders": 1}`})
		build := p.LiveBuild()
		build.Number = p.Build + 1 + int64(i)
		must(t, b.driver.CreateTemporaryTable(t.Context(), build))
		b.documents(t, build, tenant, map[string]string{"a": fmt.Sprintf(`{"orders": %d}`, 10*(i+1))})
		_, err := super.Exec(t.Context(), "insert into manifold.tenant_builds (tenant_id, owner, name, build, base) values ($1, $2, $3, $4, $5)",
			tenant, domain.Everyone, p.Name, build.Number, []*int64{nil, &p.Build, new(p.Build + 100)}[i])
		must(t, err)
	}
	must(t, b.totals.Compute(t.Context()))
	for i, want := range []string{": 1 10(1) 0(0)", ": 1 20(1) 0(0)", ": 1 1(1) 0(0)"} {
		if got := line(b.read(t, "own", totals.Query{Per: totals.PerTenant, Tenant: tenants[i]}).All); got != want {
			t.Errorf("the totals of tenant %d are %s, want %s", i, got, want)
		}
	}
}

// wantRows checks how many rows a tenant has in both tables.
func (b *bench) wantRows(t *testing.T, tenant domain.TenantID, want int) {
	t.Helper()
	var rows int
	must(t, b.store.System.QueryRow(t.Context(), `
		select (select count(*) from totals t where t.tenant_id = $1) + (select count(*) from total_sums s where s.tenant_id = $1)`, tenant).Scan(&rows))
	if rows != want {
		t.Errorf("the tenant has %d rows, want %d", rows, want)
	}
}

// Documents that change without the checkpoint, as replayed parked ones do, are summed when the totals have an age.
func TestRefresh(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.projection(t, "refreshed")
	tenant := b.tenant(t)
	b.documents(t, p.LiveBuild(), tenant, map[string]string{"a": `{"orders": 1}`})
	must(t, b.totals.Compute(t.Context()))
	must(t, b.driver.Save(t.Context(), p.LiveBuild(), tenant, drivers.Batch{From: 1, To: 1, Upserts: []domain.Document{{ID: "b", Version: 1, Data: json.RawMessage(`{"orders": 2}`)}}}))
	old := totals.New(totals.Config{
		Store: b.store.TotalTables, Registry: b.store.Registry, Drivers: map[string]drivers.Driver{"default": b.driver}, Owns: func(domain.TenantID) bool { return true },
		Refresh: time.Nanosecond, Log: quiet,
	})
	for i, process := range []*totals.Totals{b.totals, old} {
		must(t, process.Compute(t.Context()))
		if got, want := line(b.read(t, "refreshed", totals.Query{Per: totals.PerTenant}).All), []string{": 1 1(1) 0(0)", ": 2 3(2) 0(0)"}[i]; got != want {
			t.Errorf("the totals are %s, want %s", got, want)
		}
	}
}

// A process computes only the totals of tenants that it owns.
func TestOwnership(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.projection(t, "shared-out")
	mine, other := b.tenant(t), b.tenant(t)
	for _, tenant := range []domain.TenantID{mine, other} {
		b.documents(t, p.LiveBuild(), tenant, map[string]string{"a": `{"orders": 1}`})
	}
	half := totals.New(totals.Config{
		Store: b.store.TotalTables, Registry: b.store.Registry, Drivers: map[string]drivers.Driver{"default": b.driver},
		Owns: func(tenant domain.TenantID) bool { return tenant == mine }, Log: quiet,
	})
	must(t, half.Compute(t.Context()))
	answer := b.read(t, "shared-out", totals.Query{Per: totals.PerTenant})
	if len(answer.Rows) != 1 || answer.Rows[0].Tenant != mine || answer.Tenants != 1 || *answer.Pending != 1 {
		t.Errorf("there are totals of %d tenants, and %d are pending: %+v", answer.Tenants, *answer.Pending, answer.Rows)
	}
}

// slowDriver holds each query back until it is released.
type slowDriver struct {
	drivers.Driver
	asked   chan struct{}
	release chan struct{}
}

func (d slowDriver) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, q domain.DocumentQuery) ([]domain.Document, error) {
	documents, err := d.Driver.Query(ctx, build, tenant, q)
	d.asked <- struct{}{}
	<-d.release
	return documents, err
}

// failingDriver counts queries and fails each.
type failingDriver struct {
	drivers.Driver
	queries *atomic.Int32
}

func (d failingDriver) Query(context.Context, domain.Build, domain.TenantID, domain.DocumentQuery) ([]domain.Document, error) {
	d.queries.Add(1)
	return nil, errors.New("no answer")
}

// Documents that cannot be summed are not read again at once, but those of another build are.
func TestFailedScansPause(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.projection(t, "failing")
	tenant := b.tenant(t)
	failing := failingDriver{b.driver, new(atomic.Int32)}
	process := b.process(failing)
	for round := range 2 {
		b.documents(t, p.LiveBuild(), tenant, map[string]string{"a": `{"orders": 1}`})
		for range 3 {
			must(t, process.Compute(t.Context()))
		}
		if got := int(failing.queries.Load()); got != round+1 {
			t.Errorf("with build %d, documents were read %d times in total, want %d", p.Build, got, round+1)
		}
		_, err := b.catalog.Reset(t.Context(), domain.Everyone, "failing", "test", false)
		must(t, err)
		p, err = b.catalog.Get(t.Context(), domain.Everyone, "failing")
		must(t, err)
	}
}

// Scans that are likely to be long and short ones begin in turn.
func TestShortAndLongScansTakeTurns(t *testing.T) {
	t.Parallel()
	if got := totals.BeginOrder(6, 2); got != "slslssss" {
		t.Errorf("the scans begin in the order %s, want slslssss", got)
	}
	if got := totals.BeginOrder(1, 3); got != "slll" {
		t.Errorf("the scans begin in the order %s, want slll", got)
	}
}

// A process that was slower than the one that took over does not replace newer totals with older ones.
func TestTakeover(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.projection(t, "taken")
	tenant := b.tenant(t)
	b.documents(t, p.LiveBuild(), tenant, map[string]string{"a": `{"orders": 1}`})
	slow := slowDriver{b.driver, make(chan struct{}, 1), make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- b.process(slow).Compute(context.Background()) }()
	tablestest.Receive(t, slow.asked, "the slow process's query")
	b.documents(t, p.LiveBuild(), tenant, map[string]string{"a": `{"orders": 5}`})
	must(t, b.totals.Compute(t.Context()))
	close(slow.release)
	must(t, tablestest.Receive(t, done, "the slow process"))
	answer := b.read(t, "taken", totals.Query{Per: totals.PerTenant})
	if got := line(answer.All); got != ": 1 5(1) 0(0)" || *answer.Pending != 0 {
		t.Errorf("the totals are %s, with %d tenants pending", got, *answer.Pending)
	}
}

// A deleted tenant's totals go with it, and totals that were being computed do not come back.
func TestErasure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.projection(t, "erased")
	tenant, other := b.tenant(t), b.tenant(t)
	for _, id := range []domain.TenantID{tenant, other} {
		b.documents(t, p.LiveBuild(), id, map[string]string{"a": `{"orders": 1}`})
	}
	must(t, b.totals.Compute(t.Context()))
	b.wantRows(t, tenant, 4)
	must(t, b.store.SetTenantState(t.Context(), tenant, domain.TenantDeleting))
	answer := b.read(t, "erased", totals.Query{Per: totals.PerTenant})
	if got := line(answer.All) + " | " + lines(answer.Rows); got != ": 1 1(1) 0(0) | : 1 1(1) 0(0)" || answer.Rows[0].Tenant != other {
		t.Errorf("while a tenant is being deleted, the totals are %s", got)
	}
	b.documents(t, p.LiveBuild(), tenant, map[string]string{"a": `{"orders": 2}`})
	slow := slowDriver{b.driver, make(chan struct{}, 1), make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- b.process(slow).Compute(context.Background()) }()
	tablestest.Receive(t, slow.asked, "the query")
	must(t, b.store.EraseTenant(t.Context(), tenant))
	close(slow.release)
	must(t, tablestest.Receive(t, done, "the process"))
	b.wantRows(t, tenant, 0)
	b.wantRows(t, other, 4)
}
