package aggregate

import (
	"fmt"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// Tenants take turns, and none occupies all workers.
func TestTenantQueueIsRoundRobin(t *testing.T) {
	t.Parallel()
	q := newTenantQueue[streamKey](90, 1) // nine of one tenant
	busy, quiet := domain.NewTenantID(), domain.NewTenantID()
	for n := range 9 {
		q.push(busy, streamKey{busy, fmt.Sprint(n)})
		q.push(busy, streamKey{busy, fmt.Sprint(n)}) // waits already
	}
	q.push(quiet, streamKey{quiet, "one"})
	if q.push(busy, streamKey{busy, "too many"}) {
		t.Error("one tenant has more than a tenth of the queue")
	}
	next := func() (streamKey, func()) {
		key, done, ok := q.pop()
		if !ok {
			t.Fatal("no key is ready")
		}
		return key, done
	}
	first, firstDone := next()
	second, secondDone := next()
	if first != (streamKey{busy, "0"}) || second != (streamKey{quiet, "one"}) {
		t.Errorf("the first two are %v and %v", first, second)
	}
	if key, _, ok := q.pop(); ok {
		t.Errorf("%v is processed beside another key of its tenant", key)
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
	if q.waiting() != 0 || len(q.tenants) != 0 {
		t.Errorf("%d wait, of %d tenants", q.waiting(), len(q.tenants))
	}
}
