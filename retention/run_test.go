package retention

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/signing"
)

// everything removes all that nothing holds, but for the newest event.
func everything(category string) Policy {
	return Policy{Category: category, MaxCount: 1}
}

func wantLeft(t *testing.T, b *bench, tenant domain.TenantID, category string, want ...int64) {
	t.Helper()
	if got := b.left(t, tenant, category); !slices.Equal(got, want) {
		t.Errorf("left of %s is %v; want %v", category, got, want)
	}
}

// A process that dies between what it announces and what it removes leaves an announcement, which the next run sets
// right. One that dies between two slices has removed the first.
func TestKilledBetweenAnnouncementAndRemoval(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.append(t, tenant, "order-1", 20)
	b.put(t, tenant, everything("order"))
	for slices := range 3 {
		announced, left := false, slices
		dying := b.process(t)
		dying.afterAnnouncement(func() { announced = true })
		dying.beforeSlice(func(int) {
			if announced {
				if left--; left < 0 {
					dying.kill()
				}
			}
		})
		dying.network.Before("set swept_to = greatest", func() bool { // the run has ended
			dying.kill()
			return true
		})
		if _, err := b.retention(dying.Tables).runOnce(t.Context(), tenant, "order"); !domain.IsCode(err, domain.CodeUnavailable) {
			t.Fatal(err)
		}
		floor := b.status(t, tenant, "order").Floor
		if floor.AnnouncedTo != 19 || floor.Removed != floor.RemovedTo || int(floor.Removed) != 20-len(b.left(t, tenant, "order")) {
			t.Errorf("killed behind %d slices: the floor is %+v, left are %v", slices, floor, b.left(t, tenant, "order"))
		}
	}
	runAll(t, b.retention(nil), tenant, "order")
	wantLeft(t, b, tenant, "order", 20)
	if floor := b.status(t, tenant, "order").Floor; floor != (domain.RetentionFloor{Category: "order", AnnouncedTo: 19, RemovedTo: 19, Removed: 19}) {
		t.Errorf("the floor is %+v", floor)
	}
}

// What somebody has announced who died is taken back, also where it no longer removes anything, since it is held, or
// the policy is gone.
func TestAnnouncementsOfDeadProcessesAreWithdrawn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, next := range map[string]func(tenant domain.TenantID){
		"held": func(tenant domain.TenantID) {
			hold := &stub{}
			hold.set(domain.RetentionHold{Kind: domain.HoldRebuild, Name: "sums"})
			runAll(t, b.retention(nil, hold), tenant, "order")
		},
		"removed": func(tenant domain.TenantID) {
			must(t, b.store.DeleteRetentionPolicy(t.Context(), tenant, "order"))
			due, err := b.store.RetentionDue(t.Context())
			if err != nil || !slices.Contains(due, Due{Tenant: tenant, Category: "order"}) {
				t.Errorf("due are %+v, %v", due, err)
			}
			runAll(t, b.retention(nil), tenant, "order")
			due, err = b.store.RetentionDue(t.Context())
			if err != nil || slices.ContainsFunc(due, func(d Due) bool { return d.Tenant == tenant }) {
				t.Errorf("still due are %+v, %v", due, err)
			}
		},
	} {
		tenant := b.tenant(t)
		b.append(t, tenant, "order-1", 20)
		b.put(t, tenant, everything("order"))
		dying := b.process(t)
		dying.beforeSlice(func(number int) {
			if number == 3 {
				dying.kill()
			}
		})
		if _, err := b.retention(dying.Tables).runOnce(t.Context(), tenant, "order"); !domain.IsCode(err, domain.CodeUnavailable) {
			t.Fatal(err)
		}
		wantFloor(t, b, tenant, name+", before", domain.RetentionFloor{Category: "order", AnnouncedTo: 19, RemovedTo: 7, Removed: 7})
		next(tenant)
		wantFloor(t, b, tenant, name, domain.RetentionFloor{Category: "order", AnnouncedTo: 7, RemovedTo: 7, Removed: 7})
	}
}

func wantFloor(t *testing.T, b *bench, tenant domain.TenantID, when string, want domain.RetentionFloor) {
	t.Helper()
	floors, err := b.store.Floors(t.Context(), tenant, nil, 0)
	if err != nil || len(floors) != 1 || floors[0] != want {
		t.Errorf("%s: the floors are %+v, %v; want %+v", when, floors, err, want)
	}
}

// Holds that appear after the announcement count: a rebuild that starts, a group that is created, or a group that seeks
// back.
func TestHoldsThatAppearDuringARunCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	group := func(t *testing.T, tenant domain.TenantID, readTo int64) {
		if _, _, err := b.store.PutGroup(t.Context(), tenant, "mail", domain.GroupDefinition{From: "start", BatchSize: 1, MaxInFlight: 1, MaxAttempts: 1}, readTo+1); err != nil {
			t.Error(err)
		}
	}
	for name, test := range map[string]struct {
		before func(t *testing.T, tenant domain.TenantID)
		comes  func(t *testing.T, tenant domain.TenantID)
		heldBy domain.RetentionHold
		first  []int64 // left if the hold appears after the announcement
		second []int64 // left if it appears after the first slice of seven events
	}{
		"a rebuild": {
			comes: func(t *testing.T, tenant domain.TenantID) {
				b.exec(t, `insert into manifold.rebuilds (tenant_id, name, rebuild_id, build, definition, state)
					values ($1, 'sums', gen_random_uuid(), 2, '{"name": "sums", "source": {"categories": ["order"]}}', 'queued')`, tenant)
			},
			heldBy: domain.RetentionHold{Kind: domain.HoldRebuild, Name: "sums"},
		},
		"a group that is made": {
			comes:  func(t *testing.T, tenant domain.TenantID) { group(t, tenant, 3) },
			heldBy: domain.RetentionHold{Kind: domain.HoldGroup, Name: "mail", Position: 3},
			first:  []int64{1, 2, 3}, second: []int64{1, 2, 3, 4, 5, 6, 7},
		},
		"a group that seeks back": {
			before: func(t *testing.T, tenant domain.TenantID) { group(t, tenant, 20) },
			comes: func(t *testing.T, tenant domain.TenantID) {
				b.exec(t, "update manifold.subscription_ledgers set read_to = 9 where tenant_id = $1", tenant)
			},
			heldBy: domain.RetentionHold{Kind: domain.HoldGroup, Name: "mail", Position: 9},
			first:  []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}, second: []int64{1, 2, 3, 4, 5, 6, 7, 8, 9},
		},
	} {
		t.Run(name+" behind the announcement", func(t *testing.T) {
			t.Parallel()
			tenant := b.tenant(t)
			b.append(t, tenant, "order-1", 20)
			b.put(t, tenant, everything("order"))
			if test.before != nil {
				test.before(t, tenant)
			}
			p := b.process(t)
			p.afterAnnouncement(sync.OnceFunc(func() { test.comes(t, tenant) }))
			runAll(t, b.retention(p.Tables), tenant, "order")
			wantGone(t, b, tenant, test.first)
			status := b.status(t, tenant, "order")
			if len(status.HeldBy) != 1 || status.HeldBy[0] != test.heldBy || status.Floor.AnnouncedTo != int64(len(test.first)) {
				t.Errorf("%+v", status)
			}
		})
		if test.heldBy.Kind != domain.HoldGroup {
			continue // who registers then sees that something is announced
		}
		t.Run(name+" between two slices", func(t *testing.T) {
			t.Parallel()
			tenant := b.tenant(t)
			b.append(t, tenant, "order-1", 20)
			b.put(t, tenant, everything("order"))
			if test.before != nil {
				test.before(t, tenant)
			}
			p := b.process(t)
			p.beforeSlice(func(number int) {
				if number == 3 {
					test.comes(t, tenant)
				}
			})
			runAll(t, b.retention(p.Tables), tenant, "order")
			wantGone(t, b, tenant, test.second)
		})
	}
}

// wantGone fails the test unless those events of 20 are gone, and no others.
func wantGone(t *testing.T, b *bench, tenant domain.TenantID, gone []int64) {
	t.Helper()
	var want []int64
	for position := int64(1); position <= 20; position++ {
		if !slices.Contains(gone, position) {
			want = append(want, position)
		}
	}
	wantLeft(t, b, tenant, "order", want...)
}

// A rebuild that registers and then finds nothing announced loses nothing, whenever it comes.
func TestARebuildOrTheRunSeesTheOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lost, kept := 0, 0
	for range 40 {
		tenant := b.tenant(t)
		b.append(t, tenant, "order-1", 3)
		b.put(t, tenant, everything("order"))
		var both sync.WaitGroup
		var floor domain.RetentionFloor
		both.Go(func() {
			b.exec(t, `insert into manifold.rebuilds (tenant_id, name, rebuild_id, build, definition, state)
				values ($1, 'sums', gen_random_uuid(), 2, '{"name": "sums"}', 'queued')`, tenant)
			floor = b.status(t, tenant, "order").Floor
		})
		both.Go(func() { runAll(t, b.retention(nil), tenant, "order") })
		both.Wait()
		switch gone := 3 - len(b.left(t, tenant, "order")); {
		case gone > 0 && floor.AnnouncedTo == 0:
			t.Fatalf("the rebuild saw nothing announced, and %d events are gone", gone)
		case gone > 0:
			lost++
		default:
			kept++
		}
	}
	t.Logf("%d times events went, %d times not", lost, kept)
}

// An event that a group takes back from its dead letters is at no moment neither a dead letter nor held.
func TestReplayedDeadLettersStayHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	appended := b.append(t, tenant, "order-1", 20)
	_, _, err := b.store.PutGroup(t.Context(), tenant, "mail", domain.GroupDefinition{From: "start", BatchSize: 1, MaxInFlight: 1, MaxAttempts: 1}, 21)
	must(t, err)
	b.exec(t, `insert into manifold.dead_letters values ($1, 'mail', 5, 0, $2, 'order-1', 5, 'Counted', 1, 0, 0, '', now(), now(), now())`,
		tenant, appended.Streams[0].Events[4].ID)
	b.put(t, tenant, everything("order"))
	p := b.process(t)
	p.beforeSlice(func(number int) {
		if number == 2 {
			b.exec(t, `with letter as (delete from manifold.dead_letters d where d.tenant_id = $1)
				update manifold.subscription_ledgers l set oldest = 5, in_flight = 1 where l.tenant_id = $1`, tenant)
		}
	})
	runAll(t, b.retention(p.Tables), tenant, "order")
	wantGone(t, b, tenant, []int64{1, 2, 3, 4})
	b.exec(t, "update manifold.subscription_ledgers l set oldest = 0, in_flight = 0 where l.tenant_id = $1", tenant)
	runAll(t, b.retention(nil), tenant, "order")
	wantLeft(t, b, tenant, "order", 20)
}

// Of two runs at the same time the one that began last continues, and each event is counted once.
func TestTwoRunsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.append(t, tenant, "order-1", 40)
	b.put(t, tenant, everything("order"))
	p := b.process(t)
	p.beforeSlice(func(number int) {
		if number == 3 {
			runAll(t, b.retention(nil), tenant, "order")
		}
	})
	runAll(t, b.retention(p.Tables), tenant, "order")
	wantLeft(t, b, tenant, "order", 40)
	if floor := b.status(t, tenant, "order").Floor; floor.Removed != 39 || floor.RemovedTo != 39 || floor.AnnouncedTo != 39 {
		t.Errorf("the floor is %+v", floor)
	}
}

// A run continues if the signing keys are rotated while it removes a slice, and another process has signed the receipt
// to which the slice adds.
func TestRotationDuringARun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.append(t, tenant, "order-1", 20)
	b.put(t, tenant, everything("order"))
	p, keys := b.process(t), signing.New(b.store.DB, nil)
	p.beforeSlice(func(number int) {
		if number != 3 {
			return
		}
		before, err := keys.Load(t.Context())
		must(t, err)
		var signed string
		must(t, b.super.QueryRow(t.Context(), "select receipt from manifold.seal_receipts where tenant_id = $1", tenant).Scan(&signed))
		text, err := before.Open([]byte(signed))
		must(t, err)
		after, err := keys.Rotate(t.Context())
		must(t, err)
		again, err := after.Sign(text)
		must(t, err)
		b.exec(t, "update manifold.seal_receipts set receipt = $2 where tenant_id = $1", tenant, string(again))
	})
	runAll(t, b.retention(p.Tables), tenant, "order")
	wantLeft(t, b, tenant, "order", 20)
	if status := b.status(t, tenant, "order"); status.LastError != "" || status.Floor.RemovedTo != 19 || status.LastRunAt.IsZero() {
		t.Errorf("the policy is %+v", status)
	}
}

// Whoever removes a policy, or asks for less, is not overtaken by a run that goes by the old one.
func TestChangingAPolicyStopsItsRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, change := range map[string]func(tenant domain.TenantID) error{
		"removed": func(tenant domain.TenantID) error { return b.store.DeleteRetentionPolicy(t.Context(), tenant, "order") },
		"changed": func(tenant domain.TenantID) error {
			_, _, err := b.store.PutRetentionPolicy(t.Context(), tenant, Policy{Category: "order", MaxCount: 30})
			return err
		},
	} {
		tenant := b.tenant(t)
		b.append(t, tenant, "order-1", 20)
		b.put(t, tenant, everything("order"))
		p := b.process(t)
		p.beforeSlice(func(number int) {
			if number == 3 {
				if err := change(tenant); err != nil {
					t.Error(err)
				}
			}
		})
		if _, err := b.retention(p.Tables).runOnce(t.Context(), tenant, "order"); !stopped(err) {
			t.Errorf("%s: %v", name, err)
		}
		wantGone(t, b, tenant, []int64{1, 2, 3, 4, 5, 6, 7})
		wantFloor(t, b, tenant, name, domain.RetentionFloor{Category: "order", AnnouncedTo: 7, RemovedTo: 7, Removed: 7})
	}
}

// A tenant that is erased while its events go leaves nothing of what retention has written.
func TestErasingATenantStopsItsRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for erasedBefore := 1; erasedBefore <= 4; erasedBefore++ {
		tenant := b.tenant(t)
		for n := range 20 {
			b.append(t, tenant, fmt.Sprintf("order-%d", n), 1)
		}
		b.put(t, tenant, everything("order"))
		call := 0
		erase := func() {
			if call++; call != erasedBefore {
				return
			}
			if err := cmp.Or(b.store.SetTenantState(t.Context(), tenant, domain.TenantDeleting), b.store.EraseTenant(t.Context(), tenant)); err != nil {
				t.Error(err)
			}
		}
		p := b.process(t)
		p.beforeSlice(func(int) { erase() })
		p.afterAnnouncement(erase)
		if _, err := b.retention(p.Tables).runOnce(t.Context(), tenant, "order"); !stopped(err) {
			t.Errorf("erased before call %d: %v", erasedBefore, err)
		}
		for _, table := range []string{"events", "logs", "stream_floors", "retention_policies", "retention_floors", "retention_spared"} {
			var rows int
			must(t, b.super.QueryRow(t.Context(), "select count(*) from manifold."+table+" where tenant_id = $1", tenant).Scan(&rows))
			if rows > 0 {
				t.Errorf("erased before call %d: %d rows are left in %s", erasedBefore, rows, table)
			}
		}
	}
}

// Two tenants with the same streams: what goes by one's policy, and what is held, is that one's.
func TestTenantsAreIsolated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, other := b.tenant(t), b.tenant(t)
	for _, tenant := range []domain.TenantID{one, other} {
		b.append(t, tenant, "order-1", 20)
	}
	_, _, err := b.store.PutGroup(t.Context(), other, "mail", domain.GroupDefinition{From: "start", BatchSize: 1, MaxInFlight: 1, MaxAttempts: 1}, 1)
	must(t, err)
	b.exec(t, `insert into manifold.rebuilds (tenant_id, name, rebuild_id, build, definition, state)
		values ($1, 'sums', gen_random_uuid(), 2, '{"name": "sums"}', 'queued')`, other)
	b.exec(t, `insert into manifold.rebuilds (tenant_id, name, rebuild_id, build, definition, options, state)
		values ($1, 'sums', gen_random_uuid(), 2, '{"name": "sums"}', $2, 'queued')`, domain.Everyone, fmt.Sprintf(`{"tenants": [%q]}`, other))
	b.put(t, one, everything("order"))
	b.put(t, other, Policy{Category: "invoice", Compact: true})
	runAll(t, b.retention(nil), one, "order")
	runAll(t, b.retention(nil), other, "invoice")
	wantLeft(t, b, one, "order", 20)
	wantGone(t, b, other, nil)
	if _, err := b.store.RetentionPolicy(t.Context(), other, "order"); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("the other tenant's policy: %v", err)
	}
	if due, err := b.store.RetentionDue(t.Context()); err != nil || len(due) != 2 {
		t.Errorf("due are %+v, %v", due, err)
	}
	// A rebuild for all holds everybody's.
	b.exec(t, "update manifold.rebuilds set options = '{}' where tenant_id = $1", domain.Everyone)
	b.append(t, one, "order-1", 1)
	runAll(t, b.retention(nil), one, "order")
	wantLeft(t, b, one, "order", 20, 21)
	if held := b.status(t, one, "order").HeldBy; len(held) != 1 || held[0].Kind != domain.HoldRebuild {
		t.Errorf("held by %+v", held)
	}
	b.exec(t, "delete from manifold.rebuilds where tenant_id = $1", domain.Everyone)
}

// A young event stays, whatever the policy says, and the run is repeated.
func TestGrace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.append(t, tenant, "order-1", 20)
	b.put(t, tenant, Policy{Category: "order", MaxCount: 1, MaxAge: time.Second, Compact: true})
	r := New(Config{Store: b.store.Postgres, Holders: []Holder{b.store}, Owns: func(domain.TenantID) bool { return true }, Share: 1})
	out, err := r.runOnce(t.Context(), tenant, "order")
	must(t, err)
	if out.idle {
		t.Error("it is taken to have nothing to do")
	}
	wantGone(t, b, tenant, nil)
	b.exec(t, "update manifold.events set created_at = now() - interval '2 minutes' where tenant_id = $1 and position <= 10", tenant)
	if _, err := r.runOnce(t.Context(), tenant, "order"); err != nil {
		t.Fatal(err)
	}
	wantGone(t, b, tenant, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
}

// A policy rests until the log's head moves, or the next event has its age.
func TestAPolicyRestsUntilThereIsWork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.append(t, tenant, "order-1", 20)
	b.put(t, tenant, everything("order"))
	r := b.retention(nil)
	out, err := r.runOnce(t.Context(), tenant, "order")
	if err != nil || !out.idle || !out.next.IsZero() || out.head != 20 {
		t.Errorf("%+v, %v", out, err)
	}
	b.put(t, tenant, Policy{Category: "order", MaxAge: time.Hour})
	out, err = r.runOnce(t.Context(), tenant, "order")
	events, _ := b.store.ReadLog(t.Context(), tenant, domain.LogQuery{Limit: 1})
	if err != nil || !out.idle || !out.next.Equal(events[0].RecordedAt.Add(time.Hour)) {
		t.Errorf("%+v, %v; the event was recorded at %s", out, err, events[0].RecordedAt)
	}
	hold := &stub{}
	hold.set(domain.RetentionHold{Kind: domain.HoldProjection, Name: "p", Position: 3})
	b.put(t, tenant, Policy{Category: "order", Compact: true})
	if out, err = b.retention(nil, hold).runOnce(t.Context(), tenant, "order"); err != nil || out.idle {
		t.Errorf("held: %+v, %v", out, err)
	}
}

// While events go, appends with expected versions find what they expect, also those of another process, whose writer
// has seen none of it.
func TestAppendsDuringRemoval(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	b.put(t, tenant, Policy{Category: "order", MaxCount: 2, Compact: true})
	other := b.open(t, directly)
	ctx, stop := context.WithCancel(t.Context())
	var removing, appending sync.WaitGroup
	removing.Go(func() {
		r := b.retention(nil)
		for ctx.Err() == nil {
			if _, err := r.runOnce(context.WithoutCancel(ctx), tenant, "order"); err != nil && !stopped(err) {
				t.Error(err)
				return
			}
		}
	})
	for client := range 6 {
		appending.Go(func() {
			stream, version := fmt.Sprintf("order-%d", client), domain.None
			for n := range 60 {
				s := b.store
				if n%3 == 2 {
					s = other
				}
				a := to(stream, version, 1+n%3)
				a.Streams[0].Events[0].Data = json.RawMessage(`{"n": 0}`)
				appended, err := s.Append(t.Context(), tenant, a)
				if err != nil {
					t.Errorf("%s: %v", stream, err)
					return
				}
				version = domain.Expected(appended.Streams[0].Version)
			}
		})
	}
	appending.Wait()
	stop()
	removing.Wait()
	runAll(t, b.retention(nil), tenant, "order")
	// Of the two newest one may be older than the other in the same stream.
	if left := b.left(t, tenant, "order"); len(left) == 0 || len(left) > 2 {
		t.Errorf("left are %v", left)
	}
	for client := range 6 {
		info, err := b.store.StreamInfo(t.Context(), tenant, fmt.Sprintf("order-%d", client))
		if err != nil || info.Version != 120 {
			t.Errorf("%+v, %v", info, err)
		}
	}
}
