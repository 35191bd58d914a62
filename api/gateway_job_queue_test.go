package api

import (
	"sync/atomic"
	"testing"
)

// The waiting jobs are limited per lane, and per connection, however many names its client uses.
func TestLanesAreBounded(t *testing.T) {
	t.Parallel()
	var all atomic.Int64
	var work []func()
	lane := func() *gatewayLane {
		return &gatewayLane{all: &all, run: func(run func()) { work = append(work, run) }}
	}
	done := 0
	job := func(bytes int) gatewayJob { return gatewayJob{bytes: bytes, do: func() { done++ }} }
	waiting := 0
	for range 100 {
		l := lane()
		for range 20 {
			if l.add(job(laneBytes / 10)) {
				waiting++
			}
		}
	}
	if waiting != 10*lanesBytes/laneBytes {
		t.Errorf("%d tenths of what a lane may hold wait", waiting)
	}
	for _, run := range work {
		run()
	}
	if all.Load() != 0 || done < waiting {
		t.Errorf("%d of %d are carried out, and %d bytes wait", done, waiting, all.Load())
	}
	if large := lane(); !large.add(job(2*lanesBytes)) || large.add(job(1)) || lane().add(job(1)) {
		t.Error("one job may always wait, and nothing beside one that is larger than all room")
	}
	many := lane()
	all.Store(0)
	for i := range laneJobs + 1 {
		if many.add(job(0)) != (i < laneJobs) {
			t.Errorf("job %d is taken, or not", i)
		}
	}
}
