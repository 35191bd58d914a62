package projection_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// tallying is a driver that counts loads and saves.
type tallying struct {
	drivers.Driver
	loaded, saves, written atomic.Int64
}

func (d *tallying) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	d.loaded.Add(int64(len(ids)))
	return d.Driver.Load(ctx, build, tenant, ids)
}

func (d *tallying) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	d.saves.Add(1)
	d.written.Add(int64(len(batch.Upserts)))
	return d.Driver.Save(ctx, build, tenant, batch)
}

// appendMany appends an event to each of a number of streams, in order.
func (b bench) appendMany(t testing.TB, tenant domain.TenantID, streams int) {
	t.Helper()
	for first := 0; first < streams; first += 1000 {
		var all []domain.StreamAppend
		for i := first; i < min(streams, first+1000); i++ {
			all = append(all, domain.StreamAppend{
				Stream: fmt.Sprintf("x-%d", i), Expected: domain.Any,
				Events: []domain.NewEvent{{Type: "A", Data: json.RawMessage(fmt.Sprintf(`{"n": %d}`, i))}},
			})
		}
		if _, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: all}); err != nil {
			t.Fatal(err)
		}
	}
}

var tallied = domain.Definition{Name: "p", On: map[string]string{"A": "{'n': doc.?n.orValue(0) + 1, 'last': event.data.n}"}}

// A replay of a new build loads only documents that it has saved itself and no longer holds in memory.
func TestReplayLoadsNothingFromANewBuild(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const streams = 3000
	b.appendMany(t, tenant, streams)
	fold, err := folding.Compile(tallied)
	if err != nil {
		t.Fatal(err)
	}
	driver := &tallying{Driver: b.driver}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: 1, Database: "default"}
	replay := &projection.Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Limits: projection.Limits{Events: 500, Bytes: 1 << 20, DocumentBytes: 100_000}}
	if err := replay.Run(t.Context(), b.store, streams); err != nil {
		t.Fatal(err)
	}
	if n := driver.loaded.Load(); n > streams/100 {
		t.Errorf("%d documents were asked for that cannot be there", n)
	}
	if n := driver.saves.Load(); n < 5 {
		t.Errorf("%d saves: all documents were held in memory", n)
	}
	b.appendMany(t, tenant, streams)
	if err := replay.Run(t.Context(), b.store, 2*streams); err != nil {
		t.Fatal(err)
	}
	if n := driver.loaded.Load(); n < streams/2 {
		t.Errorf("%d documents were loaded: what was let go of is no longer known", n)
	}
	mustEqual(t, stored(t, t, b, build, tenant), fromScratch(t, tallied, b.log(t, tenant)))
}

// A document that many readings change is written once for several of them.
func TestReplaySavesSeveralReadingsTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const rounds, streams = 20, 50
	for range rounds {
		b.appendMany(t, tenant, streams)
	}
	fold, err := folding.Compile(tallied)
	if err != nil {
		t.Fatal(err)
	}
	driver := &tallying{Driver: b.driver}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: 1, Database: "default"}
	replay := &projection.Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Limits: projection.Limits{Events: streams, Bytes: 1 << 20, DocumentBytes: 1 << 20}}
	if err := replay.Run(t.Context(), b.store, rounds*streams); err != nil {
		t.Fatal(err)
	}
	if n := driver.written.Load(); n >= rounds*streams/2 {
		t.Errorf("%d documents were written for %d readings of %d", n, rounds, streams)
	}
	mustEqual(t, stored(t, t, b, build, tenant), fromScratch(t, tallied, b.log(t, tenant)))
}

// While nobody reads a build, its intermediate states need not be stored. If the documents fit into memory, in stored
// form if necessary, each is written once. So is each otherwise, by a fill, if it is folded from one stream. Others are
// written more often, with the same result.
func TestUnreadBuildsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const rounds, streams = 12, 300
	for range rounds {
		b.appendMany(t, tenant, streams)
	}
	definition := domain.Definition{Name: "p", On: map[string]string{
		"A": "{'n': doc.?n.orValue(0) + 1, 'last': event.data.n, 'all': doc.?all.orValue([]) + [event.position]}",
	}}
	otherKey := definition
	otherKey.Key = "event.stream + ''"
	want := fromScratch(t, definition, b.log(t, tenant))
	var values, texts int // what the documents weigh at the end
	for id, document := range want {
		values += 250 + len(id) + 4*len(document.Data)
		texts += 250 + len(id) + len(document.Data)
	}
	for number, c := range []struct {
		name  string
		bytes int
		folds domain.Definition
		once  bool
	}{
		{"the documents fit", 4 * values, otherKey, true},
		{"only their stored form fits", 3 * texts, otherKey, true},
		{"nor does that", texts, otherKey, false},
		{"a stream's documents do not fit", texts, definition, true},
	} {
		fold, err := folding.Compile(c.folds)
		if err != nil {
			t.Fatal(err)
		}
		driver := &tallying{Driver: b.driver}
		build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: int64(number + 1), Database: "default"}
		replay := &projection.Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Unread: true, Limits: projection.Limits{
			Events: streams / 2, Bytes: 1 << 20, DocumentBytes: c.bytes,
		}}
		if err := replay.Run(t.Context(), b.store, rounds*streams); err != nil {
			t.Fatal(err)
		}
		written := driver.written.Load()
		if once := written == streams; once != c.once || written > rounds*streams {
			t.Errorf("%s: %d documents are written %d times", c.name, streams, written)
		}
		mustEqual(t, stored(t, t, b, build, tenant), want)
	}
}

// A killed worker repeats at most half a minute of work, however much memory is left.
func TestUnreadBuildsAreSavedEveryHalfMinute(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const rounds, streams = 4, 20
	for range rounds {
		b.appendMany(t, tenant, streams)
	}
	fold, err := folding.Compile(tallied)
	if err != nil {
		t.Fatal(err)
	}
	for number, c := range []struct {
		age   time.Duration // of what each reading has changed
		saves int64
	}{{0, 1}, {31 * time.Second, rounds}} {
		driver := &tallying{Driver: b.driver}
		build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: int64(number + 1), Database: "default"}
		replay := &projection.Replay{Driver: driver, Build: build, Tenant: tenant, Fold: fold, Unread: true, Limits: projection.Limits{
			Events: streams, Bytes: 1 << 20, DocumentBytes: 1 << 20,
		}}
		replay.Counted = func(int) { replay.AgePending(c.age) }
		if err := replay.Run(t.Context(), b.store, rounds*streams); err != nil {
			t.Fatal(err)
		}
		if n := driver.saves.Load(); n != c.saves {
			t.Errorf("%d saves if each reading takes %s, want %d", n, c.age, c.saves)
		}
	}
}

// A dropped id must never count as one that the database lacks.
func TestIDFilterHasNoFalseNegatives(t *testing.T) {
	t.Parallel()
	const ids = 2_100_000 // in three layers
	lacking, mistaken := projection.FilterErrors(ids)
	if lacking > 0 || mistaken > ids/100 {
		t.Errorf("of %d ids %d are lacking; %d others are mistaken for them", ids, lacking, mistaken)
	}
}

// In a database without transactions, a build's first batch may have left documents without a checkpoint. A new replay
// does not look for them; the result is the same.
func TestReplayRestartsOverAPartialSave(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn, err := pgx.Connect(t.Context(), b.db.URL(pgtest.RoleSuperuser))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	definition := domain.Definition{Name: "p", On: map[string]string{"A": "doc.?n.orValue(0) == 6 ? null : {'n': doc.?n.orValue(0) + 1}"}}
	fold, err := folding.Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	tenant := b.tenant(t)
	for range 10 {
		b.appendMany(t, tenant, 4)
	}
	for number, left := range []int64{1, 17, 28, 29, 40} {
		build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "p"}, Number: int64(number + 1), Database: "default"}
		replay := func(to int64, limits projection.Limits) {
			r := &projection.Replay{Driver: b.driver, Build: build, Tenant: tenant, Fold: fold, Limits: limits}
			if err := r.Run(t.Context(), b.store, to); err != nil {
				t.Fatal(err)
			}
		}
		replay(left, projection.CatchUpLimits)
		if _, err := conn.Exec(t.Context(), "delete from manifold_documents.documents where tenant_id = $1 and build = $2 and id = ''", tenant.String(), build.Number); err != nil {
			t.Fatal(err)
		}
		replay(40, projection.Limits{Events: 3, Bytes: 1 << 20, DocumentBytes: 1})
		mustEqual(t, stored(t, t, b, build, tenant), fromScratch(t, definition, b.log(t, tenant)))
	}
}
