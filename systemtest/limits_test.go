package systemtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Two processes with ten times as many requests as the limit allows, of which one is killed and started again, let in a
// burst and what the rate gives. The events of a day are in the tenant's usage, but for what a killed process had not
// saved.
func TestLimitsHoldAcrossKilledProcesses(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	first, second := serve(t, db), serve(t, db)
	operator := newUser(t, services{first}, operatorKey)
	_, tenant := newTenant(t, operator, "acme")
	const rate, burst = 40, 80
	operator.must(t, 201, nil, "PUT", "/v1/plans/default", fmt.Appendf(nil, `{"limits":{"events":{"perSecond":%d,"burst":%d},"connections":50}}`, rate, burst))
	// The plan has taken effect in both when each has refused an append.
	flood := func(ctx context.Context, s *service, appended *atomic.Int64) (refused bool) {
		u := newUser(t, services{s}, tenant.key)
		for n := 0; ctx.Err() == nil; n++ {
			a, err := u.once(ctx, 0, "POST", "/v1/streams/order-1/events", []byte(`[{"type":"Added","data":1},{"type":"Added","data":2}]`))
			switch {
			case err != nil: // killed
			case a.status == 201:
				appended.Add(2)
			case a.status == 429:
				refused = true
				if appended == &warmUp {
					return true
				}
			case a.status >= 500:
				// While the other process starts, the database may be busy; that lets nothing in.
			default:
				t.Errorf("answered %s", a)
			}
			<-time.After(5 * time.Millisecond)
		}
		return refused
	}
	for _, s := range []*service{first, second} {
		if !flood(t.Context(), s, &warmUp) {
			t.Fatal("the limit takes no effect")
		}
	}
	var appended atomic.Int64
	began := time.Now()
	ctx, end := context.WithTimeout(t.Context(), 6*time.Second)
	defer end()
	var floods sync.WaitGroup
	for _, s := range []*service{first, second} {
		for range 2 {
			floods.Go(func() { flood(ctx, s, &appended) })
		}
	}
	<-time.After(2 * time.Second)
	second.kill()
	second.start()
	floods.Wait()
	took := time.Since(began).Seconds()
	most := burst + rate*took
	t.Logf("%d events of at most %.0f", appended.Load(), most)
	if float64(appended.Load()) > 1.05*most || appended.Load() < rate {
		t.Errorf("%d events were appended in %.2f s, of at most %.0f", appended.Load(), took, most)
	}
	var usage struct {
		Days []struct{ Events int64 }
	}
	all := warmUp.Load() + appended.Load()
	deadline := time.Now().Add(patience)
	for total := int64(0); ; {
		tenant.must(t, 200, &usage, "GET", "/v1/usage", nil)
		total = 0
		for _, day := range usage.Days {
			total += day.Events
		}
		if total >= all-4*rate && total <= all+2*4 { // an answer that a killed process did not send was appended
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the usage has %d events of %d", total, all)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// warmUp counts the events that were appended before the plan took effect everywhere.
var warmUp atomic.Int64

// A client that repeats an append gets its answer, also when the tenant has stored as much as it may.
func TestARepeatedAppendPassesAtTheQuota(t *testing.T) {
	t.Parallel()
	s := serve(t, pgtest.Database(t))
	operator := newUser(t, services{s}, operatorKey)
	_, tenant := newTenant(t, operator, "acme")
	u := newUser(t, services{s}, tenant.key)
	first := []byte(`[{"id":"0190b0a0-0000-7000-8000-000000000001","type":"Added","data":1}]`)
	u.must(t, 201, nil, "POST", "/v1/streams/order-1/events", first)
	operator.must(t, 201, nil, "PUT", "/v1/plans/default", []byte(`{"quotas":{"events":1}}`))
	for deadline := time.Now().Add(patience); ; {
		a, err := u.once(t.Context(), 0, "POST", "/v1/streams/order-1/events", []byte(`[{"type":"Added","data":2}]`))
		if err == nil && a.status == 403 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("appends beyond the quota are let in: %v, %v", a.status, err)
		}
		<-time.After(200 * time.Millisecond)
	}
	a, err := u.once(t.Context(), 0, "POST", "/v1/streams/order-1/events", first)
	if err != nil || a.status >= 300 {
		t.Errorf("the repetition is answered %d, %v", a.status, err)
	}
}
