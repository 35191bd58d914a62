package reactor_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// sums adds up by key, and removes a key on an event of type Drop.
func sums(name string, mode domain.Mode) domain.Definition {
	return domain.Definition{
		Name: name, Source: domain.Source{Categories: []string{"x"}}, Key: "event.data.?k.orValue(null)", Mode: mode, PublishChanges: true,
		On: map[string]string{"Add": "{'sum': doc.?sum.orValue(0) + event.data.n}", "Drop": "null"},
	}
}

// changed is an event with a document's change.
type changed struct {
	Document string
	Version  int64
	Data     json.RawMessage
}

// foldChanges folds what a projection has published. It reports violations: each change must appear once, in order,
// with the event that caused it.
func foldChanges(t testing.TB, events []domain.Event, name string) map[string]string {
	t.Helper()
	documents, versions, streams := map[string]string{}, map[string]int64{}, map[string]string{}
	ids := map[string]bool{}
	for _, event := range events {
		ids[event.ID.String()] = true
		if domain.Category(event.Stream) != name+".changed" {
			continue
		}
		var c changed
		must(t, json.Unmarshal(event.Data, &c))
		var metadata struct {
			CausedBy string `json:"caused_by"`
		}
		must(t, json.Unmarshal(event.Metadata, &metadata))
		if event.Type != name+".changed" || !ids[metadata.CausedBy] {
			t.Errorf("%s at %d is a %s, caused by %q", event.Stream, event.Position, event.Type, metadata.CausedBy)
		}
		if len(event.Tags) != 1 || event.Tags[0] != "cause:"+metadata.CausedBy {
			t.Errorf("%s at %d has the tags %q, and was caused by %s", event.Stream, event.Position, event.Tags, metadata.CausedBy)
		}
		if before, ok := streams[event.Stream]; ok && before != c.Document {
			t.Errorf("%s is of %q and of %q", event.Stream, before, c.Document)
		}
		streams[event.Stream] = c.Document
		if c.Version <= versions[c.Document] {
			t.Errorf("%q: the change to version %d comes after the change to version %d", c.Document, c.Version, versions[c.Document])
		}
		versions[c.Document] = c.Version
		before, there := documents[c.Document]
		switch {
		case string(c.Data) == "null" && !there:
			t.Errorf("%q is removed again, or never was, at version %d", c.Document, c.Version)
		case string(c.Data) == "null":
			delete(documents, c.Document)
		case there && folding.SameValue(c.Data, json.RawMessage(before)):
			t.Errorf("%q has become %s twice, at version %d", c.Document, c.Data, c.Version)
		default:
			documents[c.Document] = string(c.Data)
		}
	}
	return documents
}

// publishedIs reports whether the published changes add up to the documents.
func (p *process) publishedIs(t testing.TB, tenant domain.TenantID, name string) bool {
	t.Helper()
	head, err := p.bench.store.Head(t.Context(), tenant)
	must(t, err)
	page, err := p.catalog.Documents(t.Context(), tenant, name, projection.DocumentsQuery{PageSize: 1000, Freshness: projection.Freshness{MinPosition: head.Position, Wait: time.Minute}})
	must(t, err)
	folded := foldChanges(t, p.bench.log(t, tenant), name)
	if len(folded) != len(page.Documents) {
		return false
	}
	for _, document := range page.Documents {
		if data, ok := folded[document.ID]; !ok || !folding.SameValue(json.RawMessage(data), document.Data) {
			return false
		}
	}
	return true
}

func (p *process) awaitPublished(t testing.TB, tenant domain.TenantID, names ...string) {
	t.Helper()
	for _, name := range names {
		until(t, "the changes of "+name, func() bool { return p.publishedIs(t, tenant, name) })
	}
}

// Whatever dies, and however many processes work: the published changes fold to the documents, and each change appears
// once and in order.
func TestFoldedChangesEqualTheDocuments(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	one, _ := b.start(t)
	two, _ := b.start(t)
	tenants := []domain.TenantID{b.tenant(t), b.tenant(t)}
	one.create(t, domain.Everyone, sums("sums.shared", domain.ModeAsync))
	one.create(t, domain.Everyone, sums("sums_inline", domain.ModeInline))
	one.create(t, tenants[0], sums("own", domain.ModeAsync))
	spread := sums("spread", domain.ModeAsync)
	spread.Key = "event.data.?n.orValue(1) % 2 == 0 ? ['all', event.data.?k.orValue(null)] : [event.data.?k.orValue(null), {'id': 'all'}, {'id': 'odd'}]"
	one.create(t, tenants[0], spread)
	names := func(tenant domain.TenantID) []string {
		if tenant == tenants[0] {
			return []string{"sums.shared", "sums_inline", "own", "spread"}
		}
		return []string{"sums.shared", "sums_inline"}
	}
	for range 12 {
		for _, tenant := range tenants {
			for range 1 + random.IntN(8) {
				key := fmt.Sprintf(`"key %d/é"`, random.IntN(6))
				if random.IntN(6) == 0 {
					b.append(t, tenant, "x-1", "Drop", fmt.Sprintf(`{"k": %s}`, key))
					continue
				}
				data := make([]string, 1+random.IntN(20))
				for i := range data {
					data[i] = fmt.Sprintf(`{"k": %s, "n": %d}`, key, random.IntN(3))
				}
				b.append(t, tenant, "x-1", "Add", append(data, `{"n": 1}`)...)
			}
		}
		switch random.IntN(4) {
		case 0:
			one.network.Cut()
			one, _ = b.start(t)
		case 1:
			two.network.Cut()
			two, _ = b.start(t)
		case 2:
			one.awaitPublished(t, tenants[0], "own")
		}
	}
	two.network.Cut()
	// What a dead process was working on is redelivered when its lease expires. Its answers were lost, but not its
	// appends.
	for _, tenant := range tenants {
		one.awaitPublished(t, tenant, names(tenant)...)
	}

	// A rebuild publishes nothing. Neither does a reset, once the projection has caught up.
	before := []int{len(b.log(t, tenants[0])), len(b.log(t, tenants[1]))}
	for _, id := range []domain.ProjectionID{{Name: "sums.shared"}, {Name: "sums_inline"}, {Owner: tenants[0], Name: "own"}, {Owner: tenants[0], Name: "spread"}} {
		one.rebuild(t, id)
	}
	_, err := one.catalog.Reset(t.Context(), domain.Everyone, "sums.shared", "test", true)
	must(t, err)
	for i, tenant := range tenants {
		one.awaitPublished(t, tenant, names(tenant)...)
		if events := len(b.log(t, tenant)); events != before[i] {
			t.Errorf("the rebuilds have published: there were %d events, and are %d", before[i], events)
		}
		b.append(t, tenant, "x-1", "Add", `{"k": "behind", "n": 7}`)
		one.awaitPublished(t, tenant, names(tenant)...)
	}
	if !strings.Contains(fmt.Sprint(foldChanges(t, b.log(t, tenants[0]), "own")), "behind") {
		t.Error("what came behind the rebuild was not published")
	}
}
