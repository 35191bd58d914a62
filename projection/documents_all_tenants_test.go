package projection_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// all reads the documents of all tenants, in pages of a size.
func all(t *testing.T, c *projection.Catalog, name string, q projection.AllDocumentsQuery) (told []string) {
	t.Helper()
	for {
		page, err := c.AllDocuments(t.Context(), name, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Documents) > q.PageSize {
			t.Fatalf("a page of %d has %d documents", q.PageSize, len(page.Documents))
		}
		for _, d := range page.Documents {
			told = append(told, fmt.Sprintf("%s %s %d %s", d.Tenant, d.ID, d.Version, canonical(t, d.Data)))
		}
		if q.PageToken = page.Next; page.Next == "" {
			return told
		}
	}
}

func TestAllDocuments(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process(options{})
	p.start(t, b)
	definition := sums("counted")
	definition.Key, definition.On = "event.stream", map[string]string{"*": `{"n": event.position}`}
	created, err := p.catalog.Create(t.Context(), domain.Everyone, definition, "test")
	if err != nil {
		t.Fatal(err)
	}
	var tenants []domain.TenantID
	var want []string
	for i := range 5 {
		tenant := b.tenant(t)
		tenants = append(tenants, tenant)
		last := int64(0)
		for j := range i * 3 {
			last = b.append(t, tenant, fmt.Sprintf("x-%03d", j), "A", `{}`)
		}
		for id, d := range documents(t, p.catalog, tenant, "counted", last) {
			want = append(want, fmt.Sprintf("%s %s %d %s", tenant, id, d.Version, canonical(t, d.Data)))
		}
	}
	// A projection of a tenant's own is nobody else's, whatever its name.
	own := sums("private")
	if _, err := p.catalog.Create(t.Context(), tenants[4], own, "test"); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if len(want) != 30 {
		t.Fatalf("there are %d documents", len(want))
	}
	for _, size := range []int{1, 2, 3, 7, 29, 30, 31, 1000} {
		if got := all(t, p.catalog, "counted", projection.AllDocumentsQuery{PageSize: size}); !slices.Equal(got, want) {
			t.Errorf("in pages of %d there are\n%s\nwant\n%s", size, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	few := slices.DeleteFunc(slices.Clone(want), func(line string) bool { return !strings.Contains(line, `{"n":2}`) })
	if got := all(t, p.catalog, "counted", projection.AllDocumentsQuery{PageSize: 2, Filter: "doc.n == 2"}); !slices.Equal(got, few) || len(few) != 4 {
		t.Errorf("filtered there are %v, want %v", got, few)
	}
	mine := slices.DeleteFunc(slices.Clone(want), func(line string) bool { return !strings.HasPrefix(line, tenants[2].String()) })
	if got := all(t, p.catalog, "counted", projection.AllDocumentsQuery{PageSize: 4, Tenant: tenants[2]}); !slices.Equal(got, mine) || len(mine) != 6 {
		t.Errorf("of one tenant there are %v, want %v", got, mine)
	}
	page, err := p.catalog.AllDocuments(t.Context(), "counted", projection.AllDocumentsQuery{PageSize: 5})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		name string
		q    projection.AllDocumentsQuery
		code domain.Code
	}{
		"a tenant's own":  {"private", projection.AllDocumentsQuery{PageSize: 1}, domain.CodeNotFound},
		"no page":         {"counted", projection.AllDocumentsQuery{}, domain.CodeInvalidRequest},
		"another query's": {"counted", projection.AllDocumentsQuery{PageSize: 1, Filter: "doc.n > 1", PageToken: page.Next}, domain.CodeInvalidRequest},
		"no token":        {"counted", projection.AllDocumentsQuery{PageSize: 1, PageToken: page.Next + "A"}, domain.CodeInvalidRequest},
		"a bad filter":    {"counted", projection.AllDocumentsQuery{PageSize: 1, Filter: "doc."}, domain.CodeInvalidRequest},
	} {
		if _, err := p.catalog.AllDocuments(t.Context(), test.name, test.q); !domain.IsCode(err, test.code) {
			t.Errorf("%s: %v, want %s", name, err, test.code)
		}
	}
	if _, err := p.catalog.Reset(t.Context(), domain.Everyone, "counted", "test", false); err != nil {
		t.Fatal(err)
	}
	if _, err := p.catalog.AllDocuments(t.Context(), "counted", projection.AllDocumentsQuery{PageSize: 5, PageToken: page.Next}); !domain.IsCode(err, domain.CodeGone) {
		t.Errorf("a page of build %d after a reset: %v", created.Build, err)
	}
}

// A tenant's usage counts its own events, by the day on which they were recorded.
func TestUsage(t *testing.T) {
	t.Parallel()
	fold, err := folding.CompileWith(folding.UsageDefinition(), map[string]folding.Handler{folding.UsageName: folding.UsageHandler()})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		type day struct{ events, bytes int64 }
		want := make(map[string]day)
		given := make([]folding.GivenEvent, rapid.IntRange(1, 50).Draw(t, "events"))
		for i := range given {
			at := time.Date(2026, 2, 27, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 5*24*3600-1).Draw(t, "second")) * time.Second)
			text := fmt.Sprintf(`{"text": %q}`, strings.Repeat("x", rapid.IntRange(0, 100).Draw(t, "length")))
			given[i] = folding.GivenEvent{Type: "A", Data: []byte(text), OccurredAt: at.AddDate(1, 0, 0), RecordedAt: at.In(time.FixedZone("", rapid.IntRange(-12, 12).Draw(t, "zone")*3600))}
			bytes := int64(len(text))
			if rapid.Bool().Draw(t, "metadata") {
				given[i].Metadata = []byte(`{"schemaVersion": 1}`)
				bytes += int64(len(given[i].Metadata))
			}
			d := want[at.Format(time.DateOnly)]
			want[at.Format(time.DateOnly)] = day{d.events + 1, d.bytes + bytes}
		}
		events, err := folding.GivenEvents("events", given)
		if err != nil {
			t.Fatal(err)
		}
		p, err := fold.Try(t.Context(), events, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Documents) != len(want) {
			t.Fatalf("%d days, want %d", len(p.Documents), len(want))
		}
		for _, d := range p.Documents {
			w := want[d.ID]
			if text := fmt.Sprintf(`{"bytes":%d,"day":%q,"events":%d}`, w.bytes, d.ID, w.events); canonical(t, d.Data) != text {
				t.Fatalf("%s is %s, want %s", d.ID, d.Data, text)
			}
		}
	})
}
