package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

func TestGuideToProofs(t *testing.T) {
	t.Parallel()
	runGuide(t, "prove-that-nothing-changed.md", 5)
}

func TestVerify(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	url, _ := serveOn(t, db, "MANIFOLD_RETENTION_GRACE=0s", "MANIFOLD_RETENTION_SHARE=1")
	environ := newTenant(t, url, "acme")
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	var tenant string
	err := super.QueryRow(t.Context(), "select tenant_id from manifold.tenants where name = 'acme'").Scan(&tenant)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	checkpoint, exported := filepath.Join(folder, "acme.checkpoint"), filepath.Join(folder, "log.ndjson.zst")
	execute := func(statement string, args ...any) {
		t.Helper()
		if _, err := super.Exec(t.Context(), strings.ReplaceAll(statement, "$TENANT", "'"+tenant+"'"), args...); err != nil {
			t.Fatal(err)
		}
	}
	// sealed returns what is stored of a log that the condition selects: size, edge and checkpoint.
	sealed := func(condition string) (found []any) {
		t.Helper()
		var size int64
		var edge []byte
		var checkpoint string
		err := super.QueryRow(t.Context(), "select size, edge, checkpoint from manifold.sealed_logs where "+condition+" limit 1", tenant).Scan(&size, &edge, &checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		return []any{size, edge, checkpoint}
	}
	const replace = "update manifold.sealed_logs set size = $1, edge = $2, checkpoint = $3 where tenant_id = $TENANT"
	// grow appends events, and waits until they are sealed up to a position.
	grow := func(category string, events int, size int64) {
		t.Helper()
		var lines strings.Builder
		for i := range events {
			fmt.Fprintf(&lines, `{"stream":"%s-%d","type":"Happened","data":{"n":%d.50,"who":"Zoë \u0007"},`+
				`"metadata":{"user":"u-1"},"time":"2026-01-02T03:04:05.%06dZ"}`+"\n", category, i%7, i, i)
		}
		o := run(t, environ, strings.NewReader(lines.String()), "import", "--name", category+fmt.Sprint(size), "-")
		if o.code != 0 {
			t.Fatal(o)
		}
		for enough := false; !enough; {
			err := super.QueryRow(t.Context(), "select count(*) = 1 from manifold.sealed_logs where tenant_id = $1::uuid and size = $2", tenant, size).Scan(&enough)
			if err != nil {
				t.Fatal(err)
			}
			execute("select pg_sleep(0.01)")
		}
	}
	says := func(code int, want string, args ...string) {
		t.Helper()
		o := run(t, environ, nil, append([]string{"verify"}, args...)...)
		if o.code != code || !strings.Contains(o.out+o.err, want) {
			t.Errorf("verify %v ends with %d and says\n%s%s\nwant %d and %q", args, o.code, o.out, o.err, code, want)
		}
	}
	says(1, "nothing of the log is sealed yet")
	grow("order", 300, 300)
	says(0, "up to position 300: 300 events intact, 0 erased, 0 expired, 0 removed before they were sealed\n",
		"--checkpoint", checkpoint)
	earlier := sealed("tenant_id = $1::uuid")
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

	must(t, environ, "append", "customer-1", "Registered", `{"email": "ada@example.com"}`, "--tag", "subject:ada")
	grow("order", 39, 740)
	must(t, environ, "subject", "erase", "ada", "--reason", "asked for it", "--yes")
	for explained := false; !explained; {
		err := super.QueryRow(t.Context(), "select count(*) > 0 from manifold.seal_receipts where tenant_id = $1::uuid and receipt like '%\nerasure %'", tenant).Scan(&explained)
		if err != nil {
			t.Fatal(err)
		}
		execute("select pg_sleep(0.01)")
	}
	says(0, "\nevents erased, each named by a signed receipt: 1\n", "--checkpoint", checkpoint)
	says(0, "349 events intact, 1 erased, 390 expired", "--checkpoint", checkpoint)

	// An export that is older than the log is verified up to its end.
	says(0, "the file ends at 700 of 740\n", "--checkpoint", checkpoint, exported)
	says(0, "the file is older than the saved checkpoint, at 740\n", "--checkpoint", checkpoint, exported)
	says(0, "up to position 700: 310 events intact, 0 erased, 390 expired", exported)
	older := writeFile(t, "older", []byte(strings.Replace(text, `{"n": 4.50`, `{"n": 4.51`, 1)))
	says(2, "findings: 1\n", "--checkpoint", checkpoint, older)
	says(0, "continues the saved one, at 740; events were not compared", "--checkpoint", checkpoint, "--checkpoint-only")
	says(1, "--checkpoint-only needs --checkpoint", "--checkpoint-only")

	// Whose log it is, and which keys are trusted, does not depend on what the service says.
	printed, _, _ := strings.Cut(must(t, environ, "verify", "--checkpoint", checkpoint), "\n")
	origin := strings.TrimPrefix(printed, "origin ")
	if !strings.HasPrefix(printed, "origin manifold.") || !strings.HasSuffix(origin, "/"+tenant) {
		t.Errorf("the origin is %q", printed)
	}
	says(0, printed, "--origin", origin)
	says(1, "and --origin says x", "--origin", "x")
	keys, err := os.ReadFile(checkpoint + ".keys")
	if err != nil {
		t.Fatal(err)
	}
	verifier := strings.TrimSpace(string(keys))
	if err := os.WriteFile(checkpoint+".keys", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	says(1, ".keys has no keys to verify it", "--checkpoint", checkpoint)
	says(0, "up to position 740", "--checkpoint", checkpoint, "--verifier", verifier)
	if again, err := os.ReadFile(checkpoint + ".keys"); err != nil || string(again) != string(keys) {
		t.Errorf("the keys that were given are not kept: %q, %v", again, err)
	}
	genuine := sealed("tenant_id = $1::uuid")
	newTenant(t, url, "other")
	execute("update manifold.sealed_logs set checkpoint = $1 where tenant_id = $TENANT", sealed("tenant_id <> $1::uuid and size > 0")[2])
	says(1, "it was copied from another tenant")
	says(1, "and the service's is of", "--checkpoint", checkpoint)
	execute(replace, genuine...)

	execute("update manifold.events set event_data = '{}' where tenant_id = $TENANT and position = 7")
	execute("delete from manifold.events where tenant_id = $TENANT and position = 9")
	execute(`update manifold.events set position = case position when 20 then -21 else -20 end
		where tenant_id = $TENANT and position in (20, 21)`)
	execute("update manifold.events set position = -position where tenant_id = $TENANT and position < 0")
	for _, want := range []string{
		"position 7: changed: ", "position 9: missing: ", "position 20: moved: ", "was sealed at position 20\n",
		"the log differs from the one that was sealed; findings: 4\n",
	} {
		says(2, want, "--checkpoint", checkpoint)
	}
	saved, err := os.ReadFile(checkpoint)
	if err != nil || !strings.Contains(string(saved), "\n740\n") {
		t.Errorf("the checkpoint is %s, %v", saved, err)
	}

	// The keys are pinned, so another one signs in vain until it is trusted.
	operator := []string{"MANIFOLD_URL=" + url, "MANIFOLD_OPERATOR_KEY=" + operatorKey}
	rotated, _, _ := strings.Cut(must(t, operator, "signing-keys", "rotate"), " ")
	list := must(t, environ, "signing-keys")
	if strings.Count(list, "\n") != 2 || !strings.Contains(strings.Split(list, "\n")[0], rotated) {
		t.Errorf("the keys are\n%s", list)
	}
	says(1, "the service's checkpoint: it is signed with a key that is not trusted", "--verifier", rotated)

	execute(replace, earlier...)
	for _, only := range []string{"--checkpoint-only", "--audit=false"} {
		says(2, "the log has 300 sealed positions, and had 740: it was cut, or restored from an older backup",
			"--checkpoint", checkpoint, only)
	}
	// Nothing is sealed any longer, and that is noticed, too.
	execute("update manifold.events set created_at = $1 where tenant_id = $TENANT and position = 720", time.Now().Add(-time.Hour))
	says(2, "720: unsealed: ") // on a slow machine of some positions before it, too
	// The audit log has few events, and is sealed later.
	for o := (outcome{err: "sealed yet"}); o.code != 0 || o.out == ""; {
		if !strings.Contains(o.err, "sealed yet") {
			t.Fatalf("the audit log is verified with %+v", o)
		}
		o = run(t, environ, nil, "verify", "--audit")
	}
	says(1, `the verifier "x" is not a key as manifold signing-keys prints it`, "--verifier", "x")
}
