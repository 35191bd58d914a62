package eventlog_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func retag(t testing.TB, s *tables.Tables, tenant domain.TenantID, events ...eventlog.Retagging) (done eventlog.Retagged) {
	t.Helper()
	tablestest.Must(t, s.Retag(t.Context(), tenant, events, func(_ pgx.Tx, retagged eventlog.Retagged) error {
		done = retagged
		return nil
	}))
	return done
}

// What writers remember of tags does not hide the tags that an event gets later.
func TestWritersForgetTagsOfRetaggedEvents(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	processes := []*tables.Tables{s, tablestest.OpenWith(t, db, func(*tables.Config) {})}
	for i, process := range processes {
		// The writer knows the whole log, and so proves the condition from memory.
		tablestest.Append(t, process, tenant, to("order-1", tagged("A")))
		tag := fmt.Sprintf("x%d", i)
		tablestest.Append(t, process, tenant, with(to("order-1", tagged("A")), unless(0, tags(tag))))
		retag(t, processes[(i+1)%2], tenant, eventlog.Retagging{Position: 1, Type: "A", Derived: []string{tag, "y"}})
		for _, other := range processes {
			_, err := other.Append(t.Context(), tenant, with(to("order-1", tagged("A")), unless(0, tags(tag, "y"))))
			problem := tablestest.Problem(t, err, domain.CodeConditionFailed)
			if events := problem.FailedCondition.Events; len(events) != 1 || events[0].Position != 1 {
				t.Errorf("the condition failed because of %v", events)
			}
		}
	}
	retag(t, s, tenant, eventlog.Retagging{Position: 1, Type: "A"})
	for _, process := range processes {
		tablestest.Append(t, process, tenant, with(to("order-1", tagged("A")), unless(0, tags("y"))))
	}
}

func TestRetag(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	full := make([]string, domain.MaxTags)
	for i := range full {
		full[i] = fmt.Sprintf("f%02d", i)
	}
	derived := tagged("A", "a", "d", "e")
	derived.Derived = []string{"d", "e"}
	tablestest.Append(t, s, tenant, to("order-1", tagged("A"), tagged("A", "b", "e"), derived, tagged("A", full...), tagged("A", "a")))
	_, err := super.Exec(t.Context(), "delete from manifold.tagged_events where position = 5; delete from manifold.events where position = 5")
	tablestest.Must(t, err)
	var change []eventlog.Retagging
	for position := range int64(5) {
		change = append(change, eventlog.Retagging{Position: position + 1, Type: "A", Derived: []string{"b", "e"}})
	}
	outdated, err := s.Outdated(t.Context(), tenant, change)
	if err != nil || len(outdated) != 4 {
		t.Errorf("%+v are outdated, %v; all but the second", outdated, err)
	}
	done := retag(t, s, tenant, change...)
	if done.Changed != 2 || !slices.Equal(done.Overfull, []int64{4}) {
		t.Errorf("it has done %+v", done)
	}
	want := [][]string{{"b", "e"}, {"b", "e"}, {"a", "b", "e"}, full}
	events, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{Limit: 10})
	tablestest.Must(t, err)
	if len(events) != len(want) {
		t.Fatalf("there are %d events", len(events))
	}
	for i, e := range events {
		if !slices.Equal(e.Tags, want[i]) {
			t.Errorf("the event at %d has %v, want %v", e.Position, e.Tags, want[i])
		}
	}
	if got := positionsOf(matching(t, s, tenant, 0, tags("e"))); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("the events at %v are found", got)
	}
	for i := range change {
		change[i].Derived = nil
	}
	if done := retag(t, s, tenant, change...); done.Changed != 2 || len(done.Overfull) != 0 {
		t.Errorf("without derived tags it has done %+v", done)
	}
	var tagged, rows int
	var lines, ofSchema *string
	err = super.QueryRow(t.Context(), `select (select count(*) from manifold.events where tagged),
		(select count(*) from manifold.tagged_events), g.tags, g.derived from manifold.event_tags as g`).Scan(&tagged, &rows, &lines, &ofSchema)
	if err != nil || tagged != 3 || rows != 2+1+32 || *lines != "b e\na\n"+strings.Join(full, " ")+"\na" || ofSchema != nil {
		t.Errorf("%d events are tagged, with %d rows, %v", tagged, rows, err)
	}
	err = s.Retag(t.Context(), domain.NewTenantID(), change, func(pgx.Tx, eventlog.Retagged) error { return nil })
	tablestest.Problem(t, err, domain.CodeNotFound)
}

// While events are retagged, appends of two processes, large ones among them, are written once each, and none that
// begins after a retagging overlooks it.
func TestAppendsRaceRetagging(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	processes := []*tables.Tables{s, tablestest.OpenWith(t, db, func(*tables.Config) {})}
	const retaggings = 60
	many := func(n int) domain.Append {
		events := make([]domain.NewEvent, n)
		for i := range events {
			events[i] = tagged("B", "many")
		}
		return to("many-1", events...)
	}
	tablestest.Append(t, s, tenant, many(retaggings))
	var done, appended, refused atomic.Int64 // done: positions up to here have their tags
	appended.Add(retaggings)
	ended := make(chan struct{})
	var clients sync.WaitGroup
	for client := range 6 {
		random := rand.New(rand.NewPCG(7, uint64(client)))
		clients.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				process := processes[client%2]
				if random.IntN(3) == 0 {
					if _, err := process.Append(t.Context(), tenant, many(120)); err != nil {
						t.Error(err)
						return
					}
					appended.Add(120)
					continue
				}
				before := done.Load()
				position := before + int64(random.IntN(3)) - 1 // the last one that was retagged, or the next ones
				_, err := process.Append(t.Context(), tenant, with(to(fmt.Sprintf("order-%d", client), tagged("A", "own")), unless(0, tags(fmt.Sprintf("r:%d", position)))))
				switch {
				case domain.IsCode(err, domain.CodeConditionFailed):
					refused.Add(1)
				case err != nil:
					t.Error(err)
					return
				default:
					if appended.Add(1); position > 0 && position <= before {
						t.Errorf("an append that began after the event at %d was retagged overlooked its tag", position)
					}
				}
			}
		})
	}
	for position := int64(1); position <= retaggings; {
		err := processes[position%2].Retag(t.Context(), tenant, []eventlog.Retagging{{Position: position, Type: "B", Derived: []string{fmt.Sprintf("r:%d", position)}}},
			func(pgx.Tx, eventlog.Retagged) error { return nil })
		if pg.Busy(pg.SQLState(err)) {
			continue
		}
		tablestest.Must(t, err)
		done.Store(position)
		position++
	}
	close(ended)
	clients.Wait()
	if events := tablestest.WholeLog(t, s, tenant); int64(len(events)) != appended.Load() || refused.Load() == 0 {
		t.Errorf("%d events were appended, the log has %d; %d were refused", appended.Load(), len(events), refused.Load())
	}
}

// A retagging that has read an event before its person was erased does not give the tag back.
func TestRetaggingDoesNotNameErasedPeople(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	event := tagged("A", "plan:gold", "subject:ada", "subject:bob")
	event.Derived = []string{"plan:gold", "subject:ada"}
	tablestest.Append(t, s, tenant, to("order-1", event))
	none := func(pgx.Tx) error { return nil }
	tablestest.Must(t, s.Erase(t.Context(), tenant, eventlog.Erasing{Erasure: domain.NewUUID(), Tag: "subject:ada"}, []int64{1}, none, none))
	retag(t, s, tenant, eventlog.Retagging{Position: 1, Type: "A", Derived: []string{"email:ada", "plan:gold", "subject:ada"}})
	if tags := tablestest.WholeLog(t, s, tenant)[0].Tags; !slices.Equal(tags, []string{"plan:gold", "subject:bob"}) {
		t.Errorf("the tags are %v", tags)
	}
}

// Events with causes are found in pages, each once, whatever is between them.
func TestCausedByIsPaged(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	var want []eventlog.Caused
	for i := range int64(30) {
		stream, tags := "own.changed-1", []string{"cause:1", "cause:2"}
		switch i % 3 {
		case 1:
			stream = "dlq.mail-1"
		case 2:
			stream, tags = "other-1", []string{"cause:1"}
		}
		if i%5 == 4 {
			tags = []string{"cause:3"}
		} else if i%3 != 2 {
			want = append(want, eventlog.Caused{Position: i + 1, Stream: stream})
		}
		tablestest.Append(t, s, tenant, domain.Append{Streams: []domain.StreamAppend{{
			Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{{Type: "T", Data: json.RawMessage(`1`), Tags: tags}},
		}}})
	}
	for _, limit := range []int{1, 4, 100} {
		var got []eventlog.Caused
		for after := int64(0); ; {
			page, last, err := s.CausedBy(t.Context(), tenant, []string{"cause:1", "cause:2"}, []string{"own.changed"}, []string{"dlq."}, after, 29, limit)
			tablestest.Must(t, err)
			if last == 0 {
				break
			}
			got, after = append(got, page...), last
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d, %v are found; want %v", limit, got, want)
		}
	}
}
