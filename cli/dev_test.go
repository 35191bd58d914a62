package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// dev starts `manifold dev` in a folder, and returns its URL and key.
func dev(t *testing.T, folder string) (d *running, url, key string) {
	t.Helper()
	d = launch(t, nil, folder, "dev", "--listen", "127.0.0.1:0")
	url = strings.Fields(d.await("  URL "))[1]
	key = strings.Fields(d.await("  key "))[1]
	d.await("Ctrl-C stops it")
	return d, url, key
}

// folderForDev is one that the database's user can reach when the tests are root's.
func folderForDev(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "manifold-dev-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// The test follows a newcomer: start it, take the tutorial, try the printed lines, stop it, start it again, and find
// everything.
func TestDev(t *testing.T) {
	t.Parallel()
	folder := folderForDev(t)
	d, url, key := dev(t, folder)
	needCurl(t, "tutorial.md")
	runCommands(t, "tutorial.md", 12, []string{"MANIFOLD_URL=" + url, "MANIFOLD_KEY=" + key})
	var lines []string
	for line := range strings.Lines(d.output()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") {
			lines = append(lines, line)
		}
	}
	if link := url + "/console#key=" + key; !strings.Contains(d.output(), link) {
		t.Errorf("it does not show %s:\n%s", link, d.output())
	}
	if len(lines) != 3 {
		t.Fatalf("it shows %d curl lines:\n%s", len(lines), d.output())
	}
	for _, line := range lines {
		out, err := exec.Command("sh", "-c", line+" --fail").CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("order-1001")) {
			t.Errorf("%s\ngives %s, %v", line, out, err)
		}
	}
	if info, err := os.Stat(filepath.Join(folder, ".manifold", "secrets.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secrets can be read by others: %v, %v", info.Mode(), err)
	}

	environ := []string{"MANIFOLD_URL=" + url, "MANIFOLD_KEY=" + key}
	if o := run(t, environ, strings.NewReader(`{"stream":"note-1","type":"Written","data":{"text":"remember"}}`), "import", "-", "--name", "notes"); o.code != 0 {
		t.Fatalf("import: %s%s", o.out, o.err)
	}
	before := must(t, environ, "export")
	if code := d.end(os.Interrupt); code != 0 {
		t.Errorf("it ends with %d:\n%s", code, d.output())
	}

	d, url, again := dev(t, folder)
	if again != key {
		t.Error("after a restart the key is another one")
	}
	environ[0] = "MANIFOLD_URL=" + url
	if after := must(t, environ, "export"); after != before {
		t.Errorf("after a restart the log is\n%s\nand was\n%s", after, before)
	}
	// Two Ctrl-C at once, and what was acknowledged is there.
	if o := run(t, environ, strings.NewReader(`{"stream":"note-2","type":"Written","data":{"text":"this too"}}`), "import", "-", "--name", "more"); o.code != 0 {
		t.Fatalf("import: %s%s", o.out, o.err)
	}
	before = must(t, environ, "export")
	d.end(os.Interrupt, os.Interrupt)

	d, url, _ = dev(t, folder)
	environ[0] = "MANIFOLD_URL=" + url
	if after := must(t, environ, "export"); after != before || !strings.Contains(after, "this too") {
		t.Errorf("after two Ctrl-C the log is\n%s\nand was\n%s", after, before)
	}
	if code := d.end(syscall.SIGTERM); code != 0 {
		t.Errorf("it ends with %d:\n%s", code, d.output())
	}
}

func TestDevSaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	folder := folderForDev(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	o := run(t, nil, nil, "dev", "--dir", filepath.Join(folder, ".manifold"), "--listen", taken.Addr().String())
	if o.code == 0 || !strings.Contains(o.err, "another program listens on "+taken.Addr().String()) || !strings.Contains(o.err, "--listen") {
		t.Errorf("with its port taken it says %s", o.err)
	}

	// kill -9 leaves a lock and a database in place, and neither prevents the next start.
	d, url, key := dev(t, folder)
	environ := []string{"MANIFOLD_URL=" + url, "MANIFOLD_KEY=" + key}
	before := must(t, environ, "export")
	d.end(os.Kill)
	d, url, _ = dev(t, folder)
	environ[0] = "MANIFOLD_URL=" + url
	if after := must(t, environ, "export"); after != before {
		t.Errorf("after kill -9 the log is\n%s\nand was\n%s", after, before)
	}

	// Without its database it ends, and says so.
	number, err := os.ReadFile(filepath.Join(folder, ".manifold", "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(number), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(postmaster, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.await("PostgreSQL stopped unexpectedly")
	if code := d.end(); code != 1 {
		t.Errorf("without its database it ends with %d", code)
	}
	d, _, _ = dev(t, folder)

	o = run(t, nil, nil, "dev", "--dir", filepath.Join(folder, ".manifold"), "--listen", "127.0.0.1:0")
	if o.code == 0 || !strings.Contains(o.err, "another manifold dev uses "+filepath.Join(folder, ".manifold")) {
		t.Errorf("a second one in the same folder says %s", o.err)
	}
	d.end(os.Interrupt)

	if err := os.WriteFile(filepath.Join(folder, ".manifold", "secrets.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	o = run(t, nil, nil, "dev", "--dir", filepath.Join(folder, ".manifold"), "--listen", "127.0.0.1:0")
	if o.code == 0 || !strings.Contains(o.err, "secrets.json is damaged") {
		t.Errorf("with damaged secrets it says %s", o.err)
	}
	// Without the secrets the data still exists, and a new tenant's key works.
	if err := os.Remove(filepath.Join(folder, ".manifold", "secrets.json")); err != nil {
		t.Fatal(err)
	}
	d, url, key = dev(t, folder)
	var names struct{ Projections []struct{ Name string } }
	r, err := clientOf(t, []string{"MANIFOLD_URL=" + url, "MANIFOLD_KEY=" + key}).ListProjectionsWithResponse(t.Context())
	if err != nil || json.Unmarshal(r.Body, &names) != nil || fmt.Sprint(names.Projections) != "[{order-summary} {usage}]" {
		t.Errorf("a new demo tenant has the projections %s, %v", r.Body, err)
	}
	d.end(os.Interrupt)
}
