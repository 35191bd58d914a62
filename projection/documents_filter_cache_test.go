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

// Whatever is asked for, by however many at once, is what compiling it gives; and no more is kept than may be.
func TestFilterCache(t *testing.T) {
	t.Parallel()
	var cache filterCache
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
	if len(cache.kept) != maxKeptFilters || cache.recent.Len() != maxKeptFilters {
		t.Errorf("%d and %d are kept", len(cache.kept), cache.recent.Len())
	}
	for element := cache.recent.Front(); element != nil; element = element.Next() {
		if cache.kept[element.Value.(keptFilter).filterKey] != element {
			t.Errorf("%v is not found", element.Value)
		}
	}
}

// The one that was not asked for the longest goes, each tenant's are its own, and what is long, heavy or wrong is not kept.
func TestFilterCacheKeepsTheLatest(t *testing.T) {
	t.Parallel()
	var cache filterCache
	requests := budget.New(budget.Limits{})
	one, two := domain.NewTenantID(), domain.NewTenantID()
	ask := func(tenant domain.TenantID, source string) (kept bool) {
		t.Helper()
		_, kept = cache.look(filterKey{tenant, source})
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
		t.Error("it was thrown away too early")
	}
	if ask(two, "doc.n == 0") {
		t.Error("a tenant is given what another has asked for")
	}
	if ask(one, "doc.n == 2") {
		t.Error("the oldest is still there")
	}
	if !ask(one, "doc.n == 0") || !ask(two, "doc.n == 0") {
		t.Error("the latest are gone")
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

// A filter that takes long to compile waits for a turn, and not for the places of requests that fold.
func TestLongFiltersNeedNoPlace(t *testing.T) {
	t.Parallel()
	var cache filterCache
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
