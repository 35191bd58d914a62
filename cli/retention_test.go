package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRetentionCommands(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, "MANIFOLD_RETENTION_GRACE=0s", "MANIFOLD_RETENTION_SHARE=1")
	environ := newTenant(t, url, "acme")
	lines := filepath.Join(t.TempDir(), "events.ndjson")
	if err := os.WriteFile(lines, []byte(strings.Repeat(`{"stream":"beat-1","type":"Beat","data":{}}`+"\n", 5)), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, environ, "import", "--name", "events", lines)
	says := func(code int, want string, args ...string) {
		t.Helper()
		if o := run(t, environ, nil, append([]string{"retention"}, args...)...); o.code != code || !strings.Contains(o.out+o.err, want) {
			t.Errorf("%v ends with %d and says\n%s%s\nwant %d and %q", args, o.code, o.out, o.err, code, want)
		}
	}
	says(1, `there is no retention policy for the category "beat"`, "get", "beat")
	says(1, "the policy removes nothing", "set", "beat")
	says(1, "--max-age 1.5s is not a whole number of seconds", "set", "beat", "--max-age", "1500ms")
	says(1, "rules need --dry-run", "run", "beat", "--compact")
	says(0, "3 events would be removed\n", "run", "beat", "--dry-run", "--max-count", "2")
	must(t, environ, "group", "put", "mail", "--category", "beat", "--from", "start")
	says(0, "0 events would be removed\nothers are held by group mail, which has reached position 0\n", "run", "beat", "--dry-run", "--max-count", "2")
	says(0, "beat: created\n", "set", "beat", "--max-count", "2", "--max-age", "24h")
	says(0, "0 events removed since the request\ncategory  beat\nkeeps     24h0m0s, 2 newest\nremoved   0 events, up to position 0\nheld by   group mail, which has reached position 0\n", "run", "beat")
	says(0, "CATEGORY  KEEPS              REMOVED  UP TO  HELD BY\nbeat      24h0m0s, 2 newest  0        0      group mail at 0\n", "list")
	says(0, "beat: changed or unchanged\n", "set", "beat", "--compact", "--force-group", "mail")
	says(0, "removed            4 events, up to position 4\n", "run", "beat")
	says(0, `"removedTo":4`, "list", "--json")
	says(0, `"force":{"groups":["mail"]}`, "get", "beat", "--json")
	says(0, "does not wait for  groups mail\n", "get", "beat")
	says(0, "beat: deleted; nothing more is removed\n", "delete", "beat")
	says(1, "there is no retention policy", "delete", "beat")
}
