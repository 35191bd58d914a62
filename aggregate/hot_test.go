package aggregate

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// The remembered states never take more than the limit, the sums are right, and a state is that of the last put.
func TestHotStatesStayWithinTheirLimit(t *testing.T) {
	t.Parallel()
	tenants := []domain.TenantID{domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()}
	rapid.Check(t, func(r *rapid.T) {
		const most = 20_000
		h := newHotStates(most)
		last, long := map[streamKey]int64{}, map[streamKey]bool{}
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			key := streamKey{rapid.SampledFrom(tenants).Draw(r, "tenant"), fmt.Sprintf("a-%d", rapid.IntRange(1, 8).Draw(r, "stream"))}
			switch rapid.IntRange(0, 5).Draw(r, "step") {
			case 0:
				h.drop(key)
				delete(last, key)
			case 1:
				if got, ok := h.get(key, "other"); ok {
					r.Fatalf("a state of another definition: %+v", got)
				}
			default:
				version := rapid.Int64Range(1, 9).Draw(r, "version")
				size := rapid.SampledFrom([]int{1, 100, 500, maxHotState + 1}).Draw(r, "size")
				h.put(key, hotState{tag: "tag", version: version, state: expr.NewObject(map[string]expr.Value{"text": expr.String(strings.Repeat("x", size))})})
				if version >= last[key] {
					last[key], long[key] = version, size > maxHotState
				}
			}
			sum := 0
			for tenant, known := range h.tenants {
				own := 0
				for _, stream := range known.streams.Keys() {
					s, _ := known.streams.Peek(stream)
					own += s.bytes(stream)
					if s.version != last[streamKey{tenant, stream}] {
						r.Fatalf("%s has version %d, want %d", stream, s.version, last[streamKey{tenant, stream}])
					}
				}
				if own != known.bytes || own == 0 {
					r.Fatalf("a tenant's states take %d bytes, and %d are counted", own, known.bytes)
				}
				sum += own
			}
			if sum != h.bytes || sum > most {
				r.Fatalf("all states take %d bytes, %d are counted, and %d are allowed", sum, h.bytes, most)
			}
			for key := range last {
				_, ok := h.get(key, "tag")
				if isLong := h.isLong(key, "tag"); ok && long[key] || isLong && !long[key] {
					r.Fatalf("%s is known: %t, and long: %t; want %t", key.stream, ok, isLong, long[key])
				} else if !ok && !isLong {
					delete(last, key) // evicted
				}
			}
		}
	})
}

// A tenant with many states does not push out those of another one.
func TestHotStatesAreShared(t *testing.T) {
	t.Parallel()
	h := newHotStates(100_000)
	quiet, greedy := domain.NewTenantID(), domain.NewTenantID()
	state := expr.NewObject(map[string]expr.Value{"n": expr.Int(1)})
	h.put(streamKey{quiet, "a-1"}, hotState{tag: "tag", version: 1, state: state})
	for n := range 5000 {
		h.put(streamKey{greedy, fmt.Sprintf("a-%d", n)}, hotState{tag: "tag", version: 1, state: state})
	}
	if _, ok := h.get(streamKey{quiet, "a-1"}, "tag"); !ok {
		t.Error("the other tenant's state was pushed out")
	}
}

// Compiled definitions are kept by the bytes of their texts.
func TestFoldsStayWithinTheirLimit(t *testing.T) {
	t.Parallel()
	c, err := newFoldCache()
	must(t, err)
	tenant := domain.NewTenantID()
	for n := range 100 {
		f := &fold{}
		f.stored.text, f.stored.commands = make([]byte, 100<<10), make([]byte, 100<<10)
		c.Add(categoryKey{tenant, fmt.Sprint("c", n%60)}, f)
		if sum := 200 << 10 * c.kept.Len(); c.bytes != sum || c.bytes > maxFoldBytes {
			t.Fatalf("%d folds count %d bytes", c.kept.Len(), c.bytes)
		}
	}
	c.Remove(categoryKey{tenant, "c39"})
	if _, ok := c.Get(categoryKey{tenant, "c39"}); ok || c.bytes != 200<<10*c.kept.Len() {
		t.Errorf("%d folds count %d bytes after a removal", c.kept.Len(), c.bytes)
	}
}
