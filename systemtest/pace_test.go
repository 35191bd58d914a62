package systemtest

import (
	"os"
	"time"
)

// alone reports whether nothing else uses the machine. Only then do tests measure how fast something is. Beside other
// tests on two processors, a database may not answer for ten seconds.
var alone = os.Getenv("MANIFOLD_TEST_ALONE") != ""

// within returns how long something may take that may take d alone.
func within(d time.Duration) time.Duration {
	if alone {
		return d
	}
	return 10 * d
}

// patience is how long a test waits for what must happen. That takes so long only if it does not happen.
const patience = 5 * time.Minute
