package eventlog_test

import (
	"encoding/json"
	"reflect"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestARepeatedRequestReturnsItsPositions(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-0", domain.None, 1))
	a := domain.Append{Streams: []domain.StreamAppend{tablestest.Counted("order-1", domain.None, 2).Streams[0], tablestest.Counted("order-2", domain.None, 1).Streams[0]}}
	tablestest.WithIDs(a)
	first := tablestest.Append(t, s, tenant, a)
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 2, 1)) // so that the repeat's expectation no longer holds
	a.Streams[0].Events[0].Data = json.RawMessage(`{ "n" :1.0e0 }`)
	for _, process := range []struct {
		name   string
		append func() domain.Appended
	}{
		{"here", func() domain.Appended { return tablestest.Append(t, s, tenant, a) }},
		{"here again, looking first", func() domain.Appended { return tablestest.Append(t, s, tenant, a) }},
		{"elsewhere", func() domain.Appended { return tablestest.Append(t, other, tenant, a) }},
	} {
		again := process.append()
		if !again.Duplicate {
			t.Errorf("%s: not called a duplicate", process.name)
		}
		again.Duplicate = false
		if !reflect.DeepEqual(again, first) {
			t.Errorf("%s: answered %+v, want %+v", process.name, again, first)
		}
	}
	if events := tablestest.WholeLog(t, s, tenant); len(events) != 5 {
		t.Errorf("there are %d events, want 5", len(events))
	}
}

func TestAnIDWithOtherContentConflicts(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	a := tablestest.WithIDs(tablestest.Counted("order-1", domain.Any, 1))
	tablestest.Append(t, s, tenant, a)
	id := a.Streams[0].Events[0].ID
	for name, change := range map[string]func(*domain.StreamAppend){
		"stream": func(s *domain.StreamAppend) { s.Stream = "order-2" },
		"type":   func(s *domain.StreamAppend) { s.Events[0].Type = "Other" },
		"data":   func(s *domain.StreamAppend) { s.Events[0].Data = json.RawMessage(`{"n": 2}`) },
	} {
		b := tablestest.Counted("order-1", domain.Any, 1)
		b.Streams[0].Events[0].ID = id
		change(&b.Streams[0])
		_, err := s.Append(t.Context(), tenant, b)
		if e := tablestest.Problem(t, err, domain.CodeEventIDConflict); e.Where != "events[0].id" {
			t.Errorf("%s: the place is %q", name, e.Where)
		}
	}
	metadata := tablestest.Counted("order-1", domain.Any, 1)
	metadata.Streams[0].Events[0].ID, metadata.Streams[0].Events[0].Metadata = id, json.RawMessage(`{"trace": 7}`)
	if got := tablestest.Append(t, s, tenant, metadata); !got.Duplicate {
		t.Error("other metadata make it another event")
	}
	if events := tablestest.WholeLog(t, s, tenant); len(events) != 1 {
		t.Errorf("there are %d events, want 1", len(events))
	}
}

func TestAPartialDuplicateIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	a := tablestest.WithIDs(tablestest.Counted("order-1", domain.Any, 2))
	tablestest.Append(t, s, tenant, a)
	b := tablestest.WithIDs(tablestest.Counted("order-1", domain.Any, 3))
	copy(b.Streams[0].Events, a.Streams[0].Events)
	_, err := s.Append(t.Context(), tenant, b)
	tablestest.Problem(t, err, domain.CodePartialDuplicate)
	if events := tablestest.WholeLog(t, s, tenant); len(events) != 2 {
		t.Errorf("there are %d events, want 2", len(events))
	}
}

func TestADuplicateIDInARequestIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	a := tablestest.WithIDs(domain.Append{Streams: []domain.StreamAppend{tablestest.Counted("order-1", domain.Any, 2).Streams[0], tablestest.Counted("order-2", domain.Any, 2).Streams[0]}})
	a.Streams[1].Events[1].ID = a.Streams[0].Events[0].ID
	_, err := s.Append(t.Context(), domain.NewTenantID(), a)
	if e := tablestest.Problem(t, err, domain.CodeDuplicateID); e.Where != "streams[1].events[1].id" {
		t.Errorf("the place is %q", e.Where)
	}
}

// Many clients send the same request at the same moment, in two processes, while others append: one of them appends.
func TestConcurrentRepeatsAreAppendedOnce(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	for round := range 10 {
		a := tablestest.WithIDs(tablestest.Counted("order-1", domain.Expected(3*round), 3))
		var wg sync.WaitGroup
		answers := make([]domain.Appended, 12)
		for i := range answers {
			wg.Go(func() {
				process := s
				if i%3 == 2 {
					process = other
				}
				var err error
				if answers[i], err = process.Append(t.Context(), tenant, a); err != nil {
					t.Error(err)
				}
				if _, err := process.Append(t.Context(), tenant, tablestest.Counted("invoice-1", domain.Any, 1)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
		firsts := 0
		for _, answer := range answers {
			if !answer.Duplicate {
				firsts++
			}
			if answer.Position != answers[0].Position || answer.Streams[0].Version != int64(3*round+3) {
				t.Errorf("round %d: answered %+v and %+v", round, answer, answers[0])
			}
		}
		if firsts != 1 {
			t.Errorf("round %d: %d say that they appended it", round, firsts)
		}
	}
	if events := tablestest.WholeLog(t, s, tenant); len(events) != 10*(3+12) {
		t.Errorf("there are %d events", len(events))
	}
}

// A duplicate in a batch is answered alone, and so is a request that the database refuses.
func TestARefusedRequestDoesNotFailOthers(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	old := tablestest.WithIDs(tablestest.Counted("order-old", domain.None, 1))
	tablestest.Append(t, s, tenant, old)
	taken := tablestest.WithIDs(tablestest.Counted("order-old", domain.Any, 1))
	taken.Streams[0].Events[0] = domain.NewEvent{ID: old.Streams[0].Events[0].ID, Type: "Other", Data: json.RawMessage(`{}`)}
	poison := tablestest.Counted("order-poison", domain.Any, 1)
	poison.Streams[0].Events[0].Data = json.RawMessage(`{"unchecked": "\u0000"}`)

	release := tablestest.HoldLog(t, db, tenant)
	type outcome struct {
		appended domain.Appended
		err      error
	}
	run := func(a domain.Append) <-chan outcome {
		done := make(chan outcome, 1)
		go func() {
			appended, err := s.Append(t.Context(), tenant, a)
			done <- outcome{appended, err}
		}()
		return done
	}
	blocked := run(tablestest.Counted("order-blocked", domain.None, 1))
	db.WaitForLock(t)
	duplicate, conflict, poisoned, late := run(old), run(taken), run(poison), run(tablestest.Counted("order-old", domain.None, 1))
	good1, good2 := run(tablestest.Counted("order-1", domain.None, 1)), run(tablestest.Counted("order-1", domain.Any, 2))
	release()

	for _, done := range []<-chan outcome{blocked, good1, good2} {
		if got := tablestest.Receive(t, done, "an append"); got.err != nil && tablestest.CodeOf(got.err) != domain.CodeVersionConflict {
			t.Error(got.err)
		}
	}
	if got := tablestest.Receive(t, duplicate, "the duplicate"); got.err != nil || !got.appended.Duplicate {
		t.Errorf("the duplicate is answered %+v", got)
	}
	tablestest.Problem(t, tablestest.Receive(t, conflict, "the taken id").err, domain.CodeEventIDConflict)
	tablestest.Problem(t, tablestest.Receive(t, poisoned, "the poisoned request").err, domain.CodeInvalidRequest)
	if e := tablestest.Problem(t, tablestest.Receive(t, late, "the conflict").err, domain.CodeVersionConflict); *e.CurrentVersion != 1 || e.Stream != "order-old" {
		t.Errorf("the conflict says %+v", e)
	}
	tablestest.WholeLog(t, s, tenant)
}
