package budget

import (
	"container/list"
	"context"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// queue lets so many in at the same time, and of each tenant so many. Those of one tenant come in their order; tenants
// that wait are let in by turns, one each.
type queue struct {
	most, each, waiting int

	mu      sync.Mutex
	inside  int
	tenants map[domain.TenantID]*line
	ring    list.List // of *line: tenants of which somebody waits that may come in, the next one in front
}

// line is a tenant in a queue.
type line struct {
	tenant  domain.TenantID
	inside  int
	waiting list.List // of chan struct{}, closed for who is let in
	place   *list.Element
}

// newQueue returns a queue; waiting is how many of one tenant may wait, 0: any number.
func newQueue(most, each, waiting int) *queue {
	return &queue{most: most, each: each, waiting: waiting, tenants: make(map[domain.TenantID]*line)}
}

// enter waits until the tenant is let in; leave must be called then. The error is ctx's cause, or that too many of the
// tenant wait.
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
	case <-entered: // both at once
		q.left(l)
	default:
		l.waiting.Remove(place)
		q.arrange(l)
	}
	return context.Cause(ctx)
}

// leave lets the next one in.
func (q *queue) leave(tenant domain.TenantID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left(q.tenants[tenant])
}

// contended reports whether somebody would be let in if one left.
func (q *queue) contended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ring.Len() > 0
}

// has is how many of the tenant are inside.
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

// admit lets in whoever may come in.
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

// arrange puts a tenant behind all others when it begins to have somebody who may come in, and takes it away when it has
// nobody any more.
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
