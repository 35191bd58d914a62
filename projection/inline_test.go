package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/upcasting"
)

// inlineFolds connects a store to the folds of its appends.
type inlineFolds struct{ of *projection.Inline }

func (f *inlineFolds) Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (eventlog.InlineFolds, []domain.Statement, []domain.TenantBuild, error) {
	folds, checkpoints, gone, err := f.of.Open(ctx, tenant, head, builds)
	if err != nil {
		return nil, nil, nil, err
	}
	return folds, checkpoints, gone, nil
}

func (f *inlineFolds) CatchUp(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) ([]domain.TenantBuild, error) {
	return f.of.CatchUp(ctx, tenant, head, builds)
}

// appender is a process that appends with inline folds.
type appender struct {
	store  *tables.Tables
	driver drivers.Driver
	inline *projection.Inline
}

// newAppender opens an appender on a database. url is where its app login connects.
func newAppender(t *testing.T, db pgtest.DB, url string) *appender {
	t.Helper()
	return newAppenderThrough(t, db, url, func(d *postgres.Driver) drivers.Driver { return d })
}

// newAppenderThrough is newAppender with a wrapper between its inline folds and the driver.
func newAppenderThrough(t *testing.T, db pgtest.DB, url string, through func(*postgres.Driver) drivers.Driver) *appender {
	t.Helper()
	folds := &inlineFolds{}
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: url, SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 8, Log: quiet, Inline: folds,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	d, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 4, QueryConns: 1, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	upcasters, err := upcasting.NewBySystem(s.Registry)
	if err != nil {
		t.Fatal(err)
	}
	folds.of = projection.NewInline(projection.InlineConfig{Store: storeOf(s), Drivers: map[string]drivers.Driver{"default": through(d)}, Upcasters: upcasters, Log: quiet,
		Handlers: map[string]folding.Handler{"listing": listing}})
	return &appender{store: s, driver: d, inline: folds.of}
}

var counting = domain.Definition{
	Name: "counting", Database: "default", Mode: domain.ModeInline, Key: "event.data.k",
	On: map[string]string{
		"Add": `{"n": doc.?n.orValue(0) + event.data.n, "last": event.position}`, "Drop": "null",
		"Check": `doc.n == event.data.n ? doc : {"n": int("another")}`,
	},
}

// listing lists the numbers of events as Go code sees them.
var listing = folding.HandlerOf(folding.Rule[struct{ N []string }]{
	Key: func(domain.Event) (string, error) { return "all", nil },
	Fold: func(doc *struct{ N []string }, event domain.Event) (bool, error) {
		var data, metadata struct{ N json.Number }
		if err := errors.Join(json.Unmarshal(event.Data, &data), json.Unmarshal(event.Metadata, &metadata)); err != nil {
			return false, err
		}
		doc.N = append(doc.N, data.N.String(), metadata.N.String())
		return true, nil
	},
})

func (a *appender) project(t *testing.T, owner domain.TenantID, definition domain.Definition) domain.Projection {
	t.Helper()
	number, err := a.store.NextBuild(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	p := domain.Projection{ProjectionID: domain.ProjectionID{Owner: owner, Name: definition.Name}, Definition: folding.WithDefaults(definition), Build: number}
	if err := a.driver.CreateTemporaryTable(t.Context(), p.LiveBuild()); err != nil {
		t.Fatal(err)
	}
	if err := a.store.CreateProjection(t.Context(), p, "test"); err != nil {
		t.Fatal(err)
	}
	return p
}

func (a *appender) add(tenant domain.TenantID, texts ...string) (domain.Appended, error) {
	var some domain.StreamAppend
	some.Stream, some.Expected = "x-1", domain.Any
	for _, text := range texts {
		kind := "Add"
		if text[0] == '-' {
			kind, text = "Drop", text[1:]
		}
		if text[0] == '?' {
			kind, text = "Check", text[1:]
		}
		some.Events = append(some.Events, domain.NewEvent{Type: kind, Data: json.RawMessage(text)})
	}
	return a.store.Append(context.Background(), tenant, domain.Append{Streams: []domain.StreamAppend{some}})
}

// documents returns all documents of a build.
func (a *appender) documents(t *testing.T, p domain.Projection, tenant domain.TenantID) string {
	t.Helper()
	documents, err := a.driver.Query(t.Context(), p.LiveBuild(), tenant, domain.DocumentQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, d := range documents {
		text += fmt.Sprintf("%s@%d %s\n", d.ID, d.Version, d.Data)
	}
	return text
}

// wantInline fails the test unless the projection has a number of inline builds, each at the log's head.
func (a *appender) wantInline(t *testing.T, p domain.Projection, want int) {
	t.Helper()
	builds, err := a.store.InlineBuilds(t.Context(), p.ProjectionID)
	if err != nil || len(builds) != want {
		t.Fatalf("there are %d inline builds of %s, %v; want %d", len(builds), p.Name, err, want)
	}
	for _, b := range builds {
		head, err := a.store.Head(t.Context(), b.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		if checkpoint, err := a.driver.Checkpoint(t.Context(), p.LiveBuild(), b.Tenant); err != nil || checkpoint != head.Position {
			t.Fatalf("%s is at %d of %d, %v", p.Name, checkpoint, head.Position, err)
		}
	}
}

// A first append makes a projection inline. An event that cannot be folded fails only its own request.
func TestInlineFirstAppend(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a := newAppender(t, db, db.URL(migrations.RoleApp))
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	shared := a.project(t, domain.Everyone, counting)
	own := counting
	own.Name = "own"
	ownP := a.project(t, tenant, own)
	if _, err := a.add(tenant, `{"k": "a", "n": 1}`, `{"k": "b", "n": 2e1}`, `{"k": "a", "n": 3}`); err != nil {
		t.Fatal(err)
	}
	_, err := a.add(tenant, `-{"k": "b"}`, `{"k": "a", "n": "text"}`)
	refused, ok := errors.AsType[*domain.Error](err)
	if !ok || refused.Code != domain.CodeRefused || refused.Where != "events[1].data" || !strings.Contains(refused.Message, `"counting"`) || !strings.Contains(refused.Message, "on.Add") {
		t.Fatalf("an event that cannot be folded is answered %v", err)
	}
	if _, err := a.add(tenant, `-{"k": "b"}`, `{"k": "c", "n": 1}`); err != nil {
		t.Fatal(err)
	}
	if _, err := a.add(tenant.AuditLog(), `{"k": "c", "n": 1}`); err != nil {
		t.Fatal(err)
	}
	if got := a.documents(t, shared, tenant.AuditLog()); got != "" {
		t.Errorf("from the audit log there is %s", got)
	}
	for _, p := range []domain.Projection{shared, ownP} {
		position, err := a.driver.Checkpoint(t.Context(), p.LiveBuild(), tenant)
		if err != nil || position != 5 {
			t.Fatalf("%s: checkpoint %d, %v", p.Name, position, err)
		}
		got := a.documents(t, p, tenant)
		want := "a@3 {\"n\": 4, \"last\": 3}\nc@5 {\"n\": 1, \"last\": 5}\n"
		if got != want {
			t.Errorf("%s has\n%s, want\n%s", p.Name, got, want)
		}
	}
}

// The appends of an earlier release fold nothing. The next append that folds catches up, even if it is refused itself,
// and gives up a build that cannot catch up.
func TestInlineBuildCatchesUpAfterForeignAppends(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a := newAppender(t, db, db.URL(migrations.RoleApp))
	earlier := earlierRelease(t, db)
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	p := a.project(t, domain.Everyone, counting)
	add := func(texts ...string) {
		t.Helper()
		if _, err := a.add(tenant, texts...); err != nil {
			t.Fatal(err)
		}
	}
	add(`{"k": "a", "n": 1}`)
	for n := range 30 { // it takes turns with locking the log first, and with not doing so
		earlier(tenant, `{"k": "a", "n": 10}`)
		switch n % 3 {
		case 0: // refused from a document that lacks something, if it were folded from that
			add(fmt.Sprintf(`?{"k": "a", "n": %d}`, 11+11*n))
		case 1:
			if _, err := a.add(tenant, `{"k": "a", "n": "one"}`); !domain.IsCode(err, domain.CodeRefused) {
				t.Fatalf("an event that cannot be folded is answered %v", err)
			}
		}
		add(`{"k": "a", "n": 1}`)
		a.wantInline(t, p, 1)
	}
	if got, want := a.documents(t, p, tenant), "a@71 {\"n\": 331, \"last\": 71}\n"; got != want {
		t.Errorf("there is %s, want %s", got, want)
	}
	earlier(tenant, `{"k": "a", "n": "one"}`)
	add(`{"k": "a", "n": 1}`)
	a.wantInline(t, p, 0)
}

// A lost table does not prevent appends.
func TestInlineTableIsLost(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a := newAppender(t, db, db.URL(migrations.RoleApp))
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	p, own := a.project(t, domain.Everyone, counting), counting
	own.Name = "own"
	q := a.project(t, tenant, own)
	for n := range 4 {
		if n == 2 {
			if err := a.driver.DropTable(t.Context(), p.LiveBuild()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := a.add(tenant, fmt.Sprintf(`{"k": "%d", "n": 1}`, n%3)); err != nil {
			t.Fatal(err)
		}
	}
	if builds, err := a.store.InlineBuilds(t.Context(), p.ProjectionID); err != nil || len(builds) != 0 {
		t.Errorf("there are inline builds without a table: %+v, %v", builds, err)
	}
	a.wantInline(t, q, 1)
}

// A tenant that a rebuild has left behind keeps its old build when its appends no longer fold into it: the runner
// follows that build. If its table is lost, the tenant has nothing to keep.
func TestAPinnedInlineBuildThatEndsIsFollowed(t *testing.T) {
	t.Parallel()
	for _, vanishes := range []bool{false, true} {
		t.Run(fmt.Sprintf("its table vanishes %v", vanishes), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			a := newAppender(t, db, db.URL(migrations.RoleApp))
			earlier := earlierRelease(t, db)
			tenant := a.newTenant(t)
			p := a.project(t, domain.Everyone, counting)
			a.mustAdd(t, tenant, `{"k": "a", "n": 1}`)
			next, err := a.store.NextBuild(t.Context(), domain.Everyone)
			if err != nil {
				t.Fatal(err)
			}
			_, err = db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), fmt.Sprintf(`
				update manifold.tenant_builds set pinned_to = %[1]d, fault = 'why', fault_position = 1;
				update manifold.projections set build = %[1]d, definition = definition || '{"key": "event.data.other"}'`, next))
			if err != nil {
				t.Fatal(err)
			}
			want, fault := p.Build, true
			if vanishes {
				want, fault = next, false
				if err := a.driver.DropTable(t.Context(), p.LiveBuild()); err != nil {
					t.Fatal(err)
				}
			}
			earlier(tenant, `{"k": "a", "n": "one"}`) // the old definition cannot fold it
			a.mustAdd(t, tenant, `{"k": "a", "n": 1}`)
			live, err := a.store.LiveProjection(t.Context(), tenant, p.ProjectionID)
			if err != nil || live.Inline || live.Build != want || (live.Fault != nil) != fault || (live.Definition.Key == p.Definition.Key) != fault {
				t.Errorf("live is %+v, %v; want build %d", live, err, want)
			}
		})
	}
}

// A fold sees the same event before its append and after it, whatever the form of its numbers.
func TestInlineFoldsSeeNumbersAsStored(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a := newAppender(t, db, db.URL(migrations.RoleApp))
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	p := a.project(t, domain.Everyone, domain.Definition{
		Name: "numbers", Mode: domain.ModeInline, Key: "string(event.data.n)",
		On: map[string]string{"Add": `{"n": event.data.n, "s": string(event.data.n), "m": event.metadata}`},
	})
	listed := a.project(t, domain.Everyone, domain.Definition{Name: "listed", Mode: domain.ModeInline, Handler: "listing"})
	digits := func(n int) string {
		text := ""
		for range n {
			text += strconv.Itoa(rand.IntN(10))
		}
		return text
	}
	numbers := []string{"0", "-0", "0e7", "-0.0", "0.00e1", "0e-3", "1e2", "1.5e1", "1.50e1", "-2.5E+3", "12e-1", "1E-20", "100", "1.0", "9223372036854775807", "92233720368547758070e-1", "1e18", "1e19"}
	for range 300 {
		number := digits(1 + rand.IntN(18))
		if number = strings.TrimLeft(number, "0"); number == "" {
			number = "0"
		}
		if rand.IntN(2) == 0 {
			number += "." + digits(1+rand.IntN(5))
		}
		if rand.IntN(2) == 0 {
			number = "-" + number
		}
		if rand.IntN(3) > 0 {
			number += []string{"e", "E", "e+", "e-"}[rand.IntN(4)] + strconv.Itoa(rand.IntN(25))
		}
		numbers = append(numbers, number)
	}
	for i := range len(numbers) - 1 {
		_, err := a.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
			Stream: "x-1", Expected: domain.Any, Events: []domain.NewEvent{{
				Type: "Add", Data: json.RawMessage(fmt.Sprintf(`{"n": %s, "text": "\"1e2"}`, numbers[i])), Metadata: json.RawMessage(`{"n": ` + numbers[i+1] + `}`),
			}},
		}}})
		if err != nil {
			t.Fatalf("%s: %v", numbers[i], err)
		}
	}
	for _, p := range []domain.Projection{p, listed} {
		a.wantInline(t, p, 1)
		again := a.fromScratch(t, p, tenant)
		got, want := strings.Split(a.documents(t, p, tenant), "\n"), strings.Split(a.documents(t, again, tenant), "\n")
		if len(got) != len(want) {
			t.Fatalf("%d documents, want %d", len(got), len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("folded with the append %s, from the log %s", got[i], want[i])
			}
		}
	}
}

// fromScratch folds a tenant's log into a separate build of a projection.
func (a *appender) fromScratch(t *testing.T, p domain.Projection, tenant domain.TenantID) domain.Projection {
	t.Helper()
	number, err := a.store.NextBuild(t.Context(), domain.Everyone)
	if err != nil {
		t.Fatal(err)
	}
	p.Build = number
	if err := a.driver.CreateTemporaryTable(t.Context(), p.LiveBuild()); err != nil {
		t.Fatal(err)
	}
	a.catchUp(t, p, tenant)
	return p
}

func (a *appender) catchUp(t *testing.T, p domain.Projection, tenant domain.TenantID) *folding.Fold {
	t.Helper()
	fold, err := folding.CompileWith(p.Definition, map[string]folding.Handler{"listing": listing})
	if err != nil {
		t.Fatal(err)
	}
	head, err := a.store.Head(t.Context(), tenant)
	if err == nil {
		err = projection.CatchUpTo(t.Context(), a.store, a.driver, p.LiveBuild(), tenant, fold, head.Position)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fold
}

// A process that appends alone, and sees only its own batches, learns from the append itself which builds to fold into.
func TestInlineBuildsChangeDuringAppends(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a, b := newAppender(t, db, db.URL(migrations.RoleApp)), newAppender(t, db, db.URL(migrations.RoleApp))
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	p := a.project(t, domain.Everyone, counting)
	add := func(texts ...string) {
		t.Helper()
		if _, err := a.add(tenant, texts...); err != nil {
			t.Fatal(err)
		}
	}
	checkpoint := func() int64 {
		t.Helper()
		position, err := a.driver.Checkpoint(t.Context(), p.LiveBuild(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		return position
	}
	for range 5 {
		for range 20 { // until it takes the log to be its own again
			add(`{"k": "a", "n": 1}`)
		}
		a.wantInline(t, p, 1)
		builds, err := b.store.InlineBuilds(t.Context(), p.ProjectionID)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.store.EndInline(t.Context(), builds[0]); err != nil {
			t.Fatal(err)
		}
		before := checkpoint()
		add(`{"k": "a", "n": 1}`)
		if after := checkpoint(); after != before {
			t.Fatalf("an append has folded into what is no longer inline, from %d to %d", before, after)
		}
		for range 20 {
			add(`{"k": "a", "n": 1}`)
		}
		fold := b.catchUp(t, p, tenant)
		if begun, err := b.inline.Begin(t.Context(), tenant, p.LiveBuild(), fold); err != nil || !begun {
			t.Fatalf("begun: %t, %v", begun, err)
		}
		add(`{"k": "a", "n": 1}`)
		a.wantInline(t, p, 1)
	}
}

// The time of recording is unknown while an event is folded inline. An upcaster that reads it makes the append fail,
// since the document would differ from that of a rebuild.
func TestInlineUpcastersWithoutTheTime(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a := newAppender(t, db, db.URL(migrations.RoleApp))
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	p := a.project(t, tenant, domain.Definition{Name: "days", Database: "default", Mode: domain.ModeInline, Key: "event.data.k", On: map[string]string{"Add": "event.data"}})
	put := func(field string) {
		t.Helper()
		_, _, err := a.store.PutUpcaster(t.Context(), domain.Upcaster{Owner: tenant, Type: "Add", Version: 1, Expression: `{"k": event.data.k, "year": event.` + field + `.getFullYear()}`, By: "test"})
		if err != nil {
			t.Fatal(err)
		}
	}
	add := func(k string, occurred time.Time, metadata string) error {
		_, err := a.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "x-1", Expected: domain.Any, Events: []domain.NewEvent{
			{Type: "Add", Data: json.RawMessage(`{"k": "` + k + `"}`), Metadata: json.RawMessage(metadata), OccurredAt: occurred},
		}}}})
		return err
	}
	some := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	put("recordedAt")
	if err := add("a", some, "{}"); !domain.IsCode(err, domain.CodeRefused) {
		t.Errorf("an upcaster that looks at recordedAt: %v", err)
	}
	if err := add("b", some, `{"schemaVersion": 2}`); err != nil {
		t.Errorf("an event that the upcaster is not for: %v", err)
	}
	put("occurredAt")
	if err := add("c", time.Time{}, "{}"); !domain.IsCode(err, domain.CodeRefused) {
		t.Errorf("an upcaster that looks at occurredAt, where there is none: %v", err)
	}
	if err := add("d", some, "{}"); err != nil {
		t.Errorf("an event that says when it has occurred: %v", err)
	}
	if got := a.documents(t, p, tenant); !strings.Contains(got, "2020") || strings.Contains(got, `"a"`) || strings.Contains(got, `"c"`) {
		t.Errorf("the documents are %s", got)
	}
}

// An event may have several documents in an inline projection. The request is refused as a whole if one of them cannot
// be folded, or if its events have too many. Requests with many documents share no batch.
func TestInlineWithSeveralDocumentsOfAnEvent(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a := newAppender(t, db, db.URL(migrations.RoleApp))
	tenant := a.newTenant(t)
	spread := counting
	spread.Key = `event.data.?many.hasValue() ? lists.range(event.data.many).map(i, event.data.k + string(i)) : ["all", {"id": event.data.k, "item": event.data.n}]`
	spread.On = map[string]string{"Add": `{"n": doc.?n.orValue(0) + (item == null ? 1 : item)}`, "Drop": `key == "all" ? doc : null`}
	p := a.project(t, tenant, spread)
	add := func(want domain.Code, texts ...string) {
		t.Helper()
		if _, err := a.add(tenant, texts...); want == "" && err != nil || want != "" && !domain.IsCode(err, want) {
			t.Fatalf("%.100q is answered %v", texts, err)
		}
	}
	add("", `{"k": "a", "n": 5}`, `{"k": "b", "n": 7}`, `{"k": "a", "n": 1}`, `-{"k": "b", "n": 0}`)
	add(domain.CodeRefused, `{"k": "c", "n": 1}`, `{"k": "a", "n": "text"}`)
	if got, want := a.documents(t, p, tenant), "a@3 {\"n\": 6}\nall@4 {\"n\": 3}\n"; got != want {
		t.Errorf("there is\n%s, want\n%s", got, want)
	}
	many := func(k string) string { return fmt.Sprintf(`{"k": %q, "many": 100}`, k) }
	var request []string
	for i := range 20 {
		request = append(request, many(fmt.Sprint(i, "/")))
	}
	add("", request...)
	add(domain.CodeTooCostly, append(request, many("x"))...)
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			if _, err := a.add(tenant, many(fmt.Sprint("m", i%50, "/"))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	a.wantInline(t, p, 1)
	found, err := a.driver.Count(t.Context(), p.LiveBuild(), tenant, nil)
	if err != nil || found != 2+20*100+50*100 {
		t.Errorf("there are %d documents, %v", found, err)
	}
}
