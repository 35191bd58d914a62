package gateway

import (
	"sync"
	"sync/atomic"
)

// jobQueue runs the operations of messages in the order in which they arrived. A connection has one queue for
// publishing and one for each subscription name, so that a slow operation delays only its own queue.
type jobQueue struct {
	mu      sync.Mutex
	waiting []queuedJob
	bytes   int
	running bool
	run     func(work func()) // starts a goroutine for which the connection waits
	all     *atomic.Int64     // bytes waiting in all job queues of the connection
}

type queuedJob struct {
	do    func()
	bytes int // memory that the job holds
}

// How much may wait in one queue, and in all queues of a connection.
const (
	queueJobs   = 100
	queueBytes  = 8 << 20
	queuesBytes = 2 * queueBytes
)

// add queues a job after those that wait. It returns false and drops the job if too much waits already. A job is always
// accepted if no other one waits.
func (l *jobQueue) add(job queuedJob) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= queueJobs || len(l.waiting) > 0 && l.bytes+job.bytes > queueBytes {
		return false
	}
	size := int64(job.bytes)
	if all := l.all.Add(size); all > queuesBytes && all > size {
		l.all.Add(-size)
		return false
	}
	l.waiting = append(l.waiting, job)
	l.bytes += job.bytes
	l.start()
	return true
}

// work runs the waiting jobs, and ends when none is left.
func (l *jobQueue) work() {
	for {
		l.mu.Lock()
		if len(l.waiting) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		job := l.waiting[0]
		l.waiting[0] = queuedJob{}
		l.waiting = l.waiting[1:]
		l.bytes -= job.bytes
		l.all.Add(-int64(job.bytes))
		l.mu.Unlock()
		job.do()
	}
}

// addFirst queues a job before all that wait, however many there are.
func (l *jobQueue) addFirst(job queuedJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append([]queuedJob{job}, l.waiting...)
	l.bytes += job.bytes
	l.all.Add(int64(job.bytes))
	l.start()
}

// idle reports whether no job waits. A running job does not count.
func (l *jobQueue) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0
}

// start starts the goroutine unless it runs. The caller holds the lock.
func (l *jobQueue) start() {
	if !l.running {
		l.running = true
		l.run(l.work)
	}
}
