package projection

import (
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// followed is a projection with its live build, as far as the runner knows. There may be tens of thousands: what else
// is needed for a turn comes from folds.
type followed struct {
	id       domain.ProjectionID
	build    int64
	database string
}

type pairKey struct {
	followed *followed
	tenant   domain.TenantID
}

// pairState says where a pair is. Only the one who took it off the queue moves a running pair.
type pairState uint8

const (
	pairIdle    pairState = iota // nothing to do until its log grows
	pairReady                    // in the queue
	pairRunning                  // a worker is at it
	pairDelayed                  // a timer puts it into the queue
	pairHeld                     // a rebuild holds it still
	pairFaulted                  // stands before an event that cannot be folded, until there is another build
)

// pair is a projection and a tenant. Its fields are the runner's, under its lock, except while it is running.
type pair struct {
	followed                  *followed
	tenant                    domain.TenantID
	build                     int64 // that at is about
	at                        position
	documentBytes, eventBytes int32 // as Replay has them
	state                     pairState
	stale                     int  // saves in a row that another worker was faster at
	saved                     bool // documents, since it was last proven
	mended                    bool // whether there is a fault of an earlier process to take back was looked up
	failures                  int
	retry                     *time.Timer // with pairDelayed
}

// follow takes over what AllProjections says of a projection.
func (r *Runner) follow(ctx context.Context, p *domain.Projection) {
	r.mu.Lock()
	f := r.followed[p.ProjectionID]
	fresh := f == nil
	if fresh {
		f = &followed{id: p.ProjectionID}
		r.followed[f.id] = f
		if f.id.Shared() {
			r.shared[f] = struct{}{}
		} else {
			r.own[f.id.Owner] = append(r.own[f.id.Owner], f)
		}
	}
	changed := f.build != p.Build
	f.build, f.database = p.Build, p.Definition.Database
	r.mu.Unlock()
	if !changed {
		return
	}
	// A shared projection has as many pairs as there are tenants: one look at its table tells which of them have nothing
	// to do. Where it cannot be had, each pair finds out for itself.
	checkpoints := make(map[domain.TenantID]int64)
	if driver := r.config.Drivers[f.database]; driver != nil && f.id.Shared() {
		for checkpoint, err := range driver.Checkpoints(ctx, p.LiveBuild()) {
			if err != nil {
				r.config.Log.Debug("the checkpoints of a build cannot be read at once", "projection", f.id.Name, "build", p.Build, "error", err)
				clear(checkpoints)
				break
			}
			checkpoints[checkpoint.Tenant] = checkpoint.Position
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.build != p.Build {
		return
	}
	if !f.id.Shared() {
		r.begin(f, f.id.Owner, nil)
		return
	}
	for tenant := range r.heads {
		if checkpoint, ok := checkpoints[tenant]; ok {
			r.begin(f, tenant, &checkpoint)
		} else {
			r.begin(f, tenant, nil)
		}
	}
}

// begin starts a pair over with another build. A worker that is at it finds out by itself.
func (r *Runner) begin(f *followed, tenant domain.TenantID, checkpoint *int64) {
	head := r.heads[tenant]
	if head == 0 {
		return
	}
	p := r.pair(f, tenant)
	if p.state == pairRunning {
		return
	}
	p.restart(f.build)
	if checkpoint != nil {
		p.at = position{known: true, stored: *checkpoint, seen: *checkpoint, savedAt: time.Now()}
		if *checkpoint >= head {
			if p.state == pairFaulted || p.state == pairHeld {
				p.state = pairIdle
			}
			return
		}
	}
	r.enqueue(p)
}

// restart forgets everything that was about an earlier build.
func (p *pair) restart(build int64) {
	p.build, p.at, p.mended, p.saved, p.failures, p.stale = build, position{}, false, false, 0, 0
	p.documentBytes, p.eventBytes = 0, 0
}

func (r *Runner) pair(f *followed, tenant domain.TenantID) *pair {
	key := pairKey{f, tenant}
	p := r.pairs[key]
	if p == nil {
		p = &pair{followed: f, tenant: tenant, build: f.build}
		r.pairs[key] = p
	}
	return p
}

// rouse gives a pair a turn because its log has grown. One that is not idle finds out by itself.
func (r *Runner) rouse(f *followed, tenant domain.TenantID) {
	if p := r.pair(f, tenant); p.state == pairIdle {
		r.enqueue(p)
	}
}

// enqueue puts a pair behind all that wait for a turn; whoever calls it holds the lock, and the pair is not running.
func (r *Runner) enqueue(p *pair) {
	if p.state == pairReady || p.state == pairRunning {
		return
	}
	if p.retry != nil {
		p.retry.Stop()
		p.retry = nil
	}
	delete(r.waiting, p)
	p.state = pairReady
	r.ready.push(p)
	r.wakeup.Signal()
}

// delay gives a pair its next turn after a while.
func (r *Runner) delay(p *pair, wait time.Duration) {
	p.state = pairDelayed
	p.retry = time.AfterFunc(wait, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if p.state == pairDelayed && !r.ended {
			r.enqueue(p)
		}
	})
}

// drop forgets a projection that is gone, and its pairs. One that comes again under the same name is another one.
func (r *Runner) drop(f *followed) {
	r.folds.forget(f.id)
	if r.followed[f.id] == f {
		delete(r.followed, f.id)
	}
	delete(r.shared, f)
	r.own[f.id.Owner] = slices.DeleteFunc(r.own[f.id.Owner], func(other *followed) bool { return other == f })
	if len(r.own[f.id.Owner]) == 0 {
		delete(r.own, f.id.Owner)
	}
	tenants := []domain.TenantID{f.id.Owner}
	if f.id.Shared() {
		tenants = tenants[:0]
		for tenant := range r.heads {
			tenants = append(tenants, tenant)
		}
	}
	for _, tenant := range tenants {
		if p := r.pairs[pairKey{f, tenant}]; p != nil {
			delete(r.waiting, p)
			delete(r.unproven, p)
			delete(r.pairs, pairKey{f, tenant})
		}
	}
}

// queue is a first-in-first-out queue of pairs.
type queue struct {
	pairs []*pair
	first int
}

func (q *queue) len() int { return len(q.pairs) - q.first }

func (q *queue) push(p *pair) { q.pairs = append(q.pairs, p) }

func (q *queue) pop() *pair {
	p := q.pairs[q.first]
	q.pairs[q.first] = nil
	q.first++
	// What was taken is given back once it is most of the slice: each pair is then moved at most once on average.
	if q.first > 64 && q.first > len(q.pairs)/2 {
		q.pairs = slices.Delete(q.pairs, 0, q.first)
		q.first = 0
	}
	return p
}
