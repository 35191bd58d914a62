package fairshare_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

func wantCode(t *testing.T, what string, err error, code domain.Code) {
	t.Helper()
	e, ok := errors.AsType[*domain.Error](err)
	if !ok && code != "" || ok && e.Code != code || err != nil && code == "" {
		t.Errorf("%s: %v, want %q", what, err, code)
	}
}

func TestTenantsShareLeavesTheRestToOthers(t *testing.T) {
	t.Parallel()
	b := fairshare.New("things", 100, 40)
	greedy, other, third := domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()
	a := b.Account(greedy)
	wantCode(t, "within the tenant's part", a.Grow(40), "")
	again := b.Account(greedy)
	wantCode(t, "beyond the tenant's part", again.Grow(1), domain.CodeTooManyRequests)
	o := b.Account(other)
	wantCode(t, "another tenant", o.Grow(40), "")
	th := b.Account(third)
	wantCode(t, "a third, within what is left", th.Grow(20), "")
	wantCode(t, "the same, beyond the total", th.Grow(1), domain.CodeOverloaded)
	a.Close()
	wantCode(t, "after the greedy one has gone", th.Grow(20), "")
	o.Close()
	th.Close()
	again.Close()
	if used := b.Used(); used != 0 {
		t.Errorf("%d are still held", used)
	}
	again.Set(60)
	wantCode(t, "where more is there than there should be", b.Account(greedy).Grow(1), domain.CodeTooManyRequests)
	again.Set(10)
	wantCode(t, "where that is gone", b.Account(greedy).Grow(1), "")
}

func TestSingleRequestIsNeverTooLarge(t *testing.T) {
	t.Parallel()
	b := fairshare.New("things", 100, 40)
	a := b.Account(domain.NewTenantID())
	wantCode(t, "larger than everything, alone", a.Grow(1000), "")
	wantCode(t, "one more", a.Grow(1), domain.CodeTooManyRequests)
	wantCode(t, "another tenant meanwhile", b.Account(domain.NewTenantID()).Grow(1), domain.CodeOverloaded)
	a.Close()
	wantCode(t, "another tenant then", b.Account(domain.NewTenantID()).Grow(1), "")
}

// One tenant with many waiting requests delays another tenant's by one request only.
func TestTenantsWaitInTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := fairshare.New("turns", 1, 1)
		holder := b.Account(domain.NewTenantID())
		wantCode(t, "the first", holder.Grow(1), "")
		order := make(chan string, 16)
		wait := func(tenant domain.TenantID, name string) {
			go func() {
				a := b.Account(tenant)
				defer a.Close()
				wantCode(t, name, a.Wait(t.Context(), 1, 0), "")
				order <- name
			}()
			synctest.Wait()
		}
		greedy, modest := domain.NewTenantID(), domain.NewTenantID()
		for range 10 {
			wait(greedy, "greedy")
		}
		wait(modest, "modest")
		holder.Close()
		synctest.Wait()
		<-order
		if second := <-order; second != "modest" {
			t.Error("the modest tenant waits for more than one request of the greedy one")
		}
		if rest := len(order); rest != 9 || b.Used() != 0 {
			t.Errorf("%d of 9 others were served, and %d is held", rest, b.Used())
		}
	})
}

// Neither a tenant nor all tenants together exceed their limit. Requests of one tenant enter in the order of their
// arrival. No tenant enters twice while another tenant waits that may enter.
func TestTurnsOfEqualRequests(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(bubble *testing.T) {
			most, each := rapid.IntRange(1, 4).Draw(rt, "most"), rapid.IntRange(1, 4).Draw(rt, "each")
			b := fairshare.New("turns", int64(most), int64(each))
			tenants := []domain.TenantID{domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()}
			each = min(most, each)
			type asking struct {
				tenant, number int
				account        *fairshare.Account
			}
			entered := make(chan asking, 1000)
			cancels := make(map[int]context.CancelFunc)
			waiting, inside := make([][]int, len(tenants)), make([][]*fairshare.Account, len(tenants))
			number := 0
			settle := func() {
				synctest.Wait()
				for len(entered) > 0 {
					in := <-entered
					if waiting[in.tenant][0] != in.number {
						rt.Fatalf("%d was let in before %v of its tenant", in.number, waiting[in.tenant])
					}
					waiting[in.tenant] = waiting[in.tenant][1:]
					inside[in.tenant] = append(inside[in.tenant], in.account)
				}
				total := 0
				for i := range inside {
					n := len(inside[i])
					if total += n; n > each || n != int(b.HeldBy(tenants[i])) {
						rt.Fatalf("a tenant has %d inside of %d, and by the budget %d", n, each, b.HeldBy(tenants[i]))
					}
				}
				for i := range tenants {
					if total < most && len(inside[i]) < each && len(waiting[i]) > 0 {
						rt.Fatalf("a tenant waits, although there is room")
					}
				}
				if total > most {
					rt.Fatalf("%d are inside of %d", total, most)
				}
			}
			leave := func(tenant int) {
				inside[tenant][0].Close()
				inside[tenant] = inside[tenant][1:]
			}
			rt.Repeat(map[string]func(*rapid.T){
				"enter": func(rt *rapid.T) {
					tenant := rapid.IntRange(0, len(tenants)-1).Draw(rt, "tenant")
					a := asking{tenant, number, b.Account(tenants[tenant])}
					number++
					ctx, cancel := context.WithCancel(bubble.Context())
					cancels[a.number] = cancel
					waiting[a.tenant] = append(waiting[a.tenant], a.number)
					go func() {
						if a.account.Wait(ctx, 1, 0) == nil {
							entered <- a
						}
					}()
					settle()
				},
				"leave": func(rt *rapid.T) {
					tenant := rapid.IntRange(0, len(tenants)-1).Draw(rt, "tenant")
					if len(inside[tenant]) == 0 {
						rt.Skip()
					}
					leave(tenant)
					settle()
				},
				"give up": func(rt *rapid.T) {
					tenant := rapid.IntRange(0, len(tenants)-1).Draw(rt, "tenant")
					if len(waiting[tenant]) == 0 {
						rt.Skip()
					}
					at := rapid.IntRange(0, len(waiting[tenant])-1).Draw(rt, "which")
					cancels[waiting[tenant][at]]()
					waiting[tenant] = append(waiting[tenant][:at:at], waiting[tenant][at+1:]...)
					settle()
				},
			})
			for i := range tenants {
				for len(waiting[i]) > 0 || len(inside[i]) > 0 {
					if len(inside[i]) > 0 {
						leave(i)
					} else {
						cancels[waiting[i][0]]()
						waiting[i] = waiting[i][1:]
					}
					settle()
				}
			}
			for _, cancel := range cancels {
				cancel()
			}
			if b.Known() > 0 {
				rt.Fatalf("%d tenants are remembered with nothing under way", b.Known())
			}
		})
	})
}

// However many requests of one tenant wait, another tenant enters next.
func TestBusyTenantDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := fairshare.New("turns", 2, 2)
		ctx, cancel := context.WithCancel(t.Context())
		busy, quiet := domain.NewTenantID(), domain.NewTenantID()
		order, accounts := make(chan domain.TenantID, 100), make(chan *fairshare.Account, 100)
		enter := func(tenant domain.TenantID) {
			go func() {
				if a := b.Account(tenant); a.Wait(ctx, 1, 0) == nil {
					order <- tenant
					accounts <- a
				}
			}()
			synctest.Wait()
		}
		for range 12 {
			enter(busy)
		}
		enter(quiet)
		for range 2 {
			<-order
		}
		(<-accounts).Close()
		(<-accounts).Close()
		synctest.Wait()
		if first, second := <-order, <-order; first != quiet && second != quiet {
			t.Error("two more of the busy tenant were let in before the quiet one")
		}
		cancel()
		synctest.Wait()
	})
}

// A request that exceeds its tenant's share delays no other tenant. A request that exceeds the total is not overtaken.
func TestOrderOfWaitingRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := fairshare.New("things", 10, 6)
		first, second := domain.NewTenantID(), domain.NewTenantID()
		a, c := b.Account(first), b.Account(second)
		wantCode(t, "first", a.Grow(6), "")
		got := make(chan string, 8)
		wait := func(account *fairshare.Account, name string, amount int64) {
			go func() {
				if account.Wait(t.Context(), amount, 0) == nil {
					got <- name
				}
			}()
			synctest.Wait()
		}
		want := func(what string, names ...string) {
			t.Helper()
			synctest.Wait()
			for _, name := range names {
				select {
				case next := <-got:
					if next != name {
						t.Fatalf("%s: %s is served, want %s", what, next, name)
					}
				default:
					t.Fatalf("%s: %s is not served", what, name)
				}
			}
			if len(got) > 0 {
				t.Fatalf("%s: %s is served, too", what, <-got)
			}
		}
		wait(b.Account(first), "the first's next", 2)
		wait(c, "the second's", 4)
		want("the first tenant has its part", "the second's")
		wait(b.Account(domain.NewTenantID()), "the large one", 5)
		wait(b.Account(domain.NewTenantID()), "the small one", 1)
		a.Shrink(4)
		want("there is room for less than the large one", "the first's next")
		c.Shrink(3)
		want("there is room for the large one", "the large one")
		c.Close()
		want("there is room for both", "the small one")
	})
}

// A request that fits does not wait for requests of tenants that have used up their share. It does wait for a request
// that is gathering room in the total.
func TestSmallRequestWaitsOnlyForLargeOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := fairshare.New("things", 10, 6)
		greedy, modest := domain.NewTenantID(), domain.NewTenantID()
		held := b.Account(greedy)
		wantCode(t, "the first", held.Grow(6), "")
		waits := func(tenant domain.TenantID, amount int64) (granted func() bool) {
			got := make(chan struct{})
			go func() {
				wantCode(t, "one that waits", b.Account(tenant).Wait(t.Context(), amount, 0), "")
				close(got)
			}()
			return func() bool {
				synctest.Wait()
				select {
				case <-got:
					return true
				default:
					return false
				}
			}
		}
		beyond := waits(greedy, 2)
		if beyond() || !waits(modest, 1)() {
			t.Error("a request does not get what there is, since another tenant has its part")
		}
		large := waits(domain.NewTenantID(), 5)
		if large() {
			t.Error("the large request is given more than there is")
		}
		small := waits(modest, 1)
		if small() {
			t.Error("a small request overtakes the large one that waits for room")
		}
		held.Close()
		if !large() || !small() || !beyond() {
			t.Error("they are not served when there is room")
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := fairshare.New("things", 10, 5)
		tenant := domain.NewTenantID()
		a := b.Account(tenant)
		wantCode(t, "the first", a.Grow(5), "")
		began := time.Now()
		wantCode(t, "impatient", b.Account(tenant).Wait(t.Context(), 1, 10*time.Second), domain.CodeTooManyRequests)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
		o := b.Account(domain.NewTenantID())
		wantCode(t, "another", o.Grow(5), "")
		wantCode(t, "where the total is used up", b.Account(domain.NewTenantID()).Wait(t.Context(), 1, time.Second), domain.CodeOverloaded)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if err := b.Account(tenant).Wait(ctx, 1, 0); !errors.Is(err, gone) {
			t.Errorf("a client that has gone: %v", err)
		}
		a.Close()
		o.Close()
		if b.Used() != 0 {
			t.Errorf("%d are still held", b.Used())
		}
		wantCode(t, "afterwards", b.Account(tenant).Grow(5), "")
	})
}

// The error that ends several waits belongs to whoever has ended them: each wait returns it as it is.
func TestWaitReturnsItsCauseUnchanged(t *testing.T) {
	t.Parallel()
	revoked := domain.Errorf(domain.CodeUnauthenticated, "", "the key was revoked")
	ctx, cancel := context.WithCancelCause(t.Context())
	var waiting sync.WaitGroup
	for range 2 {
		b := fairshare.New("things", 10, 5)
		for range 2 {
			if err := b.Account(domain.NewTenantID()).Grow(5); err != nil {
				t.Fatal(err)
			}
		}
		waiting.Go(func() {
			wantCode(t, "a wait that was ended", b.Account(domain.NewTenantID()).Wait(ctx, 1, 0), domain.CodeUnauthenticated)
		})
	}
	cancel(revoked)
	waiting.Wait()
	if revoked.Message != "the key was revoked" {
		t.Errorf("the error now is %q", revoked)
	}
}

func TestNilBudgetRefusesNothing(t *testing.T) {
	t.Parallel()
	var none *fairshare.Budget
	a := none.Account(domain.NewTenantID())
	wantCode(t, "grow", a.Grow(1<<60), "")
	wantCode(t, "wait", a.Wait(t.Context(), 1<<60, 0), "")
	a.Shrink(1)
	a.Close()
	wantCode(t, "no account", fairshare.From(t.Context()).Wait(t.Context(), 1, 0), "")
}
