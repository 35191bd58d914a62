package reactor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// places remembers which groups are up to date, so that a process checks each only once.
type places struct {
	groups *group.Groups

	mu    sync.Mutex
	known map[placeKey]string
	still map[placeKey]time.Duration // until the next look at a projection that does not advance
}

type placeKey struct {
	tenant domain.TenantID
	group  string
}

// placesKept limits what is remembered. Above it, everything is forgotten and checked again.
const placesKept = 100_000

// ensure creates a tenant's group, or changes it to the definition. An existing group keeps its position. The last
// argument makes ensure create a group again that began elsewhere than the definition says.
func (p *places) ensure(ctx context.Context, tenant domain.TenantID, name string, wanted domain.GroupDefinition, anew bool) error {
	wanted, err := group.Complete(wanted)
	if err != nil {
		return err
	}
	text := fmt.Sprint(wanted)
	p.mu.Lock()
	same := p.known[placeKey{tenant, name}] == text
	p.mu.Unlock()
	if same {
		return nil
	}
	status, err := p.groups.Get(ctx, tenant, name)
	there := err == nil
	if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return err
	}
	if there && anew && status.From != wanted.From {
		if err := p.groups.Delete(ctx, tenant, name); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
			return err
		}
		there = false
	}
	put := wanted
	if there {
		put.From, put.Ordering, put.Partitions = status.From, status.Ordering, status.GroupDefinition.Partitions
	}
	if !there || fmt.Sprint(put) != fmt.Sprint(status.GroupDefinition) {
		if _, _, err := p.groups.Put(ctx, tenant, name, put); err != nil {
			return err
		}
	}
	p.remember(tenant, name, text)
	return nil
}

// remember records a group's definition. Empty means that the group does not exist, and should not.
func (p *places) remember(tenant domain.TenantID, group, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= placesKept {
		p.known = make(map[placeKey]string)
	}
	p.known[placeKey{tenant, group}] = text
}

// gone reports whether a group does not exist, and should not.
func (p *places) gone(tenant domain.TenantID, group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, known := p.known[placeKey{tenant, group}]
	return known && text == ""
}

// Waits for a projection that does not advance. It may be blocked by a fault, its database may be down, or its tenant
// may be moving to another process.
const (
	stillAtFirst = 500 * time.Millisecond
	stillAtMost  = 30 * time.Second
)

// standsStill returns when to look again at a projection that does not advance. The wait grows each time.
func (p *places) standsStill(tenant domain.TenantID, group string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.still == nil || len(p.still) >= placesKept {
		p.still = make(map[placeKey]time.Duration)
	}
	key := placeKey{tenant, group}
	wait := min(max(2*p.still[key], stillAtFirst), stillAtMost)
	p.still[key] = wait
	return time.Now().Add(wait - rand.N(wait/4)) // many tenants may wait for the same cause
}

// moves records that a projection has advanced.
func (p *places) moves(tenant domain.TenantID, group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.still, placeKey{tenant, group})
}

// forget makes the next ensure check a group again.
func (p *places) forget(tenant domain.TenantID, group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, placeKey{tenant, group})
}

// answerTimeout limits how long an answer may take. Answers are sent even when their consumer must end, so that
// finished work is not repeated.
const answerTimeout = 5 * time.Second

// answers collects a consumer's answers for events.
type answers struct {
	done  []domain.Attempt
	back  []domain.Attempt // events that were not started
	fails map[domain.Nack][]domain.Attempt
}

func attemptOf(d domain.Delivery) domain.Attempt {
	return domain.Attempt{EventID: d.Event.ID, Attempt: d.Attempt}
}

// fail records that an event could not be handled.
func (a *answers) fail(d domain.Delivery, action domain.NackAction, reason string) {
	if a.fails == nil {
		a.fails = make(map[domain.Nack][]domain.Attempt)
	}
	if len(reason) > domain.MaxReasonBytes {
		reason = cut(reason, domain.MaxReasonBytes)
	}
	nack := domain.Nack{Action: action, Delay: -1, Reason: reason}
	a.fails[nack] = append(a.fails[nack], attemptOf(d))
}

// give sends the answers. Events whose answer fails are redelivered when their lease expires.
func (a *answers) give(ctx context.Context, groups *group.Groups, tenant domain.TenantID, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	var failures []error
	if len(a.done) > 0 {
		_, err := groups.Ack(ctx, tenant, name, a.done)
		failures = append(failures, err)
	}
	for nack, attempts := range a.fails {
		_, err := groups.Nack(ctx, tenant, name, attempts, nack)
		failures = append(failures, err)
	}
	if len(a.back) > 0 {
		_, err := groups.GiveBack(ctx, tenant, name, a.back)
		failures = append(failures, err)
	}
	*a = answers{}
	return errors.Join(failures...)
}
