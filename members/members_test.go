package members_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/members"
)

// clock is a database of members on the test's clock.
type clock struct {
	mu      sync.Mutex
	rows    map[domain.MemberID]members.Member
	tenants []domain.TenantID
	killed  map[domain.MemberID]bool // the database has seen their connections end
}

// link is a process's way to it.
type link struct {
	*clock
	mu      sync.Mutex
	broken  bool
	hangs   bool
	reports [][]domain.EgressReport // as the database has got them
}

var errGone = errors.New("the network is gone")

func (l *link) set(broken, hangs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken, l.hangs = broken, hangs
}

func (l *link) state() (broken, hangs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken, l.hangs
}

func (l *link) Announce(ctx context.Context, m members.Member, within time.Duration, tenants *[]domain.TenantID) ([]members.Member, error) {
	<-time.After(20 * time.Millisecond) // the way there, by the test's clock
	broken, hangs := l.state()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if broken {
		return nil, errGone
	}
	l.clock.mu.Lock()
	defer l.clock.mu.Unlock()
	if m.Egresses != nil {
		l.reports = append(l.reports, m.Egresses)
	}
	now := time.Now()
	if old, ok := l.rows[m.ID]; ok {
		m.StartedAt = old.StartedAt
	} else {
		m.StartedAt = now
	}
	m.AliveAt = now
	l.rows[m.ID] = m
	var alive []members.Member
	for _, row := range l.rows {
		if now.Sub(row.AliveAt) <= within {
			row.Connected = !l.killed[row.ID]
			alive = append(alive, row)
		}
	}
	if tenants != nil {
		*tenants = slices.Clone(l.tenants)
	}
	slices.SortFunc(alive, func(a, b members.Member) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID.String(), b.ID.String()))
	})
	return alive, nil
}

func (l *link) Join(_ context.Context, m members.Member) error {
	if broken, hangs := l.state(); broken || hangs {
		return errGone
	}
	l.clock.mu.Lock()
	defer l.clock.mu.Unlock()
	for id, row := range l.rows {
		if row.Name == m.Name && id != m.ID {
			delete(l.rows, id)
		}
	}
	return nil
}

func (l *link) Leave(_ context.Context, id domain.MemberID) error {
	if broken, hangs := l.state(); broken || hangs {
		return errGone
	}
	l.clock.mu.Lock()
	defer l.clock.mu.Unlock()
	delete(l.rows, id)
	return nil
}

// process is a member that runs until it is stopped.
type process struct {
	*members.Members
	link *link
	stop func()
}

func start(t *testing.T, c *clock, name string) process {
	t.Helper()
	l := &link{clock: c}
	m := members.New(members.Config{Store: l, Name: func() string { return name }, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return process{m, l, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}}
}

// owners counts for each process how many tenants it owns, and fails where one has other than want owners.
func owners(t *testing.T, tenants []domain.TenantID, want int, all ...process) []int {
	t.Helper()
	counts := make([]int, len(all))
	owned := make([][]domain.TenantID, len(all))
	for i := range all {
		owned[i], _ = all[i].Owned()
	}
	for _, tenant := range tenants {
		n := 0
		for i := range all {
			if all[i].Owns(tenant) {
				counts[i]++
				n++
			} else if slices.Contains(owned[i], tenant) {
				t.Errorf("process %d lists a tenant that it does not own", i)
			}
		}
		if n != want {
			t.Errorf("a tenant has %d owners, want %d", n, want)
			break
		}
	}
	return counts
}

func newTenants(n int) []domain.TenantID {
	tenants := make([]domain.TenantID, n)
	for i := range tenants {
		tenants[i] = domain.NewTenantID()
	}
	return tenants
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d) // the test's clock, which does not wait
	synctest.Wait()
}

func TestMembersJoinAndLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tenants := newTenants(300)
		c := &clock{rows: make(map[domain.MemberID]members.Member)}
		a := start(t, c, "a")
		pass(time.Second)
		if got := owners(t, tenants, 1, a); got[0] != 300 || len(a.Alive()) != 1 || a.Alive()[0].Name != "a" {
			t.Errorf("alone it owns %v; alive are %+v", got, a.Alive())
		}
		b := start(t, c, "b")
		pass(members.Beat + time.Second)
		if got := owners(t, tenants, 1, a, b); got[0] < 100 || got[1] < 100 {
			t.Errorf("the two own %v", got)
		}
		// One that leaves is replaced at the next sign of life.
		b.stop()
		owners(t, tenants, 0, b)
		pass(members.Beat + time.Second)
		owners(t, tenants, 1, a)

		// One that dies without a word is taken for dead soon behind.
		b = start(t, c, "b")
		pass(members.Beat + time.Second)
		b.link.set(true, false)
		b.stop() // cannot say so
		pass(members.Dead + members.Beat + time.Second)
		owners(t, tenants, 1, a)

		// One that starts again in the place of a dead one does not wait for that to be taken for dead.
		c2 := start(t, c, "c")
		pass(members.Beat + time.Second)
		c2.link.set(true, false)
		c2.stop()
		c2 = start(t, c, "c")
		pass(members.Beat + time.Second)
		owners(t, tenants, 1, a, c2)
		if len(c2.Alive()) != 2 {
			t.Errorf("alive are %+v", c2.Alive())
		}
		c2.stop()
		a.stop()
		owners(t, tenants, 0, a)
		if len(c.rows) != 1 { // the first dead one's
			t.Errorf("%d rows are left", len(c.rows))
		}
	})
}

// A member that cannot reach the database steps down before another takes over, whether the database answers with
// errors or not at all.
func TestStepsDownBeforeOthersTakeOver(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"refused": false, "hanging": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tenants := newTenants(100)
				c := &clock{rows: make(map[domain.MemberID]members.Member)}
				a, b := start(t, c, "a"), start(t, c, "b")
				pass(members.Beat + time.Second)
				owners(t, tenants, 1, a, b)
				b.link.set(!hangs, hangs)
				for range 200 {
					pass(50 * time.Millisecond)
					for _, tenant := range tenants {
						if a.Owns(tenant) && b.Owns(tenant) {
							t.Fatal("both own a tenant")
						}
					}
				}
				if got := owners(t, tenants, 1, a, b); got[0] != 100 || len(b.Alive()) != 0 {
					t.Errorf("the two own %v", got)
				}
				b.link.set(false, false)
				pass(members.Dead + members.Beat + time.Second)
				if got := owners(t, tenants, 1, a, b); got[1] == 0 {
					t.Errorf("when it can be reached again: %v", got)
				}
				a.stop()
				b.stop()
			})
		})
	}
}

// A killed process is replaced as soon as the database has seen its connections end. A slow process is not replaced.
func TestAKilledProcessIsReplacedSoon(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"killed": true, "slow": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tenants := newTenants(50)
				c := &clock{rows: make(map[domain.MemberID]members.Member), tenants: tenants, killed: make(map[domain.MemberID]bool)}
				a, b := start(t, c, "a"), start(t, c, "b")
				pass(30 * time.Second)
				owners(t, tenants, 1, a, b)
				b.link.set(true, false)
				if killed {
					c.mu.Lock()
					for _, member := range b.Alive() {
						c.killed[member.ID] = member.Name == "b"
					}
					c.mu.Unlock()
				}
				pass(3600 * time.Millisecond)
				n := 0
				for _, tenant := range tenants {
					if a.Owns(tenant) {
						n++
					}
				}
				if killed != (n == len(tenants)) {
					t.Errorf("after 3.6 s the other process works for %d of %d tenants", n, len(tenants))
				}
				pass(10 * time.Second)
				b.link.set(false, false)
				pass(30 * time.Second)
				owners(t, tenants, 1, a, b)
				a.stop()
				b.stop()
			})
		})
	}
}

// Three tenants are never all one process's, and while members and tenants come no tenant is nobody's: also beside a
// process of an earlier release, which goes by Owner.
func TestEveryTenantAlwaysHasAnOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &clock{rows: make(map[domain.MemberID]members.Member), tenants: newTenants(3)}
		before := earlier(domain.NewMemberID())
		var alive []domain.MemberID // as the process of the earlier release knows them
		beat := func() {
			l := link{clock: c}
			known, err := l.Announce(t.Context(), members.Member{ID: before, Name: "before"}, members.Dead, nil)
			if err != nil {
				t.Error(err)
			}
			alive = alive[:0]
			for _, member := range known {
				alive = append(alive, member.ID)
			}
		}
		var all []process
		with := false // the earlier one is there
		look := func(length time.Duration) {
			t.Helper()
			for n := range int(length / (50 * time.Millisecond)) {
				pass(50 * time.Millisecond)
				if with && n%40 == 0 {
					beat()
				}
				c.mu.Lock()
				tenants := slices.Clone(c.tenants)
				c.mu.Unlock()
				for _, tenant := range tenants {
					owner, ok := members.Owner(tenant, alive)
					if !slices.ContainsFunc(all, func(p process) bool { return p.Owns(tenant) }) && !(with && ok && owner == before) {
						t.Fatal("a tenant is nobody's")
					}
				}
			}
		}
		all = append(all, start(t, c, "a"))
		pass(time.Second)
		look(15 * time.Second)
		all = append(all, start(t, c, "b"))
		look(30 * time.Second)
		if got := owners(t, c.tenants, 1, all...); got[0] == 0 || got[1] == 0 {
			t.Errorf("the two have %v of three tenants", got)
		}
		for range 10 {
			c.mu.Lock()
			c.tenants = append(c.tenants, newTenants(7)...)
			c.mu.Unlock()
			look(2 * time.Second)
		}
		with = true
		look(30 * time.Second)
		all = append(all, start(t, c, "c"))
		look(30 * time.Second)
		with = false
		c.mu.Lock()
		delete(c.rows, before) // it leaves
		c.mu.Unlock()
		pass(2 * time.Second)
		look(30 * time.Second)
		got := owners(t, c.tenants, 1, all...)
		if slices.Max(got)-slices.Min(got) > 1 {
			t.Errorf("at last the shares are %v", got)
		}
		for _, p := range all {
			p.stop()
		}
	})
}

// Changed is called once for each change, and never for a mere sign of life. Egresses are reported when they have
// changed, and again after a sign of life that may not have arrived.
func TestChangesAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &clock{rows: make(map[domain.MemberID]members.Member)}
		told := 0
		l := &link{clock: c}
		var up atomic.Bool
		egresses := func() []domain.EgressReport {
			return []domain.EgressReport{{Name: "orders", Query: domain.Query{{Tags: []string{"a"}}}, EgressState: domain.EgressState{Up: up.Load()}}}
		}
		m := members.New(members.Config{Store: l, Egresses: egresses, Changed: func() { told++ }, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		pass(time.Minute)
		if told != 1 {
			t.Errorf("%d changes were announced, want its own announcement alone", told)
		}
		reported := func(want int) {
			t.Helper()
			pass(3 * members.Beat)
			if n := len(l.reports); n != want || l.reports[n-1][0].Up != up.Load() {
				t.Errorf("reported are %+v, want %d", l.reports, want)
			}
		}
		reported(1)
		up.Store(true)
		reported(2)
		l.set(true, false)
		pass(3 * members.Beat)
		l.set(false, false)
		reported(3)
		other := start(t, c, "other")
		pass(time.Minute)
		other.stop()
		pass(time.Minute)
		if told != 3 {
			t.Errorf("%d changes were announced, want 3", told)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
