package doctor

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/service"
	"github.com/manifold-es/manifold/tables"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// doctorEnviron is the environment of a service on a database.
func doctorEnviron(db pgtest.DB) []string {
	return []string{
		"MANIFOLD_DATABASE_URL=" + db.URL(pgtest.RoleMigrator), "MANIFOLD_DATABASE_MAX_CONNS=4",
		"MANIFOLD_DATABASE_APP_URL=" + db.URL(migrations.RoleApp),
		"MANIFOLD_DATABASE_SYSTEM_URL=" + db.URL(migrations.RoleSystem),
		"MANIFOLD_DATABASE_DOCUMENTS_URL=" + db.URL(migrations.RoleDocuments),
		"MANIFOLD_DATABASE_RETENTION_URL=" + db.URL(migrations.RoleRetention),
	}
}

func openStore(t *testing.T, db pgtest.DB) *tables.Tables {
	t.Helper()
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func definitionFile(t *testing.T, folder, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, "one.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// found returns the finding of a check.
func found(t *testing.T, findings []Finding, check string) Finding {
	t.Helper()
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Check == check })
	if i < 0 {
		t.Fatalf("there is no check %q in %+v", check, findings)
	}
	return findings[i]
}

// In a working installation every check is fine, and nothing that the doctor created is left.
func TestDoctorOfTheHealthy(t *testing.T) {
	t.Parallel()
	db, reports, folder := pgtest.Database(t), pgtest.Database(t), t.TempDir()
	definitionFile(t, folder, "name: counts\ndatabase: reports\non: {Added: 'doc'}\n")
	environ := append(doctorEnviron(db), "MANIFOLD_PROJECTIONS="+folder,
		"MANIFOLD_DATABASES={reports: {driver: postgres, url: '"+reports.URL(migrations.RoleDocuments)+"'}}")
	c, err := config.Load("", environ)
	if err != nil {
		t.Fatal(err)
	}
	c.Listen = "127.0.0.1:0"
	p, err := service.Start(t.Context(), c, slog.New(slog.DiscardHandler), service.Extensions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	findings := Examine(t.Context(), "", environ, service.Extensions{}, false)
	for _, f := range findings {
		want := Fine
		if f.Verdict == Warning && (f.Check == "commits" || f.Check == movesCheck) { // as the tests' server is set up
			want = Warning
		}
		if f.Verdict != want || f.Message == "" || (f.Todo == "") != (want == Fine) {
			t.Errorf("%+v", f)
		}
	}
	for _, check := range []string{
		"configuration", "login app", "login system", "login documents", "login retention", "database", "clock", "schema", "commits",
		"documents default", "documents reports", "definitions", "projection counts", "seals", "indexes", "events",
	} {
		found(t, findings, check)
	}
	// A tenant that a rebuild has left behind, as its row says it.
	_, err = db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `
		insert into manifold.tenant_builds (tenant_id, owner, name, build, base, definition, pinned_to, fault, fault_position)
		select gen_random_uuid(), p.tenant_id, p.name, p.build, p.build, p.definition, p.build, 'event 7 cannot be folded', 7 from manifold.projections p`)
	if err != nil {
		t.Fatal(err)
	}
	if f := found(t, Examine(t.Context(), "", environ, service.Extensions{}, false), "projection counts"); f.Verdict != Warning ||
		!strings.Contains(f.Message, "left 1 tenants on their old documents") || !strings.Contains(f.Message, "event 7 cannot be folded") || f.Todo == "" {
		t.Errorf("of the tenant that was left behind it says %+v", f)
	}
	var left int
	err = reports.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(), "select count(*) from pg_class where relname like '%doctor%'").Scan(&left)
	if err != nil || left > 0 {
		t.Errorf("%d things are left, %v", left, err)
	}
}

func TestServersVersionIsJudged(t *testing.T) {
	t.Parallel()
	for major, want := range map[int]Verdict{
		pg.OldestMajor - 1: Failure, pg.OldestMajor: Fine, pg.NewestMajor: Fine, pg.NewestMajor + 1: Warning,
	} {
		d := new(doctor)
		d.server(pg.Login{Major: major, ServerIs: strconv.Itoa(major) + ".0"})
		f := found(t, d.findings, "database")
		if f.Verdict != want || !strings.Contains(f.Message, strconv.Itoa(major)+".0") || (f.Todo == "") != (want == Fine) {
			t.Errorf("%+v; want %s", f, want)
		}
	}
}

// The doctor reports what a driver warns about when a service opens it. Here the login bypasses row-level security.
func TestDoctorTellsWhatDriversWarnOf(t *testing.T) {
	t.Parallel()
	db, reports := pgtest.Database(t), pgtest.Database(t)
	findings := Examine(t.Context(), "", append(doctorEnviron(db),
		"MANIFOLD_DATABASES={reports: {driver: postgres, url: '"+reports.URL(pgtest.RoleSuperuser)+"'}}"), service.Extensions{}, false)
	if !slices.ContainsFunc(findings, func(f Finding) bool {
		return f.Check == "documents reports" && f.Verdict == Warning && strings.Contains(f.Message, "above row-level security") && f.Todo != ""
	}) {
		t.Errorf("%+v", findings)
	}
}

// All problems are found at once, each with what to do, and no password is shown.
func TestDoctorOfTheSick(t *testing.T) {
	t.Parallel()
	db, folder := pgtest.Database(t), t.TempDir()
	definitionFile(t, folder, "name: counts\non: {Added: 'doc'}\n")
	environ := append(doctorEnviron(db), "MANIFOLD_PROJECTIONS="+folder, "MANIFOLD_LISTEN=127.0.0.1:0")
	c, err := config.Load("", environ)
	if err != nil {
		t.Fatal(err)
	}
	p, err := service.Start(t.Context(), c, slog.New(slog.DiscardHandler), service.Extensions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, db)
	shared, err := s.Projections(t.Context(), domain.Everyone)
	s.Close()
	counts := slices.IndexFunc(shared, func(p domain.Projection) bool { return p.Name == "counts" })
	if err != nil || counts < 0 {
		t.Fatalf("the shared projections are %+v, %v", shared, err)
	}
	driver, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments)})
	if err != nil {
		t.Fatal(err)
	}
	err = driver.DropTable(t.Context(), shared[counts].LiveBuild())
	driver.Close()
	if err != nil {
		t.Fatal(err)
	}
	definitionFile(t, folder, "name: others\ndatabase: nowhere\nmode: inline\non: {Added: 'nonsense('}\n")
	retention := "manifold_retention"
	if db.Distributed() {
		retention = "nobody" // the nodes of a cluster may trust one another, and so any password
	}
	environ = append(environ,
		"MANIFOLD_DATABASE_APP_URL="+db.URL(pgtest.RoleSuperuser),
		"MANIFOLD_DATABASE_SYSTEM_URL="+db.URL(pgtest.RoleMigrator),
		"MANIFOLD_DATABASE_RETENTION_URL="+db.URLAs(retention, "topsecret"),
		"MANIFOLD_DATABASES={far: {driver: postgres, url: 'postgres://u:topsecret@127.0.0.1:1/x'}, odd: {driver: oracle, url: 'o://x'}}")
	findings := Examine(t.Context(), "", environ, service.Extensions{}, false)
	for check, want := range map[string]string{
		"login app":         "is a superuser",
		"login system":      "owns Manifold's tables",
		"login retention":   "it cannot connect",
		"schema":            "the retention login",
		"documents far":     "cannot open it",
		"documents odd":     `no driver "oracle"; there is mongo, postgres, sqlserver`,
		"definition others": `there is no database "nowhere" in the configuration; there is default, far, odd`,
	} {
		if f := found(t, findings, check); f.Verdict != Failure || !strings.Contains(f.Message, want) || f.Todo == "" {
			t.Errorf("%+v; want %q", f, want)
		}
	}
	if f := found(t, findings, "login documents"); f.Verdict != Fine {
		t.Errorf("%+v", f)
	}
	var said bytes.Buffer
	if err := errors.Join(Write(&said, findings), WriteJSON(&said, findings)); err != nil || strings.Contains(said.String(), "topsecret") {
		t.Errorf("it says, %v:\n%s", err, said.String())
	}

	findings = Examine(t.Context(), "", doctorEnviron(db), service.Extensions{}, false)
	if f := found(t, findings, "projection counts"); f.Verdict != Failure || !strings.Contains(f.Message, "the table of its live build") {
		t.Errorf("%+v", f)
	}
	if db.Distributed() {
		return // its schema is not removed
	}
	if err := migrations.Down(t.Context(), db.URL(pgtest.RoleMigrator)); err != nil {
		t.Fatal(err)
	}
	findings = Examine(t.Context(), "", doctorEnviron(db), service.Extensions{}, false)
	if f := found(t, findings, "schema"); f.Verdict != Failure || !strings.Contains(f.Message, "manifold migrate up") {
		t.Errorf("%+v", f)
	}
}

// mute is a driver without public names, or whose tables cannot be removed.
type mute struct {
	drivers.Driver
	stays bool
}

func (m mute) SwapTable(ctx context.Context, build domain.Build, overrides []drivers.Override) error {
	if m.stays {
		return m.Driver.SwapTable(ctx, build, overrides)
	}
	return domain.Errorf(domain.CodeUnsupported, "", "there are no views here")
}

func (m mute) DropTable(ctx context.Context, build domain.Build) error {
	if err := m.Driver.DropTable(ctx, build); err != nil || !m.stays {
		return err
	}
	return errors.New("it is in use")
}

func (m mute) Version(context.Context) (string, error) { return "7.1", nil }

// A driver without public names is no failure, but one that leaves objects in the database is.
func TestDoctorOfADriver(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	for stays, want := range map[bool]Verdict{false: Warning, true: Failure} {
		open := func(ctx context.Context, c service.DriverConfig) (drivers.Driver, error) {
			driver, err := postgres.Open(ctx, postgres.Config{URL: c.URL, MaxConns: c.MaxConns, Log: c.Log})
			return mute{driver, stays}, err
		}
		environ := append(doctorEnviron(db), "MANIFOLD_DATABASES={own: {driver: mute, url: '"+db.URL(migrations.RoleDocuments)+"'}}")
		findings := Examine(t.Context(), "", environ, service.Extensions{Drivers: map[string]service.OpenDriver{"mute": open}}, false)
		if f := found(t, findings, "documents own"); f.Verdict != want || !strings.Contains(f.Message, "mute 7.1 answers") {
			t.Errorf("%+v; want %s", f, want)
		}
	}
}

// The doctor finds unreadable events without printing them, and does not change them.
func TestDoctorFindsUnreadableEvents(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s := openStore(t, db)
	defer s.Close()
	tenant := domain.NewTenantID()
	if err := s.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	events := make([]domain.NewEvent, 5)
	for i := range events {
		events[i] = domain.NewEvent{Type: "Counted", Data: []byte(`{"n": [` + strings.Repeat("1.5e10,", 3000) + `1]}`)}
	}
	if _, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "order-1", Expected: domain.Any, Events: events}}}); err != nil {
		t.Fatal(err)
	}
	examined := Examine(t.Context(), "", doctorEnviron(db), service.Extensions{}, true)
	if seals := found(t, examined, "seals"); seals.Verdict != Fine {
		t.Errorf("of events that were just appended it says %+v", seals)
	}
	healthy := found(t, examined, "events")
	if healthy.Verdict != Fine || healthy.Message != "all 5 can be read" {
		t.Errorf("of the healthy log it says %+v", healthy)
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	_, err := super.Exec(t.Context(), "update manifold.events set created_at = $1", time.Now().Add(-10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	// Long whole numbers, long fractions, and numbers that are small in storage but 1 GB or more when printed.
	for position, data := range map[int]string{2: "1e131071", 4: "1e-16383"} {
		// The event's own column is in the expression, because a cluster's coordinator would print a constant.
		_, err := super.Exec(t.Context(), "update manifold.events set event_data = (left(event_type, 0) || $2)::jsonb where position = $1", position, `{"l":[1`+strings.Repeat(","+data, 70_000)+`]}`)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := super.Exec(t.Context(), "update manifold.events set metadata = $1::jsonb where position = 5", `[1`+strings.Repeat(",1e131071", 300)+`]`); err != nil {
		t.Fatal(err)
	}
	examined = Examine(t.Context(), "", doctorEnviron(db), service.Extensions{}, true)
	if seals := found(t, examined, "seals"); seals.Verdict != Warning ||
		!strings.Contains(seals.Message, "such as "+tenant.String()+": it is sealed up to position 0, and the next event is of 2") {
		t.Errorf("of events that nobody seals it says %+v", seals)
	}
	sick := found(t, examined, "events")
	for _, want := range []string{"3 events of tenant " + tenant.String(), "position 2 (Counted, version 2 of order-1), position 4", "position 5"} {
		if sick.Verdict != Warning || !strings.Contains(sick.Message, want) || !strings.Contains(sick.Todo, "manifold redact "+tenant.String()) {
			t.Errorf("of the sick log it says %+v, want %q", sick, want)
		}
	}
	var marked int
	if err := super.QueryRow(t.Context(), "select count(*) from manifold.events where gap is not null").Scan(&marked); err != nil || marked > 0 {
		t.Errorf("the doctor has changed %d events, %v", marked, err)
	}
}
