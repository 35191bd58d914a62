package upcasting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// memory keeps upcasters, and counts how often they are read.
type memory struct {
	mu        sync.Mutex
	upcasters map[domain.TenantID][]domain.Upcaster
	revisions map[domain.TenantID]int64
	reads     map[domain.TenantID]int
	broken    error
}

func newMemory() *memory {
	return &memory{
		upcasters: make(map[domain.TenantID][]domain.Upcaster), revisions: make(map[domain.TenantID]int64), reads: make(map[domain.TenantID]int),
	}
}

func (m *memory) put(owner domain.TenantID, upcasters ...domain.Upcaster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.upcasters[owner] = upcasters
	m.revisions[owner]++
}

func (m *memory) Upcasters(_ context.Context, owner domain.TenantID) ([]domain.Upcaster, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads[owner]++
	return slices.Clone(m.upcasters[owner]), m.revisions[owner], m.broken
}

func (m *memory) UpcasterRevision(_ context.Context, tenant domain.TenantID) (domain.UpcasterRevision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return domain.UpcasterRevision{Own: m.revisions[tenant], Shared: m.revisions[domain.Everyone]}, m.broken
}

func (m *memory) readsOf(owner domain.TenantID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reads[owner]
}

// become is what an event of a tenant becomes now.
func become(t *testing.T, u *Upcasters, tenant domain.TenantID) string {
	t.Helper()
	set, err := u.Now(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	e := event("Placed", `"old"`, ``)
	if err := set.Upcast(nil, &e); err != nil {
		t.Fatal(err)
	}
	return string(e.Data)
}

func TestUpcastersFollowTheirRevision(t *testing.T) {
	t.Parallel()
	m := newMemory()
	u, err := newUpcasters(m)
	if err != nil {
		t.Fatal(err)
	}
	one, other := domain.NewTenantID(), domain.NewTenantID()
	want := func(tenant domain.TenantID, data string) {
		t.Helper()
		if got := become(t, u, tenant); got != data {
			t.Errorf("it becomes %s; want %s", got, data)
		}
	}
	want(one, `"old"`)
	if m.readsOf(one)+m.readsOf(domain.Everyone) != 0 {
		t.Error("upcasters were read where there never was one")
	}
	m.put(domain.Everyone, up(domain.Everyone, "Placed", 1, `"shared"`))
	for range 5 {
		want(one, `"shared"`)
		want(other, `"shared"`)
	}
	m.put(one, up(one, "Placed", 1, `"own"`))
	for range 5 {
		want(one, `"own"`)
		want(other, `"shared"`)
	}
	if m.readsOf(one) != 1 || m.readsOf(other) != 0 || m.readsOf(domain.Everyone) != 1 {
		t.Errorf("read %v times; want once for each owner that has some", m.reads)
	}
	m.put(one)
	want(one, `"shared"`)
	m.put(domain.Everyone)
	want(one, `"old"`)

	// A reading may be older than what is known already: what is known counts.
	m.put(one, up(one, "Placed", 1, `"newest"`))
	want(one, `"newest"`)
	reads := m.readsOf(one)
	set, err := u.At(t.Context(), one, domain.UpcasterRevision{Own: 1})
	if err != nil || len(set.Upcasters(func(string) bool { return true })) != 1 || m.readsOf(one) != reads {
		t.Errorf("an older revision gives %v, %v", set, err)
	}
	m.broken = errors.New("the database is gone")
	if _, err := u.Now(t.Context(), one); !errors.Is(err, m.broken) {
		t.Errorf("without a database: %v", err)
	}
	if _, err := u.At(t.Context(), one, domain.UpcasterRevision{Own: 100}); !errors.Is(err, m.broken) {
		t.Errorf("without a database: %v", err)
	}
	var none *Upcasters
	if set, err := none.Now(t.Context(), one); set != nil || err != nil {
		t.Errorf("no upcasters give %v, %v", set, err)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	m := newMemory()
	u, err := newUpcasters(m)
	if err != nil {
		t.Fatal(err)
	}
	long := `"` + strings.Repeat("x", 10_000) + `"`
	var tenants []domain.TenantID
	for range 500 {
		tenant := domain.NewTenantID()
		m.put(tenant, up(tenant, "Placed", 1, long))
		tenants = append(tenants, tenant)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, tenant := range tenants {
				set, err := u.Now(t.Context(), tenant)
				e := event("Placed", `"old"`, ``)
				if fault := set.Upcast(nil, &e); err != nil || fault != nil || string(e.Data) != long {
					t.Errorf("it becomes %.20s, %v, %v", e.Data, err, fault)
				}
			}
		})
	}
	all.Wait()
	bytes := 0
	for _, l := range u.kept.Values() {
		bytes += l.bytes
	}
	if bytes != u.bytes || bytes > maxCachedBytes || bytes < maxCachedBytes*9/10 {
		t.Errorf("%d bytes are kept, counted as %d", bytes, u.bytes)
	}
	// However large one is, it is of use.
	huge := domain.NewTenantID()
	var upcasters []domain.Upcaster
	for i := range 500 {
		upcasters = append(upcasters, up(huge, fmt.Sprint("Type", i), 1, long))
	}
	m.put(huge, append(upcasters, up(huge, "Placed", 1, `"huge"`))...)
	if got := become(t, u, huge); got != `"huge"` || u.kept.Len() != 1 {
		t.Errorf("it becomes %s, and %d are kept", got, u.kept.Len())
	}
}
