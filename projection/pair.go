package projection

import (
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// followed is a projection with its live build, as far as the runner knows. There may be tens of thousands: what else
// is needed for a turn comes from folds.
type followed struct {
	id       domain.ProjectionID
	build    int64
	database string
	surveyed int64 // the build whose checkpoints are being read all at once; its pairs begin then
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
	documentBytes, eventBytes int32  // as Replay has them
	aside                     *aside // likewise
	again                     bool   // somebody asked for a faulted pair's event to be tried again while it was running
	state                     pairState
	lane                      *lane // with pairReady: in whose queue
	stale                     int   // saves in a row that another worker was faster at
	saved                     bool  // documents, since it was last proven
	mended                    bool  // whether there is a fault of an earlier process to take back was looked up
	failures                  int
	retry                     *time.Timer // with pairDelayed
}

// follow takes over what AllProjections says of a projection.
func (r *Runner) follow(p *domain.Projection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.followed[p.ProjectionID]
	if f == nil {
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
	switch driver := r.config.Drivers[f.database]; {
	case !changed:
	case !f.id.Shared():
		r.begin(f, f.id.Owner, nil)
	case driver == nil || r.start == nil || r.ended:
		r.beginAll(f, nil)
	default:
		// A shared projection has as many pairs as there are tenants: one look at its table tells which of them have
		// nothing to do. It is taken beside, since the database may not answer.
		f.surveyed = f.build
		build := p.LiveBuild()
		r.start(func(ctx context.Context) { r.survey(ctx, f, driver, build) })
	}
}

// survey reads all checkpoints of a shared projection's build, and begins its pairs. Where they cannot be had, each pair
// finds out for itself.
func (r *Runner) survey(ctx context.Context, f *followed, driver drivers.Driver, build domain.Build) {
	checkpoints := make(map[domain.TenantID]int64)
	for checkpoint, err := range driver.Checkpoints(ctx, build) {
		if err != nil {
			r.config.Log.Debug("the checkpoints of a build cannot be read at once", "projection", f.id.Name, "build", build.Number, "error", err)
			clear(checkpoints)
			break
		}
		checkpoints[checkpoint.Tenant] = checkpoint.Position
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.surveyed != build.Number || r.followed[f.id] != f {
		return // another build went live meanwhile, which is surveyed in its turn
	}
	f.surveyed = 0
	r.beginAll(f, checkpoints)
}

func (r *Runner) beginAll(f *followed, checkpoints map[domain.TenantID]int64) {
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
	r.config.Progress.well(f.id, tenant)
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
	p.documentBytes, p.eventBytes, p.aside = 0, 0, nil
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
	if f.surveyed != 0 {
		return // it begins with all others
	}
	if p := r.pair(f, tenant); p.state == pairIdle {
		r.enqueue(p)
	}
}

// enqueue puts a pair behind all that wait for a turn; whoever calls it holds the lock, and the pair is not running.
func (r *Runner) enqueue(p *pair) {
	l := r.lane(p.followed.database)
	if p.state == pairReady && p.lane == l || p.state == pairRunning {
		return
	}
	if p.retry != nil {
		p.retry.Stop()
		p.retry = nil
	}
	delete(r.waiting, p)
	p.state, p.lane = pairReady, l
	l.ready.push(p)
	r.dispatch(l)
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
			r.config.Progress.well(f.id, tenant)
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
