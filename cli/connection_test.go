package cli_test

import (
	"strings"
	"testing"
)

// A variable with an empty value is usually a secret that could not be read. The operator's key must not apply
// instead.
func TestAnEmptyKeyIsNotReplacedByTheOperators(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"key", "list"}, {"projection", "list"}, {"upcaster", "list"}} {
		o := run(t, []string{"MANIFOLD_URL=http://127.0.0.1:1", "MANIFOLD_KEY=", "MANIFOLD_OPERATOR_KEY=" + operatorKey}, nil, args...)
		if o.code != 1 || !strings.Contains(o.err, "MANIFOLD_KEY is set but empty") {
			t.Errorf("manifold %s: %d, %s", strings.Join(args, " "), o.code, o.err)
		}
	}
}
