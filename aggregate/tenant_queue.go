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
func (q *tenantQueue[K]) push(tenant domain.TenantID, key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, waits := q.keys[key]; waits {
		return true
	}
	t := q.tenants[tenant]
	if len(q.keys) >= q.most || t != nil && len(t.keys) >= max(1, q.most/10) {
		return false
	}
	q.keys[key] = struct{}{}
	if t == nil {
		t = &tenantKeys[K]{tenant: tenant}
		q.tenants[tenant] = t
	}
	t.keys = append(t.keys, key)
	q.arrange(t)
	return true
}

// next waits for a key, and counts it as in progress until done is called. It returns false if ctx has ended.
func (q *tenantQueue[K]) next(ctx context.Context) (key K, done func(), ok bool) {
	for {
		select {
		case <-ctx.Done():
			return key, nil, false
		case <-q.ready:
		}
		if key, done, ok := q.pop(); ok {
			return key, done, true
		}
	}
}

func (q *tenantQueue[K]) pop() (key K, done func(), ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	front := q.ring.Front()
	if front == nil {
		return key, nil, false
	}
	t := q.ring.Remove(front).(*tenantKeys[K])
	t.place = nil
	key = t.keys[0]
	t.keys = t.keys[1:]
	delete(q.keys, key)
	t.running++
	q.arrange(t)
	return key, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		t.running--
		q.arrange(t)
	}, true
}

// waiting returns how many keys wait.
func (q *tenantQueue[K]) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.keys)
}

// arrange adds a tenant to the end of the ring if it may have a turn and is not in the ring, and wakes up a worker.
func (q *tenantQueue[K]) arrange(t *tenantKeys[K]) {
	if t.place == nil && len(t.keys) > 0 && t.running < q.each {
		t.place = q.ring.PushBack(t)
	}
	if len(t.keys) == 0 && t.running == 0 {
		delete(q.tenants, t.tenant)
	}
	if q.ring.Len() > 0 {
		select {
		case q.ready <- struct{}{}:
		default:
		}
	}
}
