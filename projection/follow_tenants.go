package projection

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// tenant is what the runner knows of a tenant. The runner's lock guards its fields.
type tenant struct {
	id        domain.TenantID
	head      int64
	share     domain.Share
	elsewhere bool // another process follows its projections
	running   int  // its turns under way, at all databases
	own       []*followed
}

// tenant returns the entry of a tenant, and creates it on first use.
func (r *Runner) tenant(id domain.TenantID) *tenant {
	t := r.tenants[id]
	if t == nil {
		t = &tenant{id: id, share: r.shares[id]}
		t.elsewhere = !r.owns(id)
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
		case owned == !t.elsewhere:
		case owned:
			t.elsewhere = false
			won = append(won, t)
		default:
			t.elsewhere = true
			r.lose(t)
		}
	}
	if len(won) == 0 {
		return
	}
	s := make(surveys)
	for _, t := range won {
		for _, f := range t.own {
			r.begin(f, t, s)
		}
		for f := range r.shared {
			r.begin(f, t, s)
		}
	}
	r.conduct(s)
}

// lose forgets the pairs of a tenant that another process now follows.
func (r *Runner) lose(t *tenant) {
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
		if t.head > 0 && !t.elsewhere {
			n++
		}
	}
	return n
}

// lookAtShares reads the tenants' shares of the work.
func (r *Runner) lookAtShares(ctx context.Context) error {
	shares, err := r.config.Store.Shares(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.shares
	r.shares = shares
	for id := range before {
		r.share(id)
	}
	for id := range shares {
		r.share(id)
	}
	return nil
}

func (r *Runner) share(id domain.TenantID) {
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
