package projection

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr/filter"
)

// The cache returns what compiling gives, also to concurrent callers, and keeps a limited number of filters.
func TestFilterCache(t *testing.T) {
	t.Parallel()
	cache := newFilterCache()
	requests := budget.New(budget.Limits{})
	tenants := []domain.TenantID{domain.NewTenantID(), domain.NewTenantID()}
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range 1000 {
				source := fmt.Sprintf("doc.n == %d", rand.IntN(maxKeptFilters))
				want, err := filter.Compile(source)
				if err != nil {
					t.Error(err)
				}
				if got, err := cache.compile(t.Context(), requests, tenants[rand.IntN(2)], source); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s is %v, %v", source, got, err)
				}
			}
		})
	}
	asking.Wait()
	if cache.kept.Len() != maxKeptFilters {
		t.Errorf("%d filters are kept", cache.kept.Len())
	}
}

// The least recently used filter is dropped. Tenants share no entries. Long, heavy and invalid filters are not kept.
func TestFilterCacheKeepsRecentFilters(t *testing.T) {
	t.Parallel()
	cache := newFilterCache()
	requests := budget.New(budget.Limits{})
	one, two := domain.NewTenantID(), domain.NewTenantID()
	ask := func(tenant domain.TenantID, source string) (kept bool) {
		t.Helper()
		kept = cache.kept.Contains(filterKey{tenant, source})
		_, err := cache.compile(t.Context(), requests, tenant, source)
		if wrong := source == "doc."; (err != nil) != wrong {
			t.Fatalf("%.40s: %v", source, err)
		}
		return kept
	}
	for i := range maxKeptFilters {
		ask(one, fmt.Sprintf("doc.n == %d", i))
	}
	if !ask(one, "doc.n == 0") || !ask(one, "doc.n == 1") || !ask(one, "doc.n == 0") {
		t.Error("a recently used filter was dropped")
	}
	if ask(two, "doc.n == 0") {
		t.Error("a tenant gets another tenant's entry")
	}
	if ask(one, "doc.n == 2") {
		t.Error("the least recently used filter is still kept")
	}
	if !ask(one, "doc.n == 0") || !ask(two, "doc.n == 0") {
		t.Error("the most recently used filters were dropped")
	}
	long := `doc.text == "` + strings.Repeat("x", maxKeptFilterBytes) + `"`
	heavy := strings.TrimSuffix(strings.Repeat("doc.n in lists.range(600) || ", 2), " || ")
	for _, source := range []string{long, heavy, "doc."} {
		for range 2 {
			if ask(one, source) {
				t.Errorf("%.40s is kept", source)
			}
		}
	}
}

// A filter that takes long to compile waits for a turn, not for a place among the requests that fold.
func TestLongFiltersWaitForATurn(t *testing.T) {
	t.Parallel()
	cache := newFilterCache()
	requests := budget.New(budget.Limits{Places: 1, Time: time.Millisecond})
	_, end, err := requests.Begin(t.Context(), domain.NewTenantID(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	source := `doc.a == "` + strings.Repeat("x", longFilter) + `"`
	if _, err := cache.compile(t.Context(), requests, domain.NewTenantID(), source); err != nil {
		t.Error(err)
	}
}
