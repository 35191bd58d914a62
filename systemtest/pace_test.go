package systemtest

import (
	"os"
	"time"
)

// alone reports whether nothing else uses the machine. Only then do tests measure how fast something is: beside other tests
// on two processors, everything may take ten times as long, and more.
var alone = os.Getenv("MANIFOLD_TEST_ALONE") != ""

// within returns how long something may take that takes d on an idle machine.
func within(d time.Duration) time.Duration {
	if alone {
		return d
	}
	return 10 * d
}

// patience is how long a test waits for what must happen, which costs time only if it does not.
const patience = 5 * time.Minute
