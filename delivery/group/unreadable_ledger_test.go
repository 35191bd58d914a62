package group_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// An unreadable ledger returns an error, and a seek replaces it. Attempts from before are not mistaken for new ones.
func TestSeekReplacesAnUnreadableLedger(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "order-3")
	for i, ledger := range []string{`\x63`, `\x02ffffff`, `\x`} {
		name := fmt.Sprintf("g-%d", i)
		b.put(t, name, domain.GroupDefinition{})
		first := b.receive(t, name, 2)
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, name, attempts(first[1]), domain.Nack{Action: domain.NackPark}))
		_, err := b.db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(),
			"update manifold.subscription_ledgers set ledger = $1::text::bytea, revision = revision + 1 where name = $2", ledger, name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.groups.Receive(t.Context(), b.tenant, name, group.Receive{})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "seek") {
			t.Fatalf("with the ledger %s the error is %v", ledger, err)
		}
		if _, err := b.groups.Seek(t.Context(), b.tenant, name, domain.From{Position: 1}); err != nil {
			t.Fatal(err)
		}
		again := b.receive(t, name, 10)
		mustPositions(t, again, 1, 2, 3)
		if again[0].Attempt <= first[0].Attempt {
			t.Fatalf("behind attempt %d, %d was made", first[0].Attempt, again[0].Attempt)
		}
		mustOutcomes(t, domain.OutcomeStale)(b.groups.Ack(t.Context(), b.tenant, name, attempts(first...)))
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, name, attempts(again...)))
		if s := b.status(t, name); s.Parked != 1 || s.InFlight != 0 {
			t.Fatalf("in the end the status is %+v", s)
		}
	}
}
