package projection

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// tenant is what the runner knows of a tenant. The runner's lock guards its fields.
type tenant struct {
	id                domain.TenantID
	head              int64
	share             domain.Share
	followedElsewhere bool // another process follows its projections
	running           int  // its turns under way, at all databases
	stalled           bool // its last turn has failed after stalledAfter without an answer
	own               []*followed
}

// tenant returns the entry of a tenant, and creates it on first use.
func (r *Runner) tenant(id domain.TenantID) *tenant {
	t := r.tenants[id]
	if t == nil {
		t = &tenant{id: id, share: r.shares[id]}
		t.followedElsewhere = !r.owns(id)
		r.tenants[id] = t
	}
	return t
}

func (r *Runner) owns(id domain.TenantID) bool { return r.config.Owns == nil || r.config.Owns(id) }

// Rebalance reports that this process may now own other tenants, see RunnerConfig.Owns. Tenants that it has lost get no
// more turns, but turns under way run to their end. Tenants that it has gained start from what the previous process has
// saved. It returns at once.
func (r *Runner) Rebalance() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var won []*tenant
	for _, t := range r.tenants {
		switch owned := r.owns(t.id); {
		case owned == !t.followedElsewhere:
		case owned:
			t.followedElsewhere = false
			won = append(won, t)
		default:
			t.followedElsewhere = true
			r.dropTenant(t)
		}
	}
	if len(won) == 0 {
		return
	}
	s := make(surveys)
	for _, t := range won {
		for _, f := range t.own {
			r.followLive(f, t, s)
		}
		for f := range r.shared {
			r.followLive(f, t, s)
		}
	}
	r.startSurveys(s)
}

// dropTenant forgets the pairs of a tenant that another process now follows.
func (r *Runner) dropTenant(t *tenant) {
	for _, f := range t.own {
		r.forgetPair(f, t)
	}
	for f := range r.shared {
		r.forgetPair(f, t)
	}
}

// Owned returns how many tenants with a log this process follows.
func (r *Runner) Owned() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, t := range r.tenants {
		if t.head > 0 && !t.followedElsewhere {
			n++
		}
	}
	return n
}

// readShares reads the tenants' shares of the work.
func (r *Runner) readShares(ctx context.Context) error {
	shares, err := r.config.Store.Shares(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.shares
	r.shares = shares
	for id := range before {
		r.applyShare(id)
	}
	for id := range shares {
		r.applyShare(id)
	}
	return nil
}

func (r *Runner) applyShare(id domain.TenantID) {
	t := r.tenants[id]
	if t == nil || t.share == r.shares[id] {
		return
	}
	t.share = r.shares[id]
	r.reconsider(t)
}

// dropOwn removes a projection from its tenant's list.
func (t *tenant) dropOwn(f *followed) {
	t.own = slices.DeleteFunc(t.own, func(other *followed) bool { return other == f })
}
