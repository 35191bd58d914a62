package projection_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// A list of a partitioned projection's documents, and its explanation, covers one partition. Reading one document needs
// none.
func TestListsRequireAPartition(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{})
	p.start(t, b)
	for _, owner := range []domain.TenantID{domain.Everyone, tenant} {
		definition := keeps(map[bool]string{true: "shared", false: "own"}[owner == domain.Everyone])
		definition.PartitionBy, definition.Indexes = "customer.id", []string{"n"}
		if _, err := p.catalog.Create(t.Context(), owner, definition, "test"); err != nil {
			t.Fatal(err)
		}
	}
	b.append(t, tenant, "x-1", "Set", `{"n": 1, "customer": {"id": "a"}}`)
	b.append(t, tenant, "x-2", "Set", `{"n": 2, "customer": {"id": "a"}}`)
	fresh := projection.Freshness{MinPosition: b.append(t, tenant, "x-3", "Set", `{"n": 1, "customer": {"id": "b"}}`), Wait: time.Minute}
	for _, name := range []string{"shared", "own"} {
		for filter, want := range map[string]int{
			`doc.customer.id == "a"`:                              2,
			`"b" == doc.customer.id`:                              1,
			`doc.n == 1 && (doc.customer.id == "a" && doc.n > 0)`: 1,
			`doc.customer.id == "nobody"`:                         0,
			"":                                                    -1,
			`doc.n == 1`:                                          -1,
			`doc.customer.id != "a"`:                              -1,
			`doc.customer.id in ["a", "b"]`:                       -1,
			`doc.customer.id == "a" || doc.n == 1`:                -1,
			`!(doc.customer.id == "a")`:                           -1,
		} {
			query := projection.DocumentsQuery{Filter: filter, PageSize: 10, Count: true, Freshness: fresh}
			page, err := p.catalog.Documents(t.Context(), tenant, name, query)
			_, explained := p.catalog.Explain(t.Context(), tenant, name, query)
			if want >= 0 {
				if err != nil || explained != nil || len(page.Documents) != want || page.Count != int64(want) {
					t.Errorf("%s, filter %s: %d documents, count %d, %v, %v; want %d", name, filter, len(page.Documents), page.Count, err, explained, want)
				}
				continue
			}
			for _, err := range []error{err, explained} {
				refused, ok := errors.AsType[*domain.Error](err)
				if !ok || refused.Code != domain.CodeInvalidRequest || refused.Where != "filter" || !strings.Contains(refused.Message, "doc.customer.id ==") {
					t.Errorf("%s, filter %s: the error is %v, want %s at filter that says what to add", name, filter, err, domain.CodeInvalidRequest)
				}
			}
		}
		if _, err := p.catalog.Document(t.Context(), tenant, name, "x-1", fresh); err != nil {
			t.Errorf("%s: one document: %v", name, err)
		}
	}
}
