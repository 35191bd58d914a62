package eventlog_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// tagsOfEvent are what an event of the model was given and what its schema derives.
type tagsOfEvent struct{ given, derived []string }

func (e tagsOfEvent) all() []string {
	all := slices.Concat(e.given, e.derived)
	slices.Sort(all)
	return slices.Compact(all)
}

// remove removes events with their tags, as retention does.
func remove(ctx context.Context, retention *pg.Pool, tenant domain.TenantID, positions []int64) error {
	return pgx.BeginTxFunc(ctx, retention, pgx.TxOptions{
		BeginQuery: "begin isolation level repeatable read; set local manifold.tenant = '" + tenant.String() + "'",
	}, func(tx pgx.Tx) error {
		var batch pgx.Batch
		if err := eventlog.QueueTagRemoval(ctx, tx, tenant, positions, &batch); err != nil {
			return err
		}
		batch.Queue("delete from events where tenant_id = $1 and position = any($2)", tenant, positions)
		return tx.SendBatch(ctx, &batch).Close()
	})
}

// fatal is what a test and a property have in common.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkTags compares what each reader and the tables say about the tags of a tenant's events with the model.
func checkTags(t fatal, ctx context.Context, s *tables.Tables, super *pgxpool.Pool, tenant domain.TenantID, model map[int64]tagsOfEvent) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v", err)
		}
	}
	wantLines, wantRows := map[string]bool{}, map[string]bool{}
	byTag := map[string][]int64{}
	var unchanged []eventlog.Retagging
	for _, position := range slices.Sorted(maps.Keys(model)) {
		event := model[position]
		unchanged = append(unchanged, eventlog.Retagging{Position: position, Type: "A", Derived: event.derived})
		if all := event.all(); len(all) > 0 {
			wantLines[fmt.Sprint(position, " ", strings.Join(all, " "))] = true
			for _, tag := range all {
				wantRows[fmt.Sprint(position, " ", tag)] = true
				byTag[tag] = append(byTag[tag], position)
			}
		}
	}
	events, err := s.ReadLog(ctx, tenant, domain.LogQuery{Limit: 1 << 20})
	must(err)
	if len(events) != len(model) {
		t.Fatalf("%d events are read, want %d", len(events), len(model))
	}
	for _, e := range events {
		if want := model[e.Position].all(); !slices.Equal(e.Tags, want) {
			t.Fatalf("the event at %d has %v, want %v", e.Position, e.Tags, want)
		}
	}
	for tag, want := range byTag {
		found, _, err := s.ReadMatching(ctx, tenant, domain.MatchQuery{Query: domain.Query{tags(tag)}, Limit: 1 << 20})
		must(err)
		if got := positionsOf(found); !slices.Equal(got, want) {
			t.Fatalf("the tag %s is found at %v, want %v", tag, got, want)
		}
		for _, e := range found {
			if !slices.Equal(e.Tags, model[e.Position].all()) {
				t.Fatalf("the event at %d is found with %v, want %v", e.Position, e.Tags, model[e.Position].all())
			}
		}
	}
	outdated, err := s.Outdated(ctx, tenant, unchanged)
	must(err)
	if len(outdated) != 0 {
		t.Fatalf("%v are outdated", outdated)
	}
	for what, want := range map[string]map[string]bool{
		`select concat_ws(' ', t.position, t.tag) from manifold.tagged_events as t where t.tenant_id = $1`: wantRows,
		`select concat_ws(' ', g.position + l.n - 1, l.line) from manifold.event_tags as g
			cross join lateral string_to_table(g.tags, e'\n') with ordinality as l(line, n) where g.tenant_id = $1 and l.line <> ''`: wantLines,
	} {
		rows, _ := super.Query(ctx, what, tenant)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must(err)
		for _, row := range got {
			if !want[row] {
				t.Fatalf("there is %q in %v, want %v", row, got, want)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("there are %v, want %v", got, want)
		}
	}
}

// Whatever is appended, retagged and removed, each event has its tags.
func TestEventsHaveTheirTags(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	ctx := t.Context()
	rapid.Check(t, func(r *rapid.T) {
		tenant := domain.NewTenantID()
		model := map[int64]tagsOfEvent{}
		head := int64(0)
		names := []string{"a", "b", "c", "long:" + strings.Repeat("x", 90)}
		drawn := rapid.Custom(func(r *rapid.T) []string {
			if rapid.Bool().Draw(r, "none") {
				return nil
			}
			some := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID[string]).Draw(r, "tags")
			slices.Sort(some)
			return some
		})
		// stored draws some of the events, in any order.
		stored := func() []int64 {
			all := slices.Sorted(maps.Keys(model))
			return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, min(len(all), 20), rapid.ID[int64]).Draw(r, "positions")
		}
		for step := range rapid.IntRange(2, 8).Draw(r, "steps") {
			action := "append"
			if step > 0 && len(model) > 0 {
				action = rapid.SampledFrom([]string{"append", "retag", "retag", "remove"}).Draw(r, "action")
			}
			switch action {
			case "append":
				plain := rapid.Bool().Draw(r, "plain")
				events := make([]domain.NewEvent, rapid.IntRange(1, 80).Draw(r, "events"))
				for i := range events {
					var event tagsOfEvent
					if !plain {
						event.given = drawn.Draw(r, "given")
						event.derived = slices.DeleteFunc(drawn.Draw(r, "derived"), func(tag string) bool { return slices.Contains(event.given, tag) })
					}
					head++
					model[head] = event
					events[i] = tagged("A", event.all()...)
					events[i].Derived = event.derived
				}
				if _, err := s.Append(ctx, tenant, to("order-1", events...)); err != nil {
					r.Fatal(err)
				}
			case "retag":
				var change []eventlog.Retagging
				for _, position := range stored() {
					change = append(change, eventlog.Retagging{Position: position, Type: "A", Derived: drawn.Draw(r, "derived")})
				}
				if err := s.Retag(ctx, tenant, change, func(pgx.Tx, eventlog.Retagged) error { return nil }); err != nil {
					r.Fatal(err)
				}
				for _, c := range change {
					given := model[c.Position].given
					model[c.Position] = tagsOfEvent{given, slices.DeleteFunc(slices.Clone(c.Derived), func(tag string) bool { return slices.Contains(given, tag) })}
				}
			case "remove":
				gone := stored()
				if err := remove(ctx, s.Retention, tenant, gone); err != nil {
					r.Fatal(err)
				}
				for _, position := range gone {
					delete(model, position)
				}
			}
		}
		checkTags(r, ctx, s, super, tenant, model)
	})
}

// Retagging and two policies change neighbouring events concurrently. None undoes another's change.
func TestNeighboursAreChangedConcurrently(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super, another := db.Pool(t, pgtest.RoleSuperuser, 1), tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	const events = 96
	model := map[int64]tagsOfEvent{}
	all := make([]domain.NewEvent, events)
	for i := range all {
		all[i] = tagged("A", "given")
	}
	tablestest.Append(t, s, tenant, to("order-1", all...))
	var workers sync.WaitGroup
	for worker := range int64(4) {
		workers.Go(func() {
			for position := worker + 1; position <= events; position += 4 {
				for {
					var err error
					if worker < 2 {
						err = remove(t.Context(), another.Retention, tenant, []int64{position})
					} else {
						err = s.Retag(t.Context(), tenant, []eventlog.Retagging{{Position: position, Type: "A", Derived: []string{"derived"}}},
							func(pgx.Tx, eventlog.Retagged) error { return nil })
					}
					if err == nil {
						break
					}
					if !pg.Busy(pg.SQLState(err)) {
						t.Error(err)
						return
					}
				}
			}
		})
		for position := worker + 1; position <= events && worker >= 2; position += 4 {
			model[position] = tagsOfEvent{[]string{"given"}, []string{"derived"}}
		}
	}
	workers.Wait()
	checkTags(t, t.Context(), s, super, tenant, model)
}
