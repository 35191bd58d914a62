package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// tagged is an event with tags.
func tagged(eventType string, tags ...string) domain.NewEvent {
	tags, err := domain.CheckTags("tags", tags)
	if err != nil {
		panic(err)
	}
	return domain.NewEvent{ID: domain.NewEventID(), Type: eventType, Data: []byte(`{}`), Tags: tags}
}

// to appends events to one stream, whatever its version.
func to(stream string, events ...domain.NewEvent) domain.Append {
	return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: events}}}
}

// unless is the condition that no event after a position matches the items.
func unless(after int64, items ...domain.QueryItem) domain.Condition {
	return domain.Condition{FailIfEventsMatch: items, After: after}
}

func with(a domain.Append, conditions ...domain.Condition) domain.Append {
	a.Conditions = conditions
	return a
}

func tags(tags ...string) domain.QueryItem { return domain.QueryItem{Tags: tags} }

// matching reads the events that a query matches.
func matching(t testing.TB, s *tables.Tables, tenant domain.TenantID, after int64, items ...domain.QueryItem) []domain.Event {
	t.Helper()
	events, _, err := s.ReadMatching(t.Context(), tenant, domain.MatchQuery{Query: items, After: after, Limit: 1000})
	tablestest.Must(t, err)
	return events
}

func positionsOf(events []domain.Event) []int64 {
	positions := []int64{}
	for _, e := range events {
		positions = append(positions, e.Position)
	}
	return positions
}

func TestTagsAreKept(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, to("order-1", tagged("A")))
	tablestest.Append(t, s, tenant, domain.Append{Streams: []domain.StreamAppend{
		to("order-1", tagged("A", "b", "a"), tagged("B"), tagged("C", "c")).Streams[0], to("order-2", tagged("A", "a")).Streams[0],
	}})
	var runs, rows int
	err := db.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(),
		"select (select count(*) from manifold.event_tags), (select count(*) from manifold.tagged_events)").Scan(&runs, &rows)
	if err != nil || runs != 1 || rows != 4 {
		t.Errorf("there are %d runs and %d rows of tags, %v; want 1 and 4", runs, rows, err)
	}
	want := [][]string{nil, {"a", "b"}, nil, {"c"}, {"a"}}
	events := tablestest.WholeLog(t, s, tenant)
	for i, e := range events {
		if !slices.Equal(e.Tags, want[i]) {
			t.Errorf("position %d has the tags %q, want %q", e.Position, e.Tags, want[i])
		}
	}
	one, err := s.Event(t.Context(), tenant, events[1].ID)
	if err != nil || !slices.Equal(one.Tags, want[1]) {
		t.Errorf("by id it has %q, %v", one.Tags, err)
	}
}

// A read that has to look at many events stops, and says where; a read that continues there finds the rest.
func TestReadMatchingStops(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	events, want := make([]domain.NewEvent, 1000), []int64{}
	for i := range events {
		events[i] = tagged("A", "all")
		if i%90 == 80 || i%100 == 99 { // also in the places where it stops
			events[i].Type = "B"
			want = append(want, int64(i+1))
		}
	}
	tablestest.Append(t, s, tenant, to("order-1", events...))
	// So many tags that each item looks at a hundred events at once.
	q := domain.Query{{Types: []string{"B"}, Tags: []string{"all"}}, {Types: []string{"B"}}}
	for len(q) < domain.MaxQueryItems {
		q = append(q, tags("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"))
	}
	for _, direction := range []domain.Direction{domain.Forward, domain.Backward} {
		ask, found, asked := domain.MatchQuery{Query: q, Limit: 1000, Direction: direction}, []int64{}, 0
		for {
			events, next, err := s.ReadMatching(t.Context(), tenant, ask)
			tablestest.Must(t, err)
			found = append(found, positionsOf(events)...)
			if asked++; next == 0 {
				break
			}
			if ask.After = next; direction == domain.Backward {
				ask.After, ask.Before = 0, next
			}
		}
		if direction == domain.Backward {
			slices.Reverse(found)
		}
		if !slices.Equal(found, want) || asked < 10 {
			t.Errorf("direction %v: after %d reads %v are found; want %v", direction, asked, found, want)
		}
	}
}

// The log with conditions is what a list of events would be, whichever process appends.
func TestConditionsModel(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	processes := []*tables.Tables{s, tablestest.OpenAgain(t, db)}
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		tenant := domain.NewTenantID()
		var log []domain.Event
		someTags := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 2, rapid.ID)
		someTypes := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"A", "B"}), 0, 1, rapid.ID)
		query := func(label string) (q domain.Query) {
			for range rapid.IntRange(1, 2).Draw(t, label) {
				q = append(q, domain.QueryItem{Types: someTypes.Draw(t, "types"), Tags: someTags.Draw(t, "tags")})
			}
			return q
		}
		place := func(label string) int64 {
			return int64(max(0, len(log)-rapid.IntRange(0, len(log)).Draw(t, label)))
		}
		modelled := func(q domain.Query, after, before int64) (found []domain.Event) {
			for _, e := range log {
				if e.Position > after && (before == 0 || e.Position < before) && q.Matches(e.Type, e.Tags) {
					found = append(found, e)
				}
			}
			return found
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			process := rapid.SampledFrom(processes).Draw(t, "process")
			if rapid.IntRange(0, 3).Draw(t, "reads") == 0 {
				q := domain.MatchQuery{Query: query("query"), After: place("after"), Limit: rapid.IntRange(1, 4).Draw(t, "limit")}
				if rapid.Bool().Draw(t, "bounded") {
					q.Before = place("before") + 1
				}
				want := modelled(q.Query, q.After, q.Before)
				if rapid.Bool().Draw(t, "backward") {
					q.Direction = domain.Backward
					slices.Reverse(want)
				}
				want = want[:min(len(want), q.Limit)]
				got, next, err := process.ReadMatching(ctx, tenant, q)
				if err != nil || (next != 0) != (len(got) == q.Limit) || !slices.Equal(positionsOf(got), positionsOf(want)) {
					t.Fatalf("%+v finds %v, %v; want %v", q, positionsOf(got), err, positionsOf(want))
				}
				continue
			}
			events := []domain.NewEvent{}
			for range rapid.IntRange(1, 3).Draw(t, "events") {
				events = append(events, tagged(rapid.SampledFrom([]string{"A", "B"}).Draw(t, "type"), someTags.Draw(t, "tags")...))
			}
			a := to("order-1", events...)
			for range rapid.IntRange(0, 2).Draw(t, "conditions") {
				a.Conditions = append(a.Conditions, unless(place("after"), query("condition")...))
			}
			failed := &domain.FailedCondition{Position: int64(len(log))}
			for i, c := range a.Conditions {
				if found := modelled(c.FailIfEventsMatch, c.After, 0); len(found) > 0 {
					failed.Conditions = append(failed.Conditions, i)
					failed.Events = append(failed.Events, found...)
				}
			}
			appended, err := process.Append(ctx, tenant, a)
			if len(failed.Conditions) > 0 {
				slices.SortFunc(failed.Events, func(a, b domain.Event) int { return int(a.Position - b.Position) })
				failed.Events = slices.CompactFunc(failed.Events, func(a, b domain.Event) bool { return a.Position == b.Position })
				failed.Events = failed.Events[max(0, len(failed.Events)-domain.MaxConflicts):]
				e, ok := errors.AsType[*domain.Error](err)
				if !ok || e.Code != domain.CodeConditionFailed || !reflect.DeepEqual(e.FailedCondition, failed) {
					t.Fatalf("got %v, %+v; want %+v", err, e.FailedCondition, failed)
				}
				// The same request again, without its conditions, is new: nothing was left of it.
				continue
			}
			if err != nil || appended.Duplicate {
				t.Fatalf("appended %+v, %v", appended, err)
			}
			for i, e := range events {
				at := appended.Streams[0].Events[i]
				log = append(log, domain.Event{ID: e.ID, Stream: "order-1", Version: at.Version, Position: at.Position, Type: e.Type, Tags: e.Tags})
			}
			if again, err := process.Append(ctx, tenant, a); err != nil || !again.Duplicate {
				t.Fatalf("a repeat, whose own events match, is answered %+v, %v", again, err)
			}
		}
	})
}

// Clients of two processes race. Each accepted condition holds in its place in the log, and each refused one had
// failed.
func TestRacingConditionsAreLinearisable(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	processes := []*tables.Tables{s, tablestest.OpenAgain(t, db)}
	tenant := domain.NewTenantID()
	type outcome struct {
		condition domain.Condition
		own       domain.EventID
		position  int64 // 0: refused
		failed    *domain.FailedCondition
	}
	const clients, each = 24, 40
	outcomes := make([][]outcome, clients)
	var racing sync.WaitGroup
	for client := range clients {
		racing.Go(func() {
			process, random := processes[client%3/2], rand.New(rand.NewPCG(uint64(client), 1))
			after := int64(0)
			for n := range each {
				tag := fmt.Sprintf("seat:%d", random.IntN(3))
				event := tagged(string('A'+rune(random.IntN(2))), tag)
				item := tags(tag)
				switch random.IntN(6) {
				case 0:
					item.Types = []string{"A"}
				case 1:
					event = tagged("A", tag, "row:1")
					item.Tags = append(item.Tags, "row:1")
				case 2:
					item = domain.QueryItem{Types: []string{"B"}}
				}
				o := outcome{condition: unless(after, item), own: event.ID}
				a := with(to(fmt.Sprintf("order-%d", client), event), o.condition)
				if n%5 == 4 {
					a.Conditions, o.condition = nil, domain.Condition{}
				}
				appended, err := process.Append(t.Context(), tenant, a)
				if err == nil {
					after, o.position = appended.Position, appended.Position
				} else {
					o.failed = tablestest.Problem(t, err, domain.CodeConditionFailed).FailedCondition
					after = o.failed.Position
				}
				outcomes[client] = append(outcomes[client], o)
			}
		})
	}
	racing.Wait()
	log := tablestest.WholeLog(t, s, tenant)
	accepted, refused := 0, 0
	for _, o := range slices.Concat(outcomes...) {
		if o.position > 0 {
			accepted++
			if log[o.position-1].ID != o.own {
				t.Fatalf("position %d has another event", o.position)
			}
			for _, e := range log[min(o.condition.After, o.position-1) : o.position-1] {
				if o.condition.FailIfEventsMatch.Matches(e.Type, e.Tags) {
					t.Errorf("%+v was accepted at position %d, and position %d matches", o.condition, o.position, e.Position)
				}
			}
			continue
		}
		refused++
		if len(o.failed.Events) == 0 || !slices.Equal(o.failed.Conditions, []int{0}) {
			t.Errorf("%+v was refused with %+v", o.condition, o.failed)
		}
		for _, e := range o.failed.Events {
			if in := log[e.Position-1]; in.ID != e.ID || e.Position <= o.condition.After || e.Position > o.failed.Position || !o.condition.FailIfEventsMatch.Matches(in.Type, in.Tags) {
				t.Errorf("%+v was refused up to %d because of %+v", o.condition, o.failed.Position, e)
			}
		}
		if slices.ContainsFunc(log, func(e domain.Event) bool { return e.ID == o.own }) {
			t.Errorf("%+v was refused, and its event is in the log", o.condition)
		}
	}
	if accepted < clients || refused < clients {
		t.Errorf("%d were accepted and %d refused; it was no race", accepted, refused)
	}
	if accepted != len(log) {
		t.Errorf("%d were accepted, and the log has %d", accepted, len(log))
	}
}

// Of clients that want the same name at the same moment, one gets it.
func TestNeverTwoWinners(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	processes := []*tables.Tables{s, tablestest.OpenAgain(t, db)}
	tenant := domain.NewTenantID()
	for round := range 20 {
		name := fmt.Sprintf("username:%d", round)
		var winners atomic.Int64
		var racing sync.WaitGroup
		for client := range 16 {
			racing.Go(func() {
				// Half of them share a batch with an event that is not concerned.
				a := with(to(fmt.Sprintf("user-%d.%d", round, client), tagged("Registered", name)), unless(0, tags(name)))
				_, err := processes[client%2].Append(t.Context(), tenant, a)
				if err == nil {
					winners.Add(1)
				} else {
					tablestest.Problem(t, err, domain.CodeConditionFailed)
				}
				tablestest.Append(t, processes[client%2], tenant, to("other-1", tagged("Noted")))
			})
		}
		racing.Wait()
		if winners.Load() != 1 {
			t.Fatalf("%s has %d owners", name, winners.Load())
		}
	}
}

// The connection breaks during commits, and the client repeats its request: each event is in the log once, or its
// condition has failed.
func TestALostConditionalCommitHasOneOutcome(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	var breaks atomic.Bool
	random := func() bool { return breaks.Load() && rand.IntN(5) == 0 }
	network.On(pgtest.AfterCommit("manifold_insert_by_tag", random))
	network.On(pgtest.BeforeCommit("manifold_insert_by_tag", random))
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: network.URL(t, db, migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns: 4, Log: slog.New(slog.DiscardHandler),
	})
	tablestest.Must(t, err)
	defer s.Close()
	tenant := domain.NewTenantID()
	breaks.Store(true)
	var winners [10]atomic.Int64
	var racing sync.WaitGroup
	for client := range 8 {
		racing.Go(func() {
			for seat := range winners {
				tag := fmt.Sprintf("seat:%d", seat)
				a := with(to(fmt.Sprintf("order-%d", client), tagged("Reserved", tag)), unless(0, tags(tag)))
				for {
					_, err := s.Append(t.Context(), tenant, a)
					if e, ok := errors.AsType[*domain.Error](err); ok && (e.Code == domain.CodeOutcomeUnknown || e.Code == domain.CodeUnavailable) {
						continue
					}
					if err == nil {
						winners[seat].Add(1)
					} else {
						tablestest.Problem(t, err, domain.CodeConditionFailed)
					}
					break
				}
			}
		})
	}
	racing.Wait()
	breaks.Store(false)
	for seat := range winners {
		if n := winners[seat].Load(); n != 1 {
			t.Errorf("seat %d has %d owners", seat, n)
		}
	}
	if events := tablestest.WholeLog(t, s, tenant); len(events) != len(winners) {
		t.Errorf("there are %d events, want %d", len(events), len(winners))
	}
}

// An item that would have to look at too many events is refused, and one that certainly fails is not.
func TestCostlyConditionsAreRefused(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	const many = 5500
	for n := 0; n < many; n += 500 {
		var events []domain.NewEvent
		for i := range 500 {
			events = append(events, tagged("Common", "all", fmt.Sprintf("half:%d", i%2)))
		}
		tablestest.Append(t, s, tenant, to(fmt.Sprintf("order-%d", n), events...))
	}
	s = tablestest.OpenAgain(t, db) // which remembers nothing
	try := func(c domain.Condition) error {
		_, err := s.Append(t.Context(), tenant, with(to("order-x", tagged("X")), c))
		return err
	}
	for name, c := range map[string]domain.Condition{
		"a type that a tag does not have": unless(0, domain.QueryItem{Types: []string{"Rare"}, Tags: []string{"all"}}),
		"two tags without an event":       unless(0, tags("half:0", "half:1"), tags("x")),
		"a type in the whole log":         unless(0, domain.QueryItem{Types: []string{"Rare"}}),
	} {
		err := try(c)
		if name == "two tags without an event" {
			if err != nil {
				t.Errorf("%s: %v", name, err) // 2,750 and no events are few enough to look at
			}
			continue
		}
		if e := tablestest.Problem(t, err, domain.CodeTooCostly); e.Where != "condition.failIfEventsMatch.items[0]" {
			t.Errorf("%s: the place is %q", name, e.Where)
		}
	}
	tablestest.Problem(t, try(unless(0, tags("all"))), domain.CodeConditionFailed)
	tablestest.Problem(t, try(unless(0, domain.QueryItem{Types: []string{"Rare"}}, domain.QueryItem{})), domain.CodeConditionFailed)
	tablestest.Must(t, try(unless(many-4500, domain.QueryItem{Types: []string{"Rare"}, Tags: []string{"all"}})))
	tablestest.Must(t, try(unless(many-4500, domain.QueryItem{Types: []string{"Rare"}})))
}

// An earlier release may remove an event and leave its tags behind. They match nothing.
func TestTagsOfRemovedEventsMatchNothing(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, to("order-1", tagged("A", "a"), tagged("A", "a")))
	tablestest.Append(t, s, tenant, to("other-1", tagged("B", "b")))
	db.Remove(t, tenant, "order", 2)
	s = tablestest.OpenAgain(t, db)
	if found := matching(t, s, tenant, 0, tags("a"), tags("b")); !slices.Equal(positionsOf(found), []int64{3}) {
		t.Errorf("it reads %v", positionsOf(found))
	}
	tablestest.Append(t, s, tenant, with(to("order-1", tagged("A", "a")), unless(0, tags("a"))))
}

// A stream's version and a condition may both be expected, and both must hold.
func TestConditionsBesideExpectedVersions(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, to("order-1", tagged("A", "a")))
	a := with(to("order-1", tagged("B", "b")), unless(1, tags("a")))
	a.Streams[0].Expected = 7
	_, err := s.Append(t.Context(), tenant, a)
	tablestest.Problem(t, err, domain.CodeVersionConflict)
	a.Streams[0].Expected, a.Conditions[0].After = 1, 0
	_, err = s.Append(t.Context(), tenant, a)
	tablestest.Problem(t, err, domain.CodeConditionFailed)
	a.Conditions[0].After = 1
	tablestest.Append(t, s, tenant, a)
}
