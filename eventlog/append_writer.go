package eventlog

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// writerIdle is how long an idle writer is kept.
const writerIdle = time.Minute

// writers are the writers of the tenants that receive appends.
type writers struct {
	mu      sync.RWMutex // read-locked while a request is queued, so that no writer is removed meanwhile
	of      map[domain.TenantID]*writer
	closed  bool
	sweeper *time.Timer // nil if there is no writer

	running sync.WaitGroup // the writers' goroutines
	busy    busyTime
	bytes   atomic.Int64 // waiting or being written, for all tenants
}

// writer appends to one tenant's log. It owns no connection, and has a goroutine only while there is something to
// write. An idle writer holds only its knowledge of the log, and is removed after a minute.
//
// It commits in groups: requests that arrive while a batch is being written form the next batch.
type writer struct {
	store  *Log
	tenant domain.TenantID

	mu      sync.Mutex
	queue   []*request
	bytes   int64 // of the requests in the queue or being written
	running bool
	idle    time.Time // when it stopped running

	// Used only by the running goroutine, or by the one that leads its attempt.
	log        logState
	aloneUntil time.Time // takes part in no shared transaction before
}

// enqueue puts a request into its tenant's queue and ensures that a goroutine processes the queue.
func (s *Log) enqueue(tenant domain.TenantID, r *request) (*writer, error) {
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

// sweep removes the writers that have been idle since before the given time, and schedules itself again if any remain.
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

// close refuses new requests and waits until the waiting ones are answered. Each has a deadline.
func (ws *writers) close() {
	ws.mu.Lock()
	ws.closed = true
	ws.mu.Unlock()
	ws.running.Wait()
	ws.sweep(time.Now().Add(time.Hour))
}

func (w *writer) push(r *request) error {
	s := w.store
	// A request that is alone is always accepted, however large it is.
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

// withdraw takes a request out of the queue. It returns false if writing it has begun.
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

// release subtracts a request from the queues' sizes. The caller must hold w.mu.
func (w *writer) release(r *request) {
	w.bytes -= r.bytes
	w.store.writers.bytes.Add(-r.bytes)
}

// answer sets a request's outcome.
func (w *writer) answer(r *request, appended domain.Appended, err error) {
	r.answered, r.appended, r.err = true, appended, err
	w.mu.Lock()
	w.release(r)
	w.mu.Unlock()
	close(r.done)
}

// moveQueued moves requests from the queue into the batch, within the batch's limits. The first request always fits.
func (w *writer) moveQueued(b *batch) {
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

// expire answers the late requests in the queue, after an attempt that failed with err. None of them was sent. They
// would also be late for every other batch, and each of those may take long to fail.
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

// run writes batch after batch until the queue is empty. It fills a batch only when a connection is available and, in a
// log that others append to, only when the log's row is locked. So a batch contains as many requests as possible.
func (w *writer) run() {
	defer w.store.writers.running.Done()
	w.store.writers.busy.begin()
	defer w.store.writers.busy.end()
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

// gather lets clients that were just answered, and append again at once, into the queue. Their requests are then part
// of the next batch, not of the one after it.
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

// serve makes one attempt with the batch and the requests from the queue that fit into it. It returns two batches: the
// first holds what it could neither write nor answer, the second is empty.
func (w *writer) serve(b, next *batch) (*batch, *batch) {
	// This is half of a request's time. If the database does not answer, the other half remains to find out more.
	ctx, cancel := context.WithTimeout(w.store.appending, w.store.appendTimeout/2)
	defer cancel()
	b.begin()
	a := attempt{w: w, log: &w.log, batch: b, next: next}
	err := w.store.shared.commit(ctx, &a)
	if err == nil && a.before != nil {
		err = a.before(ctx)
		if err == nil && len(b.requests) > 0 && b.requests[0].late(time.Now()) {
			err = context.DeadlineExceeded // the attempt has not helped this request so far
		}
	}
	b, next = a.batch, a.next
	if a.uncertain {
		w.log.forgetAll()
		for _, r := range slices.Concat(b.written, next.written) {
			r.unknown, r.fresh, r.lookUp, r.found = true, false, true, nil
		}
	}
	b.merge(next)
	if err == nil {
		b.failures = 0
		return b, next
	}
	if !b.single {
		w.moveQueued(b) // the waiting requests are affected as well
	}
	w.giveUp(b, err)
	w.expire(err)
	b.failures++
	if len(b.requests) > 0 {
		pg.BackOff(ctx, b.failures)
	}
	return b, next
}
