package rebuild

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// A live build's table can vanish: the documents' database was restored without it, was emptied, or kept it in memory
// only. Nothing is lost, since the log has all events, so a rebuild starts automatically. It does not start if the
// database merely does not answer. Retries become rarer, since a rebuild that keeps failing needs a person to look at
// it.
const (
	minLossRetry = time.Minute // until the second automatic rebuild of a projection; doubled each time
	maxLossRetry = time.Hour
)

// lostTable is what is known of a projection whose live build must be made again.
type lostTable struct {
	build     int64     // the lost build
	pending   bool      // a rebuild must be started
	rebuiltAt time.Time // when a rebuild was last started automatically
	wait      time.Duration
}

// Lost reports that the live build of a projection has lost its table, or that the log has lost events that are in its
// documents. A rebuild starts, unless one was started recently. Lost returns at once, and may be called repeatedly.
func (r *Rebuilds) Lost(id domain.ProjectionID, build int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lost[id]
	if l == nil {
		l = &lostTable{}
		r.lost[id] = l
	}
	if l.pending || !l.rebuiltAt.IsZero() && time.Since(l.rebuiltAt) < l.wait {
		return
	}
	l.build, l.pending = build, true
	r.Wake()
}

// rebuildLost starts the rebuilds of lost builds.
func (r *Rebuilds) rebuildLost(ctx context.Context) {
	r.mu.Lock()
	pending := make(map[domain.ProjectionID]int64)
	for id, l := range r.lost {
		if l.pending {
			pending[id] = l.build
			l.pending, l.rebuiltAt = false, time.Now()
			l.wait = min(max(minLossRetry, 2*l.wait), maxLossRetry)
		}
	}
	r.mu.Unlock()
	for id, build := range pending {
		p, err := r.config.Store.Projection(ctx, id)
		if err == nil && p.Build != build {
			continue // another build is live by now
		}
		var rebuild domain.Rebuild
		if err == nil {
			// Snapshots may contain events that the log has lost, too.
			rebuild, err = r.Start(ctx, id, Request{By: "service", RebuildOptions: domain.RebuildOptions{FromLog: true}})
		}
		switch {
		case err == nil:
			r.config.Log.Warn("the documents of a projection are lost, or contain events that the log has lost: rebuilding them from the log", "projection", id.Name,
				"build", build, "database", p.Definition.Database, "rebuild", rebuild.ID.String())
		case domain.IsCode(err, domain.CodeRebuildRunning), domain.IsCode(err, domain.CodeNotFound), ctx.Err() != nil:
		default:
			r.config.Log.Error("the documents of a projection are lost, or contain events that the log has lost, and a rebuild cannot be started", "projection", id.Name,
				"build", build, "error", err)
		}
	}
}
