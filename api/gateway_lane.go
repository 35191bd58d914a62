package api

import (
	"sync"
	"sync/atomic"
)

// A gatewayLane carries out messages of a connection one after the other, in the order in which they came. A connection has a lane
// for what is published and one for each name of a subscription, so that what is slow in one of them holds up no other.
type gatewayLane struct {
	mu      sync.Mutex
	waiting []gatewayJob
	bytes   int
	running bool
	run     func(work func()) // starts a goroutine, which somebody waits for
	all     *atomic.Int64     // bytes that wait in all lanes of the connection
}

type gatewayJob struct {
	do    func()
	bytes int // that it holds in memory
}

// How much may wait in a lane, and in all of a connection.
const (
	laneJobs   = 100
	laneBytes  = 8 << 20
	lanesBytes = 2 * laneBytes
)

// add has a job carried out behind those that wait. It reports false, and drops the job, where too much waits already; one job
// may always wait.
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

// work carries out what waits, and ends when nothing does.
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

// addFirst has a job carried out before those that wait, however many they are.
func (l *gatewayLane) addFirst(job gatewayJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append([]gatewayJob{job}, l.waiting...)
	l.bytes += job.bytes
	l.all.Add(int64(job.bytes))
	l.begin()
}

// idle says whether nothing waits: what is being carried out does not count.
func (l *gatewayLane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0
}

// begin starts the goroutine where there is none; whoever calls it holds the lock.
func (l *gatewayLane) begin() {
	if !l.running {
		l.running = true
		l.run(l.work)
	}
}
