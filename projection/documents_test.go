package projection_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// keeps is the definition of a projection whose documents are the data of a stream's last event.
func keeps(name string) domain.Definition {
	return folding.WithDefaults(domain.Definition{Name: name, On: map[string]string{"Set": "event.data"}})
}

// A page token is valid only for the query, projection and tenant that it was issued for.
func TestPageTokenOfAnotherQuery(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, two := b.tenant(t), b.tenant(t)
	p := b.process(options{})
	p.start(t, b)
	var last int64
	for _, owner := range []domain.TenantID{domain.Everyone, one, two} {
		name := "own"
		if owner == domain.Everyone {
			name = "shared"
		}
		if _, err := p.catalog.Create(t.Context(), owner, keeps(name), "test"); err != nil {
			t.Fatal(err)
		}
	}
	for _, tenant := range []domain.TenantID{one, two} {
		for _, id := range []string{"x-1", "x-2", "x-3"} {
			last = b.append(t, tenant, id, "Set", `{"n": 1, "m": 2}`)
		}
	}
	ask := func(tenant domain.TenantID, name, filter, orderBy, token string) (projection.DocumentsPage, error) {
		return p.catalog.Documents(t.Context(), tenant, name, projection.DocumentsQuery{
			Filter: filter, OrderBy: orderBy, PageSize: 1, PageToken: token, Freshness: projection.Freshness{MinPosition: last, Wait: time.Minute},
		})
	}
	first, err := ask(one, "shared", "doc.n == 1", "m", "")
	if err != nil || first.Next == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	if second, err := ask(one, "shared", "doc.n == 1", "m", first.Next); err != nil || len(second.Documents) != 1 || second.Documents[0].ID != "x-2" {
		t.Errorf("the next page is %+v, %v", second, err)
	}
	for what, err := range map[string]error{
		"another tenant":     second(ask(two, "shared", "doc.n == 1", "m", first.Next)),
		"another projection": second(ask(one, "own", "doc.n == 1", "m", first.Next)),
		"another filter":     second(ask(one, "shared", "doc.n == 2", "m", first.Next)),
		"no filter":          second(ask(one, "shared", "", "m", first.Next)),
		"another order":      second(ask(one, "shared", "doc.n == 1", "m desc", first.Next)),
		"another path":       second(ask(one, "shared", "doc.n == 1", "n", first.Next)),
		"no order":           second(ask(one, "shared", "doc.n == 1", "", first.Next)),
		// What was one text must not be taken for two others.
		"moved between the two": second(ask(one, "shared", `doc.n == 1" "m`, "", first.Next)),
	} {
		if !domain.IsCode(err, domain.CodeInvalidRequest) {
			t.Errorf("%s: %v", what, err)
		} else if what != "moved between the two" && !strings.HasPrefix(err.Error(), "pageToken: ") {
			t.Errorf("%s: the refusal does not name the token: %v", what, err)
		}
	}
	if _, err := p.catalog.Reset(t.Context(), domain.Everyone, "shared", "test", false); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(one, "shared", "doc.n == 1", "m", first.Next); !domain.IsCode(err, domain.CodeGone) {
		t.Errorf("a page of a build that is gone: %v", err)
	}
	if _, err := p.catalog.Explain(t.Context(), one, "shared", projection.DocumentsQuery{Filter: "doc.n == 1", OrderBy: "m", PageSize: 1, PageToken: first.Next}); !domain.IsCode(err, domain.CodeGone) {
		t.Errorf("its explanation: %v", err)
	}
}

func second(_ projection.DocumentsPage, err error) error { return err }

// beforeCounts is a driver that calls a function before it counts for the first time.
type beforeCounts struct {
	drivers.Driver
	once *sync.Once
	do   func()
}

func (r beforeCounts) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	r.once.Do(r.do)
	return r.Driver.Count(ctx, build, tenant, where)
}

// A page and its count come from one build, even if the build's table is dropped between them.
func TestCountWhileATableIsDropped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	setup := b.process(options{})
	created, err := setup.catalog.Create(t.Context(), domain.Everyone, keeps("kept"), "test")
	if err != nil {
		t.Fatal(err)
	}
	old := drivers.Batch{From: 0, To: 2, Upserts: []domain.Document{{ID: "a", Version: 1, Data: []byte(`{}`)}, {ID: "b", Version: 2, Data: []byte(`{}`)}}}
	if err := b.driver.Save(t.Context(), created.LiveBuild(), tenant, old); err != nil {
		t.Fatal(err)
	}
	c := b.process(options{driver: beforeCounts{b.driver, new(sync.Once), func() {
		reset, err := setup.catalog.Reset(t.Context(), domain.Everyone, "kept", "test", false)
		if err != nil {
			t.Error(err)
		}
		now := drivers.Batch{From: 0, To: 1, Upserts: []domain.Document{{ID: "c", Version: 1, Data: []byte(`{}`)}}}
		if err := b.driver.Save(t.Context(), reset.LiveBuild(), tenant, now); err != nil {
			t.Error(err)
		}
		if err := b.driver.DropTable(t.Context(), created.LiveBuild()); err != nil {
			t.Error(err)
		}
	}}}).catalog
	page, err := c.Documents(t.Context(), tenant, "kept", projection.DocumentsQuery{PageSize: 1, Count: true})
	if err != nil || len(page.Documents) != 1 || page.Documents[0].ID != "c" || page.Count != 1 || page.Next != "" {
		t.Errorf("%+v, %v", page, err)
	}
}

// A tagged event that the projection does not fold, because of its category or type, is nothing to wait for.
func TestMinPositionOfTaggedEventsOfOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	definition := sums("sums")
	definition.Source.Categories = []string{"x"}
	definition.Source.Query.Items = domain.Query{{Tags: []string{"course:1"}}}
	if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	p.start(t, b)
	for _, event := range [][]string{{"x-1", "Add"}, {"y-1", "Add"}, {"x-1", "Unfolded"}} {
		position := b.append(t, tenant, event[0], event[1], `{"k": "a", "n": 1}`, "course:1")
		_, err := p.catalog.Documents(t.Context(), tenant, "sums", projection.DocumentsQuery{PageSize: 1, Freshness: projection.Freshness{MinPosition: position, Wait: time.Minute}})
		if err != nil {
			t.Errorf("after %s of %s: %v", event[1], event[0], err)
		}
	}
}

// replicated is a driver with a replica that never has an answer. It counts the requests for it.
type replicated struct {
	drivers.Driver
	asked *atomic.Int32
}

func (r replicated) AtPosition(int64) (drivers.Reader, bool) {
	r.asked.Add(1)
	return nil, false
}

func (r replicated) ReplicaStates() []drivers.ReplicaState { return nil }

// Later pages and explanations come from the primary, also with a position.
func TestWhatReplicasAreAsked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	var asked atomic.Int32
	p := b.process(options{driver: replicated{b.driver, &asked}})
	if _, err := p.catalog.Create(t.Context(), tenant, keeps("kept"), "test"); err != nil {
		t.Fatal(err)
	}
	p.start(t, b)
	b.append(t, tenant, "x-1", "Set", `{"n": 1}`)
	q := projection.DocumentsQuery{PageSize: 1, Freshness: projection.Freshness{MinPosition: b.append(t, tenant, "x-2", "Set", `{"n": 1}`), Wait: time.Minute}}
	first, err := p.catalog.Documents(t.Context(), tenant, "kept", q)
	if err != nil || first.Next == "" || asked.Load() != 1 {
		t.Fatalf("%+v, %v; a replica was asked %d times, want 1", first, err, asked.Load())
	}
	_, explainErr := p.catalog.Explain(t.Context(), tenant, "kept", q)
	q.PageToken = first.Next
	second, err := p.catalog.Documents(t.Context(), tenant, "kept", q)
	if err := errors.Join(err, explainErr); err != nil || len(second.Documents) != 1 || asked.Load() != 1 {
		t.Errorf("%+v, %v; a replica was asked %d times, want 1", second, err, asked.Load())
	}
}
