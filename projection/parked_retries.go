package projection

import (
	"context"
	"log/slog"
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
	dueBuilds    = 10_000
	dueDocuments = 20 // of a build, in one look
	dueAtOnce    = 2  // builds
	dueTime      = 10 * time.Second
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
		for _, b := range due {
			if !r.config.Owns(b.Tenant) || ctx.Err() != nil {
				continue
			}
			replays.Go(func() error {
				r.replay(ctx, b)
				return nil
			})
		}
		_ = replays.Wait()
	}
}

// replay replays some due documents of a build, for a while. Those of a build that is not live only wait longer.
func (r *ParkedRetries) replay(ctx context.Context, b registry.ParkedBuild) {
	ctx, cancel := context.WithTimeout(budget.OfTenant(ctx, b.Tenant), dueTime)
	defer cancel()
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

func (c *Catalog) replayDue(ctx context.Context, b registry.ParkedBuild, schedule domain.RetrySchedule, sum *Replayed) error {
	documents, err := c.config.Store.ClaimParked(ctx, b, schedule, dueDocuments)
	if err != nil || len(documents) == 0 {
		return err
	}
	u, err := c.newParkedReplay(ctx, b.Tenant, b.Name)
	if err != nil || u.id != b.ProjectionID || u.build.Number != b.Build {
		return err
	}
	for _, document := range documents {
		if err := u.replay(ctx, document, sum); err != nil {
			return err
		}
	}
	return nil
}
