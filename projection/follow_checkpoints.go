package projection

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// A survey finds the positions of many pairs of one database in few statements. It runs at the start, when tenants come
// from another process, and when a new build of a shared projection goes live. It reads the checkpoints of all tenants'
// own builds at once, and those of each shared build. Then, for pairs whose checkpoint is below the log's head, one
// round trip per tenant finds those with an event to fold. All others are idle and cost nothing more.
type survey struct {
	database string
	ownPairs map[ownBuild]*pair
	shared   map[int64]*sharedSurvey // by the build's number
}

type ownBuild struct {
	owner  domain.TenantID
	number int64
}

type sharedSurvey struct {
	build domain.Build
	pairs map[domain.TenantID]*pair
}

// surveys are one survey per database.
type surveys map[string]*survey

// minSurveyed is how many pairs are worth a survey; fewer find their positions one by one.
const minSurveyed = 4

func (s surveys) add(live liveBuild, p *pair) {
	of := s[live.database]
	if of == nil {
		of = &survey{database: live.database, ownPairs: make(map[ownBuild]*pair), shared: make(map[int64]*sharedSurvey)}
		s[live.database] = of
	}
	if !p.followed.id.Shared() {
		of.ownPairs[ownBuild{p.tenant.id, live.number}] = p
		return
	}
	shared := of.shared[live.number]
	if shared == nil {
		shared = &sharedSurvey{
			build: domain.Build{ProjectionID: p.followed.id, Number: live.number, Database: live.database},
			pairs: make(map[domain.TenantID]*pair),
		}
		of.shared[live.number] = shared
	}
	shared.pairs[p.tenant.id] = p
}

// all yields each pair with the build whose checkpoint is surveyed.
func (s *survey) all(yield func(p *pair, build int64) bool) {
	for key, p := range s.ownPairs {
		if !yield(p, key.number) {
			return
		}
	}
	for number, shared := range s.shared {
		for _, p := range shared.pairs {
			if !yield(p, number) {
				return
			}
		}
	}
}

func (s *survey) len() int {
	n := len(s.ownPairs)
	for _, shared := range s.shared {
		n += len(shared.pairs)
	}
	return n
}

// startSurveys starts surveys in the background, since a database may not answer. The caller holds the lock.
func (r *Runner) startSurveys(all surveys) {
	for database, s := range all {
		if r.start == nil || r.ended || s.len() < minSurveyed || r.config.Drivers[database] == nil {
			r.enqueueSurveyed(s)
			continue
		}
		r.start(func(ctx context.Context) { r.runSurvey(ctx, s) })
	}
}

// enqueueSurveyed gives each pair of a survey a turn, in which it reads its own checkpoint.
func (r *Runner) enqueueSurveyed(s *survey) {
	for p, build := range s.all {
		if p.state == pairSurveyed && p.build == build {
			r.enqueue(p)
		}
	}
}

func (r *Runner) runSurvey(ctx context.Context, s *survey) {
	found, err := s.read(ctx, r.config.Drivers[s.database])
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	if err != nil {
		r.config.Log.Debug("checkpoints cannot be read together", "database", s.database, "error", err)
		if pool := r.pool(s.database); r.suspendIfOut(pool) {
			pool.surveys = append(pool.surveys, s) // when it answers again
			r.mu.Unlock()
			return
		}
	}
	behind := make(map[*tenant][]*pair)
	for p, build := range s.all {
		if p.state != pairSurveyed || p.build != build {
			continue
		}
		checkpoint, ok := found[p]
		if !ok {
			r.enqueue(p)
			continue
		}
		p.at = position{known: true, stored: checkpoint, seen: checkpoint, savedAt: time.Now()}
		switch {
		case checkpoint >= p.tenant.head:
			p.state = pairIdle
		case p.followed.interest == nil || r.live(p).sum != p.followed.own.sum:
			r.enqueue(p)
		default:
			behind[p.tenant] = append(behind[p.tenant], p)
		}
	}
	r.mu.Unlock()
	r.wakePending(ctx, behind)
}

// read returns the checkpoints of the pairs for which it could read them. Without an error these are all pairs.
func (s *survey) read(ctx context.Context, driver drivers.Driver) (found map[*pair]int64, err error) {
	found = make(map[*pair]int64)
	if len(s.ownPairs) > 0 {
		if err = s.readOwn(ctx, driver, found); err != nil {
			for _, p := range s.ownPairs {
				delete(found, p)
			}
		}
	}
	for _, shared := range s.shared {
		if sharedErr := shared.read(ctx, driver, found); sharedErr != nil {
			err = sharedErr
			for _, p := range shared.pairs {
				delete(found, p)
			}
		}
	}
	return found, err
}

func (s *survey) readOwn(ctx context.Context, driver drivers.Driver, found map[*pair]int64) error {
	for _, p := range s.ownPairs {
		found[p] = 0 // a missing checkpoint is 0
	}
	for checkpoint, err := range driver.OwnCheckpoints(ctx) {
		if err != nil {
			return err
		}
		if p := s.ownPairs[ownBuild{checkpoint.Tenant, checkpoint.Build}]; p != nil {
			found[p] = checkpoint.Position
		}
	}
	return nil
}

func (s *sharedSurvey) read(ctx context.Context, driver drivers.Driver, found map[*pair]int64) error {
	for _, p := range s.pairs {
		found[p] = 0
	}
	for checkpoint, err := range driver.Checkpoints(ctx, s.build) {
		if err != nil {
			return err
		}
		if p := s.pairs[checkpoint.Tenant]; p != nil {
			found[p] = checkpoint.Position
		}
	}
	return nil
}

// pendingQuery is a query of a tenant's log for a pair, shared by all pairs with the same query.
type pendingQuery struct {
	interest *interest
	seen     int64
}

// tenantsAtOnce is how many tenants are queried at a time.
const tenantsAtOnce = 4

// wakePending gives a turn to the pairs with events to fold after their checkpoint. All others are up to date: a
// checkpoint is saved with documents, so it stays below the head while events come only for other projections.
func (r *Runner) wakePending(ctx context.Context, behind map[*tenant][]*pair) {
	var reads errgroup.Group
	reads.SetLimit(tenantsAtOnce)
	for t, pairs := range behind {
		reads.Go(func() error {
			r.wakePendingOf(ctx, t, pairs)
			return nil
		})
	}
	_ = reads.Wait()
}

func (r *Runner) wakePendingOf(ctx context.Context, t *tenant, pairs []*pair) {
	var queries []domain.LogQuery
	asked := make(map[pendingQuery]int)
	queryOf := make([]int, len(pairs)) // index into queries
	r.mu.Lock()
	for i, p := range pairs {
		q := pendingQuery{p.followed.interest, p.at.seen}
		n, ok := asked[q]
		if !ok {
			n = len(queries)
			asked[q] = n
			queries = append(queries, domain.LogQuery{From: p.at.seen + 1, Categories: q.interest.categories, Types: q.interest.types})
		}
		queryOf[i] = n
	}
	r.mu.Unlock()
	var head int64
	var pending []bool // by query: there are events to fold
	var err error
	if len(pairs) > 1 { // a single pair may as well read the events
		head, pending, err = r.config.Store.HasEvents(ctx, t.id, queries)
	}
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range pairs {
		switch {
		case p.state != pairSurveyed:
		case err != nil || pending == nil || pending[queryOf[i]]:
			r.enqueue(p)
		default:
			p.at.seen = max(p.at.seen, head)
			if p.state = pairIdle; p.at.seen < t.head {
				r.enqueue(p)
			}
		}
	}
}
