// Package budget keeps the requests of one tenant from taking the processors from all others.
//
// A request that folds events begins with Requests.Begin, which waits for a place: there are few of them, and each tenant
// has fewer. The context that Begin returns carries what the request may cost, in steps and in time, and ends with a reason
// for the client when either is used up, or when the client goes away. The request computes inside Work: those who compute
// take turns on half of the processors, tenant by tenant, and a long computation gives its turn up each time that another
// one waits. So a request that costs little waits for a turn of each tenant at most, whatever the others ask for.
//
// What works in the background for a tenant does so in a context of OfTenant. It takes as many processors as it likes, but for
// evaluations that take long: these share the turns with the requests.
//
// Steps are those of package expr, which counts them and looks at the context; what else takes time tells Spend.
package budget

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Limits bound what requests fold. What is 0 has a default.
type Limits struct {
	Places       int           // requests that fold at the same time, of all tenants: each may need some 150 MB; default 8
	TenantPlaces int           // of one tenant; default 2
	Waiting      int           // requests of one tenant that wait for a place; default 100
	Steps        int64         // of one request; default 100,000,000
	Time         time.Duration // of one request, from when it has its place; and for which one waits for that; default 10 s
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
	or := func(n *int, other int) {
		if *n <= 0 {
			*n = other
		}
	}
	or(&l.Places, DefaultPlaces)
	or(&l.TenantPlaces, DefaultTenantPlaces)
	or(&l.Waiting, DefaultWaiting)
	if l.Steps <= 0 {
		l.Steps = DefaultSteps
	}
	if l.Time <= 0 {
		l.Time = DefaultTime
	}
	return l
}

// turnTime is how long a request computes before it passes its turn to another one that waits.
const turnTime = time.Millisecond

// Requests are those of a process that fold. It may be used by any number of goroutines at once.
type Requests struct {
	limits Limits
	places *queue
	turns  *queue
}

// New returns Requests with limits.
func New(limits Limits) *Requests {
	limits = limits.withDefaults()
	turns := max(1, runtime.GOMAXPROCS(0)/2)
	return &Requests{limits: limits, places: newQueue(limits.Places, limits.TenantPlaces, limits.Waiting), turns: newQueue(turns, turns, 0)}
}

// request is one that has a place.
type request struct {
	of     *Requests
	tenant domain.TenantID
	cancel context.CancelCauseFunc
	advice string
	left   atomic.Int64 // steps
	turn   turn         // a request computes in one goroutine at a time
}

// turn is one of those who compute. It is for one goroutine at a time.
type turn struct {
	queue  *queue
	tenant domain.TenantID
	ctx    context.Context
	began  time.Time // zero: it is somebody else's turn
}

// take waits for the turn; the error is that of the context.
func (t *turn) take() error {
	err := t.queue.enter(t.ctx, t.tenant)
	if err == nil {
		t.began = time.Now()
	}
	return err
}

func (t *turn) give() {
	if !t.began.IsZero() {
		t.began = time.Time{}
		t.queue.leave(t.tenant)
	}
}

// goOn passes the turn on once it has lasted turnTime and another request waits, and then waits for the next one. It also
// yields the processor: the runtime would let a long evaluation run for 10 ms while short requests wait.
func (t *turn) goOn() {
	runtime.Gosched()
	switch {
	case t.began.IsZero() || time.Since(t.began) < turnTime:
	case t.queue.contended():
		t.give()
		_ = t.take() // whoever computes looks at the context
	default:
		t.began = time.Now()
	}
}

type requestKey struct{}

// errNoPlace is why the waiting for a place ends.
var errNoPlace = errors.New("no place became free")

// Begin waits for a place, and returns the context of a request that has one. That ends with ctx, and when the request has
// used up what it may cost: its cause is then a *domain.Error that gives the advice, of what to do instead: with
// domain.CodeTooCostly after too many steps, which are as many another time, and with domain.CodeOverloaded after too
// long, which may be the fault of others. end must be called.
//
// A request that begins within another one costs that one.
func (r *Requests) Begin(ctx context.Context, tenant domain.TenantID, advice string) (_ context.Context, end func(), err error) {
	if ctx.Value(requestKey{}) != nil {
		return ctx, func() {}, nil
	}
	waiting, enough := context.WithTimeoutCause(ctx, r.limits.Time, errNoPlace)
	err = r.places.enter(waiting, tenant)
	enough()
	switch {
	case errors.Is(err, errNoPlace) && r.places.has(tenant) > 0:
		return nil, nil, domain.Errorf(domain.CodeTooManyRequests, "",
			"the tenant has %d requests under way that fold events, and none of them ended within %s; try again later", r.places.has(tenant), r.limits.Time)
	case errors.Is(err, errNoPlace):
		return nil, nil, domain.Errorf(domain.CodeOverloaded, "", "%d requests that fold events are under way, and none of them ended within %s; try again later", r.limits.Places, r.limits.Time)
	case err != nil:
		return nil, nil, err
	}
	q := &request{of: r, tenant: tenant, advice: advice}
	q.left.Store(r.limits.Steps)
	ctx, cancel := context.WithCancelCause(ctx)
	q.cancel = cancel
	ctx, stop := context.WithTimeoutCause(ctx, r.limits.Time, domain.Errorf(domain.CodeOverloaded, "",
		"it was not done within %s, which is how long a request may fold events; try again later. Where that does not help: %s", r.limits.Time, advice))
	ctx = context.WithValue(expr.WithSpend(ctx, q.spend), requestKey{}, q)
	q.turn = turn{queue: r.turns, tenant: tenant, ctx: ctx}
	return ctx, func() {
		stop()
		cancel(nil)
		r.places.leave(tenant)
	}, nil
}

// Work calls compute when it is the request's turn, and returns its error; that of a ctx which has ended, whatever compute
// returned, is the ctx's cause. Without Begin it is always the turn. Databases are to be asked outside of it, since a turn
// is time on a processor. A request is in one Work at a time.
func Work(ctx context.Context, compute func() error) error {
	q, ok := ctx.Value(requestKey{}).(*request)
	if ok && q.turn.began.IsZero() {
		if err := q.turn.take(); err != nil {
			return err
		}
		defer q.turn.give()
	}
	err := compute()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Turn calls compute when it is the tenant's turn, and returns its error, or the cause of ctx if that ends before. It is for work
// of a few milliseconds that needs no place. compute is not interrupted.
func (r *Requests) Turn(ctx context.Context, tenant domain.TenantID, compute func() error) error {
	t := turn{queue: r.turns, tenant: tenant, ctx: ctx}
	if err := t.take(); err != nil {
		return err
	}
	defer t.give()
	return compute()
}

// Bounded reports whether ctx is that of a request which has begun, and so computes in one goroutine.
func Bounded(ctx context.Context) bool { return ctx.Value(requestKey{}) != nil }

type backgroundKey struct{}

// Background returns the context of everything that works in the background of the process: see OfTenant.
func (r *Requests) Background(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, r)
}

// OfTenant returns a context for what works in the background for a tenant: an evaluation that takes long waits for its turn
// there. A context that is not of the background, such as that of a request, stays as it is.
func OfTenant(ctx context.Context, tenant domain.TenantID) context.Context {
	r, ok := ctx.Value(backgroundKey{}).(*Requests)
	if !ok || Bounded(ctx) {
		return ctx
	}
	return expr.WithTurns(ctx, func() expr.Turn {
		t := &turn{queue: r.turns, tenant: tenant, ctx: ctx}
		_ = t.take() // whoever computes looks at the context
		return expr.Turn{GoOn: t.goOn, End: t.give}
	})
}

// spend takes steps from what the request may cost, and lets others have their turn.
func (q *request) spend(steps int) {
	if q.left.Add(-int64(steps)) < 0 {
		q.cancel(domain.Errorf(domain.CodeTooCostly, "", "it takes more than %d steps, which is what a request may take: %s", q.of.limits.Steps, q.advice))
		return
	}
	q.turn.goOn()
}
