package projection

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// tenant is what the runner knows of a tenant. Its fields are the runner's, under its lock.
type tenant struct {
	id        domain.TenantID
	head      int64
	share     domain.Share
	elsewhere bool // another process works on its projections
	running   int  // its turns that are under way, at all databases
	own       []*followed
}

// tenant returns what is known of a tenant, which may be nothing yet.
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

// Rebalance says that other tenants may be this process's to work on now, see RunnerConfig.Owns. Those that it has lost get
// no more turns, though what is under way comes to its end; those that it has won begin, from whatever the process before
// has saved. It returns at once.
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

// lose forgets the pairs of a tenant that another process works on from now on.
func (r *Runner) lose(t *tenant) {
	for _, f := range t.own {
		r.forgetPair(f, t)
	}
	for f := range r.shared {
		r.forgetPair(f, t)
	}
}

// Owned is how many tenants with a log this process works on.
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

// lookAtShares takes over what tenants get of the work.
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

// dropOwn takes a projection off its tenant's list.
func (t *tenant) dropOwn(f *followed) {
	t.own = slices.DeleteFunc(t.own, func(other *followed) bool { return other == f })
}
