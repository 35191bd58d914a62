package gateway

import (
	"sync/atomic"
	"testing"
)

// The waiting jobs are limited per queue, and per connection, however many names its client uses.
func TestLanesAreBounded(t *testing.T) {
	t.Parallel()
	var all atomic.Int64
	var work []func()
	queue := func() *jobQueue {
		return &jobQueue{all: &all, run: func(run func()) { work = append(work, run) }}
	}
	done := 0
	job := func(bytes int) queuedJob { return queuedJob{bytes: bytes, do: func() { done++ }} }
	waiting := 0
	for range 100 {
		l := queue()
		for range 20 {
			if l.add(job(queueBytes / 10)) {
				waiting++
			}
		}
	}
	if waiting != 10*queuesBytes/queueBytes {
		t.Errorf("%d tenths of what a queue may hold wait", waiting)
	}
	for _, run := range work {
		run()
	}
	if all.Load() != 0 || done < waiting {
		t.Errorf("%d of %d are carried out, and %d bytes wait", done, waiting, all.Load())
	}
	if large := queue(); !large.add(job(2*queuesBytes)) || large.add(job(1)) || queue().add(job(1)) {
		t.Error("one job may always wait, and nothing beside one that is larger than all room")
	}
	many := queue()
	all.Store(0)
	for i := range queueJobs + 1 {
		if many.add(job(0)) != (i < queueJobs) {
			t.Errorf("job %d is taken, or not", i)
		}
	}
}
