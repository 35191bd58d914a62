package eventlog_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// listener collects what Listen tells.
type listener struct {
	woken chan domain.Head
}

func listen(t *testing.T, s *tables.Tables) listener {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := listener{woken: make(chan domain.Head, 1000)}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Listen(ctx, func(head domain.Head) { l.woken <- head }); err != nil {
			t.Errorf("Listen: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	return l
}

// wait waits until the tenant's head is at the position.
func (l listener) wait(t *testing.T, tenant domain.TenantID, position int64) domain.Head {
	t.Helper()
	for {
		head := tablestest.Receive(t, l.woken, fmt.Sprintf("position %d", position))
		if head.Tenant != tenant {
			continue
		}
		if head.Position >= position {
			return head
		}
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 3))
	here, there := listen(t, s), listen(t, other)
	for _, l := range []listener{here, there} {
		if head := l.wait(t, tenant, 3); head.Position != 3 {
			t.Errorf("at the start the head is %+v", head)
		}
	}
	for i := range 20 {
		appended := tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
		if head := here.wait(t, tenant, appended.Position); head.Position != appended.Position || head.LastAt.IsZero() {
			t.Errorf("append %d: woken with %+v", i, head)
		}
		there.wait(t, tenant, appended.Position)
	}
	// The session of the LISTEN is lost, and a head moves meanwhile.
	pool := db.Pool(t, pgtest.RoleSuperuser, 1)
	_, err := pool.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and usename = 'manifold_system'")
	tablestest.Must(t, err)
	appended := tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
	there.wait(t, tenant, appended.Position)
	here.wait(t, tenant, appended.Position)
}

// A burst over very many tenants goes as few notices, none of which is too long.
func TestListenReportsManyTenants(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	there := listen(t, other)
	pool := db.Pool(t, pgtest.RoleSuperuser, 2)
	conn, err := pool.Acquire(t.Context())
	tablestest.Must(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "listen manifold_heads")
	tablestest.Must(t, err)
	began := time.Now()
	waiting := make(map[domain.TenantID]bool)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 20 {
				tenant := domain.NewTenantID()
				tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
				mu.Lock()
				waiting[tenant] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for len(waiting) > 0 {
		head := tablestest.Receive(t, there.woken, fmt.Sprintf("the heads of %d tenants", len(waiting)))
		delete(waiting, head.Tenant)
	}
	// Read up to a notice of the test, which arrives after those that were sent before it.
	const end = "end"
	notices := 0
	for sent := false; ; {
		ctx, cancel := context.WithTimeout(t.Context(), tablestest.Patience)
		notice, err := conn.Conn().WaitForNotification(ctx)
		cancel()
		tablestest.Must(t, err)
		if notice.Payload == end {
			break
		}
		notices++
		if len(notice.Payload) > 7999 {
			t.Errorf("a notice has %d bytes", len(notice.Payload))
		}
		if !sent {
			_, err := pool.Exec(t.Context(), "select pg_notify('manifold_heads', $1)", end)
			tablestest.Must(t, err)
			sent = true
		}
	}
	if allowed := int(time.Since(began)/(50*time.Millisecond)) + 2; notices > allowed {
		t.Errorf("%d notices were sent, at most %d are wanted", notices, allowed)
	}
}

func TestHeads(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	before, err := s.Heads(t.Context(), time.Time{})
	if err != nil || len(before) != 0 {
		t.Fatalf("%v, %v", before, err)
	}
	one, two := domain.NewTenantID(), domain.NewTenantID()
	tablestest.Append(t, s, one, tablestest.Counted("order-1", domain.None, 2))
	first, err := s.Head(t.Context(), one)
	tablestest.Must(t, err)
	tablestest.Append(t, s, two, tablestest.Counted("order-1", domain.None, 3))
	second, err := s.Head(t.Context(), two)
	tablestest.Must(t, err)
	if first.Position != 2 || first.Tenant != one || first.LastAt.IsZero() || second.Position != 3 {
		t.Errorf("the heads are %+v and %+v", first, second)
	}
	all, err := s.Heads(t.Context(), time.Time{})
	if err != nil || len(all) != 2 {
		t.Errorf("all heads: %+v, %v", all, err)
	}
	since, err := s.Heads(t.Context(), first.LastAt)
	if err != nil || len(since) != 1 || since[0] != second {
		t.Errorf("the heads since the first: %+v, %v; want %+v", since, err, second)
	}
}

// A log that has gone back ends Listen: the process remembers events that no longer exist.
func TestListenEndsIfALogGoesBack(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant, other := domain.NewTenantID(), domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 5))
	tablestest.Append(t, s, other, tablestest.Counted("order-1", domain.None, 5))
	woken, ended := make(chan domain.Head, 100), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- s.Listen(ctx, func(head domain.Head) { woken <- head }) }()
	for range 2 {
		tablestest.Receive(t, woken, "a head")
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, statement := range []string{
		"delete from manifold.events where position > 3 and tenant_id = '" + tenant.String() + "'",
		"update manifold.logs set head = 3, last_batch = null where tenant_id = '" + tenant.String() + "'",
		"select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
	} {
		_, err := super.Exec(t.Context(), statement)
		tablestest.Must(t, err)
	}
	if err := tablestest.Receive(t, ended, "the end"); err == nil || !strings.Contains(err.Error(), tenant.String()+" has gone back from position 5 to 3") {
		t.Errorf("Listen ends with %v", err)
	}
	// What a writer remembers is checked by each append.
	appended := tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 3, 1))
	if appended.Position != 4 {
		t.Errorf("the next append is at %d", appended.Position)
	}
}

// A head is not reported before readers can see it.
func TestHeadsAreConfirmed(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db) // whose appends only the database knows of
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
	woken := make(chan domain.Head, 100)
	ctx, cancel := context.WithCancel(t.Context())
	listening := make(chan error, 1)
	go func() { listening <- s.Listen(ctx, func(head domain.Head) { woken <- head }) }()
	if head := tablestest.Receive(t, woken, "the head"); head.Position != 1 {
		t.Fatalf("the head is %d", head.Position)
	}
	s.Confirm(domain.Head{Tenant: tenant, Position: 2})
	s.Confirm(domain.Head{Tenant: tenant, Position: 3})
	for position := int64(2); position <= 3; position++ {
		select {
		case head := <-woken:
			t.Fatalf("position %d is reported before the event is there", head.Position)
		case <-time.After(time.Second):
		}
		tablestest.Append(t, other, tenant, tablestest.Counted("order-1", domain.Any, 1))
		if head := tablestest.Receive(t, woken, "the next head"); head.Position != position {
			t.Errorf("position %d is reported, want %d", head.Position, position)
		}
	}
	cancel()
	tablestest.Must(t, tablestest.Receive(t, listening, "the end"))
}
