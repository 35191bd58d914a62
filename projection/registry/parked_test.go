package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestParkedDocuments(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	id := domain.ProjectionID{Owner: domain.Everyone, Name: "orders"}
	for _, of := range []domain.TenantID{tenant, other} {
		tablestest.Append(t, s, of, tablestest.Counted("order-1", domain.None, 10))
	}
	parked := func(of domain.TenantID, document string, position int64) domain.ParkedDocument {
		return domain.ParkedDocument{
			ProjectionID: id, Tenant: of, Build: 1, ID: document, Position: position, EventID: domain.NewEventID(),
			Failure: domain.Failure{Stream: "order-1", EventType: "Counted", DocumentID: document, Where: "on.*", Expression: "1 / 0", Message: "no", Before: json.RawMessage(`{"n": 1}`)},
		}
	}
	park := func(of domain.TenantID, want bool, documents []domain.ParkedDocument, events ...domain.ParkedEvent) {
		t.Helper()
		for range 2 { // it may be repeated
			ok, err := s.Park(t.Context(), of, id, 1, documents, events)
			tablestest.Must(t, err)
			if ok != want {
				t.Fatalf("parking is answered %v", ok)
			}
		}
	}
	waiting := func(of domain.TenantID, document string) (positions []int64) {
		t.Helper()
		events, err := s.ParkedEvents(t.Context(), of, id, 1, document, 0, 100)
		tablestest.Must(t, err)
		for _, event := range events {
			if event.Stream != "order-1" || len(event.Data) == 0 || event.RecordedAt.IsZero() {
				t.Errorf("an event that waits is %+v", event)
			}
			positions = append(positions, event.Position)
		}
		return positions
	}
	for _, of := range []domain.TenantID{tenant, other} {
		park(of, true, []domain.ParkedDocument{parked(of, "b", 4), parked(of, "a", 2)},
			domain.ParkedEvent{DocumentID: "b", Position: 4}, domain.ParkedEvent{DocumentID: "a", Position: 2}, domain.ParkedEvent{DocumentID: "a", Position: 3})
	}
	// Who was earlier at it stays; who found an earlier event takes its place.
	park(tenant, true, []domain.ParkedDocument{parked(tenant, "a", 5)}, domain.ParkedEvent{DocumentID: "a", Position: 5})
	park(tenant, true, []domain.ParkedDocument{parked(tenant, "b", 1)}, domain.ParkedEvent{DocumentID: "b", Position: 1})
	exclusions, err := s.Exclusions(t.Context(), tenant, id, 1, 7)
	tablestest.Must(t, err)
	if len(exclusions.Parked) != 2 || exclusions.Parked["a"] != 2 || exclusions.Parked["b"] != 1 || len(exclusions.Skipped) != 0 {
		t.Errorf("the exclusions are %+v", exclusions)
	}
	list, err := s.ParkedDocuments(t.Context(), tenant, id, 1, "", 10)
	tablestest.Must(t, err)
	if len(list) != 2 || list[0].ID != "a" || list[0].Events != 3 || list[0].Where != "on.*" || list[0].Message != "no" ||
		string(list[0].Before) != `{"n": 1}` || list[0].Position != 2 || list[0].ParkedAt.IsZero() || list[1].Position != 1 || list[1].Events != 2 {
		t.Errorf("parked are %+v", list)
	}
	for build, want := range map[int64]int64{1: 2, 99: 0} {
		if count, err := s.CountParked(t.Context(), tenant, id, build); err != nil || count != want {
			t.Errorf("%d documents of build %d are parked, %v; want %d", count, build, err, want)
		}
	}
	if page, err := s.ParkedDocuments(t.Context(), tenant, id, 1, "a", 10); err != nil || len(page) != 1 || page[0].ID != "b" {
		t.Errorf("after a: %+v, %v", page, err)
	}
	// Some of a's events take effect; one stands in the way.
	failure := parked(tenant, "a", 5)
	failure.Message = "still no"
	left, err := s.Unpark(t.Context(), tenant, id, 1, "a", []int64{2, 3}, &failure)
	tablestest.Must(t, err)
	one, ok, err := s.ParkedDocument(t.Context(), tenant, id, 1, "a")
	tablestest.Must(t, err)
	if left || !ok || one.Position != 5 || one.Message != "still no" || !slices.Equal(waiting(tenant, "a"), []int64{5}) {
		t.Errorf("a is %+v, %v, and left is %v", one, ok, left)
	}
	// What comes to wait meanwhile keeps it; without that it is left, once.
	park(tenant, true, nil, domain.ParkedEvent{DocumentID: "a", Position: 6})
	if left, err := s.Unpark(t.Context(), tenant, id, 1, "a", []int64{5}, nil); err != nil || left {
		t.Errorf("left is %v, %v", left, err)
	}
	for range 2 {
		if left, err := s.Unpark(t.Context(), tenant, id, 1, "a", []int64{6}, nil); err != nil || !left {
			t.Errorf("left is %v, %v", left, err)
		}
	}
	// Nothing is kept for one that was left, not even what is for others.
	park(tenant, false, nil, domain.ParkedEvent{DocumentID: "a", Position: 7}, domain.ParkedEvent{DocumentID: "b", Position: 7})
	if got := waiting(tenant, "b"); !slices.Equal(got, []int64{1, 4}) {
		t.Errorf("for b wait %v", got)
	}
	// Discarded: passed over by every version.
	skip := domain.SkippedEvent{ProjectionID: id, Tenant: tenant, Version: 7, Reason: "old", By: "somebody"}
	tablestest.Must(t, s.DiscardParked(t.Context(), skip, 1, "b", 0, nil))
	tablestest.WantCode(t, s.DiscardParked(t.Context(), skip, 1, "b", 0, nil), domain.CodeNotFound)
	for version, want := range map[int64][]int64{7: {1, 4}, 8: {1, 4}, 0: {1, 4}} {
		if exclusions, err := s.Exclusions(t.Context(), tenant, id, 1, version); err != nil || len(exclusions.Parked) != 0 || !slices.Equal(exclusions.Skipped, want) {
			t.Errorf("version %d: the exclusions are %+v, %v", version, exclusions, err)
		}
	}
	skipped, err := s.SkippedEvents(t.Context(), tenant, id, 10)
	tablestest.Must(t, err)
	if len(skipped) != 2 || skipped[1].Position != 4 || skipped[1].By != "somebody" || skipped[1].Reason != "old" || skipped[1].EventID.IsZero() || skipped[1].At.IsZero() {
		t.Errorf("skipped are %+v", skipped)
	}
	// Discarded for some of the events' documents alone, until the whole event is skipped.
	partly := skip
	for _, document := range []string{"c", "d"} {
		parked := []domain.ParkedDocument{{ProjectionID: id, Tenant: tenant, Build: 1, ID: document, Position: 6, EventID: domain.NewEventID()}}
		park(tenant, true, parked, domain.ParkedEvent{DocumentID: document, Position: 6}, domain.ParkedEvent{DocumentID: document, Position: 7})
		partly.Documents = []string{document}
		tablestest.Must(t, s.DiscardParked(t.Context(), partly, 1, document, 0, []int64{7}))
	}
	for _, want := range []bool{false, true} {
		exclusions, err := s.Exclusions(t.Context(), tenant, id, 1, 8)
		tablestest.Must(t, err)
		if !exclusions.Skips(6, "c") || !exclusions.Skips(6, "d") || exclusions.Skips(6, "e") != want || exclusions.Skips(6, "") != want || !exclusions.Skips(7, "e") {
			t.Errorf("skipped as a whole %t: the exclusions are %+v", want, exclusions)
		}
		partly.Position = 6
		if _, err := s.PutSkipped(t.Context(), partly); err != nil {
			t.Fatal(err)
		}
	}
	for _, position := range []int64{6, 7} {
		tablestest.Must(t, s.WithdrawSkip(t.Context(), tenant, id, position))
	}
	// The other tenant has seen nothing of all this, and goes when the build does.
	if exclusions, err := s.Exclusions(t.Context(), other, id, 1, 7); err != nil || exclusions.Parked["a"] != 2 || exclusions.Parked["b"] != 4 || len(exclusions.Skipped) != 0 {
		t.Errorf("the other's: %+v, %v", exclusions, err)
	}
	ids, err := s.ParkedIDs(t.Context(), id, 1)
	tablestest.Must(t, err)
	if len(ids) != 1 || !slices.Equal(ids[other], []string{"a", "b"}) {
		t.Errorf("all that is parked: %v", ids)
	}
	// What a replay has folded already is given up by nobody.
	there := waiting(other, "b")
	park(other, true, nil, domain.ParkedEvent{DocumentID: "b", Position: there[len(there)-1] + 1})
	skip.Tenant = other
	tablestest.Must(t, s.DiscardParked(t.Context(), skip, 1, "b", there[len(there)-1], nil))
	if exclusions, err := s.Exclusions(t.Context(), other, id, 1, 7); err != nil || !slices.Equal(exclusions.Skipped, []int64{there[len(there)-1] + 1}) {
		t.Errorf("discarded after position %d: %+v, %v", there[len(there)-1], exclusions, err)
	}
	tablestest.Must(t, s.DeleteParked(t.Context(), id, 1))
	if exclusions, err := s.Exclusions(t.Context(), other, id, 1, 7); err != nil || len(exclusions.Parked) != 0 {
		t.Errorf("after the build: %+v, %v", exclusions, err)
	}
}

func TestSkippedEvents(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	id := domain.ProjectionID{Owner: tenant, Name: "orders"}
	fault := domain.Fault{ProjectionID: id, Tenant: tenant, Build: 3, Position: 4, EventID: domain.NewEventID(), Failure: domain.Failure{
		Stream: "order-1", EventType: "Added", DocumentID: "order-1", Where: "on.Added", Expression: "1 / 0", Message: "division by zero", Before: json.RawMessage(`{"n": 1}`),
	}}
	tablestest.PutFault(t, s, fault)
	got, _, err := s.Fault(t.Context(), tenant, id, 3)
	tablestest.Must(t, err)
	if got.At.IsZero() || string(got.Before) != `{"n": 1}` || got.DocumentID != "order-1" || got.Where != "on.Added" || got.Expression != "1 / 0" || got.EventType != "Added" || got.Stream != "order-1" {
		t.Errorf("the fault is %+v", got)
	}
	heard := make(chan domain.ProjectionID, 10)
	far := tablestest.OpenAgain(t, db)
	ctx, stop := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	listening.Go(func() {
		if err := far.ListenRetries(ctx, func(_ domain.TenantID, id domain.ProjectionID) { heard <- id }); err != nil {
			t.Errorf("ListenRetries: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		listening.Wait()
	})
	if got := <-heard; got != (domain.ProjectionID{}) {
		t.Errorf("the first notice is of %v", got)
	}
	skip := domain.SkippedEvent{ProjectionID: id, Tenant: tenant, Version: 2, Position: 5, Reason: "because", By: "operator"}
	_, err = s.SkipEvent(t.Context(), skip, 3)
	tablestest.WantCode(t, err, domain.CodeConflict)
	skip.Position = 4
	_, err = s.SkipEvent(t.Context(), skip, 2)
	tablestest.WantCode(t, err, domain.CodeConflict)
	skipped, err := s.SkipEvent(t.Context(), skip, 3)
	tablestest.Must(t, err)
	if skipped.EventID != fault.EventID || skipped.Message != fault.Message || skipped.By != "operator" || time.Since(skipped.At) > time.Hour {
		t.Errorf("skipped is %+v", skipped)
	}
	if got := <-heard; got != id {
		t.Errorf("reported %v", got)
	}
	_, err = s.SkipEvent(t.Context(), skip, 3)
	tablestest.WantCode(t, err, domain.CodeConflict)
	if exclusions, err := s.Exclusions(t.Context(), tenant, id, 3, 2); err != nil || !slices.Equal(exclusions.Skipped, []int64{4}) {
		t.Errorf("the exclusions are %+v, %v", exclusions, err)
	}
	passedOver := func(version int64, want ...int64) {
		t.Helper()
		if exclusions, err := s.Exclusions(t.Context(), tenant, id, 3, version); err != nil || !slices.Equal(exclusions.Skipped, want) {
			t.Errorf("version %d skips %v, %v; want %v", version, exclusions.Skipped, err, want)
		}
	}
	passedOver(3, 4)
	// The row that an earlier release writes applies to its version alone, until the event is skipped again.
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	_, err = super.Exec(t.Context(), `
		delete from manifold.skipped_events;
		insert into manifold.skipped_events (tenant_id, owner, name, version, position, event_id, message, reason, by)
		select tenant_id, owner, name, 2, 4, gen_random_uuid(), '', '', '' from (values ('`+tenant.String()+`'::uuid, '`+tenant.String()+`'::uuid, 'orders')) as v (tenant_id, owner, name)`)
	tablestest.Must(t, err)
	passedOver(2, 4)
	passedOver(3)
	skip.EventID = fault.EventID
	_, err = s.PutSkipped(t.Context(), skip)
	tablestest.Must(t, err)
	passedOver(3, 4)
	tablestest.Must(t, s.WithdrawSkip(t.Context(), tenant, id, 4))
	passedOver(2)
	tablestest.WantCode(t, s.WithdrawSkip(t.Context(), tenant, id, 4), domain.CodeNotFound)
	for range 2 { // the notices of these
		<-heard
	}
	tablestest.PutFault(t, s, fault)
	tablestest.Must(t, s.RetryFault(t.Context(), tenant, id, 3))
	tablestest.Must(t, s.RetryFault(t.Context(), tenant, id, 3))
	if _, there, err := s.Fault(t.Context(), tenant, id, 3); err != nil || there {
		t.Errorf("the fault is there: %v, %v", there, err)
	}
}

// While a document is locked, no event can start to wait for it: the attempt waits for the lock, and then finds that
// the document is no longer parked. If the lock is lost, no event is removed.
func TestUnparkHeldLocksTheDocument(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	tenant := tablestest.NewTenant(t, s)
	id := domain.ProjectionID{Owner: domain.Everyone, Name: "orders"}
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 10))
	parked := domain.ParkedDocument{
		ProjectionID: id, Tenant: tenant, Build: 1, ID: "a", Position: 2, EventID: domain.NewEventID(),
		Failure: domain.Failure{Stream: "order-1", EventType: "Counted", DocumentID: "a", Where: "on.*", Message: "no"},
	}
	park := func(documents []domain.ParkedDocument, position int64) (ok bool) {
		t.Helper()
		ok, err := s.Park(t.Context(), tenant, id, 1, documents, []domain.ParkedEvent{{DocumentID: "a", Position: position}})
		tablestest.Must(t, err)
		return ok
	}
	type waiting = func(ctx context.Context, after int64, limit int) ([]domain.Event, error)
	hold := func(fold func(ctx context.Context, removedAt int64, waiting waiting) ([]int64, *domain.ParkedDocument, error)) (bool, error) {
		return s.UnparkHeld(t.Context(), tenant, id, 1, "a", fold)
	}
	all := func(ctx context.Context, waiting waiting) (positions []int64, err error) {
		events, err := waiting(ctx, 0, 100)
		for _, event := range events {
			positions = append(positions, event.Position)
		}
		return positions, err
	}
	if !park([]domain.ParkedDocument{parked}, 2) || !park(nil, 3) {
		t.Fatal("it is not parked")
	}
	tablestest.Must(t, s.RemoveParked(t.Context(), tenant, id, 1, "a", 2))
	// Its own error is returned, and takes nothing away.
	no := errors.New("no")
	if left, err := hold(func(context.Context, int64, waiting) ([]int64, *domain.ParkedDocument, error) {
		return []int64{2, 3}, nil, no
	}); left || !errors.Is(err, no) {
		t.Errorf("left is %v, %v", left, err)
	}
	// The lock is lost: others continue, and what was done is not taken away.
	left, err := hold(func(ctx context.Context, _ int64, waiting waiting) ([]int64, *domain.ParkedDocument, error) {
		done, err := all(ctx, waiting)
		tablestest.Must(t, err)
		_, err = super.Exec(ctx, "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'")
		tablestest.Must(t, err)
		if !park(nil, 4) {
			t.Error("it does not wait")
		}
		if _, err := waiting(ctx, 0, 100); err == nil {
			t.Error("it seems to be held still")
		}
		return done, nil, nil
	})
	if left {
		t.Error("it is left")
	}
	tablestest.WantCode(t, err, domain.CodeUnavailable)
	// Who comes while it is held waits, and then finds out.
	tried := make(chan bool, 1)
	left, err = hold(func(ctx context.Context, removedAt int64, waiting waiting) ([]int64, *domain.ParkedDocument, error) {
		go func() {
			ok, err := s.Park(t.Context(), tenant, id, 1, nil, []domain.ParkedEvent{{DocumentID: "a", Position: 5}})
			if err != nil {
				t.Error(err)
			}
			tried <- ok
		}()
		db.WaitForLock(t)
		done, err := all(ctx, waiting)
		if removedAt != 2 || !slices.Equal(done, []int64{2, 3, 4}) {
			t.Errorf("removed at %d; %v wait", removedAt, done)
		}
		return done, nil, err
	})
	if !left || err != nil || <-tried {
		t.Errorf("left is %v, %v, and something waits", left, err)
	}
	// There is no longer anything to hold.
	left, err = hold(func(context.Context, int64, waiting) ([]int64, *domain.ParkedDocument, error) {
		t.Error("it is held")
		return nil, nil, nil
	})
	if !left || err != nil {
		t.Errorf("left is %v, %v", left, err)
	}
}
