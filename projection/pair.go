package projection

import (
	"iter"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// followed is a projection that the runner follows. There may be tens of thousands: what else is needed for a turn comes
// from folds.
type followed struct {
	id       domain.ProjectionID
	revision int64 // of the projection's row
	own      lived // the projection's own live build
	sees     *interest
	inlined  bool          // appends are to fold into its builds, once those have caught up
	relaxed  time.Duration // how long it may be behind, see Relaxed; 0: it is followed closely

	exceptions map[*tenant]exception // tenants for which another build is live
	pairs      map[*tenant]*pair     // of a shared projection
	only       *pair                 // of a tenant's own
}

// lived is a build that is live.
type lived struct {
	number   int64
	database string
	sum      definitionSum // of the definition that made it
	version  int64         // of that definition
}

func (r *Runner) lived(p *domain.Projection) lived {
	return lived{p.Build, r.folds.database(p.Definition.Database), sumOf(&p.Definition), p.Version}
}

// exception is the build that is live for one tenant, as domain.TenantBuild says it.
type exception struct {
	lived        // without sum and database where the definition is the projection's
	base   int64 // it is in force while this is the projection's own; 0: in any case
	inline bool  // appends fold into it
}

// pairState says where a pair is. Only the one who took it off the queue moves a running pair.
type pairState uint8

const (
	pairIdle     pairState = iota // nothing to do until its log grows
	pairReady                     // in the queue
	pairRunning                   // a worker is at it
	pairDelayed                   // a timer puts it into the queue
	pairHeld                      // a rebuild holds it still
	pairFaulted                   // stands before an event that cannot be folded, until there is another build
	pairSurveyed                  // its checkpoint is being read, with those of others
	pairInline                    // appends fold into its build: nothing to do for as long as they do
)

// pair is a projection and a tenant. Its fields are the runner's, under its lock, except while it is running. There may be
// very many that are idle: it is kept small.
type pair struct {
	followed                  *followed
	of                        *tenant
	tenant                    domain.TenantID
	build                     int64 // that at is about
	at                        position
	lane                      *lane // with pairReady: in whose queue
	retry                     *time.Timer
	turned                    int64            // when its last turn began, as UnixNano: for one that is relaxed
	documentBytes, eventBytes int32            // as Replay has them
	aside                     *aside           // likewise
	lacked                    map[string]int64 // that the build lacks events of a category up to a position was noted, while it reads below such
	failures                  int32
	stale                     int16 // saves in a row that another worker was faster at
	state                     pairState
	saved                     bool // documents, since it was last proven
	mended                    bool // whether there is a fault of an earlier process to take back was looked up
	eased                     bool // with pairDelayed: only because it is relaxed
	gone                      bool // nobody follows it here any more
	again                     bool // somebody asked for a faulted pair's event to be tried again while it was running
}

// live is the build that the pair is to follow, as far as this process knows.
func (r *Runner) live(p *pair) lived { return p.followed.live(p.of) }

func (f *followed) live(of *tenant) lived {
	e, ok := f.exceptions[of]
	switch {
	case !ok || e.base != 0 && e.base != f.own.number:
		return f.own
	case e.sum == (definitionSum{}):
		return lived{e.number, f.own.database, f.own.sum, f.own.version}
	}
	return e.lived
}

// inline reports whether the tenant's appends fold into the build that is live for it.
func (f *followed) inline(of *tenant) bool { return f.exceptions[of].inline }

// follow takes over what the projection's row says. Pairs that it begins are put into s.
func (r *Runner) follow(p *domain.Projection, s surveys) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.followed[p.ProjectionID]
	if p.Definition.Mode == domain.ModeLive {
		if f != nil {
			r.drop(f)
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
	f.own = r.lived(p)
	f.sees = r.folds.interest(&p.Definition)
	f.relaxed = r.folds.relaxed(&p.Definition)
	f.inlined = p.Definition.Mode == domain.ModeInline
	if !f.id.Shared() {
		r.begin(f, r.tenant(f.id.Owner), s)
		return
	}
	for _, t := range r.tenants {
		r.begin(f, t, s)
	}
}

// except takes over what a tenant's row says of the build that is live for it.
func (r *Runner) except(b *domain.TenantBuild, s surveys) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.followed[b.ProjectionID]
	if f == nil {
		return
	}
	e := exception{lived: lived{number: b.Build}, base: b.Base, inline: b.Base == 0}
	if b.Definition != nil {
		e.database, e.sum, e.version = r.folds.database(b.Definition.Database), sumOf(b.Definition), f.own.version
	}
	t := r.tenant(b.Tenant)
	if f.exceptions == nil {
		f.exceptions = make(map[*tenant]exception)
	}
	f.exceptions[t] = e
	r.begin(f, t, s)
}

// learn takes over what LiveProjection says of a pair: there may be another build live for the tenant, or the tenant may
// have lost one of its own, without the runner's having seen the row that says so.
func (r *Runner) learn(p *pair, now *domain.Projection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := p.followed
	live := r.lived(now)
	if now.Build == f.own.number {
		delete(f.exceptions, p.of)
		f.own = live
		return
	}
	if f.exceptions == nil {
		f.exceptions = make(map[*tenant]exception)
	}
	// Where it is the projection's own build that is another one, its row says so in a moment, and this is no longer in force.
	f.exceptions[p.of] = exception{lived: live, base: f.own.number}
	r.Refresh()
}

// begin lets a pair follow the build that is live for it, unless it does. A worker that is at it finds out by itself.
func (r *Runner) begin(f *followed, t *tenant, s surveys) {
	if t.head == 0 || t.elsewhere {
		return
	}
	p := r.pair(f, t)
	live := r.live(p)
	switch {
	case p.state == pairRunning:
		return
	case f.inline(t):
		r.unplace(p)
		p.restart(live.number)
		p.state = pairInline
		return
	case p.build == live.number && p.at.known && p.state != pairInline:
		if p.state == pairIdle && p.at.seen < t.head {
			r.enqueue(p)
		}
		return
	}
	r.config.Progress.well(f.id, t.id)
	p.restart(live.number)
	if s == nil || f.inlined {
		r.enqueue(p) // one that is to become inline has something to do at the head, too
		return
	}
	r.unplace(p)
	p.state = pairSurveyed
	s.add(live, p)
}

// restart forgets everything that was about an earlier build.
func (p *pair) restart(build int64) {
	p.build, p.at, p.mended, p.saved, p.failures, p.stale = build, position{}, false, false, 0, 0
	p.documentBytes, p.eventBytes, p.aside, p.lacked = 0, 0, nil, nil
}

// pair returns a pair, which is idle where it is new.
func (r *Runner) pair(f *followed, t *tenant) *pair {
	p := f.pair(t)
	if p == nil {
		p = &pair{followed: f, of: t, tenant: t.id, build: f.live(t).number}
		if f.id.Shared() {
			f.pairs[t] = p
		} else {
			f.only = p
		}
	}
	return p
}

func (f *followed) pair(t *tenant) *pair {
	if f.id.Shared() {
		return f.pairs[t]
	}
	if f.only != nil && f.only.of == t {
		return f.only
	}
	return nil
}

// allPairs yields every pair.
func (r *Runner) allPairs() iter.Seq[*pair] {
	return func(yield func(*pair) bool) {
		for _, f := range r.followed {
			if f.only != nil && !yield(f.only) {
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

// rouse gives a pair a turn because its log has grown. One that is not idle finds out by itself.
func (r *Runner) rouse(f *followed, t *tenant) {
	if t.elsewhere {
		return
	}
	p := r.pair(f, t)
	if p.state != pairIdle {
		return
	}
	if f.inline(t) {
		p.state = pairInline
		return
	}
	if wait := r.ease(p); wait > 0 {
		p.eased = true
		r.delay(p, wait)
		return
	}
	r.enqueue(p)
}

// ease is how long the turn of a relaxed pair may wait; 0: it is due.
func (r *Runner) ease(p *pair) time.Duration {
	if p.followed.relaxed <= 0 || r.config.Progress.awaited(p.followed.id, p.tenant) {
		return 0
	}
	return max(0, p.followed.relaxed-time.Since(time.Unix(0, p.turned)))
}

// hasten gives a relaxed pair its turn now, since somebody waits for it.
func (r *Runner) hasten(id domain.ProjectionID, of domain.TenantID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.followed[id]
	if f == nil || f.relaxed <= 0 || r.tenants[of] == nil {
		return
	}
	if p := f.pair(r.tenants[of]); p != nil && p.state == pairDelayed && p.eased && !r.ended {
		r.enqueue(p)
	}
}

// enqueue puts a pair behind all of its tenant that wait for a turn; whoever calls it holds the lock, and the pair is not
// running.
func (r *Runner) enqueue(p *pair) {
	l := r.lane(r.live(p).database)
	if p.state == pairReady && p.lane == l || p.state == pairRunning || p.gone {
		return
	}
	r.unplace(p)
	p.state, p.lane = pairReady, l
	l.ready.push(p)
	r.dispatch(l)
}

// unplace takes a pair from wherever it waits for something to happen.
func (r *Runner) unplace(p *pair) {
	if p.retry != nil {
		p.retry.Stop()
		p.retry = nil
	}
	p.eased = false
	delete(r.waiting, p)
	p.state = pairIdle
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

// forgetPair forgets a pair that is not followed here any more. What is under way for it comes to its end.
func (r *Runner) forgetPair(f *followed, t *tenant) {
	p := f.pair(t)
	if p == nil {
		return
	}
	if p.state != pairRunning {
		r.unplace(p)
	}
	p.gone = true
	delete(r.unproven, p)
	if f.id.Shared() {
		delete(f.pairs, t)
	} else {
		f.only = nil
	}
	r.config.Progress.well(f.id, t.id)
}
