package rebuild_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/tables"
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

// inliner is a process that appends with inline folds, and works on rebuilds.
type inliner struct {
	store    *tables.Tables
	drivers  map[string]drivers.Driver
	inline   *projection.Inline
	catalog  *projection.Catalog
	runner   *projection.Runner
	rebuilds *rebuild.Rebuilds
}

func newInliner(t *testing.T, db pgtest.DB) *inliner {
	t.Helper()
	folds := &inlineFolds{}
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns: 8, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Inline: folds,
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
	v := &inliner{store: s, drivers: map[string]drivers.Driver{"default": d}}
	v.inline = projection.NewInline(projection.InlineConfig{Store: storeOf(s), Drivers: v.drivers, Log: quiet})
	folds.of = v.inline
	progress := projection.NewProgress()
	v.catalog = projection.NewCatalog(projection.CatalogConfig{Store: storeOf(s), Drivers: v.drivers, Progress: progress, LogDatabase: "default", Log: quiet})
	v.runner = projection.NewRunner(projection.RunnerConfig{
		Store: storeOf(s), Drivers: v.drivers, Progress: progress, Poll: 100 * time.Millisecond, Log: quiet, Inline: v.inline,
	})
	v.rebuilds = rebuild.New(rebuild.Config{
		Store: storeOf(s), Drivers: v.drivers, Catalog: v.catalog, Log: quiet, Poll: 50 * time.Millisecond, StaleAfter: 2 * time.Second, Concurrent: 4,
	})
	return v
}

// foldsAll is the variant that can fold every event.
const foldsAll = 4

// variant is the definition of a fold that counts by key, and counts all events in one more document. Each document
// shows which variant folded it. Odd variants cannot fold a 7.
func variant(name string, k int) domain.Definition {
	if k == foldsAll {
		return domain.Definition{Name: name, Mode: domain.ModeInline, Key: keyAndAll(`(event.data.k == 1.5 ? "odd" : event.data.k)`), On: map[string]string{
			"Add":  `{"n": doc.?n.orValue(0) + (event.data.n == "one" ? 0 : event.data.n), "last": event.position, "v": 4}`,
			"Drop": "null",
		}}
	}
	add := fmt.Sprintf(`{"n": doc.?n.orValue(0) + event.data.n, "last": event.position, "v": %d}`, k)
	if k%2 == 1 {
		add = `event.data.n == 7 ? {"n": int("seven")} : ` + add
	}
	return domain.Definition{Name: name, Mode: domain.ModeInline, Key: keyAndAll("event.data.k"), On: map[string]string{"Add": add, "Drop": "null"}}
}

func keyAndAll(key string) string {
	return `event.position % 2 == 0 ? ["all", ` + key + `] : [` + key + `, {"id": "all"}]`
}

// counted returns the documents that a variant makes of the events, computed independently.
func counted(t *testing.T, definition domain.Definition, events []domain.Event) map[string]string {
	_, k, _ := strings.Cut(definition.On["Add"], `"v": `)
	documents := make(map[string]string)
	sums := make(map[string]int64)
	for _, e := range events {
		if q := definition.Source.Query.Items; len(q) > 0 && !q.Matches(e.Type, e.Tags) {
			continue
		}
		var data struct{ K, N any }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Error(err)
			return nil
		}
		key, ok := data.K.(string)
		if !ok {
			key = "odd"
		}
		for _, id := range []string{key, "all"} {
			if e.Type == "Drop" {
				delete(documents, id)
				delete(sums, id)
				continue
			}
			n, _ := data.N.(float64)
			sums[id] += int64(n)
			documents[id] = fmt.Sprintf(`%d {"n": %d, "v": %s, "last": %d}`, e.Position, sums[id], strings.TrimSuffix(k, "}"), e.Position)
		}
	}
	return documents
}

// Several processes append concurrently, with events that cannot be folded and connections that are cut, while inline
// builds begin and end and rebuilds are swapped, rolled back and cancelled. At every moment, each inline build has its
// checkpoint at the log's head and the documents of a fold from scratch.
func TestInlineAgainstModel(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 4)
	var processes []*inliner
	for range 3 {
		processes = append(processes, newInliner(t, db))
	}
	v := processes[0]
	tenants := []domain.TenantID{domain.NewTenantID(), domain.NewTenantID()}
	for _, tenant := range tenants {
		if err := v.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: tenant.String()}); err != nil {
			t.Fatal(err)
		}
	}
	ids := []domain.ProjectionID{{Owner: domain.Everyone, Name: "shared"}, {Owner: tenants[0], Name: "own"}}
	for _, id := range ids {
		if _, err := v.catalog.Create(t.Context(), id.Owner, variant(id.Name, 0), "test"); err != nil {
			t.Fatal(err)
		}
	}
	length := 6 * time.Second
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var all sync.WaitGroup
	var appended, refused, swapped, looks, cuts, begun, ended atomic.Int64
	// While something is not inline, what it cannot fold is not refused, and would block it permanently: so nothing of
	// that kind is appended then.
	var wild sync.RWMutex
	var tame atomic.Bool
	for i, p := range processes {
		run(t, p.rebuilds.Run)
		for c := range 3 {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), uint64(c)))
				for ctx.Err() == nil {
					wild.RLock()
					err := p.appendSome(random, tenants[random.IntN(len(tenants))], tame.Load())
					wild.RUnlock()
					switch {
					case err == nil:
						appended.Add(1)
					case domain.IsCode(err, domain.CodeRefused):
						refused.Add(1)
					case domain.IsCode(err, domain.CodeOutcomeUnknown), domain.IsCode(err, domain.CodeUnavailable):
					default:
						t.Errorf("append: %v", err)
					}
				}
			})
		}
		all.Go(func() {
			for ctx.Err() == nil {
				if ok, _ := p.begin(ctx, tenants, ids); ok {
					begun.Add(1)
				}
				if tame.Load() {
					wild.Lock()
					if n, err := p.count(ctx, ids); err == nil && n == 3 {
						tame.Store(false)
					}
					wild.Unlock()
				}
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			if look(t, ctx, super) {
				looks.Add(1)
			}
		}
	})
	all.Go(func() { // connections are cut
		for ctx.Err() == nil {
			pause(ctx, time.Duration(50+rand.IntN(200))*time.Millisecond)
			_, err := super.Exec(ctx, `select pg_terminate_backend(a.pid) from pg_stat_activity a
				where a.datname = current_database() and a.usename in ('manifold_app', 'manifold_documents') order by random() limit 1`)
			if err == nil {
				cuts.Add(1)
			}
		}
	})
	all.Go(func() { // rebuilds, rollbacks, cancellations, and what loses its inline builds
		for ctx.Err() == nil {
			id := ids[rand.IntN(len(ids))]
			p := processes[rand.IntN(len(processes))]
			switch rand.IntN(6) {
			case 0:
				rebuilds, err := p.rebuilds.List(ctx, id)
				if err == nil && len(rebuilds) > 0 {
					_, _ = p.rebuilds.Rollback(ctx, id, rebuilds[0].ID, "test", false) // refused where it is none
				}
			case 1:
				if rebuilds, err := p.rebuilds.List(ctx, id); err == nil && len(rebuilds) > 0 {
					_, _ = p.rebuilds.Cancel(ctx, id, rebuilds[0].ID)
				}
			case 2:
				if builds, err := p.store.InlineBuilds(ctx, id); err == nil && len(builds) > 0 {
					wild.Lock()
					tame.Store(true)
					if p.store.EndInline(ctx, builds[rand.IntN(len(builds))]) == nil {
						ended.Add(1)
					}
					wild.Unlock()
				}
			default:
				definition := variant(id.Name, rand.IntN(4))
				if rand.IntN(2) == 0 {
					definition.Source.Query.Items = domain.Query{{Tags: []string{"t:1"}}, {Types: []string{"Drop"}, Tags: []string{"t:2"}}}
				}
				_, _ = p.rebuilds.Start(ctx, id, rebuild.Request{Definition: &definition, By: "test"})
			}
			pause(ctx, time.Duration(rand.IntN(300))*time.Millisecond)
		}
	})
	all.Wait()

	// In the end everything is inline again, and right. A rebuild that was cancelled when it had moved a tenant may
	// have left behind what the old definition cannot fold: this one can.
	deadline := time.Now().Add(time.Minute)
	for _, id := range ids {
		definition := variant(id.Name, foldsAll)
		for {
			_, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{Definition: &definition, By: "test"})
			if err == nil {
				break
			}
			if !domain.IsCode(err, domain.CodeRebuildRunning) && !domain.IsCode(err, domain.CodeUnavailable) || time.Now().After(deadline) {
				t.Fatal(err)
			}
			pause(t.Context(), 50*time.Millisecond)
		}
	}
	for {
		settled := look(t, t.Context(), super)
		swapped.Store(0)
		_, problems := v.begin(t.Context(), tenants, ids)
		n, err := v.count(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			rebuilds, err := v.rebuilds.List(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rebuilds {
				settled = settled && r.State.Ended()
				if r.State == domain.RebuildSwapped || r.State == domain.RebuildRolledBack {
					swapped.Add(1)
				}
			}
		}
		if settled && n == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are %d inline builds, want 3; all rebuilds have ended: %t; %v", n, settled, problems)
		}
		pause(t.Context(), 50*time.Millisecond)
	}
	t.Logf("%d appends, %d refused, %d cuts, %d looks, %d swaps, %d times ended and %d times begun", appended.Load(), refused.Load(), cuts.Load(),
		looks.Load(), swapped.Load(), ended.Load(), begun.Load())
	if appended.Load() == 0 || refused.Load() == 0 || looks.Load() == 0 || ended.Load() > 5 && begun.Load() == 0 {
		t.Error("something has never happened")
	}
}

// pause waits a little while other goroutines work. No assertion depends on its length.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// count returns how many inline builds there are.
func (v *inliner) count(ctx context.Context, ids []domain.ProjectionID) (n int, err error) {
	for _, id := range ids {
		builds, err := v.store.InlineBuilds(ctx, id)
		if err != nil {
			return 0, err
		}
		n += len(builds)
	}
	return n, nil
}

// appendSome appends a few events. Unless tame is set, some variants may be unable to fold them.
func (v *inliner) appendSome(random *rand.Rand, tenant domain.TenantID, tame bool) error {
	var a domain.Append
	for _, stream := range random.Perm(4)[:1+random.IntN(2)] {
		some := domain.StreamAppend{Stream: fmt.Sprintf("x-%d", stream), Expected: domain.Any}
		for range 1 + random.IntN(3) {
			e := domain.NewEvent{ID: domain.NewEventID(), Type: "Add", Data: json.RawMessage(fmt.Sprintf(`{"k": "key %d", "n": %d}`, random.IntN(6), random.IntN(6))),
				Tags: []string{fmt.Sprint("t:", random.IntN(3))}}
			kind := random.IntN(30)
			if tame {
				kind = 3 + random.IntN(27)
			}
			switch kind {
			case 0:
				e.Data = json.RawMessage(`{"k": "key 1", "n": "one"}`)
			case 1:
				e.Data = json.RawMessage(`{"k": "key 1", "n": 7}`)
			case 2:
				e.Data = json.RawMessage(`{"k": 1.5, "n": 1}`)
			case 3:
				e.Type = "Drop"
			}
			some.Events = append(some.Events, e)
		}
		a.Streams = append(a.Streams, some)
	}
	_, err := v.store.Append(context.Background(), tenant, a)
	if random.IntN(4) == 0 && err == nil {
		_, err = v.store.Append(context.Background(), tenant, a) // what already exists is not folded again
	}
	return err
}

// begin makes builds inline as the runner does: it first folds the live build up to the head. problems says why some
// builds could not begin.
func (v *inliner) begin(ctx context.Context, tenants []domain.TenantID, ids []domain.ProjectionID) (begun bool, problems error) {
	for _, tenant := range tenants {
		for _, id := range ids {
			if !id.Shared() && id.Owner != tenant {
				continue
			}
			ok, err := v.beginOne(ctx, tenant, id)
			if err != nil {
				problems = errors.Join(problems, fmt.Errorf("%s of tenant %s: %w", id.Name, tenant, err))
			}
			begun = begun || ok
		}
	}
	return begun, problems
}

func (v *inliner) beginOne(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID) (begun bool, err error) {
	p, err := v.store.LiveProjection(ctx, tenant, id)
	if err != nil {
		return false, err
	}
	if p.HeldBy != "" {
		return false, fmt.Errorf("build %d is held by %s", p.Build, p.HeldBy)
	}
	fold, err := folding.Compile(p.Definition)
	if err != nil {
		return false, err
	}
	if head, err := v.store.Head(ctx, tenant); err == nil {
		_ = projection.CatchUpTo(ctx, v.store, v.drivers["default"], p.LiveBuild(), tenant, fold, head.Position) // Begin fails likewise
	}
	begun, err = v.inline.Begin(ctx, tenant, p.LiveBuild(), fold)
	if err == nil && !begun && !p.Inline {
		err = fmt.Errorf("build %d did not begin", p.Build)
	}
	return begun, err
}

// look compares every inline build, in one snapshot of the database, with a fold from scratch. It reports whether it
// could read the snapshot.
func look(t *testing.T, ctx context.Context, super *pgxpool.Pool) bool {
	err := pgx.BeginTxFunc(ctx, super, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		type row struct {
			tenant, owner domain.TenantID
			name          string
			build, head   int64
			definition    domain.Definition
		}
		rows, _ := tx.Query(ctx, `select b.tenant_id, b.owner, b.name, b.build, b.definition, coalesce(l.head, 0)
			from manifold.tenant_builds b left join manifold.logs l using (tenant_id) where b.base is null`)
		builds, err := pgx.CollectRows(rows, func(from pgx.CollectableRow) (r row, err error) {
			return r, from.Scan(&r.tenant, &r.owner, &r.name, &r.build, &r.definition, &r.head)
		})
		if err != nil {
			return err
		}
		for _, b := range builds {
			rows, _ := tx.Query(ctx, `select e.position, e.event_type, e.event_data, string_to_array(nullif(split_part(t.tags, e'\n', (e.position - t.position + 1)::integer), ''), ' ')
				from manifold.events e left join lateral (
					select * from manifold.event_tags t where t.tenant_id = e.tenant_id and t.position <= e.position and t.position > e.position - 32
					order by t.position desc limit 1
				) t on true where e.tenant_id = $1 order by e.position`, b.tenant)
			events, err := pgx.CollectRows(rows, func(from pgx.CollectableRow) (e domain.Event, err error) {
				return e, from.Scan(&e.Position, &e.Type, &e.Data, &e.Tags)
			})
			if err != nil {
				return err
			}
			table := "documents"
			if b.owner == domain.Everyone {
				table = fmt.Sprintf("%s.%d", b.name, b.build)
			}
			rows, _ = tx.Query(ctx, `select d.id, d.version, d.document::text from manifold_documents."`+table+`" d where d.tenant_id = $1 and d.build = $2`, b.tenant, b.build)
			documents, checkpoint := make(map[string]string), int64(0)
			_, err = pgx.CollectRows(rows, func(from pgx.CollectableRow) (struct{}, error) {
				var id string
				var version int64
				var text *string
				err := from.Scan(&id, &version, &text)
				if id == "" {
					checkpoint = version
				} else if text != nil {
					documents[id] = fmt.Sprintf("%d %s", version, *text)
				}
				return struct{}{}, err
			})
			if err != nil {
				return err
			}
			if checkpoint != b.head || int64(len(events)) != b.head {
				t.Errorf("build %d of %s is at %d, and the log at %d with %d events", b.build, b.name, checkpoint, b.head, len(events))
			}
			if want := counted(t, b.definition, events); !maps.Equal(documents, want) {
				for _, id := range slices.Sorted(maps.Keys(want)) {
					if documents[id] != want[id] {
						t.Errorf("build %d of %s has of %s %s, want %s", b.build, b.name, id, documents[id], want[id])
					}
				}
				if len(documents) != len(want) {
					t.Errorf("build %d of %s has %d documents, want %d", b.build, b.name, len(documents), len(want))
				}
			}
		}
		return nil
	})
	return err == nil
}

// follow runs what a worker process runs.
func (v *inliner) follow(t *testing.T) {
	run(t,
		v.runner.Run, v.rebuilds.Run,
		func(ctx context.Context) error { return v.store.Listen(ctx, v.runner.Wake) },
		func(ctx context.Context) error {
			return v.store.ListenProjections(ctx, func() {
				v.runner.Refresh()
				v.rebuilds.Wake()
			})
		},
	)
}

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); pause(t.Context(), 20*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// An inline projection of a log with events is first followed until it has caught up; then the appends take over. It
// can become async and inline again, and be reset and deleted. No reader ever sees an older state than before.
func TestInlineTakesOver(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 2)
	v, w := newInliner(t, db), newInliner(t, db)
	var tenants []domain.TenantID
	for range 3 {
		tenant := domain.NewTenantID()
		if err := v.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: tenant.String()}); err != nil {
			t.Fatal(err)
		}
		tenants = append(tenants, tenant)
	}
	random := rand.New(rand.NewPCG(1, 2))
	add := func() {
		t.Helper()
		for _, p := range []*inliner{v, w} {
			for _, tenant := range tenants[:2] { // the third has no log yet
				if err := p.appendSome(random, tenant, true); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	add()
	id := domain.ProjectionID{Owner: domain.Everyone, Name: "shared"}
	if _, err := v.catalog.Create(t.Context(), id.Owner, variant(id.Name, 0), "test"); err != nil {
		t.Fatal(err)
	}
	v.follow(t)
	w.follow(t)
	inline := func(want int) func() bool {
		return func() bool {
			builds, err := v.store.InlineBuilds(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return len(builds) == want
		}
	}
	until(t, "appends to take over", inline(2))
	for _, tenant := range tenants {
		if s, err := w.catalog.Status(t.Context(), tenant, id.Name); err != nil || s.State != projection.StateCaughtUp || s.Checkpoint != s.Head {
			t.Errorf("the status is %+v, %v", s, err)
		}
	}
	for range 5 {
		add()
		look(t, t.Context(), super)
	}
	if err := w.appendSome(random, tenants[2], true); err != nil {
		t.Fatal(err)
	}
	if !inline(3)() {
		t.Error("the first append of a tenant does not begin its inline build")
	}
	look(t, t.Context(), super)
	deploy := func(mode domain.Mode, k int) {
		t.Helper()
		definition := variant(id.Name, k)
		definition.Mode = mode
		d, err := v.rebuilds.Deploy(t.Context(), id.Owner, definition, "test", false)
		if err != nil || d.Rebuild == nil {
			t.Fatalf("deploy: %+v, %v", d, err)
		}
		until(t, "the rebuild", func() bool {
			r, err := v.rebuilds.Get(t.Context(), id, d.Rebuild.ID)
			if err != nil {
				t.Fatal(err)
			}
			if r.State.Ended() && r.State != domain.RebuildSwapped {
				t.Fatalf("the rebuild is %s: %s", r.State, r.Error)
			}
			add()
			return r.State.Ended()
		})
	}
	deploy(domain.ModeInline, 2)
	if !inline(3)() {
		t.Error("not all are inline after the rebuild")
	}
	look(t, t.Context(), super)
	deploy(domain.ModeAsync, 2)
	if !inline(0)() {
		t.Error("some are inline after a rebuild that made the projection async")
	}
	add()
	deploy(domain.ModeInline, 4)
	until(t, "appends to take over again", inline(3))
	add()
	look(t, t.Context(), super)
	if _, err := w.catalog.Reset(t.Context(), id.Owner, id.Name, "test", false); err != nil {
		t.Fatal(err)
	}
	p, err := v.store.Projection(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the reset build to be inline", func() bool {
		add()
		builds, err := v.store.InlineBuilds(t.Context(), id)
		return err == nil && len(builds) == 3 && !slices.ContainsFunc(builds, func(b domain.TenantBuild) bool { return b.Build != p.Build })
	})
	look(t, t.Context(), super)
	if err := w.catalog.Delete(t.Context(), id.Owner, id.Name, "test"); err != nil {
		t.Fatal(err)
	}
	if !inline(0)() {
		t.Error("appends fold into what was deleted")
	}
	for range 3 {
		add()
	}
	// What the deleted one could not fold is no longer a hindrance.
	if _, err := v.store.Append(t.Context(), tenants[0], domain.Append{Streams: []domain.StreamAppend{{
		Stream: "x-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Add", Data: json.RawMessage(`{"k": "key 1", "n": "one"}`)}},
	}}}); err != nil {
		t.Error(err)
	}
}

// A rebuild that makes an inline projection async also moves tenant by tenant. If it is cancelled after moving some, no
// tenant keeps the definition that nobody else has.
func TestCancelRebuildAwayFromInline(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 2)
	v := newInliner(t, db)
	tenant := domain.NewTenantID()
	if err := v.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: tenant.String()}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []domain.ProjectionID{{Owner: domain.Everyone, Name: "shared"}, {Owner: tenant, Name: "own"}} {
		if _, err := v.catalog.Create(t.Context(), id.Owner, variant(id.Name, 0), "test"); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	add := func() {
		t.Helper()
		if err := v.appendSome(random, tenant, true); err != nil {
			t.Fatal(err)
		}
	}
	add()
	var before []domain.TenantBuild
	for _, id := range []domain.ProjectionID{{Owner: domain.Everyone, Name: "shared"}, {Owner: tenant, Name: "own"}} {
		builds, err := v.store.InlineBuilds(t.Context(), id)
		if err != nil || len(builds) != 1 {
			t.Fatalf("the inline builds are %+v, %v", builds, err)
		}
		before = append(before, builds[0])
		definition := variant(id.Name, 2)
		definition.Mode = domain.ModeAsync
		r, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{Definition: &definition})
		if err != nil {
			t.Fatal(err)
		}
		// What a worker does who dies behind the first tenant.
		if err := v.drivers["default"].CreateTemporaryTable(t.Context(), r.NewBuild()); err != nil {
			t.Fatal(err)
		}
		fold, err := folding.Compile(r.Definition)
		if err != nil {
			t.Fatal(err)
		}
		to := domain.TenantBuild{ProjectionID: id, Tenant: tenant, Build: r.Build, Base: builds[0].Build, Definition: &r.Definition}
		moved, err := v.store.MoveInline(t.Context(), builds[0], to, projection.AtHead(v.store, v.drivers["default"], r.NewBuild(), tenant, fold))
		if err != nil || !moved {
			t.Fatalf("moved: %v, %v", moved, err)
		}
		if _, err := v.rebuilds.Cancel(t.Context(), id, r.ID); err != nil {
			t.Fatal(err)
		}
	}
	add()
	v.follow(t)
	for _, was := range before {
		until(t, was.Name+" to be taken back", func() bool {
			live, err := v.store.LiveProjection(t.Context(), tenant, was.ProjectionID)
			if err != nil {
				t.Fatal(err)
			}
			return live.Inline && live.Build == was.Build
		})
	}
	add()
	look(t, t.Context(), super)
}
