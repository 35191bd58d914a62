package projection

import (
	"iter"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// followed is a projection that the runner follows. There may be tens of thousands, so a turn gets everything else it
// needs from folds.
type followed struct {
	id       domain.ProjectionID
	revision int64     // of the projection's row
	own      liveBuild // the projection's own live build
	interest *interest
	inline   bool          // appends take over its builds once those have caught up
	relaxed  time.Duration // how far, in time, it may lag, see Relaxed; 0: it is followed closely

	overrides map[*tenant]override // tenants for which another build is live
	pairs     map[*tenant]*pair    // of a shared projection
	ownPair   *pair                // of a projection that a tenant owns
}

// liveBuild is a build that is live.
type liveBuild struct {
	number   int64
	database string
	sum      folding.Sum // of the definition that made it
	version  int64       // of that definition
}

func (r *Runner) liveBuild(p *domain.Projection) liveBuild {
	return liveBuild{p.Build, r.folds.database(p.Definition.Database), folding.SumOf(&p.Definition), p.Version}
}

// override is the build that is live for one tenant, as in domain.TenantBuild.
type override struct {
	liveBuild       // without sum and database if it has the projection's definition
	base      int64 // in force while this is the projection's own build; 0: always
	inline    bool  // appends fold into it
}

// pairState is what a pair is waiting for or doing. Only its worker changes the state of a running pair.
type pairState uint8

const (
	pairIdle     pairState = iota // nothing to do until its log grows
	pairReady                     // in the queue
	pairRunning                   // a worker is folding it
	pairDelayed                   // a timer puts it into the queue
	pairHeld                      // a rebuild has paused it
	pairFaulted                   // stopped before an event that cannot be folded; a timer tries it again
	pairSurveyed                  // its checkpoint is being read, together with others
	pairInline                    // appends fold into its build: nothing to do as long as they do
)

// pair is a projection and a tenant. The runner's lock guards its fields. While the pair is running, only its worker
// changes what refers to the build, without the lock; but at under the lock, since Lags reads it. There may be very
// many idle pairs, so it is kept small.
type pair struct {
	followed                  *followed
	tenant                    *tenant
	build                     int64 // the build that at refers to
	at                        position
	pool                      *workerPool        // with pairReady: the pool whose queue it is in
	retry                     *time.Timer        // with pairDelayed and pairFaulted
	lastTurn                  int64              // when its last turn began, as UnixNano, for a relaxed pair
	documentBytes, eventBytes int32              // as in Replay
	exclusions                *domain.Exclusions // as in Replay
	recordedLosses            map[string]int64   // losses already recorded, by category, while it reads below them
	backlog                   *backlog           // nil: it is not paced
	nodes                     [2]int32           // with pairRunning on a cluster: those that the turn needs
	failures                  int32
	overtaken                 int16 // saves in a row that lost against another worker
	state                     pairState
	unchecked                 bool // it has saved documents since it was last proven
	faultChecked              bool // whether an earlier process's fault has been looked up and cleared
	relaxed                   bool // with pairDelayed: delayed only because it is relaxed
	gone                      bool // this process no longer follows it
	retryRequested            bool // while it was running, a retry of its faulted event was requested
	retriesFault              bool // its next turn, or the running one, tries the event before which it has stopped
	stalled                   bool // with pairRunning: its tenant was stalled when the turn began
}

// live returns the build that the pair should follow, as far as this process knows.
func (r *Runner) live(p *pair) liveBuild { return p.followed.live(p.tenant) }

func (f *followed) live(of *tenant) liveBuild {
	e, ok := f.overrides[of]
	switch {
	case !ok || e.base != 0 && e.base != f.own.number:
		return f.own
	case e.sum == (folding.Sum{}):
		return liveBuild{e.number, f.own.database, f.own.sum, f.own.version}
	}
	return e.liveBuild
}

// foldsInline reports whether the tenant's appends fold into the build that is live for it.
func (f *followed) foldsInline(of *tenant) bool { return f.overrides[of].inline }

// applyProjection applies a projection's row. It adds the pairs that it begins to s.
func (r *Runner) applyProjection(p *domain.Projection, s surveys) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.followed[p.ProjectionID]
	if p.Definition.Mode == domain.ModeLive {
		if f != nil {
			r.dropProjection(f)
		}
		return // nothing is stored that could be behind
	}
	if f == nil {
		f = &followed{id: p.ProjectionID}
		r.followed[f.id] = f
		if f.id.Shared() {
			f.pairs = make(map[*tenant]*pair)
			r.shared[f] = struct{}{}
		} else {
			owner := r.tenant(f.id.Owner)
			owner.own = append(owner.own, f)
		}
	}
	if f.revision == p.Revision && f.own.number == p.Build {
		return
	}
	f.revision = p.Revision
	f.own = r.liveBuild(p)
	f.interest = r.folds.interest(&p.Definition)
	f.relaxed = r.folds.relaxedInterval(&p.Definition)
	f.inline = p.Definition.Mode == domain.ModeInline
	if !f.id.Shared() {
		r.followLive(f, r.tenant(f.id.Owner), s)
		return
	}
	for _, t := range r.tenants {
		r.followLive(f, t, s)
	}
}

// applyTenantBuild applies a tenant's row about the build that is live for the tenant.
func (r *Runner) applyTenantBuild(b *domain.TenantBuild, s surveys) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.followed[b.ProjectionID]
	if f == nil {
		return
	}
	e := override{liveBuild: liveBuild{number: b.Build}, base: b.Base, inline: b.Base == 0}
	if b.Definition != nil {
		e.database, e.sum, e.version = r.folds.database(b.Definition.Database), folding.SumOf(b.Definition), f.own.version
	}
	t := r.tenant(b.Tenant)
	if f.overrides == nil {
		f.overrides = make(map[*tenant]override)
	}
	f.overrides[t] = e
	r.followLive(f, t, s)
}

// applyLive applies the result of LiveProjection for a pair. Another build may be live for the tenant, or the tenant
// may have lost its separate build, before the runner has seen the row that says so.
func (r *Runner) applyLive(p *pair, now *domain.Projection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := p.followed
	live := r.liveBuild(now)
	if now.Build == f.own.number {
		delete(f.overrides, p.tenant)
		f.own = live
		return
	}
	if f.overrides == nil {
		f.overrides = make(map[*tenant]override)
	}
	// If the projection's own build is a new one, its row arrives in a moment, and this override is no longer in
	// force.
	f.overrides[p.tenant] = override{liveBuild: live, base: f.own.number}
	r.Refresh()
}

// followLive makes a pair follow the build that is live for it, unless it does already. A worker that is running the
// pair notices by itself.
func (r *Runner) followLive(f *followed, t *tenant, s surveys) {
	if t.head == 0 || t.followedElsewhere {
		return
	}
	p := r.pair(f, t)
	live := r.live(p)
	switch {
	case p.state == pairRunning:
		return
	case f.foldsInline(t):
		r.stopWaiting(p)
		p.restart(live.number)
		p.state = pairInline
		return
	case p.build == live.number && p.at.known && p.state != pairInline:
		if p.state == pairIdle && p.at.seen < t.head {
			r.enqueue(p)
		}
		return
	}
	r.config.Progress.clearTrouble(f.id, t.id)
	p.restart(live.number)
	if s == nil || f.inline {
		r.enqueue(p) // a pair that is to become inline has work at the head, too
		return
	}
	r.stopWaiting(p)
	p.state = pairSurveyed
	s.add(live, p)
}

// restart resets everything that refers to an earlier build.
func (p *pair) restart(build int64) {
	p.build, p.at, p.faultChecked, p.unchecked, p.failures, p.overtaken = build, position{}, false, false, 0, 0
	p.documentBytes, p.eventBytes, p.exclusions, p.recordedLosses, p.backlog, p.retriesFault = 0, 0, nil, nil, nil, false
}

// pair returns a pair; a new one is idle.
func (r *Runner) pair(f *followed, t *tenant) *pair {
	p := f.pair(t)
	if p == nil {
		p = &pair{followed: f, tenant: t, build: f.live(t).number}
		if f.id.Shared() {
			f.pairs[t] = p
		} else {
			f.ownPair = p
		}
	}
	return p
}

func (f *followed) pair(t *tenant) *pair {
	if f.id.Shared() {
		return f.pairs[t]
	}
	if f.ownPair != nil && f.ownPair.tenant == t {
		return f.ownPair
	}
	return nil
}

// allPairs yields every pair.
func (r *Runner) allPairs() iter.Seq[*pair] {
	return func(yield func(*pair) bool) {
		for _, f := range r.followed {
			if f.ownPair != nil && !yield(f.ownPair) {
				return
			}
			for _, p := range f.pairs {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// wakePair gives an idle pair a turn because its log has grown. A pair that is not idle notices by itself.
func (r *Runner) wakePair(f *followed, t *tenant) {
	if t.followedElsewhere {
		return
	}
	p := r.pair(f, t)
	if p.state != pairIdle {
		return
	}
	if f.foldsInline(t) {
		p.state = pairInline
		return
	}
	if wait := r.relaxedDelay(p); wait > 0 {
		p.relaxed = true
		r.enqueueAfter(p, wait)
		return
	}
	r.enqueue(p)
}

// relaxedDelay returns how long the turn of a relaxed pair may wait; 0: it is due.
func (r *Runner) relaxedDelay(p *pair) time.Duration {
	if p.followed.relaxed <= 0 || r.config.Progress.awaited(p.followed.id, p.tenant.id) {
		return 0
	}
	return max(0, p.followed.relaxed-time.Since(time.Unix(0, p.lastTurn)))
}

// startRelaxed gives a relaxed pair its turn now, since a read waits for it.
func (r *Runner) startRelaxed(id domain.ProjectionID, of domain.TenantID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.followed[id]
	if f == nil || f.relaxed <= 0 || r.tenants[of] == nil {
		return
	}
	if p := f.pair(r.tenants[of]); p != nil && p.state == pairDelayed && p.relaxed && !r.ended {
		r.enqueue(p)
	}
}

// enqueue puts a pair last in its tenant's queue for a turn. The caller holds the lock, and the pair is not running.
func (r *Runner) enqueue(p *pair) {
	pool := r.pool(r.live(p).database)
	if p.state == pairReady && p.pool == pool || p.state == pairRunning || p.gone {
		return
	}
	r.stopWaiting(p)
	p.state, p.pool = pairReady, pool
	pool.ready.push(p)
	r.dispatch(pool)
}

// stopWaiting removes a pair from whatever it waits in.
func (r *Runner) stopWaiting(p *pair) {
	if p.retry != nil {
		p.retry.Stop()
		p.retry = nil
	}
	p.relaxed = false
	delete(r.heldPairs, p)
	p.state = pairIdle
}

// enqueueAfter schedules a pair's next turn.
func (r *Runner) enqueueAfter(p *pair, wait time.Duration) {
	p.state = pairDelayed
	p.retry = time.AfterFunc(wait, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if p.state == pairDelayed && !r.ended {
			r.enqueue(p)
		}
	})
}

// Retry gives a faulted pair a turn, because a retry or a skip of its event was requested. The exclusions are read
// again. The zero values mean every pair, for when a request may have been missed. It returns at once and is safe for
// concurrent use, even before and after Run.
func (r *Runner) Retry(of domain.TenantID, id domain.ProjectionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == (domain.ProjectionID{}) {
		for p := range r.allPairs() {
			r.retry(p)
		}
		return
	}
	if f, t := r.followed[id], r.tenants[of]; f != nil && t != nil {
		if p := f.pair(t); p != nil {
			r.retry(p)
		}
	}
}

// retry is Retry for one pair. The caller holds the lock.
func (r *Runner) retry(p *pair) {
	switch p.state {
	case pairRunning:
		p.retryRequested = true
	case pairFaulted:
		r.retryFault(p)
	default:
		p.exclusions = nil
	}
}

// retryFault makes a faulted pair try its event again in its next turn. The caller holds the lock.
func (r *Runner) retryFault(p *pair) {
	p.at.known, p.exclusions, p.retriesFault = false, nil, true
	r.enqueue(p)
}

// dropProjection forgets a deleted projection and its pairs. A later projection of the same name is a different one.
func (r *Runner) dropProjection(f *followed) {
	if r.followed[f.id] == f {
		delete(r.followed, f.id)
	}
	delete(r.shared, f)
	if !f.id.Shared() {
		owner := r.tenant(f.id.Owner)
		owner.dropOwn(f)
		r.forgetPair(f, owner)
		return
	}
	for t := range f.pairs {
		r.forgetPair(f, t)
	}
}

// forgetPair forgets a pair that this process no longer follows. A running turn of it runs to its end.
func (r *Runner) forgetPair(f *followed, t *tenant) {
	p := f.pair(t)
	if p == nil {
		return
	}
	if p.state != pairRunning {
		r.stopWaiting(p)
	}
	p.gone = true
	delete(r.unchecked, p)
	if f.id.Shared() {
		delete(f.pairs, t)
	} else {
		f.ownPair = nil
	}
	r.config.Progress.clearTrouble(f.id, t.id)
}
