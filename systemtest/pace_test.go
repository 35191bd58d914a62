package systemtest

import (
	"os"
	"time"
)

// alone reports whether nothing else uses the machine. Only then do tests measure how fast something is. Beside other tests
// on two processors, a database may not answer for ten seconds.
var alone = os.Getenv("MANIFOLD_TEST_ALONE") != ""

// within returns how long something may take that takes d on an idle machine of two processors. Some are half as fast.
func within(d time.Duration) time.Duration {
	if alone {
		return 2 * d
	}
	return 20 * d
}

// patience is how long a test waits for what must happen. That takes so long only if it does not happen.
const patience = 5 * time.Minute
