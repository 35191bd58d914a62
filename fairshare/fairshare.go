// Package fairshare divides a scarce resource between tenants: bytes of memory, connections, processors.
//
// A Budget sets the total amount and the share that one tenant may hold. An Account records what one request holds: the
// request opens the account, grows and shrinks it, and closes it. A tenant that has used up its share is refused or
// waits. Other tenants are not affected as long as one tenant's share is well below the total. Waiting tenants are
// served in turn: a tenant with a thousand waiting requests delays another tenant's request by one request only.
package fairshare

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Budget is an amount that tenants share. It is safe for concurrent use.
type Budget struct {
	what        string // names the requests that exceed the budget, for error messages
	total, each int64
	maxWaiting  int // requests of one tenant that may wait; 0: any number

	mu      sync.Mutex
	used    int64
	tenants map[domain.TenantID]*share
	turns   list.List // of *share: the tenants with waiting requests, the next one to serve first
}

// share is one tenant's part of a budget. It exists while the tenant holds an amount or waits for one.
type share struct {
	tenant  domain.TenantID
	used    int64
	waiting list.List     // of *waiter
	turn    *list.Element // nil while no request waits
}

type waiter struct {
	amount  int64
	granted chan struct{} // closed, under the budget's lock, when the amount is granted
}

// New returns a budget of total, of which one tenant may hold at most each. what names the limited thing in error
// messages, such as "request bodies".
func New(what string, total, each int64) *Budget {
	return &Budget{what: what, total: total, each: min(each, total), tenants: map[domain.TenantID]*share{}}
}

// LimitWaiting limits how many requests of one tenant may wait. It must be called before any account is opened.
func (b *Budget) LimitWaiting(requests int) *Budget {
	b.maxWaiting = requests
	return b
}

// HeldBy returns the amount that a tenant holds.
func (b *Budget) HeldBy(tenant domain.TenantID) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.tenants[tenant]; s != nil {
		return s.used
	}
	return 0
}

// Used returns the amount that is currently held.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Account opens an empty account for the tenant. The caller must close it. An account of a nil budget is never refused
// anything.
func (b *Budget) Account(tenant domain.TenantID) *Account {
	return &Account{budget: b, tenant: tenant}
}

// Account is what one request holds of a budget. Only Wait and Shrink are safe for concurrent use, by two goroutines.
// Calls on a nil account do nothing.
type Account struct {
	budget *Budget
	tenant domain.TenantID
	held   int64 // under the budget's lock
}

// Grow takes amount more or returns an error. The code is domain.CodeTooManyRequests if the tenant has used up its
// share, and domain.CodeOverloaded if the whole budget is used up. A tenant that holds nothing may exceed its share,
// and an unused budget may be exceeded, so that no single request is ever too large.
func (a *Account) Grow(amount int64) error {
	if a == nil || a.budget == nil || amount <= 0 {
		return nil
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.share(a.tenant)
	if s.waiting.Len() == 0 && b.fits(s, amount) {
		b.take(s, amount)
		a.held += amount
		return nil
	}
	err := b.refusal(b.withinShare(s, amount) && s.waiting.Len() == 0)
	b.forget(s)
	return err
}

// Wait takes amount more when it is the tenant's turn and there is room. After patience it fails as Grow does; a
// patience of 0 means no time limit. If ctx ends first, Wait returns its cause. If too many of the tenant's requests
// wait, it fails at once with domain.CodeTooManyRequests.
func (a *Account) Wait(ctx context.Context, amount int64, patience time.Duration) error {
	if a == nil || a.budget == nil || amount <= 0 {
		return nil
	}
	b := a.budget
	b.mu.Lock()
	s := b.share(a.tenant)
	if s.waiting.Len() == 0 && b.fits(s, amount) && !b.gathers() {
		b.take(s, amount)
		a.held += amount
		b.mu.Unlock()
		return nil
	}
	if b.maxWaiting > 0 && s.waiting.Len() >= b.maxWaiting {
		b.mu.Unlock()
		return domain.Errorf(domain.CodeTooManyRequests, "", "the tenant has %d waiting %s; try again later", b.maxWaiting, b.what)
	}
	w := &waiter{amount: amount, granted: make(chan struct{})}
	place := s.waiting.PushBack(w)
	if s.turn == nil {
		s.turn = b.turns.PushBack(s)
	}
	b.mu.Unlock()

	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	var err error
	select {
	case <-w.granted:
	case <-late:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.granted: // granted at the last moment
		a.held += amount
		return nil
	default:
	}
	s.waiting.Remove(place)
	if err == nil {
		err = b.refusal(b.withinShare(s, amount))
	}
	b.settle(s)
	b.serve() // the room that it waited for may be enough for a later waiter
	return err
}

// Force takes amount more even if there is no room, for a resource that is already in use. Other requests have less
// until it is returned.
func (a *Account) Force(amount int64) {
	if a == nil || a.budget == nil || amount <= 0 {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.budget.take(a.budget.share(a.tenant), amount)
	a.held += amount
}

// Set makes amount the amount held, even if there is no room. It replaces an estimate by the actual amount.
func (a *Account) Set(amount int64) {
	if a == nil || a.budget == nil {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if amount > a.held {
		b.take(b.share(a.tenant), amount-a.held)
		a.held = amount
		return
	}
	a.shrink(a.held - amount)
}

// Shrink returns amount to the budget, at most what is held.
func (a *Account) Shrink(amount int64) {
	if a == nil || a.budget == nil {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	a.shrink(amount)
}

func (a *Account) shrink(amount int64) {
	amount = min(amount, a.held)
	if amount <= 0 {
		return
	}
	b := a.budget
	a.held -= amount
	s := b.tenants[a.tenant]
	s.used -= amount
	b.used -= amount
	b.serve()
	b.forget(s)
}

// Close returns everything that the account holds.
func (a *Account) Close() {
	if a == nil || a.budget == nil {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.shrink(a.held)
}

// The methods below require the lock.

// gathers reports whether a waiter is within its tenant's share. It waits for room in the total, and others must not
// take that room meanwhile.
func (b *Budget) gathers() bool {
	for e := b.turns.Front(); e != nil; e = e.Next() {
		s := e.Value.(*share)
		if b.withinShare(s, s.waiting.Front().Value.(*waiter).amount) {
			return true
		}
	}
	return false
}

func (b *Budget) share(tenant domain.TenantID) *share {
	s := b.tenants[tenant]
	if s == nil {
		s = &share{tenant: tenant}
		b.tenants[tenant] = s
	}
	return s
}

// forget deletes a share that holds nothing and has no waiters.
func (b *Budget) forget(s *share) {
	if s.used == 0 && s.waiting.Len() == 0 && b.tenants[s.tenant] == s {
		delete(b.tenants, s.tenant)
	}
}

// refusal returns the error for a request without room. withinShare: its tenant's share has room for it.
func (b *Budget) refusal(withinShare bool) error {
	if withinShare {
		return domain.Errorf(domain.CodeOverloaded, "", "too many %s are under way; try again later", b.what)
	}
	return domain.Errorf(domain.CodeTooManyRequests, "", "too many %s of this tenant are under way; try again later", b.what)
}

func (b *Budget) withinShare(s *share, amount int64) bool {
	return s.used == 0 || s.used+amount <= b.each
}

func (b *Budget) withinTotal(amount int64) bool { return b.used == 0 || b.used+amount <= b.total }

func (b *Budget) fits(s *share, amount int64) bool {
	return b.withinShare(s, amount) && b.withinTotal(amount)
}

func (b *Budget) take(s *share, amount int64) {
	s.used += amount
	b.used += amount
}

// settle removes a tenant without waiters from the turns.
func (b *Budget) settle(s *share) {
	if s.waiting.Len() == 0 && s.turn != nil {
		b.turns.Remove(s.turn)
		s.turn = nil
	}
	b.forget(s)
}

// serve grants waiting requests the room there is, one request of each tenant in turn. It stops at the first waiter
// that is within its tenant's share but does not fit the total: smaller amounts must not overtake it indefinitely.
func (b *Budget) serve() {
	for passed := 0; passed < b.turns.Len(); {
		turn := b.turns.Front()
		s := turn.Value.(*share)
		w := s.waiting.Front().Value.(*waiter)
		if !b.withinShare(s, w.amount) {
			b.turns.MoveToBack(turn)
			passed++
			continue
		}
		if !b.withinTotal(w.amount) {
			return
		}
		b.take(s, w.amount)
		close(w.granted)
		s.waiting.Remove(s.waiting.Front())
		b.turns.MoveToBack(turn)
		b.settle(s)
		passed = 0
	}
}

type accountKey struct{}

// With returns a context that carries the account to the code that does a request's work.
func With(ctx context.Context, account *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, account)
}

// From returns the account that With put into the context, or nil.
func From(ctx context.Context) *Account {
	account, _ := ctx.Value(accountKey{}).(*Account)
	return account
}
