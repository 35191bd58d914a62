package group_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// partitioned is a bench with a group "g" of some partitions, and a second process beside its own. Both read the
// members with every receive.
func partitioned(t *testing.T, partitions int, change func(*domain.GroupDefinition)) (b groupBench, other *group.Groups) {
	t.Helper()
	b = newGroupBench(t)
	other, _ = startGroups(t, b.open(t), group.Observer{})
	b.groups.AssignmentFor(0)
	other.AssignmentFor(0)
	definition := domain.GroupDefinition{Partitions: partitions, Ordering: domain.OrderingStream, AckTimeout: time.Hour}
	if change != nil {
		change(&definition)
	}
	b.put(t, "g", definition)
	return b, other
}

func (b groupBench) join(t testing.TB, groups *group.Groups) domain.GroupMemberID {
	t.Helper()
	member, err := groups.Join(t.Context(), b.tenant, "g", "a consumer")
	if err != nil {
		t.Fatal(err)
	}
	return member.ID
}

// all receives as a member until nothing more is delivered.
func (b groupBench) all(t testing.TB, groups *group.Groups, member domain.GroupMemberID) (all []domain.Delivery) {
	t.Helper()
	for {
		deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Member: member})
		if err != nil {
			t.Fatal(err)
		}
		if len(deliveries) == 0 {
			return all
		}
		all = append(all, deliveries...)
	}
}

func (b groupBench) owners(t testing.TB) []domain.PartitionStatus {
	t.Helper()
	status, err := b.groups.Get(t.Context(), b.tenant, "g")
	if err != nil {
		t.Fatal(err)
	}
	return status.Partitions
}

// streamNames returns names of streams.
func streamNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("order-%d", i)
	}
	return names
}

// kill makes a member look as if it had been silent for too long.
func (b groupBench) kill(t testing.TB, member domain.GroupMemberID) {
	t.Helper()
	_, err := b.db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(),
		"update manifold.subscription_members set alive_at = now() - interval '1 hour' where member_id = $1", member)
	if err != nil {
		t.Fatal(err)
	}
}

func TestMembersShareAGroup(t *testing.T) {
	t.Parallel()
	b, other := partitioned(t, 6, nil)
	head := b.append(t, streamNames(60)...)
	one, two := b.join(t, b.groups), b.join(t, other)
	first, second := b.all(t, b.groups, one), b.all(t, other, two)
	seen := make(map[int64]bool)
	of := make(map[int]domain.GroupMemberID)
	for member, deliveries := range map[domain.GroupMemberID][]domain.Delivery{one: first, two: second} {
		if len(deliveries) < 10 {
			t.Errorf("a member has %d of %d events", len(deliveries), head)
		}
		for _, d := range deliveries {
			if seen[d.Event.Position] {
				t.Errorf("the event at %d was delivered twice", d.Event.Position)
			}
			seen[d.Event.Position] = true
			if before, ok := of[d.Partition]; ok && before != member {
				t.Errorf("both members have partition %d", d.Partition)
			}
			of[d.Partition] = member
		}
	}
	if len(seen) != int(head) || len(of) != 6 {
		t.Fatalf("%d events were delivered, of %d partitions", len(seen), len(of))
	}
	members, err := other.Members(t.Context(), b.tenant, "g")
	if err != nil || len(members) != 2 || members[0].Label != "a consumer" || len(members[0].Partitions) != 3 || len(members[1].Partitions) != 3 {
		t.Fatalf("the members are %+v, %v", members, err)
	}
	// Whoever answers, and in whatever process: each finds its partition.
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(append(first[1:], second[1:]...)...)))
	for _, status := range b.owners(t) {
		if status.Owner != of[status.Partition] || !slices.Contains(find(t, members, status.Owner).Partitions, status.Partition) {
			t.Errorf("the owner of partition %d is %s", status.Partition, status.Owner)
		}
		want := head // as all is settled
		for _, left := range []domain.Delivery{first[0], second[0]} {
			if left.Partition == status.Partition {
				want = left.Event.Position - 1
			}
		}
		if status.Checkpoint != want && status.Checkpoint < head-60 {
			t.Errorf("the checkpoint of partition %d is %d; want %d", status.Partition, status.Checkpoint, want)
		}
	}
	mustOutcomes(t, domain.OutcomeDone)(other.Ack(t.Context(), b.tenant, "g", attempts(first[0], second[0])))
	unknown := domain.Attempt{EventID: domain.NewEventID(), Attempt: 1}
	mustOutcomes(t, domain.OutcomeNotInFlight)(other.Ack(t.Context(), b.tenant, "g", append(attempts(first[0]), unknown)))
}

func find(t testing.TB, members []domain.GroupMember, id domain.GroupMemberID) domain.GroupMember {
	t.Helper()
	for _, member := range members {
		if member.ID == id {
			return member
		}
	}
	t.Fatalf("there is no member %s", id)
	return domain.GroupMember{}
}

// A partition moves to another member when everything delivered to the first one is answered.
func TestAPartitionIsHandedOver(t *testing.T) {
	t.Parallel()
	b, other := partitioned(t, 4, nil)
	b.append(t, streamNames(40)...)
	one := b.join(t, b.groups)
	held := b.all(t, b.groups, one)
	if len(held) != 40 {
		t.Fatalf("the only member has %d events", len(held))
	}
	two := b.join(t, other)
	b.append(t, streamNames(40)...) // after those that are held
	if early := b.all(t, other, two); len(early) > 0 {
		t.Fatalf("%d events were delivered of partitions that another member works on", len(early))
	}
	moves := make(map[int]bool)
	members, err := other.Members(t.Context(), b.tenant, "g")
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range find(t, members, two).Partitions {
		moves[number] = true
	}
	if len(moves) != 2 {
		t.Fatalf("the new member is to have the partitions %v", moves)
	}
	// All but one event of a partition that moves: it stays where it is.
	last := slices.IndexFunc(held, func(d domain.Delivery) bool { return moves[d.Partition] })
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(slices.Delete(slices.Clone(held), last, last+1)...)))
	for _, d := range b.all(t, b.groups, one) {
		if moves[d.Partition] {
			t.Errorf("the first member is given an event of partition %d, which is another's", d.Partition)
		}
	}
	for _, d := range b.all(t, other, two) {
		if d.Partition == held[last].Partition || !moves[d.Partition] || d.Attempt != 1 || d.Event.Version != 2 {
			t.Errorf("the new member is given %d of %s, attempt %d, of partition %d", d.Event.Version, d.Event.Stream, d.Attempt, d.Partition)
		}
	}
	mustOutcomes(t, domain.OutcomeDone)(other.Ack(t.Context(), b.tenant, "g", attempts(held[last])))
	rest := b.all(t, other, two)
	if len(rest) == 0 {
		t.Error("the last partition was not handed over")
	}
	for _, d := range rest {
		if d.Partition != held[last].Partition || d.Attempt != 1 || d.Event.Version != 2 {
			t.Errorf("the new member is given %d of %s, attempt %d, of partition %d", d.Event.Version, d.Event.Stream, d.Attempt, d.Partition)
		}
	}
}

// What a member had in flight that left, or was silent for too long, is redelivered to another one at once, each event
// by itself. The attempt counts only for an event that was alone.
func TestEventsOfAGoneMemberAreRedelivered(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"leaves", "dies"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b, other := partitioned(t, 3, func(d *domain.GroupDefinition) { d.MaxAttempts = 2 })
			b.append(t, streamNames(12)...)
			one := b.join(t, b.groups)
			held := b.all(t, b.groups, one)
			if how == "leaves" {
				if err := b.groups.Leave(t.Context(), b.tenant, "g", one); err != nil {
					t.Fatal(err)
				}
			} else {
				b.kill(t, one)
			}
			two := b.join(t, other)
			again := b.all(t, other, two)
			if len(again) != len(held) || len(held) != 12 {
				t.Fatalf("%d of %d events were delivered to the other member", len(again), len(held))
			}
			for _, d := range again {
				if d.Attempt != 2 {
					t.Errorf("delivered to another it is attempt %d", d.Attempt)
				}
			}
			mustOutcomes(t, domain.OutcomeStale)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(held...)))
			_, err := b.groups.Receive(t.Context(), b.tenant, "g", group.Receive{Member: one})
			mustCode(t, err, domain.CodeNotFound, "memberId")
			_, err = b.groups.Heartbeat(t.Context(), b.tenant, "g", one)
			mustCode(t, err, domain.CodeNotFound, "memberId")
			mustCode(t, b.groups.Leave(t.Context(), b.tenant, "g", domain.NewGroupMemberID()), domain.CodeNotFound, "memberId")
			mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(again[1:]...)))

			// It is alone now, so its attempts count, of which it has two.
			member := two
			for deaths := 1; ; deaths++ {
				b.kill(t, member)
				member = b.join(t, b.groups)
				rest := b.all(t, b.groups, member)
				if len(rest) == 0 {
					break
				}
				if len(rest) > 1 || !rest[0].Alone || deaths > 1 {
					t.Fatalf("%+v are delivered after %d deaths", rest, deaths)
				}
			}
			letters, err := b.groups.DeadLetters(t.Context(), b.tenant, "g", 0, 10)
			if err != nil || len(letters) != 1 || letters[0].EventID != again[0].Event.ID {
				t.Errorf("the dead letters are %+v, %v", letters, err)
			}
		})
	}
}

// A lease that has expired cannot be extended once another member has the partition: two members would work on it. A
// late ack still counts.
func TestALateExtensionDoesNotTakeAPartitionBack(t *testing.T) {
	t.Parallel()
	b, other := partitioned(t, 1, nil)
	b.append(t, "order-1", "order-2", "order-3")
	one := b.join(t, b.groups)
	held := b.all(t, b.groups, one)
	mustPositions(t, held, 1, 2, 3)
	b.kill(t, one)
	given, err := other.Receive(t.Context(), b.tenant, "g", group.Receive{Member: b.join(t, other)})
	if err != nil {
		t.Fatal(err)
	}
	mustPositions(t, given, 1) // by itself: the others are due
	mustOutcomes(t, domain.OutcomeStale)(b.groups.Extend(t.Context(), b.tenant, "g", attempts(held[1]), time.Hour))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(held[2])))
}

func TestMembersOfAGroupWithoutPartitions(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	_, err := b.groups.Join(t.Context(), b.tenant, "g", "")
	mustCode(t, err, domain.CodeNotFound, "name")
	_, err = b.groups.Members(t.Context(), b.tenant, "g")
	mustCode(t, err, domain.CodeNotFound, "name")
	b.put(t, "g", domain.GroupDefinition{})
	_, err = b.groups.Join(t.Context(), b.tenant, "g", "")
	mustCode(t, err, domain.CodeConflict, "name")
	if members, err := b.groups.Members(t.Context(), b.tenant, "g"); err != nil || len(members) != 0 {
		t.Errorf("the members are %+v, %v", members, err)
	}
	_, err = b.groups.Heartbeat(t.Context(), b.tenant, "g", domain.NewGroupMemberID())
	mustCode(t, err, domain.CodeNotFound, "memberId")
}

// A waiting member gets the events of any of its partitions, even of one that is assigned to it while it waits. A
// member without a partition waits for as long as it has asked for.
func TestMemberWaitsForAllItsPartitions(t *testing.T) {
	t.Parallel()
	b, other := partitioned(t, 2, nil)
	one, two, three := b.join(t, b.groups), b.join(t, other), b.join(t, b.groups)
	type got struct {
		member     domain.GroupMemberID
		deliveries []domain.Delivery
	}
	arrived := make(chan got, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := func(member domain.GroupMemberID) {
		groups := b.groups
		if member == two {
			groups = other
		}
		deliveries, err := groups.Receive(ctx, b.tenant, "g", group.Receive{Member: member, Wait: time.Minute})
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		arrived <- got{member, deliveries}
	}
	idle := three
	for _, m := range []domain.GroupMemberID{one, two, three} {
		members, err := b.groups.Members(t.Context(), b.tenant, "g")
		if err != nil {
			t.Fatal(err)
		}
		if len(find(t, members, m).Partitions) == 0 {
			idle = m
		}
	}
	for _, m := range []domain.GroupMemberID{one, two, three} {
		go wait(m)
	}
	b.append(t, streamNames(30)...)
	first, second := <-arrived, <-arrived
	if first.member == second.member || first.member == idle || second.member == idle || len(first.deliveries)+len(second.deliveries) != 30 {
		t.Fatalf("%d events went to one, %d to another", len(first.deliveries), len(second.deliveries))
	}
	if err := other.Leave(t.Context(), b.tenant, "g", first.member); err != nil {
		t.Fatal(err)
	}
	// Whose share it is now, is by the members' ids: it may be the second one's, while what that has is to be the idle
	// one's.
	go wait(second.member)
	third := <-arrived
	if third.member != idle && third.member != second.member || len(third.deliveries) != 1 || !third.deliveries[0].Alone {
		t.Fatalf("%d events were delivered again; want one of %d", len(third.deliveries), len(first.deliveries))
	}
	cancel()
	if last := <-arrived; len(last.deliveries) > 0 {
		t.Errorf("%d events more were delivered", len(last.deliveries))
	}
}

// Members join, leave and die in two processes, one of which has a list of members that is a second old. No member gets
// an acknowledged event, and no two members have events of one partition in flight.
func TestMembersJoinAndLeave(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2, 3, 4} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			comeAndGo(t, rand.New(rand.NewPCG(seed, 5)))
		})
	}
}

// consumer is a member in a model, with what it has in flight, by event.
type consumer struct {
	id     domain.GroupMemberID
	groups *group.Groups
	held   map[domain.EventID]domain.Delivery
}

func comeAndGo(t *testing.T, random *rand.Rand) {
	b, other := partitioned(t, 5, func(d *domain.GroupDefinition) { d.MaxAttempts = 1000; d.MaxInFlight = 10 })
	other.AssignmentFor(time.Second)
	var alive []*consumer
	acked, seen := make(map[domain.EventID]bool), make(map[domain.EventID]int) // attempts seen
	version := make(map[string]int64)                                          // acknowledged, by stream
	head := int64(0)
	remove := func(i int) { alive = slices.Delete(alive, i, i+1) }
	take := func(c *consumer, deliveries []domain.Delivery) {
		for _, d := range deliveries {
			switch {
			case acked[d.Event.ID]:
				t.Fatalf("the event at %d is delivered again after its acknowledgement", d.Event.Position)
			case d.Attempt != seen[d.Event.ID]+1:
				t.Fatalf("the event at %d has attempt %d behind %d", d.Event.Position, d.Attempt, seen[d.Event.ID])
			case d.Event.Version != version[d.Event.Stream]+1:
				t.Fatalf("version %d of %s is delivered behind %d", d.Event.Version, d.Event.Stream, version[d.Event.Stream])
			}
			seen[d.Event.ID] = d.Attempt
			for _, another := range alive {
				for _, h := range another.held {
					if another != c && h.Partition == d.Partition {
						t.Fatalf("two members have events of partition %d in flight", d.Partition)
					}
				}
			}
			c.held[d.Event.ID] = d
		}
	}
	receive := func(c *consumer, wait time.Duration) {
		deliveries, err := c.groups.Receive(t.Context(), b.tenant, "g", group.Receive{Member: c.id, Batch: 1 + random.IntN(8), Wait: wait})
		if err != nil {
			t.Fatal(err)
		}
		take(c, deliveries)
	}
	ack := func(c *consumer, most int) {
		var some []domain.Delivery
		for _, d := range c.held {
			if len(some) < most {
				some = append(some, d)
			}
		}
		mustOutcomes(t, domain.OutcomeDone)(c.groups.Ack(t.Context(), b.tenant, "g", attempts(some...)))
		for _, d := range some {
			acked[d.Event.ID] = true
			version[d.Event.Stream] = d.Event.Version
			delete(c.held, d.Event.ID)
		}
	}
	for range 300 {
		switch n := random.IntN(20); {
		case n < 2 && len(alive) < 6:
			groups := b.groups
			if random.IntN(2) == 0 {
				groups = other
			}
			alive = append(alive, &consumer{b.join(t, groups), groups, make(map[domain.EventID]domain.Delivery)})
		case n < 5:
			head = b.append(t, streamNames(1+random.IntN(25))...)
		case len(alive) == 0:
		case n < 6:
			i := random.IntN(len(alive))
			if err := alive[i].groups.Leave(t.Context(), b.tenant, "g", alive[i].id); err != nil {
				t.Fatal(err)
			}
			remove(i)
		case n < 7:
			i := random.IntN(len(alive))
			b.kill(t, alive[i].id)
			remove(i)
		case n < 14:
			receive(alive[random.IntN(len(alive))], 0)
		default:
			ack(alive[random.IntN(len(alive))], 1+random.IntN(10))
		}
	}
	if len(alive) == 0 {
		alive = append(alive, &consumer{b.join(t, other), other, make(map[domain.EventID]domain.Delivery)})
	}
	deadline := time.Now().Add(time.Minute)
	for len(acked) < int(head) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d events were acknowledged: %+v", len(acked), head, b.owners(t))
		}
		for _, c := range alive {
			ack(c, 1000)
			receive(c, 10*time.Millisecond)
		}
	}
	for _, status := range b.owners(t) {
		if status.InFlight != 0 || status.Oldest != 0 {
			t.Errorf("when all is done partition %d is %+v", status.Partition, status)
		}
	}
}

// What an absent member holds is due at once, even if there was no other member when it left.
func TestEventsOfAnAbsentMemberAreDue(t *testing.T) {
	t.Parallel()
	b, other := partitioned(t, 1, nil)
	b.append(t, "order-1", "order-2")
	member := b.join(t, other)
	if held := b.all(t, other, member); len(held) != 2 {
		t.Fatalf("%d events were delivered", len(held))
	}
	due := b.due(t, "g")
	mustDue(t, due, false)
	mustDueIn(t, due, 50*time.Minute, time.Hour)
	b.kill(t, member)
	mustDue(t, b.due(t, "g"), true)
	mustPositions(t, b.all(t, b.groups, b.join(t, b.groups)), 1, 2)
	mustDue(t, b.due(t, "g"), false)
}
