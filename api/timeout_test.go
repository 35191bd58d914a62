package api

import (
	"testing"
	"time"
)

// A receive with the longest wait that the contract allows ends normally without events, and not because the service
// took too long.
func TestRequestsOutlastTheLongestWait(t *testing.T) {
	t.Parallel()
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	waits := 0
	for _, op := range s.contract.operations {
		for _, parameter := range op.route.Operation.Parameters {
			if p := parameter.Value; p.Name == "timeout" {
				waits++
				if longest := time.Duration(*p.Schema.Value.Max) * time.Second; s.timeout <= longest+5*time.Second {
					t.Errorf("%s waits for up to %s, and a request may take %s", op.id, longest, s.timeout)
				}
			}
		}
	}
	receive := s.contract.operations["POST /v1/subscriptions/:name/receive"].route.Operation.RequestBody.Value.Content.Get("application/json").Schema.Value
	if longest := time.Duration(*receive.Properties["wait"].Value.Max) * time.Second; s.timeout <= longest+5*time.Second {
		t.Errorf("receive waits for up to %s, and a request may take %s", longest, s.timeout)
	}
	if waits == 0 {
		t.Error("no operation waits")
	}
}
