package projection

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/registry"
)

// ParkedRetriesConfig configures ParkedRetries. Catalog and Owns are required.
type ParkedRetriesConfig struct {
	Catalog  *Catalog
	Owns     func(domain.TenantID) bool // whether this process replays the tenant's parked documents
	Schedule domain.RetrySchedule       // 0: 30 s, and an hour
	Every    time.Duration              // how often to look for due documents; 0: 30 s
	Log      *slog.Logger               // nil: none
}

// ParkedRetries replays parked documents automatically, with growing pauses, as ReplayParked does on request.
type ParkedRetries struct{ config ParkedRetriesConfig }

// NewParkedRetries returns ParkedRetries. It works while Run is running.
func NewParkedRetries(config ParkedRetriesConfig) *ParkedRetries {
	config.Schedule = retrySchedule(config.Schedule)
	if config.Every == 0 {
		config.Every = 30 * time.Second
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &ParkedRetries{config}
}

// Bounds of ParkedRetries.
const (
	dueBuilds = 10_000
	dueAtOnce = 2                // tenants
	dueTime   = 10 * time.Second // of a tenant, in one look
)

// Run works until ctx ends, and then returns nil.
func (r *ParkedRetries) Run(ctx context.Context) error {
	tick := time.NewTicker(r.config.Every)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		due, err := r.config.Catalog.config.Store.DueParked(ctx, dueBuilds)
		if err != nil && !failing && ctx.Err() == nil {
			r.config.Log.Warn("parked documents cannot be listed for automatic replays; trying again", "error", err)
		}
		failing = err != nil
		var replays errgroup.Group
		replays.SetLimit(dueAtOnce)
		for _, builds := range byTenant(due) {
			tenant := builds[0].Tenant
			if !r.config.Owns(tenant) || ctx.Err() != nil {
				continue
			}
			replays.Go(func() error {
				// The next look begins with another build, so that the first one cannot take all of the tenant's time.
				rand.Shuffle(len(builds), func(i, j int) { builds[i], builds[j] = builds[j], builds[i] })
				ctx, cancel := context.WithTimeout(budget.OfTenant(ctx, tenant), dueTime)
				defer cancel()
				for _, b := range builds {
					if ctx.Err() == nil {
						r.replay(ctx, b)
					}
				}
				return nil
			})
		}
		_ = replays.Wait()
	}
}

// byTenant splits builds that are sorted by tenant.
func byTenant(due []registry.ParkedBuild) (tenants [][]registry.ParkedBuild) {
	for len(due) > 0 {
		n := 1
		for n < len(due) && due[n].Tenant == due[0].Tenant {
			n++
		}
		tenants = append(tenants, due[:n:n])
		due = due[n:]
	}
	return tenants
}

// replay replays due documents of a build until ctx ends. Those of a build that is not live wait until it is.
func (r *ParkedRetries) replay(ctx context.Context, b registry.ParkedBuild) {
	var replayed Replayed
	err := r.config.Catalog.replayDue(ctx, b, r.config.Schedule, &replayed)
	if replayed.Documents > 0 {
		r.config.Log.Info("parked documents were replayed", "projection", b.Name, "tenant", b.Tenant.String(), "documents", replayed.Documents,
			"events", replayed.Events)
	}
	if err != nil {
		r.config.Log.Debug("parked documents cannot be replayed now", "projection", b.Name, "tenant", b.Tenant.String(), "error", err)
	}
}

// replayDue claims and replays one document after the other, so that a slow one costs the others no attempt.
func (c *Catalog) replayDue(ctx context.Context, b registry.ParkedBuild, schedule domain.RetrySchedule, sum *Replayed) error {
	u, err := c.newParkedReplay(ctx, b.Tenant, b.Name)
	if err != nil || u.id != b.ProjectionID || u.build.Number != b.Build {
		return err
	}
	var problems []error
	for ctx.Err() == nil {
		documents, err := c.config.Store.ClaimParked(ctx, b, schedule, 1)
		if err != nil || len(documents) == 0 {
			return errors.Join(append(problems, err)...)
		}
		if err := u.replay(ctx, documents[0], sum); err != nil {
			problems = append(problems[:min(len(problems), 9)], err)
		}
	}
	return errors.Join(problems...)
}
