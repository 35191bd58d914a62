package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/retention"
	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
	"github.com/manifold-es/manifold/upcasting"
)

// awaitRetags waits until nothing of a tenant's types remains to be retagged.
func awaitRetags(t testing.TB, s *tables.Tables, db pgtest.DB, tenant domain.TenantID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tablestest.Patience)
	defer cancel()
	changed := make(chan struct{}, 1)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	listening.Go(func() {
		_ = s.ListenSchemas(ctx, func(domain.TenantID) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("the events are not retagged in time")
		}
		left := 0
		err := db.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(), "select count(*) from manifold.schema_retags where tenant_id = $1 and finished_at is null", tenant).Scan(&left)
		tablestest.Must(t, err)
		if left == 0 {
			return
		}
	}
}

func TestStoredEventsAreRetagged(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	schemas, upcasters := retagging(t, s)
	run(t, schemas)
	many := make([]string, domain.MaxTags)
	for i := range many {
		many[i] = fmt.Sprintf("t%02d", i)
	}
	request := to("order-1", event("Placed", `{"customer": "ann"}`), event("Placed", `{"customer": "bob"}`, "a", "customer:bob"), event("Other", `{"customer": "x"}`),
		event("Placed", `{}`, "b"), event("Placed", `{"customer": "cy"}`, many...), event("Placed", `{"customer": null}`))
	for _, of := range []domain.TenantID{tenant, other} {
		_, err := schemas.Append(t.Context(), of, request)
		tablestest.Must(t, err)
	}
	before := tagsInLog(t, s, other)
	derives(t, schemas, tenant, "Placed", `event.data.customer == null ? null : 'customer:' + event.data.customer`)
	awaitRetags(t, s, db, tenant)
	check := func(want map[int64][]string) {
		t.Helper()
		want[2], want[3], want[4], want[5] = append([]string{"a", "customer:bob"}, want[2]...), nil, []string{"b"}, many
		if got := tagsInLog(t, s, tenant); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the tags are %v, want %v", got, want)
		}
		rows := 0
		for _, tags := range want {
			rows += len(tags)
		}
		if _, got := rowsOfTags(t, db, tenant); got != rows {
			t.Errorf("%d rows of tags, want %d", got, rows)
		}
	}
	check(map[int64][]string{1: {"customer:ann"}, 6: nil})
	of, err := schemas.Get(t.Context(), tenant, "Placed")
	tablestest.Must(t, err)
	if r := of.Retagging; r == nil || r.State != schema.RetagDone || r.Position != 6 || r.Until != 6 || r.Events != 5 || r.Changed != 1 || r.Failed != 2 ||
		len(r.Failures) != 2 || r.Failures[0].Position != 4 || r.Failures[1].Position != 5 {
		t.Errorf("the retagging is %+v", r)
	}
	// Another expression replaces the derived tags only.
	derives(t, schemas, tenant, "Placed", `event.data.?customer.orValue(null) == 'bob' ? ['a', 'vip'] : null`)
	awaitRetags(t, s, db, tenant)
	check(map[int64][]string{1: nil, 2: {"vip"}, 6: nil})
	// So does another upcaster, once the process looks for it.
	derives(t, schemas, tenant, "Placed", `event.data.?customer.orValue(null) == 'x' ? 'x' : null`)
	awaitRetags(t, s, db, tenant)
	check(map[int64][]string{1: nil, 6: nil})
	_, _, err = upcasters.Put(t.Context(), domain.Upcaster{Owner: tenant, Type: "Placed", Version: 1, Expression: `event.data == {'customer': 'ann'} ? {'customer': 'x'} : event.data`, By: "test"})
	tablestest.Must(t, err)
	tablestest.Must(t, schemas.CheckUpcasters(t.Context()))
	awaitRetags(t, s, db, tenant)
	check(map[int64][]string{1: {"x"}, 6: nil})
	// Without a schema nothing derives tags.
	tablestest.Must(t, schemas.Delete(t.Context(), tenant, "Placed"))
	awaitRetags(t, s, db, tenant)
	check(map[int64][]string{1: nil, 6: nil})
	left := 0
	tablestest.Must(t, db.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(), "select count(*) from manifold.schema_retags").Scan(&left))
	if got := tagsInLog(t, s, other); left != 0 || fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("%d rows are left, and the other tenant's tags are %v; they were %v", left, got, before)
	}
}

// A retagging continues where its worker was killed, each event is changed once, and one worker at a time changes
// events.
func TestRetaggingContinuesAfterAKill(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	super := db.Pool(t, pgtest.RoleSuperuser, 2)
	const events = 950
	for range events / 50 {
		tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 50))
	}
	var changed atomic.Int64
	process := func(retagged func(int64)) *schema.Schemas {
		of := tablestest.OpenWith(t, db, func(*tables.Config) {})
		upcasters, err := upcasting.New(of.Registry, of.Log, nil)
		tablestest.Must(t, err)
		schemas, err := schema.New(schema.Config{
			Store: of.SchemaTables, Events: of.Log, Upcasters: upcasters, Settle: time.Millisecond, Owns: func(domain.TenantID) bool { return true },
			Retagged: func(n int64) {
				changed.Add(n)
				retagged(n)
			},
		})
		tablestest.Must(t, err)
		return schemas
	}
	begun, killed := make(chan struct{}, 1000), make(chan struct{})
	first := process(func(int64) {
		begun <- struct{}{}
		<-killed // it is killed between two transactions
	})
	derives(t, first, tenant, "Counted", `'n:' + string(event.data.n % 10)`)
	stop := run(t, first)
	tablestest.Receive(t, begun, "the first transaction")
	// A killed worker leaves a lease, which expires.
	tag, err := super.Exec(t.Context(), "update manifold.schema_retags set leased_until = now() - interval '1 second', worker = '00000000-0000-0000-0000-000000000001' where leased_until > now()")
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%d workers, %v", tag.RowsAffected(), err)
	}
	close(killed)
	stop()
	var position, until int64
	tablestest.Must(t, super.QueryRow(t.Context(), "select position, until from manifold.schema_retags").Scan(&position, &until))
	if position == 0 || position >= until || changed.Load() != position {
		t.Fatalf("after the kill it is at %d of %d, and %d events were changed", position, until, changed.Load())
	}
	run(t, process(func(int64) {}))
	run(t, process(func(int64) {}))
	awaitRetags(t, s, db, tenant)
	var counted int64
	tablestest.Must(t, super.QueryRow(t.Context(), "select changed from manifold.schema_retags where finished_at is not null").Scan(&counted))
	if changed.Load() != events || counted != events {
		t.Errorf("%d events were changed, and %d are counted", changed.Load(), counted)
	}
	for position, tags := range tagsInLog(t, s, tenant) {
		if want := fmt.Sprintf("n:%d", ((position-1)%50+1)%10); !slices.Equal(tags, []string{want}) {
			t.Errorf("the event at %d has %v, want %s", position, tags, want)
		}
	}
}

// While derivations change, stored events are retagged and retention removes events, no name is taken twice by racing
// conditional appends of two processes. Afterwards each event has the tags that were given or are derived.
func TestConditionsHoldWhileEventsAreRetagged(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	var processes []*schema.Schemas
	for _, of := range []*tables.Tables{s, tablestest.OpenWith(t, db, func(*tables.Config) {})} {
		upcasters, err := upcasting.New(of.Registry, of.Log, nil)
		tablestest.Must(t, err)
		schemas, err := schema.New(schema.Config{
			Store: of.SchemaTables, Events: of.Log, Upcasters: upcasters, Settle: time.Millisecond, Owns: func(domain.TenantID) bool { return true },
		})
		tablestest.Must(t, err)
		listening, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { _ = of.ListenSchemas(listening, schemas.Notice) })
		t.Cleanup(ended.Wait)
		t.Cleanup(cancel)
		processes = append(processes, schemas)
		run(t, schemas)
	}
	first := processes[0]
	derives(t, first, tenant, "Taken", `'name:' + event.data.name`)
	awaitRetags(t, s, db, tenant)
	_, _, err := s.PutRetentionPolicy(t.Context(), tenant, retention.Policy{Category: "noise", MaxCount: 20})
	tablestest.Must(t, err)
	removing := retention.New(retention.Config{
		Store: s.RetentionTables, Holders: []retention.Holder{s}, Owns: func(domain.TenantID) bool { return true }, Log: slog.New(slog.DiscardHandler),
		Grace: -1, Every: 20 * time.Millisecond, Share: 1, Slice: 50,
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients, background sync.WaitGroup
	background.Go(func() { _ = removing.Run(ctx) })
	var mu sync.Mutex
	taken, refused := map[string]int{}, 0
	appending, appended := make(chan struct{}), make(chan struct{})
	var changing sync.RWMutex // instead of the time that a change takes to settle
	for client := range 8 {
		random := rand.New(rand.NewPCG(1, uint64(client)))
		clients.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-appending:
					return
				default:
				}
				name := fmt.Sprintf("n%d", random.IntN(300+20*round))
				request := to(fmt.Sprintf("name-%d", random.IntN(20)), event("Taken", `{"name": "`+name+`"}`, "given"))
				if random.IntN(4) == 0 {
					request = to(fmt.Sprintf("noise-%d", random.IntN(20)), event("Taken", `{"name": "noise"}`), event("Taken", `{"name": "noise"}`, "loud"))
				} else {
					request.Conditions = []domain.Condition{{FailIfEventsMatch: domain.Query{{Types: []string{"Taken"}, Tags: []string{"name:" + name}}}}}
				}
				changing.RLock()
				_, err := processes[client%2].Append(ctx, tenant, request)
				changing.RUnlock()
				select {
				case appended <- struct{}{}:
				default:
				}
				mu.Lock()
				switch {
				case len(request.Conditions) == 0 && err == nil:
				case err == nil:
					taken[name]++
				case domain.IsCode(err, domain.CodeConditionFailed):
					refused++
				default:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	// The name stays derived all the time.
	const name = `'name:' + event.data.name`
	for _, expression := range []string{`[` + name + `, 'length:' + string(size(event.data.name))]`, name, `[` + name + `, 'given']`, `['loud', ` + name + `]`} {
		for range 200 {
			tablestest.Receive(t, appended, "an append")
		}
		changing.Lock()
		derives(t, first, tenant, "Taken", expression)
		processes[1].Notice(tenant)
		changing.Unlock()
		awaitRetags(t, s, db, tenant)
	}
	close(appending)
	clients.Wait()
	cancel()
	background.Wait()
	for name, times := range taken {
		if times != 1 {
			t.Errorf("%s was taken %d times", name, times)
		}
	}
	if len(taken) == 0 || refused == 0 {
		t.Errorf("%d names were taken, %d requests refused", len(taken), refused)
	}
	events, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{Limit: 1 << 20})
	tablestest.Must(t, err)
	tags, lines, rows := tagsInLog(t, s, tenant), 0, 0
	for _, e := range events {
		var data struct{ Name string }
		tablestest.Must(t, json.Unmarshal(e.Data, &data))
		want := map[string]bool{"loud": true, "name:" + data.Name: true}
		if data.Name != "noise" {
			want["given"] = true
		}
		if sorted := slices.Sorted(maps.Keys(want)); !slices.Equal(tags[e.Position], sorted) {
			t.Errorf("the event at %d has %v, want %v", e.Position, tags[e.Position], sorted)
		}
		lines, rows = lines+1, rows+len(want)
	}
	head, err := s.Head(t.Context(), tenant)
	tablestest.Must(t, err)
	if gotLines, gotRows := rowsOfTags(t, db, tenant); gotLines != lines || gotRows != rows || int64(lines) == head.Position {
		t.Errorf("%d events of %d are left, with %d rows of tags; there are %d lines and %d rows", lines, head.Position, rows, gotLines, gotRows)
	}
}
