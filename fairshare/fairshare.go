// Package fairshare shares something scarce between tenants: bytes of memory, connections, processors.
//
// A Budget is how much there is in total, and how much of it one tenant may have. What a request holds of it stands on
// an Account, which the request opens, grows and shrinks as it goes, and closes. A tenant that has used up its part is
// refused or waits; the others do not notice, as long as a tenant's part is well below the total. Those who wait are
// served tenant by tenant, in turn: a tenant with a thousand waiting requests delays another tenant's one by one request.
package fairshare

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Budget is an amount that tenants share. It may be used by any number of goroutines.
type Budget struct {
	what        string // of what too much is under way, for refusals
	total, each int64

	mu      sync.Mutex
	used    int64
	tenants map[domain.TenantID]*share
	turns   list.List // of *share: those with somebody waiting, the next one to be served first
}

// share is what a tenant has of a budget. It is there while the tenant holds something or waits.
type share struct {
	tenant  domain.TenantID
	used    int64
	waiting list.List     // of *waiter
	turn    *list.Element // nil while nobody waits
}

type waiter struct {
	amount  int64
	granted chan struct{} // closed, under the budget's lock, when the amount is the waiter's
}

// New makes a budget of total, of which one tenant may have each. what names what requests are told there is too much
// of, such as "request bodies".
func New(what string, total, each int64) *Budget {
	return &Budget{what: what, total: total, each: min(each, total), tenants: map[domain.TenantID]*share{}}
}

// Used is how much is held at the moment.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Account opens an account of the tenant's, with nothing on it. It must be closed. A nil budget gives one that is never
// refused anything.
func (b *Budget) Account(tenant domain.TenantID) *Account {
	return &Account{budget: b, tenant: tenant}
}

// Account is what one request holds of a budget. It is not for concurrent use, but for Wait and Shrink, which two goroutines
// may call. Calls on a nil account do nothing.
type Account struct {
	budget *Budget
	tenant domain.TenantID
	held   int64 // under the budget's lock
}

// Grow takes amount more, or refuses: with domain.CodeTooManyRequests where the tenant has its part, and with
// domain.CodeOverloaded where everything is used up. A tenant that holds nothing gets what it asks for if anything is
// left, so that a single request is never too large.
func (a *Account) Grow(amount int64) error {
	if a == nil || a.budget == nil || amount <= 0 {
		return nil
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.share(a.tenant)
	switch {
	case s.waiting.Len() == 0 && b.fits(s, amount):
		b.take(s, amount)
		a.held += amount
		return nil
	case !b.withinShare(s, amount) || s.waiting.Len() > 0:
		b.forget(s)
		return domain.Errorf(domain.CodeTooManyRequests, "", "too many %s of this tenant are under way; try again later", b.what)
	}
	b.forget(s)
	return domain.Errorf(domain.CodeOverloaded, "", "too many %s are under way; try again later", b.what)
}

// Wait takes amount more when it is the tenant's turn and there is room. It fails as Grow does where that takes longer
// than patience (0: there is no such bound), and with ctx's cause where ctx ends before.
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
		err = domain.Errorf(domain.CodeTooManyRequests, "", "too many %s of this tenant are under way; try again later", b.what)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.granted: // it may have come at the last moment
		a.held += amount
		return nil
	default:
	}
	s.waiting.Remove(place)
	if refusal, refused := errors.AsType[*domain.Error](err); refused && b.withinShare(s, amount) {
		refusal.Code, refusal.Message = domain.CodeOverloaded, fmt.Sprintf("too many %s are under way; try again later", b.what)
	}
	b.settle(s)
	b.serve() // what it waited for may be enough for somebody behind it
	return err
}

// Force takes amount more, whether or not there is room: it is for what is there already. Until it is given back there
// is less for others.
func (a *Account) Force(amount int64) {
	if a == nil || a.budget == nil || amount <= 0 {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.budget.take(a.budget.share(a.tenant), amount)
	a.held += amount
}

// Set makes what is held amount, whether or not there is room: it is for what a guess was made of, once it is known.
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

// Shrink gives amount back, at most what is held.
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

// Close gives back all that is held.
func (a *Account) Close() {
	if a == nil || a.budget == nil {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.shrink(a.held)
}

// The methods below need the lock.

// gathers reports whether somebody waits for room that others must not take meanwhile: it is within the part of its tenant.
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

// forget drops a share that nothing is on.
func (b *Budget) forget(s *share) {
	if s.used == 0 && s.waiting.Len() == 0 && b.tenants[s.tenant] == s {
		delete(b.tenants, s.tenant)
	}
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

// settle takes a tenant for whom nobody waits any more out of the turns.
func (b *Budget) settle(s *share) {
	if s.waiting.Len() == 0 && s.turn != nil {
		b.turns.Remove(s.turn)
		s.turn = nil
	}
	b.forget(s)
}

// serve gives those who wait what there is room for, one of each tenant in turn. Where the total is used up it stops at
// the first who would be within its tenant's part: smaller amounts must not overtake it for ever.
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

// With hands an account on to those who do a request's work.
func With(ctx context.Context, account *Account) context.Context {
	return context.WithValue(ctx, accountKey{}, account)
}

// From is the account that With has handed on; nil where there is none.
func From(ctx context.Context) *Account {
	account, _ := ctx.Value(accountKey{}).(*Account)
	return account
}
