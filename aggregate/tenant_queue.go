package aggregate

import (
	"container/list"
	"context"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// tenantQueue is a queue of keys that wait for a worker, in order for each tenant and round robin among tenants. So a
// tenant with much to do does not delay others. A key waits only once.
type tenantQueue[K comparable] struct {
	most int // keys that may wait; at most a tenth of them belong to one tenant
	each int // keys of one tenant that may be processed at the same time

	mu      sync.Mutex
	keys    map[K]struct{}
	tenants map[domain.TenantID]*tenantKeys[K]
	ring    list.List     // of *tenantKeys: tenants that may have a turn, the next one in front
	ready   chan struct{} // has an element while the ring has
}

// tenantKeys is a tenant in a queue.
type tenantKeys[K comparable] struct {
	tenant  domain.TenantID
	keys    []K
	running int
	place   *list.Element
}

func newTenantQueue[K comparable](most, each int) *tenantQueue[K] {
	return &tenantQueue[K]{most: most, each: each, keys: make(map[K]struct{}), tenants: make(map[domain.TenantID]*tenantKeys[K]), ready: make(chan struct{}, 1)}
}

// push adds a key as the last of its tenant, unless it waits already. It returns false if too many keys wait.
func (l *tenantQueue[K]) push(tenant domain.TenantID, key K) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, waits := l.keys[key]; waits {
		return true
	}
	q := l.tenants[tenant]
	if len(l.keys) >= l.most || q != nil && len(q.keys) >= max(1, l.most/10) {
		return false
	}
	l.keys[key] = struct{}{}
	if q == nil {
		q = &tenantKeys[K]{tenant: tenant}
		l.tenants[tenant] = q
	}
	q.keys = append(q.keys, key)
	l.arrange(q)
	return true
}

// next waits for a key, and counts it as in progress until done is called. It returns false if ctx has ended.
func (l *tenantQueue[K]) next(ctx context.Context) (key K, done func(), ok bool) {
	for {
		select {
		case <-ctx.Done():
			return key, nil, false
		case <-l.ready:
		}
		if key, done, ok := l.pop(); ok {
			return key, done, true
		}
	}
}

func (l *tenantQueue[K]) pop() (key K, done func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	front := l.ring.Front()
	if front == nil {
		return key, nil, false
	}
	q := l.ring.Remove(front).(*tenantKeys[K])
	q.place = nil
	key = q.keys[0]
	q.keys = q.keys[1:]
	delete(l.keys, key)
	q.running++
	l.arrange(q)
	return key, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		q.running--
		l.arrange(q)
	}, true
}

// waiting returns how many keys wait.
func (l *tenantQueue[K]) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys)
}

// arrange adds a tenant to the end of the ring if it may have a turn and is not in the ring, and wakes up a worker.
func (l *tenantQueue[K]) arrange(q *tenantKeys[K]) {
	if q.place == nil && len(q.keys) > 0 && q.running < l.each {
		q.place = l.ring.PushBack(q)
	}
	if len(q.keys) == 0 && q.running == 0 {
		delete(l.tenants, q.tenant)
	}
	if l.ring.Len() > 0 {
		select {
		case l.ready <- struct{}{}:
		default:
		}
	}
}
