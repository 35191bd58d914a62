package store_test

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

func TestRepeatIsAnsweredWithItsFirstPositions(t *testing.T) {
	t.Parallel()
	s, db := openStore(t)
	other := openAgain(t, db)
	tenant := domain.NewTenantID()
	mustAppend(t, s, tenant, to("order-0", domain.None, 1))
	a := domain.Append{Streams: []domain.StreamAppend{to("order-1", domain.None, 2).Streams[0], to("order-2", domain.None, 1).Streams[0]}}
	withIDs(a)
	first := mustAppend(t, s, tenant, a)
	mustAppend(t, s, tenant, to("order-1", 2, 1)) // so that the repeat's expectation does not hold any more
	a.Streams[0].Events[0].Data = json.RawMessage(`{ "n" :1.0e0 }`)
	for _, process := range []struct {
		name   string
		append func() domain.Appended
	}{
		{"here", func() domain.Appended { return mustAppend(t, s, tenant, a) }},
		{"here again, looking first", func() domain.Appended { return mustAppend(t, s, tenant, a) }},
		{"elsewhere", func() domain.Appended { return mustAppend(t, other, tenant, a) }},
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
	if events := wholeLog(t, s, tenant); len(events) != 5 {
		t.Errorf("there are %d events, want 5", len(events))
	}
}

func TestIDThatIsTakenByOtherContent(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t)
	tenant := domain.NewTenantID()
	a := withIDs(to("order-1", domain.Any, 1))
	mustAppend(t, s, tenant, a)
	id := a.Streams[0].Events[0].ID
	for name, change := range map[string]func(*domain.StreamAppend){
		"stream": func(s *domain.StreamAppend) { s.Stream = "order-2" },
		"type":   func(s *domain.StreamAppend) { s.Events[0].Type = "Other" },
		"data":   func(s *domain.StreamAppend) { s.Events[0].Data = json.RawMessage(`{"n": 2}`) },
	} {
		b := to("order-1", domain.Any, 1)
		b.Streams[0].Events[0].ID = id
		change(&b.Streams[0])
		_, err := s.Append(t.Context(), tenant, b)
		if e := problem(t, err, domain.CodeEventIDConflict); e.Where != "events[0].id" {
			t.Errorf("%s: the place is %q", name, e.Where)
		}
	}
	metadata := to("order-1", domain.Any, 1)
	metadata.Streams[0].Events[0].ID, metadata.Streams[0].Events[0].Metadata = id, json.RawMessage(`{"trace": 7}`)
	if got := mustAppend(t, s, tenant, metadata); !got.Duplicate {
		t.Error("other metadata make it another event")
	}
	if events := wholeLog(t, s, tenant); len(events) != 1 {
		t.Errorf("there are %d events, want 1", len(events))
	}
}

func TestRequestThatIsPartlyThere(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t)
	tenant := domain.NewTenantID()
	a := withIDs(to("order-1", domain.Any, 2))
	mustAppend(t, s, tenant, a)
	b := withIDs(to("order-1", domain.Any, 3))
	copy(b.Streams[0].Events, a.Streams[0].Events)
	_, err := s.Append(t.Context(), tenant, b)
	problem(t, err, domain.CodePartialDuplicate)
	if events := wholeLog(t, s, tenant); len(events) != 2 {
		t.Errorf("there are %d events, want 2", len(events))
	}
}

func TestIDTwiceInARequest(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t)
	a := withIDs(domain.Append{Streams: []domain.StreamAppend{to("order-1", domain.Any, 2).Streams[0], to("order-2", domain.Any, 2).Streams[0]}})
	a.Streams[1].Events[1].ID = a.Streams[0].Events[0].ID
	_, err := s.Append(t.Context(), domain.NewTenantID(), a)
	if e := problem(t, err, domain.CodeDuplicateID); e.Where != "streams[1].events[1].id" {
		t.Errorf("the place is %q", e.Where)
	}
}

// Many clients send the same request at the same moment, in two processes, while others append: one of them appends.
func TestSameRequestAtTheSameTime(t *testing.T) {
	t.Parallel()
	s, db := openStore(t)
	other := openAgain(t, db)
	tenant := domain.NewTenantID()
	for round := range 10 {
		a := withIDs(to("order-1", domain.Expected(3*round), 3))
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
				if _, err := process.Append(t.Context(), tenant, to("invoice-1", domain.Any, 1)); err != nil {
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
	if events := wholeLog(t, s, tenant); len(events) != 10*(3+12) {
		t.Errorf("there are %d events", len(events))
	}
}

// A duplicate in a batch is answered alone, and so is a request that the database refuses.
func TestOneBadRequestLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	s, db := openStore(t)
	tenant := domain.NewTenantID()
	old := withIDs(to("order-old", domain.None, 1))
	mustAppend(t, s, tenant, old)
	taken := withIDs(to("order-old", domain.Any, 1))
	taken.Streams[0].Events[0] = domain.NewEvent{ID: old.Streams[0].Events[0].ID, Type: "Other", Data: json.RawMessage(`{}`)}
	poison := to("order-poison", domain.Any, 1)
	poison.Streams[0].Events[0].Data = json.RawMessage(`{"unchecked": "\u0000"}`)

	release := holdLog(t, db, tenant)
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
	blocked := run(to("order-blocked", domain.None, 1))
	waitForLock(t, db)
	duplicate, conflict, poisoned, late := run(old), run(taken), run(poison), run(to("order-old", domain.None, 1))
	good1, good2 := run(to("order-1", domain.None, 1)), run(to("order-1", domain.Any, 2))
	release()

	for _, done := range []<-chan outcome{blocked, good1, good2} {
		if got := receive(t, done, "an append"); got.err != nil && codeOf(got.err) != domain.CodeVersionConflict {
			t.Error(got.err)
		}
	}
	if got := receive(t, duplicate, "the duplicate"); got.err != nil || !got.appended.Duplicate {
		t.Errorf("the duplicate is answered %+v", got)
	}
	problem(t, receive(t, conflict, "the taken id").err, domain.CodeEventIDConflict)
	problem(t, receive(t, poisoned, "the poisoned request").err, domain.CodeInvalidRequest)
	if e := problem(t, receive(t, late, "the conflict").err, domain.CodeVersionConflict); *e.CurrentVersion != 1 || e.Stream != "order-old" {
		t.Errorf("the conflict says %+v", e)
	}
	wholeLog(t, s, tenant)
}

// holdLog locks the tenant's log as another process would, until release is called, or the test ends.
func holdLog(t *testing.T, db pgtest.DB, tenant domain.TenantID) (release func()) {
	t.Helper()
	tx, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	must(t, err)
	// The pool cannot be closed before, also where the test fails while it holds the log.
	release = sync.OnceFunc(func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("release the log: %v", err)
		}
	})
	t.Cleanup(release)
	_, err = tx.Exec(t.Context(), "select from manifold.logs where tenant_id = $1 for update", [16]byte(tenant))
	must(t, err)
	return release
}
