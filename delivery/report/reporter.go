package report

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/registry"
)

// Config configures a Reporter. All parts, Store to Projections, are required.
type Config struct {
	Store *Postgres
	// Append appends reports, which are not checked against schemas.
	Append      func(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error)
	Events      *eventlog.Log
	Groups      *group.Postgres     // the dead letters, and the lag of groups
	Webhooks    *webhook.Postgres   // whether they fail
	Registry    *registry.Registry  // the faults and parked documents
	Projections *projection.Catalog // which builds are live, whether they have stopped, and their lag
	// Quotas returns what a tenant has used of each of its quotas. Nil: it has none.
	Quotas func(ctx context.Context, tenant domain.TenantID) ([]domain.QuotaUse, error)
	// Notice is called when a tenant has, or no longer has, reports. It must return at once. Nil: nothing is called.
	Notice func(tenant domain.TenantID)
	// Reported is called for each report that was appended, with its type. It must return at once. Nil: nothing is
	// called.
	Reported func(eventType string)
	Log      *slog.Logger // nil: none
	// Busy and Idle are the pauses between two looks at a tenant's rows, if there was something to report or the log
	// has grown, and otherwise. 0: 2 s and 10 s.
	Busy, Idle time.Duration
	// Slow is the pause between two looks at lag, webhooks and quotas. 0: 30 s.
	Slow time.Duration
	// FailingFor is how long all attempts to reach a webhook must have failed before that is reported. 0: 5 minutes.
	FailingFor time.Duration
}

// Bounds of a Reporter.
const (
	slice      = 100 // reports of one kind in one look at a tenant: with Config.Busy, 50 dead letters a second
	maxFaults  = 1000
	reloadEach = 10 * time.Second // how often the tenants with reports are listed
)

// Reporter appends the reports of the tenants that have enabled them. It is a source of a consume.Dispatcher, which
// runs it in the process that owns a tenant. All methods may be called concurrently.
type Reporter struct {
	config Config
	reload chan struct{} // one entry while the tenants must be listed

	mu      sync.Mutex
	tenants map[domain.TenantID]*reporting
}

// reporting is a tenant with reports. Calls of its consumer's Run never overlap, so only they use its times.
type reporting struct {
	Settings
	next     time.Time // when to look at its rows next
	nextSlow time.Time // when to look at lag and webhooks next
}

var _ consume.Source = (*Reporter)(nil)

// New returns a Reporter. It learns of tenants while Run is running.
func New(config Config) *Reporter {
	if config.Notice == nil {
		config.Notice = func(domain.TenantID) {}
	}
	if config.Reported == nil {
		config.Reported = func(string) {}
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Busy == 0 {
		config.Busy = 2 * time.Second
	}
	if config.Idle == 0 {
		config.Idle = 10 * time.Second
	}
	if config.Slow == 0 {
		config.Slow = 30 * time.Second
	}
	if config.FailingFor == 0 {
		config.FailingFor = 5 * time.Minute
	}
	return &Reporter{config: config, reload: make(chan struct{}, 1), tenants: make(map[domain.TenantID]*reporting)}
}

// Settings returns whether a tenant has reports.
func (r *Reporter) Settings(ctx context.Context, tenant domain.TenantID) (Settings, error) {
	return r.config.Store.ReportSettings(ctx, tenant)
}

// Limits of maxLag.
const (
	minLag = 10 * time.Second
	maxLag = 366 * 24 * time.Hour
)

// Put enables or disables a tenant's reports. lag, in whole seconds, is the lag from which on it is reported; 0: none
// is. Other processes learn of it within reloadEach.
func (r *Reporter) Put(ctx context.Context, tenant domain.TenantID, enabled bool, lag time.Duration) (Settings, error) {
	if lag != 0 && (lag < minLag || lag > maxLag) {
		return Settings{}, domain.Errorf(domain.CodeInvalidRequest, "maxLag", "%d seconds are outside the limits; use %d to %d seconds, or leave it out",
			lag/time.Second, minLag/time.Second, maxLag/time.Second)
	}
	settings, err := r.config.Store.PutReportSettings(ctx, tenant, enabled, lag)
	select {
	case r.reload <- struct{}{}:
	default:
	}
	return settings, err
}

// Run keeps the list of tenants with reports until ctx ends, and then returns nil.
func (r *Reporter) Run(ctx context.Context) error {
	tick := time.NewTicker(reloadEach)
	defer tick.Stop()
	for failing := false; ; {
		tenants, err := r.config.Store.ReportingTenants(ctx)
		switch {
		case err == nil:
			failing = false
			r.setTenants(tenants)
		case !failing && ctx.Err() == nil:
			failing = true
			r.config.Log.Warn("the tenants with reports cannot be listed; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.reload:
		}
	}
}

// setTenants replaces the tenants with reports.
func (r *Reporter) setTenants(tenants map[domain.TenantID]Settings) {
	var changed []domain.TenantID
	r.mu.Lock()
	for id, settings := range tenants {
		if t := r.tenants[id]; t == nil || !t.Since.Equal(settings.Since) || t.MaxLag != settings.MaxLag {
			r.tenants[id] = &reporting{Settings: settings}
			changed = append(changed, id)
		}
	}
	for id := range r.tenants {
		if _, still := tenants[id]; !still {
			delete(r.tenants, id)
			changed = append(changed, id)
		}
	}
	r.mu.Unlock()
	for _, id := range changed {
		r.config.Notice(id)
	}
}

// consumerName is the name of the only consumer. No group has it, because names of service groups have a dot, and the
// consumers of a dispatcher belong to service groups.
const consumerName = "reports"

// Consumers implements consume.Source.
func (r *Reporter) Consumers(_ context.Context, tenant domain.TenantID) ([]consume.Consumer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tenants[tenant]
	if t == nil {
		return nil, nil
	}
	return []consume.Consumer{{
		Name: consumerName, Revision: t.Since.Format(time.RFC3339Nano) + " " + t.MaxLag.String(),
		Run: func(ctx context.Context) (time.Time, error) { return r.run(ctx, tenant, t) },
	}}, nil
}

// run reports what is due, unless it was looked for a moment ago. It runs again after a pause.
func (r *Reporter) run(ctx context.Context, tenant domain.TenantID, t *reporting) (again time.Time, err error) {
	if time.Now().Before(t.next) {
		return t.next, nil
	}
	reported := false
	var problems []error // of one kind of report, which does not keep the others back
	for _, report := range []func(context.Context, domain.TenantID, *reporting) (bool, error){r.reportDeadLetters, r.reportParked, r.reportAlerts} {
		some, err := report(ctx, tenant, t)
		problems = append(problems, err)
		reported = reported || some
	}
	if err := errors.Join(problems...); err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	t.next = now.Add(r.config.Busy) // the log's growth may run it again then
	if reported {
		return t.next, nil
	}
	return now.Add(r.config.Idle), nil
}

// append appends reports. Those that are in the log already, from an interrupted look, are not appended again. A report
// that the log refuses, for example because an inline projection cannot fold it, is left out.
func (r *Reporter) append(ctx context.Context, tenant domain.TenantID, reports []domain.StreamAppend) error {
	if len(reports) == 0 {
		return nil
	}
	err := r.appendTogether(ctx, tenant, reports)
	problem, ok := errors.AsType[*domain.Error](err)
	if !ok || !refusal(problem.Code) {
		return err
	}
	if len(reports) > 1 {
		for i := range reports {
			if err := r.append(ctx, tenant, reports[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	if problem.Code != domain.CodeEventIDConflict {
		r.config.Log.Warn("a report was refused and is left out", "tenant", tenant.String(), "stream", reports[0].Stream, "error", err)
	}
	return nil
}

// refusal reports whether an append will fail again in the same way.
func refusal(code domain.Code) bool {
	switch code {
	case domain.CodeEventIDConflict, domain.CodePartialDuplicate, domain.CodeRefused, domain.CodeInvalidRequest, domain.CodeInvalidJSON, domain.CodeTooLarge,
		domain.CodeTooCostly:
		return true
	}
	return false
}

func (r *Reporter) appendTogether(ctx context.Context, tenant domain.TenantID, reports []domain.StreamAppend) error {
	appended, err := r.config.Append(ctx, tenant, domain.Append{Streams: reports})
	if err != nil || appended.Duplicate {
		return err
	}
	for _, s := range reports {
		r.config.Reported(s.Events[0].Type)
	}
	return nil
}
