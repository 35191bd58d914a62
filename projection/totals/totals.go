package totals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/registry"
)

// Config configures Totals. All parts, Store to Owns, are required.
type Config struct {
	Store    *Postgres
	Registry *registry.Registry
	Drivers  map[string]drivers.Driver
	Owns     func(domain.TenantID) bool // whether this process computes the tenant's totals
	Every    time.Duration              // the pause between two looks for changed documents; 0: 10 s
	// Refresh is the age at which totals are computed again although no checkpoint has moved: a parked document that
	// was replayed changes without it. 0: an hour.
	Refresh time.Duration
	// Share is how much of the time a tenant's documents of a projection may be read. The next scan begins when the
	// time that the last one took is at most this share of the time since it began. 0: 0.05.
	Share float64
	Log   *slog.Logger // nil: none
}

// Totals computes and reads the totals of shared projections. All methods may be called concurrently.
type Totals struct {
	config Config

	mu      sync.Mutex
	queued  map[scanID]bool
	short   []*scan // not begun, likely to end in one turn
	long    []*scan // not begun, others
	begun   []*scan // have had a turn
	balance bool    // whether a scan that has begun is next
	longNow bool    // whether a long scan is the next to begin

	paused map[failure]time.Time // scans that have failed, and when they are tried again
}

// Bounds of Totals.
const (
	workers      = 2                // scans that read at the same time; each rests as long as it reads
	turnTime     = time.Second      // how long a scan reads while others wait
	maxBegun     = 16               // scans that have had a turn, each with the sums of up to maxKeys keys in memory
	maxLong      = 8                // of them, those that took more than a turn the time before
	callTime     = 30 * time.Second // of one call of a driver
	pageSize     = 1000
	pageBytes    = 4 << 20
	failurePause = time.Minute // after a scan has failed
	forgetAtMost = 1000        // tenants in one look whose totals of removed projections are deleted
)

// New returns Totals. It computes while Run is running.
func New(config Config) *Totals {
	if config.Every == 0 {
		config.Every = 10 * time.Second
	}
	if config.Refresh == 0 {
		config.Refresh = time.Hour
	}
	if config.Share == 0 {
		config.Share = 0.05
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Totals{config: config, queued: make(map[scanID]bool), paused: make(map[failure]time.Time)}
}

// Run computes the totals of tenants whose documents have changed, for the tenants that this process owns, until ctx
// ends. It returns nil.
func (t *Totals) Run(ctx context.Context) error {
	tick := time.NewTicker(t.config.Every)
	defer tick.Stop()
	for failing := false; ; {
		err := t.queueScans(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			t.config.Log.Warn("the documents whose totals to compute could not be found; trying again", "error", err)
		}
		failing = err != nil
		t.work(ctx, time.Now().Add(t.config.Every))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// queueScans queues a scan for each tenant whose totals are due.
func (t *Totals) queueScans(ctx context.Context) error {
	projections, err := t.config.Registry.Projections(ctx, domain.Everyone)
	if err != nil {
		return err
	}
	t.endPauses(time.Now())
	names := []string{}
	var problems []error
	for _, p := range projections {
		if p.Definition.Totals == nil {
			continue
		}
		names = append(names, p.Name)
		states, err := t.config.Store.states(ctx, p.Name)
		if err == nil {
			err = t.lookAt(ctx, p, states)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("projection %q: %w", p.Name, err))
		}
	}
	return errors.Join(append(problems, t.config.Store.deleteOthers(ctx, names, forgetAtMost))...)
}

func (t *Totals) lookAt(ctx context.Context, p domain.Projection, states map[domain.TenantID]state) error {
	live, err := t.live(ctx, p, states)
	if err != nil {
		return err
	}
	now, spec := time.Now(), specOf(p.Definition.Totals)
	for tenant, at := range live {
		old := states[tenant]
		age := now.Sub(old.computedAt)
		due := old.spec != spec || age >= t.config.Refresh || !at.computed(old) && float64(age)*t.config.Share >= float64(old.took)
		if due && t.config.Owns(tenant) {
			t.queue(&scan{scanID: scanID{p.Name, tenant}, build: at.build, spec: spec, tally: newTally(*p.Definition.Totals), old: old})
		}
	}
	return nil
}

// specOf identifies what is summed.
func specOf(totals *domain.Totals) string {
	text, _ := json.Marshal(totals) // texts can always be encoded
	return string(text)
}

// place is where a tenant's documents are, and how far its log is folded into them.
type place struct {
	build    domain.Build
	position int64
}

// computed reports whether totals were computed from the documents as they are.
func (p place) computed(from state) bool {
	return from.build == p.build.Number && from.position == p.position
}

// live returns the place of each tenant's live documents. It includes tenants that have totals but no longer documents.
func (t *Totals) live(ctx context.Context, p domain.Projection, states map[domain.TenantID]state) (map[domain.TenantID]place, error) {
	rows, err := t.config.Registry.TenantBuildsOf(ctx, p.ProjectionID)
	if err != nil {
		return nil, err
	}
	own := make(map[domain.TenantID]domain.Build)
	builds := map[int64]domain.Build{p.Build: p.LiveBuild()}
	for _, row := range rows {
		if row.Base != 0 && row.Base != p.Build {
			continue
		}
		tenants := p
		if tenants.Build = row.Build; row.Definition != nil {
			tenants.Definition = *row.Definition
		}
		own[row.Tenant] = tenants.LiveBuild()
		if tenants.Definition.Mode != domain.ModeLive {
			builds[row.Build] = tenants.LiveBuild()
		}
	}
	found := make(map[domain.TenantID]place)
	for _, build := range builds {
		checkpoints, err := t.checkpoints(ctx, build)
		if err != nil {
			return nil, err
		}
		for _, checkpoint := range checkpoints {
			if of, has := own[checkpoint.Tenant]; has && of.Number == build.Number || !has && build.Number == p.Build {
				found[checkpoint.Tenant] = place{build, checkpoint.Position}
			}
		}
	}
	for tenant := range states {
		if _, ok := found[tenant]; ok {
			continue
		}
		build, has := own[tenant]
		if !has {
			build = p.LiveBuild()
		}
		if _, stored := builds[build.Number]; stored {
			found[tenant] = place{build, 0}
		}
	}
	return found, nil
}

// checkpoints returns the checkpoints of a build's tenants.
func (t *Totals) checkpoints(ctx context.Context, build domain.Build) (all []drivers.Checkpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	driver, err := t.driver(build)
	if err != nil {
		return nil, err
	}
	for checkpoint, err := range driver.Checkpoints(ctx, build) {
		if errors.Is(err, drivers.ErrNoTable) {
			break // another build has gone live since, or a rebuild restores it
		}
		if err != nil {
			return nil, err
		}
		all = append(all, checkpoint)
	}
	return all, nil
}

func (t *Totals) driver(build domain.Build) (drivers.Driver, error) {
	driver, ok := t.config.Drivers[build.Database]
	if !ok {
		return nil, fmt.Errorf("its documents are in the database %q, which is not in the configuration", build.Database)
	}
	return driver, nil
}
