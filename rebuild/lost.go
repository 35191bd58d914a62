package rebuild

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// A live build's table can vanish: the documents' database was restored without it, was emptied, or kept it in memory
// only. Nothing is lost with it, since the log has everything; so a rebuild is started by itself. It is not where the
// database merely does not answer, and not again and again: one that comes to nothing is for people to look at.
const (
	healAtFirst = time.Minute // until a second rebuild is started for the same projection by itself; twice as long each time
	healAtMost  = time.Hour
)

// loss is a projection whose live build has no table any more.
type loss struct {
	build   int64     // the one that is lost
	pending bool      // a rebuild is to be started
	healed  time.Time // when one was started by itself for the last time
	wait    time.Duration
}

// Lost says that the live build of a projection has no table any more: a rebuild is started, unless one was lately. It
// returns at once and may be called again and again.
func (r *Rebuilds) Lost(id domain.ProjectionID, build int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lost[id]
	if l == nil {
		l = &loss{}
		r.lost[id] = l
	}
	if l.pending || !l.healed.IsZero() && time.Since(l.healed) < l.wait {
		return
	}
	l.build, l.pending = build, true
	r.Wake()
}

// heal starts the rebuilds of what is lost.
func (r *Rebuilds) heal(ctx context.Context) {
	r.mu.Lock()
	pending := make(map[domain.ProjectionID]int64)
	for id, l := range r.lost {
		if l.pending {
			pending[id] = l.build
			l.pending, l.healed = false, time.Now()
			l.wait = min(max(healAtFirst, 2*l.wait), healAtMost)
		}
	}
	r.mu.Unlock()
	for id, build := range pending {
		p, err := r.config.Store.Projection(ctx, id)
		if err == nil && p.Build != build {
			continue // another one is live by now
		}
		var rebuild domain.Rebuild
		if err == nil {
			rebuild, err = r.Start(ctx, id, Request{By: "service"})
		}
		switch {
		case err == nil:
			r.config.Log.Warn("the table of a projection's documents has vanished: rebuilding it from the log", "projection", id.Name,
				"build", build, "database", p.Definition.Database, "rebuild", rebuild.ID.String())
		case domain.IsCode(err, domain.CodeRebuildRunning), domain.IsCode(err, domain.CodeNotFound), ctx.Err() != nil:
		default:
			r.config.Log.Error("the table of a projection's documents has vanished, and a rebuild cannot be started", "projection", id.Name,
				"build", build, "error", err)
		}
	}
}
