package rebuild_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/mongo"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
	"github.com/manifold-es/manifold/drivers/sqlserver"
	"github.com/manifold-es/manifold/drivers/sqlserver/sqlservertest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/rebuild"
)

// restless creates, removes and re-creates documents: key k exists while the sum of its events is not divisible by
// three.
func restless(name string) domain.Definition {
	return folding.WithDefaults(domain.Definition{
		Name: name, Key: "event.data.k",
		On: map[string]string{"Add": "(doc.?sum.orValue(0) + event.data.n) % 3 == 0 ? null : {'sum': doc.?sum.orValue(0) + event.data.n}"},
	})
}

// Equivalent builds are compared while events arrive at full speed and documents come and go. No difference is ever
// reported, whichever build is ahead.
func TestEqualBuildsHaveNoDifference(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	tenants := []domain.TenantID{v.tenant(t), v.tenant(t)}
	for _, tenant := range tenants {
		v.scatter(t, tenant, 0, 3000)
	}
	d, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, restless("restless"), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	id := d.Projection.ProjectionID
	quit := make(chan struct{})
	var others sync.WaitGroup
	defer others.Wait()
	defer close(quit)
	for _, tenant := range tenants {
		others.Go(func() {
			for from := 3000; ; from += 7 {
				select {
				case <-quit:
					return
				default:
					v.scatter(t, tenant, from, 7)
				}
			}
		})
	}
	same := int64(0)
	for round := 0; round < 8 || same < 1000; round++ { // fewer documents the same would show little
		request := rebuild.Request{RebuildOptions: domain.RebuildOptions{DryRun: round%2 == 0}}
		r := v.ended(t, v.start(t, id, request))
		if r.State != domain.RebuildReported && r.State != domain.RebuildSwapped || r.Difference == nil {
			t.Fatalf("the rebuild is %+v", r)
		}
		if d := r.Difference; d.New != 0 || d.Gone != 0 || d.Changed != 0 {
			t.Fatalf("round %d: documents of one meaning differ: %+v", round, d)
		}
		same += r.Difference.Same
	}
}

// A tenant whose log is erased during a rebuild is not compared: its live documents are erased later.
func TestErasedTenantsAreNotCompared(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	kept, erased := v.tenant(t), v.tenant(t)
	for _, tenant := range []domain.TenantID{kept, erased} {
		v.append(t, tenant, 100)
	}
	d, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, sums(1), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []domain.TenantID{kept, erased} {
		v.mustBe(t, tenant, 1)
	}
	var once sync.Once
	erase := func(ctx context.Context, _ string) (err error) { // the rebuild has read the heads of the logs, and no events
		once.Do(func() {
			if err = v.store.SetTenantState(ctx, erased, domain.TenantDeleting); err == nil {
				err = v.store.EraseLog(ctx, erased)
			}
		})
		return err
	}
	w := v.process(rebuild.Config{Yield: erase})
	w.work(t)
	r := w.ended(t, w.start(t, d.Projection.ProjectionID, rebuild.Request{RebuildOptions: domain.RebuildOptions{DryRun: true}}))
	got := r.Difference
	if r.State != domain.RebuildReported || got == nil || got.Same != 10 || got.New+got.Gone+got.Changed != 0 || r.Documents != 10 || r.LiveBefore != 10 {
		t.Errorf("the rebuild is %+v, its difference %+v", r, got)
	}
}

// A live build that lags still has documents that the new build has removed. They are not reported as gone because of
// the new definition.
func TestCompareWithALaggingBuild(t *testing.T) {
	t.Parallel()
	v := newService(t)
	stop := v.follow(t)
	v.work(t)
	tenant := v.tenant(t)
	v.scatter(t, tenant, 0, 600)
	d, err := v.rebuilds.Deploy(t.Context(), tenant, restless("restless"), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	fresh := projection.DocumentsQuery{PageSize: 1, Freshness: projection.Freshness{MinPosition: 600, Wait: time.Minute}}
	if _, err := v.catalog.Documents(t.Context(), tenant, "restless", fresh); err != nil {
		t.Fatal(err)
	}
	stop()
	v.scatter(t, tenant, 601, 1200)
	r := v.start(t, d.Projection.ProjectionID, rebuild.Request{RebuildOptions: domain.RebuildOptions{DryRun: true}})
	v.state(t, r, domain.RebuildValidating)
	v.process(rebuild.Config{}).follow(t)
	r = v.ended(t, r)
	if got := r.Difference; r.State != domain.RebuildReported || got == nil || got.New != 0 || got.Gone != 0 || got.Changed != 0 || r.LiveBefore <= r.Documents {
		t.Errorf("the rebuild is %+v, its difference %+v", r, got)
	}
}

// scatter appends n events to 600 keys, starting with event number from.
func (v *service) scatter(t *testing.T, tenant domain.TenantID, from, n int) {
	t.Helper()
	some := domain.StreamAppend{Stream: "x-1", Expected: domain.Any}
	for i := range n {
		k := (from + i) * 7919 % 600
		some.Events = append(some.Events, domain.NewEvent{Type: "Add", Data: json.RawMessage(fmt.Sprintf(`{"k": "key %03d", "n": %d}`, k, (from+i)%5))})
		if len(some.Events) == 500 || i == n-1 {
			if _, err := v.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{some}}); err != nil {
				t.Error(err)
				return
			}
			some.Events = nil
		}
	}
}

// otherDatabases open databases to which a rebuild may move documents. Nil is another PostgreSQL.
var otherDatabases = map[string]func(t *testing.T) (drivers.Driver, error){
	"postgresql": nil,
	"ferretdb": func(t *testing.T) (drivers.Driver, error) {
		return mongo.Open(t.Context(), mongo.Config{URL: mongotest.FerretDB(t), MaxConns: 4, Log: quiet})
	},
	"mongo": func(t *testing.T) (drivers.Driver, error) {
		return mongo.Open(t.Context(), mongo.Config{URL: mongotest.Real(t), MaxConns: 4, Log: quiet})
	},
	"sqlserver": func(t *testing.T) (drivers.Driver, error) {
		return sqlserver.Open(t.Context(), sqlserver.Config{URL: sqlservertest.Database(t).String(), MaxConns: 4, Log: quiet})
	},
}

// All differences of a changed definition are counted, and examples show where they are, also if the rebuild moves the
// documents to another database.
func TestDifferencesAreCounted(t *testing.T) {
	t.Parallel()
	for name, open := range otherDatabases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newService(t)
			if open != nil {
				other, err := open(t)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(other.Close)
				v = v.process(rebuild.Config{Drivers: map[string]drivers.Driver{"default": v.drivers["default"], "elsewhere": other}})
			}
			testDifferences(t, v, "elsewhere")
		})
	}
	t.Run("in the same database", func(t *testing.T) {
		t.Parallel()
		testDifferences(t, newService(t), "default")
	})
}

func testDifferences(t *testing.T, v *service, database string) {
	t.Helper()
	v.follow(t)
	v.work(t)
	tenant := v.tenant(t)
	const keys = 1300 // some pages
	some := domain.StreamAppend{Stream: "x-1", Expected: domain.Any}
	for i := range keys {
		some.Events = append(some.Events, domain.NewEvent{Type: "Add", Data: json.RawMessage(fmt.Sprintf(`{"i": %d}`, i))})
	}
	appended, err := v.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{some}})
	if err != nil {
		t.Fatal(err)
	}
	// Of the live documents every third one is missing; of the new ones every fourth one; every fifth one is
	// changed.
	live := folding.WithDefaults(domain.Definition{Name: "counted", Key: "'d' + string(event.data.i)", On: map[string]string{
		"Add": "event.data.i % 3 == 0 ? null : {'list': [{'a': 1}, {'a': event.data.i}], 'half': 0.5, 'text': 'x'}"}})
	d, err := v.rebuilds.Deploy(t.Context(), tenant, live, "test", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.catalog.Documents(t.Context(), tenant, "counted", projection.DocumentsQuery{PageSize: 1, Freshness: projection.Freshness{MinPosition: appended.Position, Wait: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	changed := live
	changed.Database = database
	changed.On = map[string]string{
		"Add": "event.data.i % 4 == 0 ? null : event.data.i % 5 == 0 ? {'list': [{'a': 1}, {'a': event.data.i, 'b': 2}], 'text': 'y', 'half': 0.5} : " +
			"{'text': 'x', 'half': 1.0 / 2, 'list': [{'a': 1}, {'a': event.data.i}]}"}
	r := v.ended(t, v.start(t, d.Projection.ProjectionID, rebuild.Request{Definition: &changed, RebuildOptions: domain.RebuildOptions{DryRun: true}}))
	var want domain.Difference
	var documents, before int64
	for i := range keys {
		was, is := i%3 != 0, i%4 != 0
		if was {
			before++
		}
		if is {
			documents++
		}
		switch {
		case is && !was:
			want.New++
		case was && !is:
			want.Gone++
		case was && is && i%5 == 0:
			want.Changed++
		case was && is:
			want.Same++
		}
	}
	got := r.Difference
	if r.State != domain.RebuildReported || got == nil {
		t.Fatalf("the rebuild is %+v", r)
	}
	if got.New != want.New || got.Gone != want.Gone || got.Changed != want.Changed || got.Same != want.Same || r.Documents != documents || r.LiveBefore != before {
		t.Errorf("found %+v, %d documents and %d before; want %+v, %d and %d", got, r.Documents, r.LiveBefore, want, documents, before)
	}
	kinds := map[domain.DifferenceKind]int{}
	for _, e := range got.Examples {
		kinds[e.Kind]++
		switch {
		case e.Tenant != tenant || !strings.HasPrefix(e.ID, "d"):
			t.Errorf("an example is %+v", e)
		case e.Kind == domain.DifferenceChanged:
			if !slices.Equal(e.Fields, []string{"list[1].b", "text"}) || string(e.Live) != `{"text": "x"}` || string(e.Built) != `{"text": "y", "list[1].b": 2}` {
				t.Errorf("an example is %s, live %s, built %s", e.Fields, e.Live, e.Built)
			}
		case (e.Kind == domain.DifferenceNew) != (e.Live == nil && e.Built != nil):
			t.Errorf("an example is %+v", e)
		}
	}
	for _, kind := range []domain.DifferenceKind{domain.DifferenceNew, domain.DifferenceGone, domain.DifferenceChanged} {
		if kinds[kind] != 5 {
			t.Errorf("there are %d examples of %s", kinds[kind], kind)
		}
	}
	v.mustStreamDifference(t, d.Projection.ProjectionID, rebuild.Request{Definition: &changed}, want)
}

// A live build that has stopped at a fault is compared as far as it has come, and does not block the rebuild.
func TestCompareWithAFaultedBuild(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 95)
	faulty := sums(1)
	faulty.On = map[string]string{"Add": "event.position == 90 ? {'a': 1 / 0} : " + sums(1).On["Add"]}
	d, err := v.rebuilds.Deploy(t.Context(), tenant, faulty, "test", false)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for faulted := false; !faulted; <-tick.C {
		if _, faulted, err = v.store.Fault(t.Context(), tenant, d.Projection.ProjectionID, d.Projection.Build); err != nil {
			t.Fatal(err)
		}
	}
	mended := sums(1)
	r := v.start(t, d.Projection.ProjectionID, rebuild.Request{Definition: &mended})
	if r = v.ended(t, r); r.State != domain.RebuildSwapped || r.Difference == nil || r.Difference.Gone != 0 || r.Difference.Changed != 0 {
		t.Fatalf("the rebuild is %+v", r)
	}
	v.mustBe(t, tenant, 1)
}

// mustStreamDifference starts a rebuild that waits for approval, and reads all of its differences, also from the middle
// on.
func (v *service) mustStreamDifference(t *testing.T, id domain.ProjectionID, request rebuild.Request, want domain.Difference) {
	t.Helper()
	request.Manual, request.NoExamples = true, true
	r := v.start(t, id, request)
	r = v.state(t, r, domain.RebuildAwaitingApproval)
	if r.Difference == nil || r.Difference.Changed != want.Changed || len(r.Difference.Examples) > 0 {
		t.Errorf("without examples the difference is %+v", r.Difference)
	}
	read := func(q rebuild.DifferenceQuery) (all []rebuild.DifferentDocument, err error) {
		err = v.rebuilds.EachDifference(t.Context(), id, r.ID, q, func(d rebuild.DifferentDocument) error {
			all = append(all, d)
			return nil
		}, func() error { return nil })
		return all, err
	}
	all, err := read(rebuild.DifferenceQuery{})
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[domain.DifferenceKind]int64{}
	for i, d := range all {
		kinds[d.Kind]++
		if i > 0 && all[i-1].ID >= d.ID {
			t.Fatalf("document %q is after %q", d.ID, all[i-1].ID)
		}
		switch d.Kind {
		case domain.DifferenceChanged:
			if !slices.Equal(d.Fields, []string{"list[1].b", "text"}) || !strings.Contains(string(d.Live), `"half"`) || !strings.Contains(string(d.Built), `"half"`) {
				t.Fatalf("a difference is %s, live %s, built %s", d.Fields, d.Live, d.Built)
			}
		default:
			if (d.Kind == domain.DifferenceNew) != (d.Live == nil && d.Built != nil) {
				t.Fatalf("a difference is %+v", d)
			}
		}
	}
	if int64(len(all)) != want.New+want.Gone+want.Changed || kinds[domain.DifferenceNew] != want.New || kinds[domain.DifferenceGone] != want.Gone {
		t.Errorf("the differences are %v, want %+v", kinds, want)
	}
	middle := all[len(all)/2]
	rest, err := read(rebuild.DifferenceQuery{AfterTenant: middle.Tenant, After: middle.ID})
	if err != nil || len(rest) != len(all)-len(all)/2-1 || rest[0].ID != all[len(all)/2+1].ID {
		t.Errorf("after %q there are %d of %d differences: %v", middle.ID, len(rest), len(all), err)
	}
	if _, err := v.rebuilds.Cancel(t.Context(), id, r.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := read(rebuild.DifferenceQuery{}); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("the differences of a cancelled rebuild: %v", err)
	}
}

// An event that only one of the builds has seen does not look like a difference of the definitions, and a cancelled
// rebuild ends the comparison instead of showing that all documents are gone.
func TestStreamedDifferencesDuringChanges(t *testing.T) {
	t.Parallel()
	v := newService(t)
	stop := v.follow(t)
	v.work(t)
	tenant := v.tenant(t)
	v.scatter(t, tenant, 0, 600)
	d, err := v.rebuilds.Deploy(t.Context(), tenant, restless("restless"), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	id := d.Projection.ProjectionID
	fresh := projection.DocumentsQuery{PageSize: 1, Freshness: projection.Freshness{MinPosition: 600, Wait: time.Minute}}
	if _, err := v.catalog.Documents(t.Context(), tenant, "restless", fresh); err != nil {
		t.Fatal(err)
	}
	r := v.start(t, id, rebuild.Request{RebuildOptions: domain.RebuildOptions{Manual: true}})
	v.state(t, r, domain.RebuildAwaitingApproval)
	stop()
	v.scatter(t, tenant, 600, 300) // the new build catches up with these, and the live one does not
	read := func(pause func() error) (kinds map[domain.DifferenceKind]int, err error) {
		kinds = map[domain.DifferenceKind]int{}
		err = v.rebuilds.EachDifference(t.Context(), id, r.ID, rebuild.DifferenceQuery{}, func(d rebuild.DifferentDocument) error {
			kinds[d.Kind]++
			return nil
		}, pause)
		return kinds, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for kinds := map[domain.DifferenceKind]int{}; kinds[domain.DifferenceUnsettled] == 0; <-tick.C {
		if kinds, err = read(func() error { return nil }); err != nil || len(kinds) > 1 {
			t.Fatalf("documents of one meaning differ: %v, %v", kinds, err)
		}
	}
	pages := 0
	kinds, err := read(func() error {
		if pages++; pages == 2 { // between the live page and the new one
			_, err := v.rebuilds.Cancel(t.Context(), id, r.ID)
			return err
		}
		return nil
	})
	if !domain.IsCode(err, domain.CodeConflict) || len(kinds) > 0 {
		t.Errorf("a rebuild that is cancelled meanwhile gives %v, %v", kinds, err)
	}
}
