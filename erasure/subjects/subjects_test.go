package subjects_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/erasure/subjects"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/proof"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// process is what one process runs.
type process struct {
	db       pgtest.DB
	store    *tables.Tables
	catalog  *projection.Catalog
	rebuilds *rebuild.Rebuilds
	subjects *subjects.Subjects
}

// start opens a database and starts a process on it, except for the erasures. Other databases for documents have names.
func start(t testing.TB, change func(*subjects.Config), others map[string]drivers.Driver) *process {
	t.Helper()
	s, db := tablestest.Open(t)
	return startOn(t, s, db, change, others)
}

// startOn is start with tables that are open.
func startOn(
	t testing.TB, s *tables.Tables, db pgtest.DB, change func(*subjects.Config), others map[string]drivers.Driver,
) *process {
	t.Helper()
	driver, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 4, Log: quiet})
	tablestest.Must(t, err)
	byName := map[string]drivers.Driver{"default": driver}
	maps.Copy(byName, others)
	t.Cleanup(driver.Close)
	store := projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}
	progress := projection.NewProgress()
	catalog := projection.NewCatalog(projection.CatalogConfig{Store: store, Drivers: byName, Progress: progress, Keep: time.Hour, Log: quiet})
	runner := projection.NewRunner(projection.RunnerConfig{Store: store, Drivers: byName, Progress: progress, Poll: 100 * time.Millisecond, Log: quiet})
	rebuilds := rebuild.New(rebuild.Config{Store: store, Drivers: byName, Catalog: catalog, Keep: time.Hour, Poll: 50 * time.Millisecond, Log: quiet})
	config := subjects.Config{
		Store: s.SubjectTables, Events: s.Log, Registry: s.Registry, Catalog: catalog, Rebuilds: rebuilds, Drivers: byName, Owners: s.SubjectOwners(),
		Personal: s.Personal, Keys: s.SigningKeys, ForgetSalts: s.ForgetSalts, Owns: func(domain.TenantID) bool { return true },
		Settle: time.Millisecond, Every: 20 * time.Millisecond, Log: quiet,
	}
	if change != nil {
		change(&config)
	}
	p := &process{db, s, catalog, rebuilds, subjects.New(config)}
	ctx, stop := context.WithCancel(context.Background())
	parts := []func(context.Context) error{runner.Run, rebuilds.Run,
		func(ctx context.Context) error { return s.Listen(ctx, runner.Wake) },
		func(ctx context.Context) error {
			return s.ListenProjections(ctx, func() { runner.Refresh(); rebuilds.Wake() })
		},
	}
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() { done <- part(ctx) }()
	}
	t.Cleanup(func() {
		stop()
		for range parts {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// world is what is known about a tenant whose log has a person's data.
type world struct {
	tenant  domain.TenantID
	markers []string // the person's data
	before  []domain.Event
}

const person = "ada-1815"

// fill gives a tenant a person's data in every table that may have some.
func (p *process) fill(t *testing.T) *world {
	t.Helper()
	ctx, s := t.Context(), p.store
	w := &world{tenant: tablestest.NewTenant(t, s)}
	marker := func() string {
		text := fmt.Sprintf("secret%016x", rand.Uint64())
		w.markers = append(w.markers, text)
		return text
	}
	email, street, note, agent, quoted := marker(), marker(), marker(), marker(), marker()
	super := p.db.Pool(t, pgtest.RoleSuperuser, 1)
	execute := func(sql string, args ...any) {
		t.Helper()
		if _, err := super.Exec(ctx, sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	execute("insert into manifold.schema_types (tenant_id, event_type, compatibility) values ($1, 'Registered', 'backward')", w.tenant)
	execute(`insert into manifold.schema_versions (tenant_id, event_type, version, schema, breaking, revision, by, personal)
		values ($1, 'Registered', 1, '{}', false, 1, 'test', '["/email", "/addresses/0", "/missing/~1x"]')`, w.tenant)
	registered := domain.NewEvent{
		ID: domain.NewEventID(), Type: "Registered", Data: json.RawMessage(`{"email":"` + email + `","addresses":[{"street":"` + street + `"}],"plan":"gold","n":1.50}`),
		Tags: []string{"plan:gold", "subject:" + person},
	}
	noted := domain.NewEvent{ID: domain.NewEventID(), Type: "Noted", Data: json.RawMessage(`{"text":"` + note + `"}`), Metadata: json.RawMessage(`{"agent":"` + agent + `"}`), Tags: []string{"subject:" + person}}
	other := domain.NewEvent{ID: domain.NewEventID(), Type: "Registered", Data: json.RawMessage(`{"email":"someone@example.com","plan":"iron"}`), Tags: []string{"subject:someone-else"}}
	tablestest.Append(t, s, w.tenant, domain.Append{Streams: []domain.StreamAppend{
		{Stream: "customer-1", Expected: domain.Any, Events: []domain.NewEvent{registered, noted}},
		{Stream: "customer-2", Expected: domain.Any, Events: []domain.NewEvent{other}},
	}})
	// What the service makes of events.
	change := func(data string, tags ...string) domain.NewEvent {
		return domain.NewEvent{ID: domain.NewEventID(), Type: "own.changed", Data: json.RawMessage(data), Tags: tags}
	}
	tablestest.Append(t, s, w.tenant, domain.Append{Streams: []domain.StreamAppend{
		{Stream: "own.changed-customer-1", Expected: domain.Any, Events: []domain.NewEvent{
			change(`{"document":{"email":"` + email + `"}}`), change(`{"document":{"email":"`+email+`"}}`, domain.CauseTag(registered.ID)),
		}},
		{Stream: "own.changed-customer-2", Expected: domain.Any, Events: []domain.NewEvent{change(`{"document":{"plan":"iron"}}`)}},
		{Stream: "brief.changed-customer-1", Expected: domain.Any, Events: []domain.NewEvent{{
			ID: domain.NewEventID(), Type: "brief.changed", Data: json.RawMessage(`{"document":{"email":"` + email + `"}}`), Tags: []string{domain.CauseTag(other.ID)},
		}}},
		{Stream: "dlq.mail-1", Expected: domain.Any, Events: []domain.NewEvent{{ID: domain.NewEventID(), Type: "EventDeadLettered", Data: json.RawMessage(`{"reason":"` + quoted + `"}`), Tags: []string{domain.CauseTag(noted.ID)}}}},
	}})
	w.before = tablestest.WholeLog(t, s, w.tenant)
	execute("insert into manifold.snapshots (tenant_id, stream_id, tag, version, state) values ($1, 'customer-1', 'x', 1, $2)", w.tenant, `{"email":"`+email+`"}`)
	execute("insert into manifold.command_outcomes (tenant_id, outcome_id, outcome) values ($1, gen_random_uuid(), $2)", w.tenant, `{"rejected":"`+email+`"}`)
	execute("insert into manifold.faults (tenant_id, owner, name, build, position, event_id, message, before) values ($1, $1, 'gone', 99, 1, gen_random_uuid(), $2, $3)", w.tenant, quoted, `{"email":"`+email+`"}`)
	execute("insert into manifold.skipped_events (tenant_id, owner, name, version, position, event_id, message, reason, by) values ($1, $1, 'gone', 1, 1, gen_random_uuid(), $2, '', '')", w.tenant, quoted)
	execute(`insert into manifold.dead_letters (tenant_id, name, position, partition, event_id, stream_id, stream_version, event_type, attempt, base, replays, reason, first_parked_at, parked_at)
		values ($1, 'mail', 1, 0, gen_random_uuid(), 'customer-1', 1, 'Registered', 1, 0, 0, $2, now(), now())`, w.tenant, quoted)
	execute(`insert into manifold.webhook_attempts (tenant_id, name, attempt_id, event_id, event_type, position, attempt, replay, outcome, status, took, error, excerpt, at)
		values ($1, 'mail', gen_random_uuid(), gen_random_uuid(), 'Registered', 1, 1, false, 'failed', 500, 1, '', $2, now())`, w.tenant, quoted)
	execute("insert into manifold.total_sums (tenant_id, name, key, field, total, documents) values ($1, 'all', $2, '', 1, 1)", w.tenant, email)
	execute("insert into manifold.alerts (tenant_id, kind, name, episode, data, opened_id) values ($1, 'stopped', 'x', '', $2, gen_random_uuid())", w.tenant, `{"message":"`+quoted+`"}`)
	execute("insert into manifold.stored_events (tenant_id) values ($1)", w.tenant)
	own := domain.Definition{Name: "own", On: map[string]string{"Registered": `{"email": event.data.email, "plan": event.data.plan}`}}
	brief := domain.Definition{Name: "brief", Source: domain.Source{Categories: []string{"customer"}}, PublishChanges: true, On: map[string]string{"Registered": `{"plan": event.data.plan}`}}
	for _, definition := range []domain.Definition{own, brief} {
		_, err := p.catalog.Create(ctx, w.tenant, definition, "test")
		tablestest.Must(t, err)
	}
	return w
}

// dump returns all rows of all tables as text.
func (p *process) dump(t *testing.T) string {
	t.Helper()
	super := p.db.Pool(t, pgtest.RoleSuperuser, 1)
	rows, err := super.Query(t.Context(), `select format('select %L || t::text from %I.%I as t', table_schema || '.' || table_name || ': ', table_schema, table_name)
		from information_schema.tables where table_schema like 'manifold%' and table_type = 'BASE TABLE'`)
	tablestest.Must(t, err)
	var statements []string
	for rows.Next() {
		var statement string
		tablestest.Must(t, rows.Scan(&statement))
		statements = append(statements, statement)
	}
	tablestest.Must(t, rows.Err())
	var all strings.Builder
	for _, statement := range statements {
		rows, err := super.Query(t.Context(), statement)
		tablestest.Must(t, err)
		for rows.Next() {
			var row string
			tablestest.Must(t, rows.Scan(&row))
			all.WriteString(row + "\n")
		}
		tablestest.Must(t, rows.Err())
	}
	return all.String()
}

// deaths ends a process after one of the calls by which an erasure reads definitions and removes rows, and before it
// erases salts.
type deaths struct {
	left atomic.Int64 // calls until it dies; 0: it does not
	kill atomic.Pointer[context.CancelFunc]
}

// next makes the next process die after so many calls.
func (d *deaths) next(calls int64, kill context.CancelFunc) {
	d.kill.Store(&kill)
	d.left.Store(calls)
}

func (d *deaths) called() {
	if d.left.Add(-1) == 0 {
		(*d.kill.Load())()
	}
}

func (d *deaths) within(c *subjects.Config) {
	personal := c.Personal
	c.Personal = func(ctx context.Context, tenant domain.TenantID) (func(string, int64) []string, error) {
		defer d.called()
		return personal(ctx, tenant)
	}
	forget := c.ForgetSalts
	c.ForgetSalts = func(ctx context.Context, tenant domain.TenantID, cause string, positions []int64) error {
		d.called() // between the erasure's commit and this
		defer d.called()
		return forget(ctx, tenant, cause, positions)
	}
	for i, owner := range c.Owners {
		if owner.Events != nil {
			c.Owners[i].Events = func(ctx context.Context, tenant domain.TenantID, positions []int64, streams []string) (int64, error) {
				defer d.called()
				return owner.Events(ctx, tenant, positions, streams)
			}
		}
		if owner.Tenant != nil {
			c.Owners[i].Tenant = func(ctx context.Context, tenant domain.TenantID) (int64, error) {
				defer d.called()
				return owner.Tenant(ctx, tenant)
			}
		}
	}
}

// until polls while the process works.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within two minutes", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) await(t *testing.T, tenant domain.TenantID, id domain.UUID) (e subjects.Erasure) {
	t.Helper()
	until(t, "the erasure", func() bool {
		var err error
		e, err = p.subjects.Erasure(t.Context(), tenant, id)
		tablestest.Must(t, err)
		if e.Problem != "" {
			t.Logf("step %s: %s", e.Step, e.Problem)
		}
		return e.State == subjects.Done
	})
	return e
}

func (p *process) document(t testing.TB, tenant domain.TenantID, name, id string) string {
	t.Helper()
	document, err := p.catalog.Document(t.Context(), tenant, name, id, projection.Freshness{})
	if err != nil {
		return err.Error()
	}
	return string(document.Data)
}

// Afterwards nothing that was the person's is in any row of the tenant, even if the worker dies between any two
// statements, while others append and projections fold.
func TestNothingIsLeftOfASubject(t *testing.T) {
	t.Parallel()
	var deaths deaths
	p := start(t, deaths.within, nil)
	ctx, s := t.Context(), p.store
	shared := domain.Definition{Name: "all", On: map[string]string{"Registered": `{"email": event.data.email}`, "Noted": `{"text": event.data.text}`}}
	_, err := p.catalog.Create(ctx, domain.Everyone, shared, "test")
	tablestest.Must(t, err)
	w, other := p.fill(t), p.fill(t)
	until(t, "the documents", func() bool {
		dump := p.dump(t)
		return strings.Count(dump, w.markers[0]) >= 8 && strings.Count(dump, other.markers[0]) >= 8
	})
	request := subjects.Request{ID: domain.NewUUID(), Subject: person, Reason: "asked for it", By: subjects.Actor{ID: "a", By: "key a"}}
	tablestest.SealAll(t, s, w.tenant) // before the erasure
	touched, err := p.subjects.DryRun(ctx, w.tenant, request)
	tablestest.Must(t, err)
	if len(touched.Events) != 2 || touched.Streams != 1 || !slices.Equal(touched.Projections, []string{"all", "brief", "own"}) {
		t.Errorf("the dry run finds %+v", touched)
	}
	e, added, err := p.subjects.Request(ctx, w.tenant, request)
	if err != nil || !added || e.Until != int64(len(w.before)) {
		t.Fatalf("the erasure is %+v, %v, %v", e, added, err)
	}
	later := domain.NewEvent{ID: domain.NewEventID(), Type: "Registered", Data: json.RawMessage(`{"email":"new","plan":"new"}`), Tags: []string{"subject:" + person}}
	tablestest.Append(t, s, w.tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "customer-3", Expected: domain.Any, Events: []domain.NewEvent{later}}}})

	killed := 0
	finished := func() bool {
		e, err := p.subjects.Erasure(ctx, w.tenant, request.ID)
		tablestest.Must(t, err)
		return e.State == subjects.Done
	}
	for !finished() && killed < 60 { // the process dies again and again, also after each part of each step
		life := time.Duration(1+rand.IntN(60)) * time.Millisecond
		if killed%2 == 0 {
			life = time.Second
		}
		short, cancel := context.WithTimeout(ctx, life)
		deaths.next(int64(killed/2+1), cancel)
		tablestest.Must(t, p.subjects.Run(short))
		cancel()
		killed++
		tablestest.AppendTo(t, s, w.tenant, fmt.Sprintf("other-%d", killed), "Other", `{}`)
	}
	deaths.next(0, nil)
	running, cancel := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- p.subjects.Run(running) }()
	e = p.await(t, w.tenant, request.ID)
	cancel()
	tablestest.Must(t, <-stopped)
	t.Logf("the worker was ended %d times", killed)

	dump := p.dump(t)
	for _, line := range strings.Split(dump, "\n") {
		for _, marker := range w.markers {
			if strings.Contains(line, marker) {
				t.Errorf("it is still there: %s", line)
			}
		}
		if strings.Contains(line, person) && strings.Contains(line, w.tenant.String()) && !strings.Contains(line, fmt.Sprint(e.Until+1)) {
			t.Errorf("the id is still there: %s", line)
		}
	}
	for _, marker := range other.markers {
		if !strings.Contains(dump, marker) {
			t.Errorf("another tenant has lost %s", marker)
		}
	}
	after := tablestest.WholeLog(t, s, w.tenant)
	for i, was := range w.before {
		is := after[i]
		if is.ID != was.ID || is.Stream != was.Stream || is.Version != was.Version || is.Position != was.Position || is.Type != was.Type || !is.RecordedAt.Equal(was.RecordedAt) {
			t.Errorf("event %d was %+v, and is %+v", was.Position, was, is)
		}
	}
	first := after[0]
	if string(first.Data) != `{"n": 1.50, "plan": "gold", "email": null, "addresses": [null]}` || first.Gap != nil || first.Erased == nil || first.Erased.Erasure != request.ID || !slices.Equal(first.Tags, []string{"plan:gold"}) {
		t.Errorf("the first event is %s, %+v, %v", first.Data, first.Erased, first.Tags)
	}
	for i, whole := range []bool{false, true, false, true, true, false, true, true} {
		if gap := after[i].Gap; (gap != nil) != whole || whole && gap.Reason != domain.GapErased {
			t.Errorf("event %d, a %s, has the gap %+v", i+1, after[i].Type, gap)
		}
	}
	if document := p.document(t, w.tenant, "own", "customer-1"); document != `{"plan": "gold", "email": null}` {
		t.Errorf("the document is %s", document)
	}
	if document := p.document(t, w.tenant, "own", "customer-2"); !strings.Contains(document, "iron") {
		t.Errorf("the document of another person is %s", document)
	}
	if c := e.Counts; c.Events["Registered"] != 1 || c.Events["Noted"] != 1 || c.DerivedEvents != 4 || !slices.Equal(c.Projections, []string{"all", "brief", "own"}) {
		t.Errorf("the counts are %+v", c)
	}
	text, _, _ := strings.Cut(e.Receipt, "\n\n")
	var receipt subjects.Receipt
	if err := json.Unmarshal([]byte(text), &receipt); err != nil || receipt.Erasure != request.ID.String() || receipt.Reason != request.Reason || strings.Contains(text, person) {
		t.Errorf("the receipt is %s, %v", e.Receipt, err)
	}
	erased, err := s.ErasedBy(ctx, w.tenant, request.ID, 0, 100)
	if err != nil || len(erased) != 6 || erased[0].Stream != "customer-1" || erased[0].ID != first.ID {
		t.Errorf("the erased positions are %v, %v", erased, err)
	}
	p.isProved(t, w.tenant, e)
	if again, added, err := p.subjects.Request(ctx, w.tenant, request); err != nil || added || again.State != subjects.Done {
		t.Errorf("the repeated request returns %+v, %v, %v", again, added, err)
	}
	request.Subject = "somebody"
	_, _, err = p.subjects.Request(ctx, w.tenant, request)
	tablestest.WantCode(t, err, domain.CodeConflict)
}

// isProved seals the rest of a log, and checks that the erased events are explained by receipts, without salts to guess
// their contents with, and that a change of another event is found.
func (p *process) isProved(t *testing.T, tenant domain.TenantID, e subjects.Erasure) {
	t.Helper()
	ctx, s := t.Context(), p.store
	tablestest.SealAll(t, s, tenant)
	checkpoint := tablestest.Checkpoint(t, s, tenant)
	summary, findings := tablestest.Verify(t, s, tenant, checkpoint)
	if len(findings) > 0 || summary.Erased != 6 || summary.Intact != checkpoint.Size-6 {
		t.Errorf("the log is verified with %+v, %+v", summary, findings)
	}
	events, err := s.ErasedBy(ctx, tenant, e.ID, 0, 100)
	tablestest.Must(t, err)
	var erased []int64
	for _, event := range events {
		erased = append(erased, event.Position)
	}
	block, receipts, err := s.Leaves(ctx, tenant, 0)
	tablestest.Must(t, err)
	for i, leaf := range block.Leaves {
		if ok := slices.Contains(erased, int64(i+1)); ok != (leaf.Salt == proof.Salt{}) {
			t.Errorf("position %d is erased: %v, and has the salt %x", i+1, ok, leaf.Salt)
		}
	}
	if len(receipts) != 1 {
		t.Fatalf("there are %d receipts", len(receipts))
	}
	receipt, err := proof.ParseReceipt(tablestest.OpenSigned(t, s, receipts[0]))
	tablestest.Must(t, err)
	if receipt.Cause != "erasure "+e.ID.String() || !slices.Equal(receipt.Positions, erased) {
		t.Errorf("the receipt is %+v, and %v are erased", receipt, erased)
	}
	_, err = p.db.Pool(t, pgtest.RoleSuperuser, 1).Exec(ctx, `
		update manifold.events set event_data = 'null', erased = true where tenant_id = $1 and position in (3, 6)`, tenant)
	tablestest.Must(t, err)
	_, findings = tablestest.Verify(t, s, tenant, checkpoint)
	if len(findings) != 2 || findings[0].Problem != proof.Changed || findings[0].First != 3 || findings[1].First != 6 {
		t.Errorf("after a change without a receipt, the findings are %+v", findings)
	}
}

// What was made of an event is removed even if retention removes the event while the erasure runs. A process that ended
// before it had erased salts begins with these. What an owner has removed before an error counts. Later erasures leave
// out what is erased already.
func TestRetentionDuringAnErasure(t *testing.T) {
	t.Parallel()
	const noted = 2 // the position of the event that retention removes
	var p *process
	var salts [][]int64
	var kill context.CancelFunc
	looked := 0        // how often an owner was asked for the event
	forgotten := false // whether outcomes were removed
	p = start(t, func(c *subjects.Config) {
		c.SetTurn(1) // so that every turn ends as soon as it can
		forget := c.ForgetSalts
		c.ForgetSalts = func(ctx context.Context, tenant domain.TenantID, cause string, positions []int64) error {
			if salts = append(salts, slices.Clone(positions)); len(salts) == 1 {
				kill()
				return context.Canceled
			}
			return forget(ctx, tenant, cause, positions)
		}
		snapshots := c.Owners[0].Events
		c.Owners[0].Events = func(ctx context.Context, tenant domain.TenantID, positions []int64, streams []string) (int64, error) {
			if slices.Contains(positions, noted) {
				looked++
			}
			if looked == 1 {
				_, err := p.db.Pool(t, pgtest.RoleSuperuser, 1).Exec(ctx, "delete from manifold.events where tenant_id = $1 and position = $2", tenant, noted)
				if err != nil {
					return 0, err
				}
			}
			return snapshots(ctx, tenant, positions, streams)
		}
		outcomes := c.Owners[1].Tenant
		c.Owners[1].Tenant = func(ctx context.Context, tenant domain.TenantID) (int64, error) {
			removed, err := outcomes(ctx, tenant)
			if err == nil && !forgotten {
				forgotten, err = true, context.Canceled
				kill()
			}
			return removed, err
		}
	}, nil)
	ctx, s := t.Context(), p.store
	w := p.fill(t)
	_, err := p.catalog.Create(ctx, w.tenant, domain.Definition{Name: "notes", On: map[string]string{"Noted": `{"text": event.data.text}`}}, "test")
	tablestest.Must(t, err)
	until(t, "the document", func() bool { return strings.Contains(p.document(t, w.tenant, "notes", "customer-1"), "secret") })
	request := func(subject string) domain.UUID {
		e, _, err := p.subjects.Request(ctx, w.tenant, subjects.Request{Subject: subject, Reason: "asked", By: subjects.Actor{ID: "a", By: "key a"}})
		tablestest.Must(t, err)
		return e.ID
	}
	id := request(person)
	for range 2 {
		short, cancel := context.WithCancel(ctx)
		kill = cancel
		tablestest.Must(t, p.subjects.Run(short))
		cancel()
	}
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- p.subjects.Run(running) }()
	e := p.await(t, w.tenant, id)
	other := p.await(t, w.tenant, request("someone-else"))
	stop()
	tablestest.Must(t, <-stopped)
	if !slices.Equal(salts[0], salts[1]) {
		t.Errorf("the process ended before it erased the salts of %v, and the next one begins with %v", salts[0], salts[1])
	}
	if c := e.Counts; !slices.Contains(c.Projections, "notes") || looked != 3 || c.Events["Noted"] != 1 || c.DerivedEvents != 4 || c.Streams != 4 {
		t.Errorf("the counts are %+v, and the removed event was looked for %d times", c, looked)
	}
	if e.Counts.Rows["outcomes of commands"] != 1 {
		t.Errorf("a process ended after it had removed an outcome, and these rows are counted: %v", e.Counts.Rows)
	}
	if document := p.document(t, w.tenant, "notes", "customer-1"); strings.Contains(document, "secret") {
		t.Errorf("the document is %s", document)
	}
	if c := other.Counts; c.Events["Registered"] != 1 || c.DerivedEvents != 0 {
		t.Errorf("what the erasure of another person counts is %+v", c)
	}
	of := eventlog.Unfinished{Erasure: domain.NewUUID(), At: time.Now().Add(time.Hour)}
	change := []int64{7} // of brief
	if left, err := s.Unerased(ctx, w.tenant, of, change); err != nil || len(left) > 0 {
		t.Errorf("a further erasure finds %v, %v", left, err)
	}
	of.Others = [][16]byte{id}
	if left, err := s.Unerased(ctx, w.tenant, of, change); err != nil || !slices.Equal(left, change) {
		t.Errorf("while the first erasure is not finished, a further one finds %v, %v", left, err)
	}
}

// However short its turns are, an erasure does not look again and again at the documents that an event has changed.
func TestLargeFanOut(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	var looked, turns atomic.Int64
	network.Before("select e.stream_version, e.position", func() bool {
		looked.Add(1)
		return true
	})
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	network.Before("update erasures as e set worker = $3", func() bool {
		if turns.Add(1) == 150 { // a process of an earlier release has had a turn
			if _, err := super.Exec(t.Context(), "update manifold.erasures set plan = plan - 'causes'"); err != nil {
				t.Error(err)
			}
		}
		return true
	})
	s := tablestest.OpenWith(t, db, func(c *tables.Config) { c.AppURL = network.URL(t, db, migrations.RoleApp) })
	p := startOn(t, s, db, func(c *subjects.Config) { c.SetTurn(1) }, nil)
	ctx, tenant := t.Context(), tablestest.NewTenant(t, s)
	_, err := p.catalog.Create(ctx, tenant, domain.Definition{Name: "own", On: map[string]string{"Other": `{}`}}, "test")
	tablestest.Must(t, err)
	// Each document has a change before the event, too, and every third one a report.
	const documents = 240 // with their reports more than a page of events
	noted := domain.NewEvent{
		ID: domain.NewEventID(), Type: "Noted", Data: json.RawMessage(`{"text":"secret"}`), Tags: []string{"subject:" + person},
	}
	made := func(stream, eventType string, tags ...string) domain.StreamAppend {
		return domain.StreamAppend{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{
			{ID: domain.NewEventID(), Type: eventType, Data: json.RawMessage(`{"text":"secret"}`), Tags: tags},
		}}
	}
	var before, after domain.Append
	for n := range documents {
		stream := fmt.Sprintf("own.changed-%d", n*7%documents)
		before.Streams = append(before.Streams, made(stream, "own.changed"))
		after.Streams = append(after.Streams, made(stream, "own.changed", domain.CauseTag(noted.ID)))
		if n%3 == 0 {
			after.Streams = append(after.Streams, made(fmt.Sprintf("dlq.mail-%d", n), "EventDeadLettered", domain.CauseTag(noted.ID)))
		}
	}
	event := domain.StreamAppend{Stream: "customer-1", Expected: domain.Any, Events: []domain.NewEvent{noted}}
	for _, batch := range []domain.Append{before, {Streams: []domain.StreamAppend{event}}, after} {
		tablestest.Append(t, s, tenant, batch)
	}
	e, _, err := p.subjects.Request(ctx, tenant, subjects.Request{
		Subject: person, Reason: "asked", By: subjects.Actor{ID: "a", By: "key a"},
	})
	tablestest.Must(t, err)
	running, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- p.subjects.Run(running) }()
	e = p.await(t, tenant, e.ID)
	stop()
	tablestest.Must(t, <-stopped)
	if e.Counts.DerivedEvents != documents*7/3 || looked.Load() > 15*documents || turns.Load() < 150 {
		t.Errorf("in %d turns it has looked at streams %d times, and counts %+v", turns.Load(), looked.Load(), e.Counts)
	}
	for _, event := range tablestest.WholeLog(t, s, tenant) {
		if event.Gap == nil {
			t.Errorf("a %s of %s still has its data", event.Type, event.Stream)
		}
	}
}

func TestAnotherActorMustApprove(t *testing.T) {
	t.Parallel()
	p := start(t, func(c *subjects.Config) { c.Approval = true }, nil)
	ctx := t.Context()
	tenant := tablestest.NewTenant(t, p.store)
	a, b := subjects.Actor{ID: "a", By: "key a"}, subjects.Actor{ID: "b", By: "key b"}
	e, _, err := p.subjects.Request(ctx, tenant, subjects.Request{Subject: person, Reason: "asked", By: a})
	if err != nil || e.State != subjects.AwaitingApproval {
		t.Fatalf("it is %+v, %v", e, err)
	}
	_, err = p.subjects.Approve(ctx, tenant, e.ID, a)
	tablestest.WantCode(t, err, domain.CodeForbidden)
	_, err = p.subjects.Approve(ctx, tablestest.NewTenant(t, p.store), e.ID, b)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	loss := subjects.Request{ID: e.ID, Subject: person, Reason: "asked", By: b, AcceptLoss: true}
	_, _, err = p.subjects.Request(ctx, tenant, loss)
	tablestest.WantCode(t, err, domain.CodeForbidden)
	e, err = p.subjects.Approve(ctx, tenant, e.ID, b)
	if err != nil || e.State != subjects.Running || e.ApprovedBy.ID != "b" {
		t.Errorf("approved, it is %+v, %v", e, err)
	}
	_, err = p.subjects.Cancel(ctx, tenant, e.ID, a)
	tablestest.WantCode(t, err, domain.CodeConflict)
	loss.By = a
	_, _, err = p.subjects.Request(ctx, tenant, loss)
	tablestest.WantCode(t, err, domain.CodeConflict)
	if e, err = p.subjects.Erasure(ctx, tenant, e.ID); err != nil || e.AcceptLoss {
		t.Errorf("after its approval, a loss is accepted: %+v, %v", e, err)
	}
	loss.AcceptLoss = false
	loss.ID = domain.NewUUID()
	_, _, err = p.subjects.Request(ctx, tenant, loss)
	tablestest.Must(t, err)
	loss.AcceptLoss = true
	if e, _, err = p.subjects.Request(ctx, tenant, loss); err != nil || !e.AcceptLoss || e.State != subjects.AwaitingApproval {
		t.Errorf("before its approval, the requester's acceptance of a loss leads to %+v, %v", e, err)
	}
	if e, err = p.subjects.Cancel(ctx, tenant, e.ID, a); err != nil || e.State != subjects.Cancelled {
		t.Errorf("cancelled, it is %+v, %v", e, err)
	}
	for _, wrong := range []subjects.Request{{Subject: person}, {Subject: "a b", Reason: "x"}, {Subject: person, Reason: "for " + person}, {Subject: person, Reason: "x", What: "half"}} {
		_, _, err := p.subjects.Request(ctx, tenant, wrong)
		tablestest.WantCode(t, err, domain.CodeInvalidRequest)
	}
}
