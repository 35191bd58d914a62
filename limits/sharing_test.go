package limits

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// memory has one ledger, and the limits of all tenants.
type memory struct {
	mu     sync.Mutex
	ledger ledger
	limits domain.Limits
}

// start runs a process on the ledger until the context ends.
func (m *memory) start(ctx context.Context, running *sync.WaitGroup, name string) *Limiter {
	settings := &Settings{}
	settings.now.Store(&snapshot{otherwise: &effective{limits: m.limits}})
	l := NewLimiter(Config{Settings: settings, Process: name})
	l.node = func(domain.TenantID) int32 { return 0 }
	l.settle = func(_ context.Context, process string, questions []*question) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, q := range questions {
			q.grant, q.settled = m.ledger.settle(time.Now().UnixMicro(), &q.limits, process, q.demand)
		}
		return nil
	}
	running.Go(func() { _ = l.Run(ctx) })
	return l
}

// appendEvents tries to append once.
func appendEvents(ctx context.Context, l *Limiter, count int64) bool {
	pass, err := l.Enter(ctx, Caller{}, Append)
	if err != nil {
		return false
	}
	defer pass.Close()
	return pass.Append(ctx, count, 1) == nil
}

// A node of a cluster that does not answer delays no other.
func TestANodeWithoutAnswersDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		hung, other := domain.NewTenantID(), domain.NewTenantID()
		settings := &Settings{}
		settings.now.Store(&snapshot{otherwise: &effective{limits: domain.Limits{Requests: &domain.Rate{PerSecond: 10, Burst: 10}}}})
		l := NewLimiter(Config{Settings: settings, Process: "a", Log: slog.New(slog.DiscardHandler)})
		l.node = func(tenant domain.TenantID) int32 {
			if tenant == hung {
				return 1
			}
			return 2
		}
		var ledger ledger
		l.settle = func(ctx context.Context, process string, questions []*question) error {
			for _, q := range questions {
				if q.tenant == hung {
					<-ctx.Done()
					return ctx.Err()
				}
				q.grant, q.settled = ledger.settle(time.Now().UnixMicro(), &q.limits, process, q.demand)
			}
			return nil
		}
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(ctx) })
		enter := func(tenant domain.TenantID) error {
			pass, err := l.Enter(ctx, Caller{Tenant: tenant}, Request)
			pass.Close()
			return err
		}
		running.Go(func() {
			for ctx.Err() == nil {
				if enter(hung) == nil {
					t.Error("a tenant without answers is let in")
				}
			}
		})
		for range 100 {
			began := time.Now()
			if err := enter(other); err != nil || time.Since(began) > 100*time.Millisecond {
				t.Errorf("the other tenant waited %s and got %v", time.Since(began), err)
			}
			<-time.After(200 * time.Millisecond)
		}
		stop()
		running.Wait()
	})
}

// A request whose tokens or slot another request took after each of its rounds asks again, and is not refused: there
// are more. It is refused if its last round has shown that there are none.
func TestOnlyWhatIsUsedUpIsRefused(t *testing.T) {
	t.Parallel()
	ten, now := int64(10), time.Now()
	wants := need{}
	wants.tokens[requests], wants.slots[inFlight] = 1, 1
	for _, dryAt := range []time.Time{{}, now.Add(-time.Second)} {
		withTokens := &share{limits: domain.Limits{Requests: &domain.Rate{PerSecond: 10, Burst: 10}}, until: now.Add(lease)}
		withTokens.tokens[requests].dryAt = dryAt
		if dryAt.IsZero() {
			withTokens.tokens[requests].free = 9
		}
		withSlots := &share{limits: domain.Limits{InFlight: &ten}, until: now.Add(lease)}
		withSlots.slots[inFlight] = slots{held: 1, used: 1, dryAt: dryAt}
		for what, s := range map[string]*share{"tokens": withTokens, "slots": withSlots} {
			missing, err := s.check(now, wants, pauseDry, true)
			if refused := err != nil; refused == dryAt.IsZero() || missing == refused {
				t.Errorf("%s, none left at %v: another round %v, refusal %v", what, dryAt, missing, err)
			}
		}
	}
}

// Processes with appends of up to a burst are all served, if they try again, and exceed no limit together.
func TestEveryProcessIsServed(t *testing.T) {
	t.Parallel()
	type client struct {
		counts    []int64
		again     time.Duration
		connected bool
	}
	rapid.Check(t, func(r *rapid.T) {
		rate := &domain.Rate{PerSecond: rapid.Int64Range(1, 200).Draw(r, "rate")}
		rate.Burst = rate.PerSecond * rapid.Int64Range(1, 4).Draw(r, "burst")
		clients := make([]client, rapid.IntRange(2, 4).Draw(r, "processes"))
		appends := 0
		for i := range clients {
			clients[i] = client{
				rapid.SliceOfN(rapid.Int64Range(1, rate.Burst), 1, 3).Draw(r, "appends"),
				rapid.SampledFrom([]time.Duration{20 * time.Millisecond, 300 * time.Millisecond, time.Second}).Draw(r, "again"),
				rapid.Bool().Draw(r, "connected"),
			}
			appends += len(clients[i].counts)
		}
		// A bucket is full after this time, and another append can take it then.
		full := time.Duration(rate.Burst) * time.Second / time.Duration(rate.PerSecond)
		var failures []string
		synctest.Test(t, func(*testing.T) {
			ctx, stop := context.WithCancel(context.Background())
			m := &memory{limits: domain.Limits{Events: rate, Connections: new(int64(4)), InFlight: new(int64(4))}}
			began := time.Now()
			var running, sending sync.WaitGroup
			var mu sync.Mutex
			sent := int64(0)
			for i, c := range clients {
				l := m.start(ctx, &running, fmt.Sprint(i))
				sending.Go(func() {
					if c.connected {
						if connection, err := l.Enter(ctx, Caller{}, Connection); err == nil {
							defer connection.Close()
						}
					}
					for _, count := range c.counts {
						for !appendEvents(ctx, l, count) && time.Since(began) < time.Duration(appends)*(full+3*time.Second) {
							<-time.After(c.again)
						}
						mu.Lock()
						sent += count
						took := time.Since(began)
						if most := float64(rate.Burst) + float64(rate.PerSecond)*took.Seconds(); float64(sent) > most+1e-3 {
							failures = append(failures, fmt.Sprintf("%d events were sent in %v, of at most %.3f", sent, took, most))
						} else if took >= time.Duration(appends)*(full+3*time.Second) {
							failures = append(failures, fmt.Sprintf("process %d could not send %d events in %v", i, count, took))
						}
						mu.Unlock()
					}
				})
			}
			sending.Wait()
			stop()
			running.Wait()
		})
		if len(failures) > 0 {
			r.Fatalf("%+v: %v", *rate, failures)
		}
	})
}

// A tenant within its rate is not refused, however large its appends are, and what idle processes do not need returns.
func TestLargeAppendsWithinTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		m := &memory{limits: domain.Limits{Events: &domain.Rate{PerSecond: 200, Burst: 200}, Connections: new(int64(10))}}
		var all []*Limiter
		for i := range 4 {
			l := m.start(ctx, &running, fmt.Sprint(i))
			if connection, err := l.Enter(ctx, Caller{}, Connection); err != nil {
				t.Fatal(err)
			} else {
				defer connection.Close()
			}
			all = append(all, l)
		}
		for i := range 20 {
			if !appendEvents(ctx, all[0], 150) {
				t.Errorf("append %d of 150 events is refused", i)
			}
			<-time.After(time.Second)
		}
		for i := range 40 {
			if !appendEvents(ctx, all[i%4], 20) {
				t.Errorf("append %d of 20 events is refused", i)
			}
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(time.Second)
		if !appendEvents(ctx, all[3], 200) {
			t.Error("a burst is refused after a pause")
		}
		<-time.After(3 * time.Second)
		rounds := func() int64 {
			all[0].mu.Lock()
			defer all[0].mu.Unlock()
			return all[0].rounds
		}
		before := rounds()
		<-time.After(time.Minute)
		if more := rounds() - before; more > 15 {
			t.Errorf("a process with a connection that does nothing had %d rounds in a minute", more)
		}
		stop()
		running.Wait()
	})
}
