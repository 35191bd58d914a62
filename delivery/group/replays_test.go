package group_test

import (
	"slices"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
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

// However many replays wait for an event of their stream, those of other streams continue.
func TestReplaysOfAHeldStreamHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	const slow = domain.MaxReplays + 100
	tablestest.AppendTo(t, b.store, b.tenant, "order-slow", "Happened", slices.Repeat([]string{`{}`}, slow)...)
	head := b.append(t, "order-1", "order-2", "order-1")
	b.put(t, "g", domain.GroupDefinition{From: "end", Ordering: domain.OrderingStream})
	super := b.db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, sql := range []string{
		`insert into manifold.dead_letters
			select e.tenant_id, 'g', e.position, 0, e.event_id, e.stream_id, e.stream_version, e.event_type, 5, 0, 0, 'why', now(), now(), null
			from manifold.events as e where e.tenant_id = $1`,
		`update manifold.subscription_ledgers as l set parked = (select count(*) from manifold.dead_letters as d where d.tenant_id = $1) where l.tenant_id = $1`,
	} {
		if _, err := super.Exec(t.Context(), sql, b.tenant); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := b.groups.Replay(t.Context(), b.tenant, "g", domain.EventID{}); err != nil || n != head {
		t.Fatalf("%d are replayed, %v", n, err)
	}
	held := b.wait(t, "g", 1, time.Minute)
	mustPositions(t, held, 1)
	others := b.wait(t, "g", 1, time.Minute)
	others = append(others, b.wait(t, "g", 10, time.Minute)...)
	mustPositions(t, others, slow+1, slow+2)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(others...)))
	mustPositions(t, b.wait(t, "g", 10, time.Minute), slow+3)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(held...)))
	mustPositions(t, b.wait(t, "g", 10, time.Minute), 2)
}

// However many dead letters were to be replayed, a seek to a place before them has each delivered once.
func TestSeekDeliversReplaysOnce(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	const letters = domain.MaxReplays + 10
	tablestest.AppendTo(t, b.store, b.tenant, "order-1", "Happened", slices.Repeat([]string{`{}`}, letters)...)
	b.put(t, "g", domain.GroupDefinition{From: "end"})
	super := b.db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, sql := range []string{
		// Those that come first are the last of which the replay was asked for.
		`insert into manifold.dead_letters
			select e.tenant_id, 'g', e.position, 0, e.event_id, e.stream_id, e.stream_version, e.event_type, 5, 0, 0, 'why', now(), now(),
				case when e.position > 10 then now() - interval '1 hour' else now() end
			from manifold.events as e where e.tenant_id = $1`,
		`update manifold.subscription_ledgers as l set parked = (select count(*) from manifold.dead_letters as d where d.tenant_id = $1) where l.tenant_id = $1`,
	} {
		if _, err := super.Exec(t.Context(), sql, b.tenant); err != nil {
			t.Fatal(err)
		}
	}
	status, err := b.groups.Seek(t.Context(), b.tenant, "g", domain.From{Position: 1})
	if err != nil {
		t.Fatal(err)
	}
	if parked := status.Partitions[0].Parked; parked != 0 {
		t.Errorf("there are %d dead letters, of which all are delivered as they are", parked)
	}
	for next, batch := int64(1), 10; next <= letters; batch = 500 {
		deliveries := b.receive(t, "g", batch)
		for _, d := range deliveries {
			if d.Event.Position != next || d.Replays != 0 {
				t.Fatalf("the event at %d comes with %d replays; want that at %d", d.Event.Position, d.Replays, next)
			}
			next++
		}
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(deliveries...)))
	}
	if twice := b.receive(t, "g", 10); len(twice) > 0 {
		t.Errorf("%d events are delivered twice, the first at %d", len(twice), twice[0].Event.Position)
	}
}
