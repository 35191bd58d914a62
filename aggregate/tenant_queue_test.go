package aggregate

import (
	"fmt"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// Tenants take turns, and none has all workers.
func TestALineGoesRoundByTenant(t *testing.T) {
	t.Parallel()
	l := newTenantQueue[streamKey](90, 1) // nine of one tenant
	busy, quiet := domain.NewTenantID(), domain.NewTenantID()
	for n := range 9 {
		l.push(busy, streamKey{busy, fmt.Sprint(n)})
		l.push(busy, streamKey{busy, fmt.Sprint(n)}) // waits already
	}
	l.push(quiet, streamKey{quiet, "one"})
	if l.push(busy, streamKey{busy, "too many"}) {
		t.Error("one tenant has more than a tenth of the line")
	}
	next := func() (streamKey, func()) {
		key, done, ok := l.pop()
		if !ok {
			t.Fatal("nobody may have a turn")
		}
		return key, done
	}
	first, firstDone := next()
	second, secondDone := next()
	if first != (streamKey{busy, "0"}) || second != (streamKey{quiet, "one"}) {
		t.Errorf("the first two are %v and %v", first, second)
	}
	if key, _, ok := l.pop(); ok {
		t.Errorf("%v is worked on beside another of its tenant", key)
	}
	firstDone()
	secondDone()
	for n := 1; n < 9; n++ {
		key, done := next()
		if key != (streamKey{busy, fmt.Sprint(n)}) {
			t.Errorf("%v is the next; want stream %d", key, n)
		}
		done()
	}
	if l.waiting() != 0 || len(l.tenants) != 0 {
		t.Errorf("%d wait, of %d tenants", l.waiting(), len(l.tenants))
	}
}
