package limits

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	// loadAgain is how often the settings are read although no change was announced.
	loadAgain = time.Minute
	// loadPause is the pause between two reads, so that many changes together need few.
	loadPause = 200 * time.Millisecond
	// loadTimeout limits one read.
	loadTimeout = 10 * time.Second
)

// Settings are the limits and quotas of all tenants, in memory. All methods may be called concurrently.
type Settings struct {
	store  *Postgres
	log    *slog.Logger
	now    atomic.Pointer[snapshot]
	change chan struct{} // has an element if the settings have changed since the last read began
}

// snapshot is what one read of the settings has found. It is not modified.
type snapshot struct {
	tenants   map[domain.TenantID]*effective
	counted   []domain.TenantID // with quotas for stored events
	otherwise *effective        // of tenants without a plan; nil: no limits
}

// effective are the limits and quotas that hold for a tenant.
type effective struct {
	plan   string
	limits domain.Limits
	quotas domain.Quotas
}

// any reports whether there is a limit or quota that requests are checked against.
func (e *effective) any() bool {
	return e.limits != domain.Limits{} || e.countsStored()
}

// countsStored reports whether there is a quota for stored events.
func (e *effective) countsStored() bool { return e.quotas.Events != nil || e.quotas.Bytes != nil }

// LoadSettings reads the settings. The caller must then run Run.
func LoadSettings(ctx context.Context, store *Postgres, log *slog.Logger) (*Settings, error) {
	s := &Settings{store: store, log: log, change: make(chan struct{}, 1)}
	return s, s.load(ctx)
}

func (s *Settings) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	plans, tenants, err := s.store.all(ctx)
	if err != nil {
		return err
	}
	byName := make(map[string]domain.Plan, len(plans))
	for _, plan := range plans {
		byName[plan.Name] = plan
	}
	of := func(t domain.TenantLimits) *effective {
		if t.Plan == "" {
			t.Plan = domain.DefaultPlan
		}
		e := &effective{plan: byName[t.Plan].Name}
		e.limits, e.quotas = t.Within(byName[t.Plan])
		return e
	}
	found := &snapshot{tenants: make(map[domain.TenantID]*effective, len(tenants)), otherwise: of(domain.TenantLimits{})}
	for _, a := range tenants {
		e := of(a.TenantLimits)
		if found.tenants[a.tenant] = e; e.countsStored() {
			found.counted = append(found.counted, a.tenant)
		}
	}
	s.now.Store(found)
	return nil
}

// Run keeps the settings current until ctx ends, and then returns nil. While they cannot be read, the last ones hold.
func (s *Settings) Run(ctx context.Context) error {
	tick := time.NewTicker(loadAgain)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.change:
		case <-tick.C:
		}
		if err := s.load(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("the limits of tenants could not be read; the last ones hold", "error", err)
			s.Notice()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(loadPause):
		}
	}
}

// Notice makes Run read the settings again.
func (s *Settings) Notice() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

// of returns what holds for a tenant.
func (s *Settings) of(tenant domain.TenantID) *effective {
	now := s.now.Load()
	if e := now.tenants[tenant]; e != nil {
		return e
	}
	return now.otherwise
}

// counted returns the tenants with a plan or limits whose quotas need the count of stored events; all means that
// tenants without a plan do, too.
func (s *Settings) counted() (tenants []domain.TenantID, all bool) {
	now := s.now.Load()
	return now.counted, now.otherwise.countsStored()
}

// QuotasInUse returns what the tenant has used of each of its quotas. One is missing while its count is not known.
func (s *Settings) QuotasInUse(ctx context.Context, tenant domain.TenantID) ([]domain.QuotaUse, error) {
	quotas := s.of(tenant).quotas
	if quotas == (domain.Quotas{}) {
		return nil, nil
	}
	use, err := s.store.Use(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var all []domain.QuotaUse
	for _, name := range domain.QuotaNames {
		if limit := quotas.Of(name); limit != nil {
			if used, known := use[name]; known {
				all = append(all, domain.QuotaUse{Quota: name, Used: used, Limit: *limit})
			}
		}
	}
	return all, nil
}
