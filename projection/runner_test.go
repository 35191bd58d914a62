package projection_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// sums is a definition over several streams with removals. Its documents show a wrong order and events that were
// applied twice.
func sums(name string) domain.Definition {
	return folding.WithDefaults(domain.Definition{
		Name: name,
		Key:  "event.data.k",
		On: map[string]string{
			"Add":    "merge(doc, {'sum': doc.?sum.orValue(0) * 3 % 1000003 + event.data.n, 'events': doc.?events.orValue(0) + 1})",
			"Remove": "null",
		},
	})
}

// Lags may be called at any moment, also while a worker folds. The race detector checks it.
func TestLagsWhileFolding(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	p.start(t, b)
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, sums("sums"), "test"); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var reader sync.WaitGroup
	defer reader.Wait()
	defer close(done)
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				p.runner.Lags()
			}
		}
	})
	for range 20 {
		documents(t, p.catalog, tenant, "sums", b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`))
	}
}

// Two processes follow the same pairs while events are appended. Their calls fail, and they are stopped and restarted.
// At any moment, the documents are those of a fold from scratch up to the checkpoint, for a tenant's own projection and
// for a shared one.
func TestCompetingRunnersWithFailingDatabases(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pool := b.db.Pool(t, pgtest.RoleSuperuser, 2)
	tenants := []domain.TenantID{b.tenant(t), b.tenant(t), b.tenant(t)}
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	newProcess := func() process {
		driver := &faulty{Driver: b.driver, verdict: func(string) verdict {
			return [...]verdict{works, works, works, works, failsBefore, failsAfter}[draw(6)]
		}}
		return b.process(options{driver: driver, catchUp: projection.Limits{Events: 2 + draw(40), Bytes: 1 << 20, DocumentBytes: 1 << 20}})
	}
	builds := make(map[domain.ProjectionID]domain.Build)
	setup := b.process(options{})
	for _, owner := range []domain.TenantID{domain.Everyone, tenants[0]} {
		p, err := setup.catalog.Create(t.Context(), owner, sums("sums-"+owner.String()[:8]), "test")
		if err != nil {
			t.Fatal(err)
		}
		builds[p.ProjectionID] = p.LiveBuild()
	}
	stops := []func(){newProcess().start(t, b), newProcess().start(t, b)}
	for range 12 {
		for range 60 {
			eventType := "Add"
			if draw(8) == 0 {
				eventType = "Remove"
			}
			b.append(t, tenants[draw(3)], fmt.Sprintf("x-%d", draw(3)), eventType, fmt.Sprintf(`{"k": "key %d", "n": %d}`, draw(5), draw(100)))
		}
		i := draw(2)
		stops[i]()
		stops[i] = newProcess().start(t, b)
		for _, build := range builds {
			snapshotHolds(t, b, pool, build, tenants[draw(3)])
		}
	}
	for _, stop := range stops {
		stop()
	}
	setup.start(t, b)
	for _, tenant := range tenants {
		log := b.log(t, tenant)
		for id := range builds {
			if id.Shared() || id.Owner == tenant {
				mustEqual(t, documents(t, setup.catalog, tenant, id.Name, int64(len(log))), fromScratch(t, sums(id.Name), log))
			}
		}
	}
}

// snapshotHolds reads a build's documents and checkpoint in one snapshot, without the package's code, and compares
// them.
func snapshotHolds(t *testing.T, b bench, pool *pgxpool.Pool, build domain.Build, tenant domain.TenantID) {
	t.Helper()
	table := "documents"
	if build.Shared() {
		table = fmt.Sprintf("%s.%d", build.Name, build.Number)
	}
	rows, err := pool.Query(t.Context(), fmt.Sprintf(`select id, version, coalesce(document, '{}') from manifold_documents.%q where tenant_id = $1 and build = $2`, table), tenant.String(), build.Number)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	got, checkpoint := make(map[string]domain.Document), int64(0)
	for rows.Next() {
		var d domain.Document
		var data []byte
		if err := rows.Scan(&d.ID, &d.Version, &data); err != nil {
			t.Fatal(err)
		}
		if d.Data = data; d.ID == "" {
			checkpoint = d.Version
			continue
		}
		got[d.ID] = d
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if !build.Shared() && build.Owner != tenant {
		if len(got) > 0 || checkpoint > 0 {
			t.Fatalf("a tenant's own projection has documents of another: %v", got)
		}
		return
	}
	log := b.log(t, tenant)
	if checkpoint > int64(len(log)) {
		t.Fatalf("the checkpoint is %d, the log ends at %d", checkpoint, len(log))
	}
	mustEqual(t, got, fromScratch(t, sums(build.Name), log[:checkpoint]))
}

// A fault stops one projection for one tenant and shows in the status. Another build overcomes it.
func TestFaultStopsOneTenantOfOneProjection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	broken, fine := b.tenant(t), b.tenant(t)
	faults := make(chan domain.Fault, 10)
	p := b.process(options{observer: projection.Observer{Fault: func(f domain.Fault) { faults <- f }}})
	stop := p.start(t, b)
	for _, name := range []string{"sums", "other"} {
		definition := sums(name)
		if name == "other" {
			definition.On = map[string]string{"*": "{'at': event.position}"}
		}
		if _, err := p.catalog.Create(t.Context(), domain.Everyone, definition, "test"); err != nil {
			t.Fatal(err)
		}
	}
	b.append(t, broken, "x-1", "Add", `{"k": "a", "n": 1}`)
	bad := b.append(t, broken, "x-1", "Add", `{"k": "a", "n": "one"}`)
	last := b.append(t, broken, "x-1", "Add", `{"k": "b", "n": 1}`)
	elsewhere := b.append(t, fine, "x-1", "Add", `{"k": "b", "n": 1}`)

	fault := <-faults
	if fault.Tenant != broken || fault.Name != "sums" || fault.Position != bad || fault.Where != "on.Add" || !strings.HasPrefix(fault.Message, "line 1, column") || fault.DocumentID != "a" || canonical(t, fault.Before) != `{"events":1,"sum":1}` || fault.Expression == "" {
		t.Errorf("the fault is %+v", fault)
	}
	documents(t, p.catalog, fine, "sums", elsewhere)
	documents(t, p.catalog, broken, "other", last)
	_, err := p.catalog.Document(t.Context(), broken, "sums", "a", projection.Freshness{MinPosition: last, Wait: time.Minute})
	if !domain.IsCode(err, domain.CodeFaulted) {
		t.Errorf("waiting for what cannot come: %v", err)
	}
	status, err := p.catalog.Status(t.Context(), broken, "sums")
	if err != nil || status.State != projection.StateFaulted || status.Fault == nil || status.Fault.Position != bad || status.Checkpoint != bad-1 || status.LagEvents != 2 || status.Lag <= 0 {
		t.Errorf("the status is %+v, %v", status, err)
	}
	positions, err := p.catalog.Positions(t.Context(), broken)
	if i := slices.IndexFunc(positions, func(p projection.Position) bool { return p.Projection.Name == "sums" }); err != nil || i < 0 || !positions[i].Faulted || positions[i].Checkpoint != bad-1 {
		t.Errorf("the positions are %+v, %v", positions, err)
	}
	if status, err := p.catalog.Status(t.Context(), fine, "sums"); err != nil || status.State != projection.StateCaughtUp || status.LagEvents != 0 || status.Lag != 0 {
		t.Errorf("the other tenant's status is %+v, %v", status, err)
	}
	// The runner counts a turn when it has ended, which is behind the save that the documents above were seen by.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		lags := p.runner.Lags()
		i := slices.IndexFunc(lags, func(l projection.Lag) bool { return l.Projection == "sums" })
		if i >= 0 && lags[i].Faulted == 1 && lags[i].Positions == 2 {
			break
		}
		select {
		case <-tick.C:
			continue
		case <-deadline:
			t.Errorf("the lags are %+v", lags)
		}
		break
	}

	// Another process stumbles as well, and a new build is tried again.
	stop()
	q := b.process(options{observer: projection.Observer{Fault: func(f domain.Fault) { faults <- f }}})
	q.start(t, b)
	if again := <-faults; again.Position != bad {
		t.Errorf("after a restart the fault is %+v", again)
	}
	if _, err := q.catalog.Reset(t.Context(), domain.Everyone, "sums", "test", false); err != nil {
		t.Fatal(err)
	}
	// A process that starts to listen for retries retries every stopped pair: the old build's fault may be reported
	// twice.
	again := <-faults
	for again.Build == fault.Build {
		again = <-faults
	}
	if again.Position != bad {
		t.Errorf("after a reset the fault is %+v", again)
	}
}

// A fault that a newer program can fold is cleared.
func TestOvercomeFaultsAreCleared(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	created, err := p.catalog.Create(t.Context(), tenant, sums("sums"), "test")
	if err != nil {
		t.Fatal(err)
	}
	position := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	tablestest.PutFault(t, b.store, domain.Fault{ProjectionID: created.ProjectionID, Tenant: tenant, Build: created.Build, Position: position, EventID: domain.NewEventID(), Failure: domain.Failure{Message: "as an older release saw it"}})
	stop := p.start(t, b)
	p.awaitSeen(t, b, tenant, "sums", position)
	// The fault is taken back behind the save.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		fault, found, err := b.store.Fault(t.Context(), tenant, created.ProjectionID, created.Build)
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the fault is still there: %+v", fault)
		}
	}
	stop()
}

// awaitSeen waits until the runner has nothing left to do for the pair. Since an old fault may still be stored, it
// looks at the checkpoint alone.
func (p process) awaitSeen(t *testing.T, b bench, tenant domain.TenantID, name string, position int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := p.catalog.Document(t.Context(), tenant, name, "no such document", projection.Freshness{MinPosition: position, Wait: time.Second})
		if domain.IsCode(err, domain.CodeNotFound) {
			if status, err := p.catalog.Status(t.Context(), tenant, name); err == nil && status.State == projection.StateCaughtUp {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not get to position %d: %v", position, err)
		}
	}
}

// A database may confirm a save and lose it in a crash. The runner detects that even if appends have ended.
func TestLostSavesAreDetected(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	lost := make(chan struct{}, 100)
	driver := &faulty{Driver: b.driver, lose: true}
	p := b.process(options{driver: driver, observer: projection.Observer{Batch: func(projection.BatchInfo) { lost <- struct{}{} }}})
	p.start(t, b)
	if _, err := p.catalog.Create(t.Context(), tenant, sums("sums"), "test"); err != nil {
		t.Fatal(err)
	}
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	<-lost
	driver.mu.Lock()
	driver.lose = false
	driver.mu.Unlock()
	mustEqual(t, documents(t, p.catalog, tenant, "sums", last), fromScratch(t, sums("sums"), b.log(t, tenant)))
}

// If the log has lost events that are in a build's documents, the build is reported as lost.
func TestLogThatHasGoneBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	stop := p.start(t, b)
	if _, err := p.catalog.Create(t.Context(), tenant, sums("sums"), "test"); err != nil {
		t.Fatal(err)
	}
	var last int64
	for range 5 {
		last = b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	}
	documents(t, p.catalog, tenant, "sums", last)
	stop() // a process that has seen the lost events ends
	super := b.db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, statement := range []string{"delete from manifold.events where position > 2", "update manifold.logs set head = 2, last_batch = null"} {
		if _, err := super.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	lost := make(chan struct{}, 100)
	again := b.process(options{observer: projection.Observer{Lost: func(domain.ProjectionID, int64) { lost <- struct{}{} }}})
	again.start(t, b)
	select {
	case <-lost:
	case <-time.After(time.Minute):
		t.Error("it is not reported")
	}
}

// Pairs take turns: a tenant with much to fold does not delay another one.
func TestTurnsAreFair(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	long, short := b.tenant(t), b.tenant(t)
	var streams []domain.NewEvent
	for range 1000 {
		streams = append(streams, domain.NewEvent{Type: "Add", Data: json.RawMessage(`{"k": "a", "n": 1}`)})
	}
	for range 4 {
		if _, err := b.store.Append(t.Context(), long, domain.Append{Streams: []domain.StreamAppend{{Stream: "x-1", Expected: domain.Any, Events: streams}}}); err != nil {
			t.Fatal(err)
		}
	}
	last := b.append(t, short, "x-1", "Add", `{"k": "a", "n": 1}`)
	order := make(chan domain.TenantID, 1000)
	byName := map[string]drivers.Driver{"default": b.driver}
	p := b.process(options{})
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Store: storeOf(b.store), Drivers: byName, Progress: p.progress, Workers: 1, Log: quiet,
		CatchUp:  projection.Limits{Events: 5, Bytes: 1 << 20, DocumentBytes: 1 << 20},
		Observer: projection.Observer{Batch: func(info projection.BatchInfo) { order <- info.Tenant }},
	})
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, sums("sums"), "test"); err != nil {
		t.Fatal(err)
	}
	p.start(t, b)
	documents(t, p.catalog, short, "sums", last)
	documents(t, p.catalog, long, "sums", 4000)
	turns := []domain.TenantID{}
	for len(order) > 0 {
		turns = append(turns, <-order)
	}
	least := 40
	if b.db.Distributed() {
		least = 20 // a turn takes more events there
	}
	if at := slices.Index(turns, short); at < 0 || at > 3 || len(turns) < least {
		t.Errorf("the short log's turn was number %d of %d", at+1, len(turns))
	}
}

// The runner follows many more projections than it keeps compiled folds, and stops following a deleted one.
func TestRunnerFollowsMoreProjectionsThanItCaches(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{folds: 2})
	p.start(t, b)
	names := []string{}
	for i := range 9 {
		names = append(names, fmt.Sprintf("sums-%d", i))
		if _, err := p.catalog.Create(t.Context(), tenant, sums(names[i]), "test"); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
		for _, name := range names {
			mustEqual(t, documents(t, p.catalog, tenant, name, last), fromScratch(t, sums(name), b.log(t, tenant)))
		}
	}
	if err := p.catalog.Delete(t.Context(), tenant, names[0], "test"); err != nil {
		t.Fatal(err)
	}
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	documents(t, p.catalog, tenant, names[1], last)
	if _, err := p.catalog.Create(t.Context(), tenant, sums(names[0]), "test"); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, documents(t, p.catalog, tenant, names[0], last), fromScratch(t, sums(names[0]), b.log(t, tenant)))
}
