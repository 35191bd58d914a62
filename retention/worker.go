package retention

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// turnsAtOnce is how many policies are run at the same time: one that waits for a database of documents holds up no other.
const turnsAtOnce = 4

// key names a policy.
type key struct {
	tenant   domain.TenantID
	category string
}

// policy is what Run knows of one.
type policy struct {
	revision int64
	head     int64 // of the log
	asked    bool  // somebody wants it run now
	inLine   bool  // or its turn is on
	again    bool  // it is to run once more behind that turn
	ran      bool  // done is known
	done     outcome
	failing  bool // the last run ended with an error
}

// due reports whether there may be something to do.
func (p *policy) due(now time.Time) bool {
	idle := p.ran && p.done.idle && p.head <= p.done.head && (p.done.next.IsZero() || now.Before(p.done.next))
	return !idle || p.asked
}

// Run works by the policies of the tenants that this process owns, until ctx ends. It returns nil.
func (r *Retention) Run(ctx context.Context) error {
	ticker := time.NewTicker(r.config.Every)
	defer ticker.Stop()
	var turns sync.WaitGroup
	defer turns.Wait()
	places := make(chan struct{}, turnsAtOnce)
	all := true
	for ctx.Err() == nil {
		if err := r.lookAt(ctx, all); err != nil && ctx.Err() == nil {
			r.config.Log.Warn("the retention policies could not be read; trying again", "error", err)
		}
		all = false
		for k, ok := r.first(); ok; k, ok = r.first() {
			select {
			case <-ctx.Done():
				return nil
			case places <- struct{}{}:
			}
			turns.Go(func() {
				r.turn(ctx, k)
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

// Notice tells that a tenant's policies have changed, or that one is asked for; domain.Everyone: anybody's may have. It returns
// at once, and may be called by anyone, also while Run is not on.
func (r *Retention) Notice(domain.TenantID) {
	r.mu.Lock()
	r.look = true
	r.mu.Unlock()
	r.wake()
}

// Rebalance tells that Owns may answer otherwise than before. It is as Notice.
func (r *Retention) Rebalance() { r.Notice(domain.Everyone) }

func (r *Retention) wake() {
	select {
	case r.work <- struct{}{}:
	default:
	}
}

// lookAt puts those policies in line that have something to do: with all, those that may have; else those that are new, or
// changed, or asked for.
func (r *Retention) lookAt(ctx context.Context, all bool) error {
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
			p.revision, p.ran = d.Revision, false // what is known of it was by other rules
		}
		p.head, p.asked = d.Head, d.Asked
		if (all || !p.ran || p.asked) && p.due(now) {
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

// enqueue puts a policy in line. r.mu must be held.
func (r *Retention) enqueue(k key, p *policy) {
	if p.inLine {
		p.again = true
		return
	}
	p.inLine, p.again = true, false
	r.line = append(r.line, k)
}

// first takes the first policy out of the line.
func (r *Retention) first() (k key, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.line) == 0 {
		return key{}, false
	}
	k, r.line = r.line[0], r.line[1:]
	return k, true
}

// turn gives a policy its turn.
func (r *Retention) turn(ctx context.Context, k key) {
	var done outcome
	var err error
	if r.config.Owns(k.tenant) {
		done, err = r.runOnce(ctx, k.tenant, k.category)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.policies[k]
	if p == nil {
		return // removed meanwhile
	}
	p.inLine = false
	switch {
	case ctx.Err() != nil:
	case err == nil:
		p.failing, p.ran, p.done = false, true, done
	case stopped(err):
		p.ran = false // by which rules it goes is to be read anew
	default:
		if !p.failing {
			r.config.Log.Warn("a retention policy could not be run; trying again", "tenant", k.tenant.String(), "category", k.category, "error", err)
		}
		p.failing, p.ran, p.done = true, true, outcome{}
	}
	if p.again || err == nil && done.more {
		r.enqueue(k, p)
		r.wake()
	}
}
