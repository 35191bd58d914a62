// Package budget keeps the requests of one tenant from taking the processors from all other tenants.
//
// A request that folds events starts with Requests.Begin, which waits for a place. There are few places, and each
// tenant may have only some of them. Begin returns a context that carries the limits of the request, in steps and in
// time. The context ends when either limit is reached, with a reason for the client, or when the client disconnects.
// The request computes inside Work. Computing requests take turns on half of the processors, tenant by tenant, and a
// long computation gives up its turn whenever another one waits. So a cheap request waits for at most one turn of each
// tenant, whatever the other requests cost.
//
// A request that usually computes very little, such as a command, runs in Brief: without a place and a turn, unless it
// turns out to need them.
//
// Background work for a tenant runs in a context from OfTenant. It may use any number of processors, but its long
// evaluations share the turns with the requests.
//
// Package expr counts the steps and checks the context. Other work that takes time reports its steps through Spend.
//
// Places and turns are budgets of package fairshare, which divides any resource between tenants. Package budget adds
// what a request that folds events needs: limits in steps and time, and turns that a long computation gives up.
package budget

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/fairshare"
)

// Limits bound the requests that fold events. A field of 0 has a default.
type Limits struct {
	Places       int           // concurrent folding requests of all tenants, each up to about 150 MB; default 8
	TenantPlaces int           // concurrent folding requests of one tenant; default 2
	Waiting      int           // requests of one tenant that may wait for a place; default 100
	Steps        int64         // of one request; default 100 million
	Time         time.Duration // of one request once it has its place, and the longest wait for a place; default 10 s
	// Used returns what is called with the steps that are taken for a tenant, by requests and by background work. Both
	// must return at once, and are called concurrently. Nil: steps are not reported.
	Used func(tenant domain.TenantID) func(steps int)
}

// The defaults of Limits.
const (
	DefaultPlaces       = 8
	DefaultTenantPlaces = 2
	DefaultWaiting      = 100
	DefaultSteps        = 100_000_000
	DefaultTime         = 10 * time.Second
)

func (l Limits) withDefaults() Limits {
	l.Places = cmp.Or(max(l.Places, 0), DefaultPlaces)
	l.TenantPlaces = cmp.Or(max(l.TenantPlaces, 0), DefaultTenantPlaces)
	l.Waiting = cmp.Or(max(l.Waiting, 0), DefaultWaiting)
	l.Steps = cmp.Or(max(l.Steps, 0), DefaultSteps)
	l.Time = cmp.Or(max(l.Time, 0), DefaultTime)
	return l
}

// turnTime is how long a request computes before it passes its turn to a waiting request.
const turnTime = time.Millisecond

// Requests limits the requests of one process that fold events. It is safe for concurrent use.
type Requests struct {
	limits Limits
	places *fairshare.Budget
	turns  *fairshare.Budget
}

// New returns Requests with limits.
func New(limits Limits) *Requests {
	limits = limits.withDefaults()
	turns := int64(max(1, runtime.GOMAXPROCS(0)/2))
	return &Requests{
		limits: limits, turns: fairshare.New("computations", turns, turns),
		places: fairshare.New("requests that fold events", int64(limits.Places), int64(limits.TenantPlaces)).LimitWaiting(limits.Waiting),
	}
}

// request is a request that has a place.
type request struct {
	of     *Requests
	cancel context.CancelCauseFunc
	advice string
	left   atomic.Int64 // remaining steps
	turn   turn         // a request computes in one goroutine at a time
	used   func(steps int)
}

// turn is one computation's turn on a processor. It is for one goroutine at a time.
type turn struct {
	turns   *fairshare.Budget
	account *fairshare.Account
	ctx     context.Context
	began   time.Time // zero while another computation has the turn
}

// newTurn returns a turn of a tenant, which has not begun.
func (r *Requests) newTurn(ctx context.Context, tenant domain.TenantID) turn {
	return turn{turns: r.turns, account: r.turns.Account(tenant), ctx: ctx}
}

// begin waits for the turn. Its error is the context's cause.
func (t *turn) begin() error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	err := t.account.Wait(t.ctx, 1, 0)
	if err == nil {
		t.began = time.Now()
	}
	return err
}

func (t *turn) end() {
	t.began = time.Time{}
	t.account.Close()
}

// goOn passes the turn on if it has lasted turnTime, and waits for the next one. It yields the processor in between:
// the runtime would let a long evaluation run for 10 ms while short requests wait. A computation that yielded and kept
// its turn would delay the waiting requests until the runtime returns to it.
func (t *turn) goOn() {
	if t.began.IsZero() || time.Since(t.began) < turnTime {
		return
	}
	t.end()
	runtime.Gosched()
	_ = t.begin() // the computation itself checks the context
}

type requestKey struct{}

// errNoPlace ends the wait for a place.
var errNoPlace = errors.New("no place became free")

// Begin waits for a place and returns a context for the request that has it. The context ends with ctx, or when the
// request reaches one of its limits. In that case its cause is a *domain.Error that includes the advice, which tells
// the client what to do instead. The code is domain.CodeTooCostly after too many steps: a retry would take as many. It
// is domain.CodeOverloaded after too much time, which may be caused by other requests. The caller must call end.
//
// A request that begins within another request counts against the outer one.
func (r *Requests) Begin(ctx context.Context, tenant domain.TenantID, advice string) (_ context.Context, end func(), err error) {
	if ctx.Value(requestKey{}) != nil {
		return ctx, func() {}, nil
	}
	waiting, enough := context.WithTimeoutCause(ctx, r.limits.Time, errNoPlace)
	place := r.places.Account(tenant)
	err = place.Wait(waiting, 1, 0)
	enough()
	switch held := r.places.HeldBy(tenant); {
	case errors.Is(err, errNoPlace) && held > 0:
		return nil, nil, domain.Errorf(domain.CodeTooManyRequests, "",
			"the tenant has %d requests under way that fold events, and none of them ended within %s; try again later", held, r.limits.Time)
	case errors.Is(err, errNoPlace):
		return nil, nil, domain.Errorf(domain.CodeOverloaded, "", "%d requests that fold events are under way, and none of them ended within %s; try again later", r.limits.Places, r.limits.Time)
	case err != nil:
		return nil, nil, err
	}
	q := &request{of: r, advice: advice, used: r.used(tenant)}
	q.left.Store(r.limits.Steps)
	ctx, cancel := context.WithCancelCause(ctx)
	q.cancel = cancel
	ctx, stop := context.WithTimeoutCause(ctx, r.limits.Time, domain.Errorf(domain.CodeOverloaded, "",
		"the request exceeded its time limit of %s for folding events; try again later. If that does not help: %s", r.limits.Time, advice))
	ctx = context.WithValue(expr.WithSpend(ctx, q.spend), requestKey{}, q)
	q.turn = r.newTurn(ctx, tenant)
	return ctx, func() {
		stop()
		cancel(nil)
		place.Close()
	}, nil
}

// Work calls compute when it is the request's turn, and returns its error. If ctx has ended, Work returns the cause of
// ctx, whatever compute returned. Without Begin, Work does not wait. Query databases outside of Work, since a turn is
// time on a processor. A request is in one Work at a time.
func Work(ctx context.Context, compute func() error) error {
	q, ok := ctx.Value(requestKey{}).(*request)
	if ok && q.turn.began.IsZero() {
		if err := q.turn.begin(); err != nil {
			return err
		}
		defer q.turn.end()
	}
	err := compute()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Turn calls compute when it is the tenant's turn, and returns its error, or the cause of ctx if that ends first. It is
// for work of a few milliseconds that requires no place. compute is not interrupted.
func (r *Requests) Turn(ctx context.Context, tenant domain.TenantID, compute func() error) error {
	t := r.newTurn(ctx, tenant)
	if err := t.begin(); err != nil {
		return err
	}
	defer t.end()
	return compute()
}

// briefSteps is what a brief computation may take: half a millisecond, and about a megabyte of memory.
const briefSteps = 20_000

// errNotBrief ends a computation that has taken briefSteps.
var errNotBrief = errors.New("the computation takes long")

// Brief calls compute, which usually takes few steps, and returns its error. It waits neither for a place nor for a
// turn. If compute takes more than briefSteps, its context ends, and Brief calls it again in a request that has begun,
// in its turn, with the limits and errors of Begin and Work. So compute may be called twice, and must have no effects
// but its result.
func (r *Requests) Brief(ctx context.Context, tenant domain.TenantID, advice string, compute func(ctx context.Context) error) error {
	if Bounded(ctx) {
		return Work(ctx, func() error { return compute(ctx) })
	}
	brief, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var left atomic.Int64
	left.Store(briefSteps)
	used := r.used(tenant)
	brief = expr.WithSpend(brief, func(steps int) {
		used(steps)
		if left.Add(-int64(steps)) < 0 {
			cancel(errNotBrief)
		}
	})
	err := compute(brief)
	if context.Cause(brief) != errNotBrief {
		return Cause(ctx, err)
	}
	begun, end, err := r.Begin(ctx, tenant, advice)
	if err != nil {
		return err
	}
	defer end()
	return Work(begun, func() error { return compute(begun) })
}

// Bounded reports whether ctx belongs to a request that has begun, and that therefore computes in one goroutine.
func Bounded(ctx context.Context) bool { return ctx.Value(requestKey{}) != nil }

type backgroundKey struct{}

// Background returns the context for all background work of the process. OfTenant derives a tenant's context from it.
func (r *Requests) Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, r)
}

// OfTenant returns a context for background work for a tenant: long evaluations in it wait for their turn. It returns
// any other context unchanged, such as that of a request.
func OfTenant(ctx context.Context, tenant domain.TenantID) context.Context {
	r, ok := ctx.Value(backgroundKey{}).(*Requests)
	if !ok || Bounded(ctx) {
		return ctx
	}
	if r.limits.Used != nil {
		ctx = expr.WithSpend(ctx, r.used(tenant))
	}
	return expr.WithTurns(ctx, func() expr.Turn {
		t := r.newTurn(ctx, tenant)
		_ = t.begin() // the computation itself checks the context
		return expr.Turn{GoOn: t.goOn, End: t.end}
	})
}

// used returns what is called with a tenant's steps.
func (r *Requests) used(tenant domain.TenantID) func(steps int) {
	if r.limits.Used == nil {
		return func(int) {}
	}
	return r.limits.Used(tenant)
}

// spend subtracts steps from the request's limit and lets other requests have their turn.
func (q *request) spend(steps int) {
	q.used(steps)
	if q.left.Add(-int64(steps)) < 0 {
		q.cancel(domain.Errorf(domain.CodeTooCostly, "", "the request exceeded its limit of %d steps: %s", q.of.limits.Steps, q.advice))
		return
	}
	q.turn.goOn()
}

// Cause returns ctx's cause if ctx has ended, which then explains err better than err itself. Otherwise it returns err.
func Cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
