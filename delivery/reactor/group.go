package reactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// knownGroups remembers which groups are up to date, so that a process checks each only once.
type knownGroups struct {
	groups *group.Groups
	stalls consume.Stalls

	mu    sync.Mutex
	known map[groupKey]string
	swept map[groupKey]time.Time // when the claims of a group were last swept
}

type groupKey struct {
	tenant domain.TenantID
	group  string
}

// groupsKept limits what is remembered. Above it, everything is forgotten and checked again.
const groupsKept = 100_000

// ensure creates a tenant's group, or changes it to the definition. An existing group keeps its position. The last
// argument makes ensure create a group again that began elsewhere than the definition says.
func (p *knownGroups) ensure(ctx context.Context, tenant domain.TenantID, name string, wanted domain.GroupDefinition, recreate bool) error {
	wanted, err := group.Complete(wanted)
	if err != nil {
		return err
	}
	text := fmt.Sprint(wanted)
	p.mu.Lock()
	same := p.known[groupKey{tenant, name}] == text
	p.mu.Unlock()
	if same {
		return nil
	}
	status, err := p.groups.Get(ctx, tenant, name)
	there := err == nil
	if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return err
	}
	if there && recreate && status.From != wanted.From {
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
func (p *knownGroups) remember(tenant domain.TenantID, group, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= groupsKept {
		p.known = make(map[groupKey]string)
	}
	p.known[groupKey{tenant, group}] = text
}

// gone reports whether a group does not exist, and should not.
func (p *knownGroups) gone(tenant domain.TenantID, group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, known := p.known[groupKey{tenant, group}]
	return known && text == ""
}

// sweepDue reports whether the claims of a group are to be swept, and records that they are.
func (p *knownGroups) sweepDue(tenant domain.TenantID, group string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := groupKey{tenant, group}
	if now.Sub(p.swept[key]) < sweepEvery {
		return false
	}
	if p.swept == nil || len(p.swept) >= groupsKept {
		p.swept = make(map[groupKey]time.Time)
	}
	p.swept[key] = now
	return true
}

// forget makes the next ensure check a group again.
func (p *knownGroups) forget(tenant domain.TenantID, group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, groupKey{tenant, group})
}

// settleTimeout limits how long answers for events may take. They are sent even when their consumer must end, so that
// finished work is not repeated.
const settleTimeout = 5 * time.Second

// errNoSource means that the projection is not the source of the group, or no longer.
var errNoSource = errors.New("the projection was replaced")

// ignoreNoSource returns nil for errNoSource, and any other error as it is.
func ignoreNoSource(err error) error {
	if errors.Is(err, errNoSource) {
		return nil
	}
	return err
}

// rerunWithoutSource makes a round run again at once if it has lost its source. The next round finds the new source.
func rerunWithoutSource(nextRun time.Time, err error) (time.Time, error) {
	if errors.Is(err, errNoSource) {
		return time.Now(), nil
	}
	return nextRun, err
}

// typesOf returns the types for the group of a projection's events. If there are more than a group can name, it returns
// none, which means all. The projection is then asked for each event.
func typesOf(types []string) []string {
	if len(types) > selection.MaxTypes {
		return nil
	}
	return types
}
