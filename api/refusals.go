package api

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/domain"
)

// After refusalsBurst refusals, a tenant's refusals above refusalsASecond are delayed by up to refusalDelay.
const (
	refusalsASecond = 200
	refusalsBurst   = 400
	refusalDelay    = time.Second
)

// refusals slows down a tenant that keeps sending requests that are refused. A refusal also costs processor time, and
// such a client does not pause by itself. It is safe for concurrent use.
type refusals struct {
	mu      sync.Mutex
	tenants map[domain.TenantID]*rate.Limiter
}

// delayRefusal delays the answer to a refused request, at most until ctx ends. It does not delay answers that busy
// clients get in the normal course of work: not found, conflicts, outages.
func (s *Server) delayRefusal(ctx context.Context, tenant domain.TenantID, err error) {
	refused, ok := errors.AsType[*domain.Error](err)
	if !ok {
		return
	}
	switch problem.KindOf(refused.Code).Status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity, http.StatusTooManyRequests:
	default:
		return
	}
	pause := time.NewTimer(s.refusals.reserve(tenant))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// reserve counts a refusal, and returns how long to delay it.
func (r *refusals) reserve(tenant domain.TenantID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	limiter := r.tenants[tenant]
	if limiter == nil {
		if r.tenants == nil {
			r.tenants = make(map[domain.TenantID]*rate.Limiter)
		}
		r.forgetIdle()
		limiter = rate.NewLimiter(refusalsASecond, refusalsBurst)
		r.tenants[tenant] = limiter
	}
	reservation := limiter.Reserve()
	pause := reservation.Delay()
	if pause > refusalDelay {
		reservation.Cancel()
		return refusalDelay
	}
	return pause
}

// forgetIdle deletes tenants without recent refusals once there are many tenants.
func (r *refusals) forgetIdle() {
	if len(r.tenants) < 1000 {
		return
	}
	for tenant, limiter := range r.tenants {
		if limiter.Tokens() >= refusalsBurst {
			delete(r.tenants, tenant)
		}
	}
}
