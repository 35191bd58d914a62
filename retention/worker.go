package retention

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// turnsAtOnce is how many policies run at the same time, so that a policy waiting for a document database does not
// block the others.
const turnsAtOnce = 4

// key identifies a policy.
type key struct {
	tenant   domain.TenantID
	category string
}

// policy is what Run knows of a policy.
type policy struct {
	revision int64
	head     int64 // of the log
	asked    bool  // somebody requested a run
	inLine   bool  // waiting in line, or running
	runAgain bool  // run once more after that turn
	hasRun   bool  // last is valid
	last     outcome
	failing  bool // the last run ended with an error
}

// due reports whether there may be something to do.
func (p *policy) due(now time.Time) bool {
	idle := p.hasRun && p.last.idle && p.head <= p.last.head && (p.last.next.IsZero() || now.Before(p.last.next))
	return !idle || p.asked
}

// Run applies the policies of the tenants that this process owns, until ctx ends. It returns nil.
func (r *Retention) Run(ctx context.Context) error {
	ticker := time.NewTicker(r.config.Every)
	defer ticker.Stop()
	var turns sync.WaitGroup
	defer turns.Wait()
	places := make(chan struct{}, turnsAtOnce)
	all := true
	for ctx.Err() == nil {
		if err := r.enqueueDue(ctx, all); err != nil && ctx.Err() == nil {
			r.config.Log.Warn("the retention policies could not be read; trying again", "error", err)
		}
		all = false
		for k, ok := r.dequeue(); ok; k, ok = r.dequeue() {
			select {
			case <-ctx.Done():
				return nil
			case places <- struct{}{}:
			}
			turns.Go(func() {
				r.runPolicy(ctx, k)
				<-places
			})
		}
		select {
		case <-ctx.Done():
		case <-r.work:
		case <-ticker.C:
			all = true
		}
	}
	return nil
}

// Notice reports that a tenant's policies have changed or that a run was requested; domain.Everyone means any tenant.
// It returns at once, and may be called concurrently and while Run is not running.
func (r *Retention) Notice(domain.TenantID) {
	r.mu.Lock()
	r.look = true
	r.mu.Unlock()
	r.wake()
}

// Rebalance reports that the answers of Owns may have changed. It behaves like Notice.
func (r *Retention) Rebalance() { r.Notice(domain.Everyone) }

func (r *Retention) wake() {
	select {
	case r.work <- struct{}{}:
	default:
	}
}

// enqueueDue puts the policies that have work in line. With all set it considers every policy that may have work;
// otherwise only policies that are new, changed or requested.
func (r *Retention) enqueueDue(ctx context.Context, all bool) error {
	r.mu.Lock()
	look := r.look || all
	r.look = false
	r.mu.Unlock()
	if !look {
		return nil
	}
	due, err := r.config.Store.RetentionDue(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	there := make(map[key]bool, len(due))
	for _, d := range due {
		if !r.config.Owns(d.Tenant) {
			continue
		}
		k := key{d.Tenant, d.Category}
		there[k] = true
		p := r.policies[k]
		if p == nil {
			p = &policy{}
			r.policies[k] = p
		}
		if p.revision != d.Revision {
			p.revision, p.hasRun = d.Revision, false // its last outcome came from other rules
		}
		p.head, p.asked = d.Head, d.Asked
		if (all || !p.hasRun || p.asked) && p.due(now) {
			r.enqueue(k, p)
		}
	}
	for k := range r.policies {
		if !there[k] {
			delete(r.policies, k)
		}
	}
	return nil
}

// enqueue puts a policy in line. The caller must hold r.mu.
func (r *Retention) enqueue(k key, p *policy) {
	if p.inLine {
		p.runAgain = true
		return
	}
	p.inLine, p.runAgain = true, false
	r.line = append(r.line, k)
}

// dequeue takes the first policy from the line.
func (r *Retention) dequeue() (k key, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.line) == 0 {
		return key{}, false
	}
	k, r.line = r.line[0], r.line[1:]
	return k, true
}

// runPolicy runs a policy once, and queues it again if there is more to do.
func (r *Retention) runPolicy(ctx context.Context, k key) {
	var done outcome
	var err error
	if r.config.Owns(k.tenant) {
		done, err = r.runOnce(ctx, k.tenant, k.category)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.policies[k]
	if p == nil {
		return // the policy was removed in the meantime
	}
	p.inLine = false
	switch {
	case ctx.Err() != nil:
	case err == nil:
		p.failing, p.hasRun, p.last = false, true, done
	case stopped(err):
		p.hasRun = false // its rules must be read again
	default:
		if !p.failing {
			r.config.Log.Warn("a retention policy could not be run; trying again", "tenant", k.tenant.String(), "category", k.category, "error", err)
		}
		p.failing, p.hasRun, p.last = true, true, outcome{}
	}
	if p.runAgain || err == nil && done.more {
		r.enqueue(k, p)
		r.wake()
	}
}
