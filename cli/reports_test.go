package cli_test

import (
	"strings"
	"testing"
)

func TestReportsCommands(t *testing.T) {
	t.Parallel()
	environ := sharedTenant(t, "acme")
	says := func(code int, want string, args ...string) {
		t.Helper()
		if o := run(t, environ, nil, append([]string{"reports"}, args...)...); o.code != code || !strings.Contains(o.out+o.err, want) {
			t.Errorf("%v ends with %d and says\n%s%s\nwant %d and %q", args, o.code, o.out, o.err, code, want)
		}
	}
	says(0, "reports are disabled\n", "show")
	says(1, "--max-lag 1.5s is not a whole number of seconds", "enable", "--max-lag", "1500ms")
	says(1, "maxLag", "enable", "--max-lag", "1s")
	says(0, "reports are enabled since ", "enable")
	says(0, "lag is reported from 1m0s on\n", "enable", "--max-lag", "1m")
	says(0, `"maxLag":60`, "show", "--json")
	says(0, "reports are disabled\n", "disable")
}
