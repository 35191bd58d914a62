package api

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/domain"
)

func TestRefusalsOfOneTenantSlowDownNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		flood, quiet := domain.NewTenantID(), domain.NewTenantID()
		delayed := func(tenant domain.TenantID, code domain.Code) time.Duration {
			began := time.Now()
			s.delayRefusal(t.Context(), tenant, domain.Errorf(code, "", "refused"))
			return time.Since(began)
		}
		for range refusalsBurst {
			if pause := delayed(flood, domain.CodeInvalidRequest); pause != 0 {
				t.Fatalf("a refusal within the burst is delayed by %s", pause)
			}
		}
		began := time.Now()
		for range refusalsASecond {
			delayed(flood, domain.CodeRefused)
		}
		if took := time.Since(began); took < 990*time.Millisecond || took > 1010*time.Millisecond {
			t.Errorf("one client gets %d more refusals in %s, want a second", refusalsASecond, took)
		}
		if pause := delayed(quiet, domain.CodeInvalidRequest); pause != 0 {
			t.Errorf("another tenant's refusal is delayed by %s", pause)
		}
		for _, code := range []domain.Code{domain.CodeNotFound, domain.CodeVersionConflict, domain.CodeUnavailable} {
			if pause := delayed(flood, code); pause != 0 {
				t.Errorf("%s is delayed by %s", code, pause)
			}
		}
		for range 10 * refusalsASecond {
			if pause := s.refusals.reserve(flood); pause > refusalDelay {
				t.Fatalf("many at once are delayed by %s", pause)
			}
		}
	})
}

func TestRefusalsForgetIdleTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		for range 5 {
			for range 1000 {
				r.reserve(domain.NewTenantID())
			}
			<-time.After(time.Minute)
		}
		if len(r.tenants) > 1001 {
			t.Errorf("%d tenants are remembered", len(r.tenants))
		}
	})
}
