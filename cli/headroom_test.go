package cli

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestHeadroomDelaysTheNextCollection(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	without := heapGoal()
	headroom := reserveHeadroom()
	if with := heapGoal(); with < without+2*heapHeadroom*9/10 {
		t.Errorf("the next collection is at %d bytes, and without headroom at %d", with, without)
	}
	runtime.KeepAlive(headroom)
}

func TestOperatorSetsTheCollectorsPace(t *testing.T) {
	for _, setting := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(setting, func(t *testing.T) {
			t.Setenv(setting, "200")
			if reserveHeadroom() != nil {
				t.Error("memory is reserved")
			}
		})
	}
}

// heapGoal collects garbage, and returns the size of the heap at which the next collection ends.
func heapGoal() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
