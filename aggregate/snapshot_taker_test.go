package aggregate

import (
	"fmt"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

func TestTheLineIsBoundedAndHoldsAStreamOnce(t *testing.T) {
	t.Parallel()
	line, err := newTaker(1, 30) // three of one tenant
	must(t, err)
	tenant := domain.NewTenantID()
	line.every.Add(categoryKey{tenant, "sum"}, cadence{every: 100, until: time.Now().Add(time.Hour)})
	line.every.Add(categoryKey{tenant, "none"}, cadence{until: time.Now().Add(time.Hour)})
	line.add(tenant, "sum-1", span{0, 99})
	line.add(tenant, "none-1", span{0, 100})
	if line.line.waiting() != 0 {
		t.Fatal("a stream that is not due came into the line")
	}
	line.add(tenant, "sum-1", span{99, 100})
	line.add(tenant, "sum-1", span{199, 201})
	if line.line.waiting() != 1 {
		t.Fatalf("a stream stands in the line %d times", line.line.waiting())
	}
	for n := range 10 {
		line.add(tenant, fmt.Sprintf("unknown-%d", n), span{0, 1})
	}
	if line.line.waiting() != 3 || len(line.moved) != 3 {
		t.Errorf("%d streams of a tenant are in a line of 30, and %d remembered", line.line.waiting(), len(line.moved))
	}
	if moved := line.take(nextOf(t, line)); moved != (span{99, 201}) {
		t.Errorf("the stream moved by %v", moved)
	}
	line.add(tenant, "sum-1", span{299, 300})
	if line.line.waiting() != 3 {
		t.Error("a stream that was taken out cannot be added again")
	}
}

// nextOf is the next stream in a taker's line.
func nextOf(t *testing.T, of *taker) streamKey {
	t.Helper()
	key, done, ok := of.line.next(t.Context())
	if !ok {
		t.Fatal("nothing waits")
	}
	done()
	return key
}
