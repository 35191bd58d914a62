package eventlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	twice := domain.Append{Streams: []domain.StreamAppend{tablestest.Counted("order-1", domain.Any, 1).Streams[0], tablestest.Counted("order-1", 1, 1).Streams[0]}}
	for where, a := range map[string]domain.Append{
		"streams":                    {},
		"events":                     tablestest.Counted("order-1", domain.Any, 0),
		"streams[1].expectedVersion": twice,
	} {
		_, err := s.Append(t.Context(), domain.NewTenantID(), a)
		if e := tablestest.Problem(t, err, domain.CodeInvalidRequest); e.Where != where {
			t.Errorf("the place is %q, want %q", e.Where, where)
		}
	}
	empty := tablestest.Counted("order-1", domain.Any, 1)
	empty.Streams[0].Events[0].Data = nil
	_, err := s.Append(t.Context(), domain.NewTenantID(), empty)
	tablestest.Problem(t, err, domain.CodeInvalidJSON)
}

func TestExpectedVersions(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-2", domain.None, 2))
	for _, process := range []*tables.Tables{s, other} {
		for stream, version := range map[string]int64{"order-0": 0, "order-2": 2} {
			for _, expected := range []domain.Expected{domain.None, domain.Exists, 1, 2, 3} {
				// Together with a stream that is as expected: nothing of the request may be appended.
				a := domain.Append{Streams: []domain.StreamAppend{tablestest.Counted("other-1", domain.Any, 1).Streams[0], tablestest.Counted(stream, expected, 1).Streams[0]}}
				if expected.Holds(version) {
					continue
				}
				_, err := process.Append(t.Context(), tenant, a)
				if e := tablestest.Problem(t, err, domain.CodeVersionConflict); *e.CurrentVersion != version || e.Stream != stream {
					t.Errorf("%s with %s: the error says %+v", stream, expected, e)
				}
			}
		}
	}
	tablestest.Append(t, other, tenant, tablestest.Counted("order-2", domain.Exists, 1))
	tablestest.Append(t, s, tenant, tablestest.Counted("order-2", 3, 1))
	tablestest.Append(t, other, tenant, tablestest.Counted("order-0", 0, 1))
	if events := tablestest.WholeLog(t, s, tenant); len(events) != 5 {
		t.Errorf("there are %d events, want 5", len(events))
	}
}

// What one process remembers is old once another has appended: a conflict must not be answered from it.
func TestStaleVersionIsNoConflict(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
	tablestest.Append(t, other, tenant, tablestest.Counted("order-1", 1, 1))
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 2, 1))
	tablestest.Append(t, other, tenant, tablestest.Counted("order-2", domain.None, 5))
	_, err := s.Append(t.Context(), tenant, tablestest.Counted("order-2", domain.None, 1))
	if e := tablestest.Problem(t, err, domain.CodeVersionConflict); *e.CurrentVersion != 5 {
		t.Errorf("the conflict says %d", *e.CurrentVersion)
	}
	// Append more events than a writer reads to update what it remembers.
	for range 5 {
		tablestest.Append(t, other, tenant, tablestest.Counted("order-1", domain.Any, 1000))
	}
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 5003, 1))
	tablestest.WholeLog(t, s, tenant)
}

func TestFloorIsAStreamsVersion(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 4))
	tablestest.Append(t, s, tenant, tablestest.Counted("order-2", domain.None, 1))
	retention := db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, sql := range []string{
		"delete from manifold.events where tenant_id = $1 and stream_id = 'order-1' and stream_version > 2",
		"insert into manifold.stream_floors (tenant_id, stream_id, version) values ($1, 'order-1', 4)",
	} {
		_, err := retention.Exec(t.Context(), sql, [16]byte(tenant))
		tablestest.Must(t, err)
	}
	other := tablestest.OpenAgain(t, db)
	got := tablestest.Append(t, other, tenant, tablestest.Counted("order-1", 4, 1))
	if got.Streams[0].Version != 5 || got.Position != 6 {
		t.Errorf("behind the floor: %+v", got)
	}
	info, err := s.StreamInfo(t.Context(), tenant, "order-1")
	if err != nil || info.Version != 5 || info.Events != 3 {
		t.Errorf("the stream is %+v, %v", info, err)
	}
	// The first process updates what it remembers, although some of the events it counts on are gone.
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 5, 1))
}

// Requests that arrive while a commit is under way go together in the next.
func TestGroupCommit(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	var mu sync.Mutex
	var batches []int
	s := tablestest.OpenWith(t, db, func(c *tables.Config) {
		c.Observer.Appended = func(events, requests int, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			if took <= 0 || events != requests {
				t.Errorf("observed %d events of %d requests in %s", events, requests, took)
			}
			batches = append(batches, requests)
		}
	})
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-0", domain.None, 1))
	release := tablestest.HoldLog(t, db, tenant)
	var wg sync.WaitGroup
	wg.Go(func() { tablestest.Append(t, s, tenant, tablestest.Counted("order-0", 1, 1)) })
	db.WaitForLock(t)
	for i := range 100 {
		wg.Go(func() {
			tablestest.Append(t, s, tenant, tablestest.Counted(fmt.Sprintf("order-%d", i%7+1), domain.Any, 1))
		})
	}
	waitForQueue(t, s, tenant, 100)
	release()
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(batches) > 5 {
		t.Errorf("102 requests went in batches of %v", batches)
	}
	if events := tablestest.WholeLog(t, s, tenant); len(events) != 102 {
		t.Errorf("there are %d events", len(events))
	}
}

func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	var most atomic.Int64
	s := tablestest.OpenWith(t, db, func(c *tables.Config) {
		c.Observer.Appended = func(events, requests int, _ time.Duration) {
			if requests > 1 {
				most.Store(max(most.Load(), int64(events)))
			}
		}
	})
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-0", domain.None, 1))
	release := tablestest.HoldLog(t, db, tenant)
	var wg sync.WaitGroup
	wg.Go(func() { tablestest.Append(t, s, tenant, tablestest.Counted("order-0", 1, 1)) })
	db.WaitForLock(t)
	const many = 12
	for i := range many {
		wg.Go(func() {
			tablestest.Append(t, s, tenant, tablestest.Counted(fmt.Sprintf("order-%d", i+1), domain.Any, 600))
		})
	}
	large := tablestest.Counted("order-large", domain.Any, 6)
	for i := range large.Streams[0].Events {
		large.Streams[0].Events[i].Data = json.RawMessage(`"` + string(make1MiB()) + `"`)
	}
	wg.Go(func() { tablestest.Append(t, s, tenant, large) })
	waitForQueue(t, s, tenant, many+1)
	release()
	wg.Wait()
	if got := most.Load(); got < 1000 || got > 2000 {
		t.Errorf("the largest batch of several requests had %d events", got)
	}
	if events := tablestest.WholeLog(t, s, tenant); len(events) != 2+many*600+6 {
		t.Errorf("there are %d events", len(events))
	}
}

// waitForQueue returns when so many requests wait that no batch has taken.
func waitForQueue(t *testing.T, s *tables.Tables, tenant domain.TenantID, requests int) {
	t.Helper()
	for deadline := time.Now().Add(tablestest.Patience); s.Waiting(tenant) < requests; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests wait, want %d", s.Waiting(tenant), requests)
		}
	}
}

func make1MiB() []byte {
	text := make([]byte, 1<<20)
	for i := range text {
		text[i] = 'a'
	}
	return text
}

func TestQueuesAreBounded(t *testing.T) {
	t.Parallel()
	for code, change := range map[domain.Code]func(*tables.Config){
		domain.CodeTooManyRequests: func(c *tables.Config) { c.QueueBytes = 10_000 },
		domain.CodeOverloaded:      func(c *tables.Config) { c.TotalQueueBytes = 10_000 },
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			s := tablestest.OpenWith(t, db, change)
			tenant, other := domain.NewTenantID(), domain.NewTenantID()
			tablestest.Append(t, s, tenant, tablestest.Counted("order-0", domain.None, 1))
			release := tablestest.HoldLog(t, db, tenant)
			done := make(chan error, 1)
			// Alone it is taken, though it is larger than the bound.
			go func() {
				_, err := s.Append(t.Context(), tenant, tablestest.Counted("order-1", domain.Any, 100))
				done <- err
			}()
			db.WaitForLock(t)
			_, err := s.Append(t.Context(), tenant, tablestest.Counted("order-2", domain.Any, 1))
			tablestest.Problem(t, err, code)
			if _, err := s.Append(t.Context(), other, tablestest.Counted("order-2", domain.Any, 1)); code == domain.CodeOverloaded {
				tablestest.Problem(t, err, code)
			} else if err != nil {
				t.Errorf("another tenant is refused as well: %v", err)
			}
			release()
			tablestest.Must(t, tablestest.Receive(t, done, "the append"))
			tablestest.Append(t, s, tenant, tablestest.Counted("order-2", domain.Any, 1))
		})
	}
}

func TestAGivenUpRequestIsWithdrawn(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-0", domain.None, 1))
	release := tablestest.HoldLog(t, db, tenant)
	under, cancelUnder := context.WithCancel(t.Context())
	underway, withdrawn, stays := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	send := func(ctx context.Context, stream string, done chan<- error) {
		_, err := s.Append(ctx, tenant, tablestest.Counted(stream, domain.None, 1))
		done <- err
	}
	go send(under, "order-1", underway)
	db.WaitForLock(t)
	waiting, cancelWaiting := context.WithCancel(t.Context())
	go send(waiting, "order-2", withdrawn)
	go send(t.Context(), "order-3", stays)
	cancelUnder()
	tablestest.Problem(t, tablestest.Receive(t, underway, "the one under way"), domain.CodeOutcomeUnknown)
	cancelWaiting()
	if err := tablestest.Receive(t, withdrawn, "the one that waits"); !errors.Is(err, context.Canceled) {
		t.Errorf("withdrawn, it says %v", err)
	}
	release()
	tablestest.Must(t, tablestest.Receive(t, stays, "the one that stays"))
	streams := make(map[string]bool)
	for _, e := range tablestest.WholeLog(t, s, tenant) {
		streams[e.Stream] = true
	}
	if !streams["order-1"] || streams["order-2"] || !streams["order-3"] {
		t.Errorf("there are %v: the one under way and the one that stays are wanted, not the one that was withdrawn", streams)
	}
}

func TestAppendEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s := tablestest.OpenWith(t, db, func(c *tables.Config) { c.AppendTimeout = 3 * time.Second })
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-0", domain.None, 1))
	release := tablestest.HoldLog(t, db, tenant)
	_, err := s.Append(t.Context(), tenant, tablestest.WithIDs(tablestest.Counted("order-0", 1, 1)))
	tablestest.Problem(t, err, domain.CodeOutcomeUnknown)
	release()
	tablestest.WholeLog(t, s, tenant)
}

// Whoever stands in the queue is answered in time as well, however many batches there are before.
func TestQueueEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s := tablestest.OpenWith(t, db, func(c *tables.Config) { c.AppendTimeout = 3 * time.Second })
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-0", domain.None, 1))
	tablestest.HoldLog(t, db, tenant)
	const batches = 15
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second) // one batch after the other takes twice as long
	defer cancel()
	var wg sync.WaitGroup
	for i := range 2 * batches {
		wg.Go(func() {
			_, err := s.Append(ctx, tenant, tablestest.Counted(fmt.Sprintf("order-%d", i), domain.Any, 1000))
			if code := tablestest.CodeOf(err); code != domain.CodeUnavailable && code != domain.CodeOutcomeUnknown || ctx.Err() != nil {
				t.Errorf("append %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// The first appends of a tenant, in several processes at once.
func TestFirstAppends(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	processes := []*tables.Tables{s, tablestest.OpenAgain(t, db), tablestest.OpenAgain(t, db)}
	for range 10 {
		tenant := domain.NewTenantID()
		var wg sync.WaitGroup
		for i := range 9 {
			wg.Go(func() {
				if _, err := processes[i%3].Append(t.Context(), tenant, tablestest.Counted("order-1", domain.Any, 2)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if events := tablestest.WholeLog(t, s, tenant); len(events) != 18 {
			t.Errorf("there are %d events, want 18", len(events))
		}
	}
}

func TestErasedTenantGetsNoNewLog(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
	tablestest.Must(t, s.SetTenantState(t.Context(), tenant, domain.TenantDeleting))
	tablestest.Must(t, s.EraseTenant(t.Context(), tenant))
	_, err := s.Append(t.Context(), tenant, tablestest.Counted("order-1", domain.Any, 1))
	tablestest.Problem(t, err, domain.CodeTenantSuspended)
	if head, err := s.Head(t.Context(), tenant); err != nil || head.Position != 0 {
		t.Errorf("its head is %+v, %v", head, err)
	}
}

func TestCloseDrains(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-0", domain.None, 1))
	closing := tablestest.OpenAgain(t, db)
	release := tablestest.HoldLog(t, db, tenant)
	done := make(chan error, 1)
	go func() {
		_, err := closing.Append(t.Context(), tenant, tablestest.Counted("order-1", domain.None, 1))
		done <- err
	}()
	db.WaitForLock(t)
	closed := make(chan struct{})
	go func() {
		closing.Close()
		close(closed)
	}()
	for {
		_, err := closing.Append(t.Context(), domain.NewTenantID(), tablestest.Counted("order-1", domain.Any, 1))
		if tablestest.CodeOf(err) == domain.CodeUnavailable {
			break
		}
		tablestest.Must(t, err)
	}
	release()
	tablestest.Must(t, tablestest.Receive(t, done, "the append that was waiting"))
	tablestest.Receive(t, closed, "the end of closing")
	tablestest.WholeLog(t, s, tenant)
}

// The head alone does not say that a log is the one that was known: it may have been restored from a copy.
func TestARestoredLogIsDetected(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
	pool := db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, table := range []string{"events", "logs"} {
		_, err := pool.Exec(t.Context(), "delete from manifold."+table+" where tenant_id = $1", [16]byte(tenant))
		tablestest.Must(t, err)
	}
	tablestest.Append(t, other, tenant, tablestest.Counted("order-2", domain.None, 1))
	_, err := s.Append(t.Context(), tenant, tablestest.Counted("order-1", 1, 1))
	if e := tablestest.Problem(t, err, domain.CodeVersionConflict); *e.CurrentVersion != 0 {
		t.Errorf("the conflict says %d", *e.CurrentVersion)
	}
	tablestest.Append(t, s, tenant, tablestest.Counted("order-2", 1, 1))
	tablestest.WholeLog(t, s, tenant)
}
