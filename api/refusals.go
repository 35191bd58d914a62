package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/manifold-es/manifold/domain"
)

// A tenant's refusals above refusalsASecond, after the first refusalsBurst, are delayed by up to refusalDelay.
const (
	refusalsASecond = 200
	refusalsBurst   = 400
	refusalDelay    = time.Second
)

// refusals slows down a tenant that keeps sending requests which are refused: refusing costs processor time too, and such a
// client does not wait by itself. It may be used by any number of goroutines at once.
type refusals struct {
	mu      sync.Mutex
	tenants map[domain.TenantID]*rate.Limiter
}

// delay holds up the answer to a refused request, until ctx ends at the latest. Answers that busy clients get in the normal
// course of work (not found, conflicts, outages) are not delayed.
func (r *refusals) delay(ctx context.Context, tenant domain.TenantID, err error) {
	refused, ok := errors.AsType[*domain.Error](err)
	if !ok || !isRefusalOfMisuse(refused.Code) {
		return
	}
	pause := time.NewTimer(r.reserve(tenant))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

func isRefusalOfMisuse(code domain.Code) bool {
	switch code {
	case domain.CodeInvalidRequest, domain.CodeInvalidJSON, domain.CodeForbidden, domain.CodeQuotaExceeded, domain.CodeTooLarge,
		codeUnsupportedMediaType, domain.CodeInvalidDefinition, domain.CodeTooCostly, domain.CodeTooManyRequests:
		return true
	}
	return false
}

// reserve counts a refusal, and returns how long it is to be delayed.
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

// forgetIdle drops the tenants that had no refusal for a while, once there are many.
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
