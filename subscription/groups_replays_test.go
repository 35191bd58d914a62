package subscription_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// However many dead letters are to be replayed, all of them come before events that nobody had yet.
func TestManyReplaysAreAllDelivered(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	const letters, slack = domain.MaxReplays + 500, 200
	b.fill(t, letters+2000, 5000, 0)
	b.put(t, "g", domain.GroupDefinition{})
	for parked := 0; parked < letters; {
		deliveries := b.receive(t, "g", min(500, letters-parked))
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(deliveries...), domain.Nack{Action: domain.NackPark}))
		parked += len(deliveries)
	}
	if n, err := b.groups.Replay(t.Context(), b.tenant, "g", domain.EventID{}); err != nil || n != letters {
		t.Fatalf("%d are replayed, %v", n, err)
	}
	replayed := 0
	for delivered := 0; delivered < letters+slack; {
		deliveries := b.receive(t, "g", 100)
		for _, d := range deliveries {
			if d.Replays == 1 {
				replayed++
			}
		}
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(deliveries...)))
		delivered += len(deliveries)
	}
	if replayed != letters {
		t.Errorf("%d of %d dead letters were delivered again, before %d new events", replayed, letters, slack+letters-replayed)
	}
}
