package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

func TestGuideToProofs(t *testing.T) {
	t.Parallel()
	runGuide(t, "prove-that-nothing-changed.md", 4)
}

func TestVerify(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	url, _ := serveOn(t, db, "MANIFOLD_RETENTION_GRACE=0s", "MANIFOLD_RETENTION_SHARE=1")
	environ := newTenant(t, url, "acme")
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	folder := t.TempDir()
	checkpoint, exported := filepath.Join(folder, "acme.checkpoint"), filepath.Join(folder, "log.ndjson.zst")
	execute := func(statement string, args ...any) {
		t.Helper()
		if _, err := super.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	// grow appends events, and waits until they are sealed up to a position.
	grow := func(category string, events int, size int64) {
		t.Helper()
		var lines strings.Builder
		for i := range events {
			fmt.Fprintf(&lines, `{"stream":"%s-%d","type":"Happened","data":{"n":%d.50,"who":"Zoë \u0007"},"metadata":{"user":"u-1"},"time":"2026-01-02T03:04:05.%06dZ"}`+"\n", category, i%7, i, i)
		}
		if o := run(t, environ, strings.NewReader(lines.String()), "import", "--name", category+fmt.Sprint(size), "-"); o.code != 0 {
			t.Fatal(o)
		}
		for sealed := false; !sealed; {
			if err := super.QueryRow(t.Context(), "select exists (select from manifold.sealed_logs where size = $1), pg_sleep(0.01)::text", size).Scan(&sealed, new(string)); err != nil {
				t.Fatal(err)
			}
		}
	}
	says := func(code int, want string, args ...string) {
		t.Helper()
		if o := run(t, environ, nil, append([]string{"verify"}, args...)...); o.code != code || !strings.Contains(o.out+o.err, want) {
			t.Errorf("verify %v ends with %d and says\n%s%s\nwant %d and %q", args, o.code, o.out, o.err, code, want)
		}
	}
	says(1, "nothing of the log is sealed yet")
	grow("order", 300, 300)
	says(0, "up to position 300: 300 events intact, 0 erased, 0 expired, 0 removed before they were sealed\n", "--checkpoint", checkpoint)
	execute("create table earlier as select * from manifold.sealed_logs")
	grow("beat", 400, 700)
	says(0, "up to position 700: 700 events intact", "--checkpoint", checkpoint)

	must(t, environ, "retention", "set", "beat", "--max-count", "10")
	for !strings.Contains(must(t, environ, "retention", "run", "beat"), "removed   390 events") {
		// A projection still reads them.
	}
	says(0, "310 events intact, 0 erased, 390 expired, 0 removed", "--checkpoint", checkpoint)
	must(t, environ, "export", exported)
	says(0, "310 events intact", "--checkpoint", checkpoint, exported)
	text := must(t, environ, "export")
	for name, change := range map[string]struct{ from, to, want string }{
		"changed": {`{"n": 4.50`, `{"n": 4.51`, "position 5: changed: "},
		"number":  {`{"n": 4.50`, `{"n": 4.5`, "position 5: changed: "},
		"removed": {text[:strings.Index(text, "\n")+1], "", "position 1: missing: there is no event, and no receipt"},
		"twice":   {text[:strings.Index(text, "\n")+1], strings.Repeat(text[:strings.Index(text, "\n")+1], 2), "position 1: disorder: "},
	} {
		file := writeFile(t, name, []byte(strings.Replace(text, change.from, change.to, 1)))
		says(2, change.want, "--checkpoint", checkpoint, file)
	}
	says(1, "is not an event of an export", writeFile(t, "other", []byte(`{"id":"1"}`)))

	execute("create table kept as select * from manifold.events")
	execute("update manifold.events set event_data = '{}' where position = 7")
	execute("delete from manifold.events where position = 9")
	execute("update manifold.events set position = case position when 20 then -21 else -20 end where position in (20, 21)")
	execute("update manifold.events set position = -position where position < 0")
	for _, want := range []string{
		"position 7: changed: ", "position 9: missing: ", "position 20: moved: ", "was sealed at position 20\n", "the log differs from the one that was sealed; findings: 4\n",
	} {
		says(2, want, "--checkpoint", checkpoint)
	}
	saved, err := os.ReadFile(checkpoint)
	if err != nil || !strings.Contains(string(saved), "\n700\n") {
		t.Errorf("the checkpoint is %s, %v", saved, err)
	}

	// The keys are pinned, so another one signs in vain until it is trusted.
	operator := []string{"MANIFOLD_URL=" + url, "MANIFOLD_OPERATOR_KEY=" + operatorKey}
	rotated, _, _ := strings.Cut(must(t, operator, "signing-keys", "rotate"), " ")
	if list := must(t, environ, "signing-keys"); strings.Count(list, "\n") != 2 || !strings.Contains(strings.Split(list, "\n")[0], rotated) {
		t.Errorf("the keys are\n%s", list)
	}
	says(1, "the service's checkpoint: it is signed with a key that is not trusted", "--checkpoint", checkpoint, "--verifier", rotated)

	execute("update manifold.sealed_logs as s set size = e.size, edge = e.edge, checkpoint = e.checkpoint from earlier e where s.tenant_id = e.tenant_id")
	says(2, "the log has 300 sealed positions, and had 700: it was cut, or restored from an older backup", "--checkpoint", checkpoint)
	for o := (outcome{err: "sealed yet"}); o.code != 0 || o.out == ""; { // the audit log has few events, and is sealed later
		if !strings.Contains(o.err, "sealed yet") {
			t.Fatalf("the audit log is verified with %+v", o)
		}
		o = run(t, environ, nil, "verify", "--audit")
	}
	says(1, `the verifier "x" is not a key as manifold signing-keys prints it`, "--verifier", "x")
}
