package budget

import (
	"container/list"
	"context"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// queue admits at most most requests at the same time, and at most each of one tenant. Requests of one tenant enter in
// order. Waiting tenants take turns, one request each.
type queue struct {
	most, each, waiting int

	mu      sync.Mutex
	inside  int
	tenants map[domain.TenantID]*line
	ring    list.List // of *line: tenants with a waiting request that may enter, the next tenant in front
}

// line is one tenant in a queue.
type line struct {
	tenant  domain.TenantID
	inside  int
	waiting list.List // of chan struct{}, closed when the request enters
	place   *list.Element
}

// newQueue returns a queue. At most waiting requests of one tenant may wait; 0 means any number.
func newQueue(most, each, waiting int) *queue {
	return &queue{most: most, each: each, waiting: waiting, tenants: make(map[domain.TenantID]*line)}
}

// enter waits until a request of the tenant may enter. After success the caller must call leave. The error is the cause
// of ctx, or says that too many requests of the tenant wait.
func (q *queue) enter(ctx context.Context, tenant domain.TenantID) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	q.mu.Lock()
	l := q.tenants[tenant]
	if l == nil {
		l = &line{tenant: tenant}
		q.tenants[tenant] = l
	}
	if l.place == nil && q.inside < q.most && l.inside < q.each && l.waiting.Len() == 0 && q.ring.Len() == 0 {
		l.inside++
		q.inside++
		q.mu.Unlock()
		return nil
	}
	if q.waiting > 0 && l.waiting.Len() >= q.waiting {
		q.mu.Unlock()
		return domain.Errorf(domain.CodeTooManyRequests, "", "the tenant has %d requests waiting that fold events; try again later", q.waiting)
	}
	entered := make(chan struct{})
	place := l.waiting.PushBack(entered)
	q.arrange(l)
	q.admit()
	q.mu.Unlock()
	select {
	case <-entered:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-entered: // ctx ended at the same moment
		q.left(l)
	default:
		l.waiting.Remove(place)
		q.arrange(l)
	}
	return context.Cause(ctx)
}

// leave admits the next request.
func (q *queue) leave(tenant domain.TenantID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left(q.tenants[tenant])
}

// contended reports whether a request would enter if another one left.
func (q *queue) contended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ring.Len() > 0
}

// has returns how many requests of the tenant are inside.
func (q *queue) has(tenant domain.TenantID) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.tenants[tenant]; l != nil {
		return l.inside
	}
	return 0
}

func (q *queue) left(l *line) {
	l.inside--
	q.inside--
	q.arrange(l)
	q.admit()
}

// admit lets requests enter that may do so.
func (q *queue) admit() {
	for q.inside < q.most && q.ring.Len() > 0 {
		l := q.ring.Remove(q.ring.Front()).(*line)
		l.place = nil
		l.inside++
		q.inside++
		close(l.waiting.Remove(l.waiting.Front()).(chan struct{}))
		q.arrange(l)
	}
}

// arrange puts a tenant at the end of the ring when it first has a request that may enter. It removes the tenant from
// the ring when it has no such request left.
func (q *queue) arrange(l *line) {
	switch may := l.waiting.Len() > 0 && l.inside < q.each; {
	case may && l.place == nil:
		l.place = q.ring.PushBack(l)
	case !may && l.place != nil:
		q.ring.Remove(l.place)
		l.place = nil
	}
	if l.inside == 0 && l.waiting.Len() == 0 {
		delete(q.tenants, l.tenant)
	}
}
