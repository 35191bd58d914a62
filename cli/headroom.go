package cli

import "os"

// heapHeadroom is how much the service may allocate between two garbage collections, beside as much as it keeps.
const heapHeadroom = 16 << 20

// reserveHeadroom makes garbage collections rarer in a service that keeps little in memory: see decision 0077. The
// caller must keep the result as long as the service runs. The collector counts these bytes as live memory, but nobody
// ever writes to them, so they occupy none. The result is nil if the operator has set the collector's pace.
func reserveHeadroom() []byte {
	for _, name := range [...]string{"GOGC", "GOMEMLIMIT"} {
		if os.Getenv(name) != "" {
			return nil
		}
	}
	return make([]byte, heapHeadroom)
}
