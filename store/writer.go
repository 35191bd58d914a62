package store

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// writerIdle is how long a writer is kept that has nothing to do.
const writerIdle = time.Minute

// writers are the writers of the tenants that somebody appends to.
type writers struct {
	mu      sync.RWMutex // read-locked while a request is put into a queue, so that no writer is removed meanwhile
	of      map[domain.TenantID]*writer
	closed  bool
	sweeper *time.Timer // nil while there is no writer

	running sync.WaitGroup // the writers' goroutines
	bytes   atomic.Int64   // waiting or being written, of all tenants
}

// writer appends to one tenant's log. It owns no connection, and has a goroutine only while there is something to write:
// an idle writer is nothing but what it knows of the log, and goes after a minute.
//
// It commits in groups: what arrives while a batch is being written goes together in the next one.
type writer struct {
	store  *Store
	tenant domain.TenantID

	mu      sync.Mutex
	queue   []*request
	bytes   int64 // of what is in the queue or being written
	running bool
	idle    time.Time // since when it is not running

	log logState // the running goroutine's
}

// enqueue puts a request into its tenant's queue, and sees to it that a goroutine takes it from there.
func (s *Store) enqueue(tenant domain.TenantID, r *request) (*writer, error) {
	ws := &s.writers
	for {
		ws.mu.RLock()
		if ws.closed {
			ws.mu.RUnlock()
			return nil, domain.Errorf(domain.CodeUnavailable, "", "the service is shutting down")
		}
		w := ws.of[tenant]
		if w != nil {
			err := w.push(r)
			ws.mu.RUnlock()
			return w, err
		}
		ws.mu.RUnlock()
		ws.mu.Lock()
		if ws.of[tenant] == nil && !ws.closed {
			if ws.of == nil {
				ws.of = make(map[domain.TenantID]*writer)
			}
			ws.of[tenant] = &writer{store: s, tenant: tenant}
			if ws.sweeper == nil {
				ws.sweeper = time.AfterFunc(writerIdle, func() { ws.sweep(time.Now().Add(-writerIdle)) })
			}
		}
		ws.mu.Unlock()
	}
}

// sweep removes the writers that have been idle since before the given time, and comes back while there are others.
func (ws *writers) sweep(before time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for tenant, w := range ws.of {
		w.mu.Lock()
		if !w.running && w.idle.Before(before) {
			w.log.forgetAll()
			delete(ws.of, tenant)
		}
		w.mu.Unlock()
	}
	switch {
	case ws.sweeper == nil:
	case len(ws.of) == 0 || ws.closed:
		ws.sweeper.Stop()
		ws.sweeper = nil
	default:
		ws.sweeper.Reset(writerIdle)
	}
}

// close refuses new requests and waits until those that wait are answered: each has its deadline.
func (ws *writers) close() {
	ws.mu.Lock()
	ws.closed = true
	ws.mu.Unlock()
	ws.running.Wait()
	ws.sweep(time.Now().Add(time.Hour))
}

func (w *writer) push(r *request) error {
	s := w.store
	// A request that is alone always finds room, however large it is.
	if total := s.writers.bytes.Add(r.bytes); total > s.totalQueueBytes && total > r.bytes {
		s.writers.bytes.Add(-r.bytes)
		return domain.Errorf(domain.CodeOverloaded, "", "the service has too many appends waiting; try again later")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes > 0 && w.bytes+r.bytes > s.queueBytes {
		s.writers.bytes.Add(-r.bytes)
		return domain.Errorf(domain.CodeTooManyRequests, "", "the tenant has too many appends waiting; try again later")
	}
	w.bytes += r.bytes
	w.queue = append(w.queue, r)
	if !w.running {
		w.running = true
		s.writers.running.Add(1)
		go w.run()
	}
	return nil
}

// withdraw takes a request out of the queue; it reports false where the writing of it has begun.
func (w *writer) withdraw(r *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, waiting := range w.queue {
		if waiting == r {
			copy(w.queue[i:], w.queue[i+1:])
			w.queue[len(w.queue)-1] = nil
			w.queue = w.queue[:len(w.queue)-1]
			w.release(r)
			return true
		}
	}
	return false
}

// release takes a request off the queues' bounds. w.mu must be held.
func (w *writer) release(r *request) {
	w.bytes -= r.bytes
	w.store.writers.bytes.Add(-r.bytes)
}

// answer gives a request its outcome.
func (w *writer) answer(r *request, appended domain.Appended, err error) {
	r.answered, r.appended, r.err = true, appended, err
	w.mu.Lock()
	w.release(r)
	w.mu.Unlock()
	close(r.done)
}

// fill takes requests from the queue into the batch, as far as its bounds allow; the first one always.
func (w *writer) fill(b *batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.queue {
		if len(b.requests) > 0 && (b.events+r.events > batchEvents || b.bytes+r.bytes > batchBytes) {
			break
		}
		b.add(r)
		n++
	}
	rest := copy(w.queue, w.queue[n:])
	clear(w.queue[rest:])
	w.queue = w.queue[:rest]
}

// expire answers the requests in the queue that are late, after an attempt that failed with err. Nothing of them was sent.
// They would be late for each other batch as well, and each of those may take long to fail.
func (w *writer) expire(err error) {
	now := time.Now()
	w.mu.Lock()
	late := 0
	for late < len(w.queue) && w.queue[late].late(now) {
		late++
	}
	expired := slices.Clone(w.queue[:late])
	w.queue = slices.Delete(w.queue, 0, late)
	w.mu.Unlock()
	for _, r := range expired {
		w.answer(r, domain.Appended{}, r.failure(lateFor(err)))
	}
}

// run writes batch after batch until the queue is empty. A batch is filled only when there is a connection for it, and
// in a log that others append to only when its row is locked, so that as much as possible goes together.
func (w *writer) run() {
	defer w.store.writers.running.Done()
	b, next := new(batch), new(batch)
	for {
		w.gather()
		w.mu.Lock()
		if len(w.queue) == 0 && len(b.requests) == 0 {
			w.running, w.idle = false, time.Now()
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		b, next = w.serve(b, next)
	}
}

// gather lets those who were just answered, and ask again at once, into the queue: so they go along with the next batch,
// not the one after it.
func (w *writer) gather() {
	const turns = 8
	for before, n := -1, 0; n < turns; n++ {
		runtime.Gosched()
		w.mu.Lock()
		waiting := len(w.queue)
		w.mu.Unlock()
		if waiting <= before {
			return
		}
		before = waiting
	}
}

// serve makes one attempt with the batch and what fits into it from the queue. What it could neither write nor answer
// is in the first of the batches that it returns; the other is empty.
func (w *writer) serve(b, next *batch) (*batch, *batch) {
	// Half of the time that a request has: where the database does not answer, there is as much left to find out more.
	ctx, cancel := context.WithTimeout(w.store.appending, w.store.appendTimeout/2)
	defer cancel()
	b.begin()
	a := attempt{w: w, log: &w.log, batch: b, next: next}
	err := a.make(ctx)
	if err == nil && a.before != nil {
		err = a.before(ctx)
		if err == nil && len(b.requests) > 0 && b.requests[0].late(time.Now()) {
			err = context.DeadlineExceeded // it has helped nobody until now
		}
	}
	b, next = a.batch, a.next
	if a.uncertain {
		w.log.forgetAll()
		for _, r := range slices.Concat(b.written, next.written) {
			r.unknown, r.fresh, r.lookUp, r.found = true, false, true, nil
		}
	}
	b.take(next)
	if err == nil {
		b.failures = 0
		return b, next
	}
	if !b.single {
		w.fill(b) // those who wait are concerned as well
	}
	w.giveUp(b, err)
	w.expire(err)
	b.failures++
	if len(b.requests) > 0 {
		backOff(ctx, b.failures)
	}
	return b, next
}

// backOff waits before another attempt, longer each time, since what broke a connection may last.
func backOff(ctx context.Context, failures int) {
	if failures <= 1 {
		return
	}
	timer := time.NewTimer(min(5*time.Millisecond<<min(failures, 10), 500*time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
