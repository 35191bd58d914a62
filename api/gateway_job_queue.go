package api

import (
	"sync"
	"sync/atomic"
)

// gatewayLane runs the operations of messages in the order in which they arrived. A connection has one lane for
// publishing and one for each subscription name, so that a slow operation delays only its own lane.
type gatewayLane struct {
	mu      sync.Mutex
	waiting []gatewayJob
	bytes   int
	running bool
	run     func(work func()) // starts a goroutine for which the connection waits
	all     *atomic.Int64     // bytes waiting in all lanes of the connection
}

type gatewayJob struct {
	do    func()
	bytes int // memory that the job holds
}

// How much may wait in one lane, and in all lanes of a connection.
const (
	laneJobs   = 100
	laneBytes  = 8 << 20
	lanesBytes = 2 * laneBytes
)

// add queues a job after those that wait. It returns false and drops the job if too much waits already. A job is always
// accepted if no other one waits.
func (l *gatewayLane) add(job gatewayJob) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= laneJobs || len(l.waiting) > 0 && l.bytes+job.bytes > laneBytes {
		return false
	}
	size := int64(job.bytes)
	if all := l.all.Add(size); all > lanesBytes && all > size {
		l.all.Add(-size)
		return false
	}
	l.waiting = append(l.waiting, job)
	l.bytes += job.bytes
	l.begin()
	return true
}

// work runs the waiting jobs, and ends when none is left.
func (l *gatewayLane) work() {
	for {
		l.mu.Lock()
		if len(l.waiting) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		job := l.waiting[0]
		l.waiting[0] = gatewayJob{}
		l.waiting = l.waiting[1:]
		l.bytes -= job.bytes
		l.all.Add(-int64(job.bytes))
		l.mu.Unlock()
		job.do()
	}
}

// addFirst queues a job before all that wait, however many there are.
func (l *gatewayLane) addFirst(job gatewayJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append([]gatewayJob{job}, l.waiting...)
	l.bytes += job.bytes
	l.all.Add(int64(job.bytes))
	l.begin()
}

// idle reports whether no job waits. A running job does not count.
func (l *gatewayLane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0
}

// begin starts the goroutine unless it runs. The caller holds the lock.
func (l *gatewayLane) begin() {
	if !l.running {
		l.running = true
		l.run(l.work)
	}
}
