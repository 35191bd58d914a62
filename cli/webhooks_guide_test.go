package cli_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The commands of docs/guides/webhooks.md run in the page's order. Its receiver is built and accepts what is sent,
// and each command prints the output below it, piece by piece. Commands marked as eventual may print it a moment
// later.
func TestGuideToWebhooks(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("MANIFOLD_TEST_CLIENTS") == "required" {
			t.Fatal("there is no curl")
		}
		t.Skip("there is no curl: the commands of docs/guides/webhooks.md were not run")
	}
	page, err := os.ReadFile(filepath.Join("..", "docs", "guides", "webhooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), "127.0.0.1:9000", freeAddress(t))
	url, _ := serve(t, "MANIFOLD_WEBHOOKS_ALLOW=127.0.0.0/8", "MANIFOLD_WEBHOOKS_ALLOW_HTTP=true")
	environ := append(newTenant(t, url, "guide"), "PATH="+filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH"))
	folder := t.TempDir()
	t.Cleanup(func() { endReceiver(t, folder) })

	begin, ran := "", 0
	command := func(text string) string {
		shell := exec.CommandContext(t.Context(), "bash", "-ec", begin+text)
		shell.Dir, shell.Env = folder, withEnviron(environ)
		shell.WaitDelay = time.Minute
		out, err := shell.CombinedOutput()
		if err != nil && shell.ProcessState == nil {
			t.Fatal(err)
		}
		if code := shell.ProcessState.ExitCode(); code != 0 {
			out = fmt.Appendf(out, "it ended with %d", code)
		}
		return string(out)
	}
	blocks := regexp.MustCompile("(?ms)^```(sh|text|go) *([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	for i, block := range blocks {
		kind, note, text := block[1], block[2], block[3]
		switch {
		case kind == "go":
			buildReceiver(t, folder, note, text)
		case kind == "text" || note == "build":
		case begin == "":
			begin = text
		default:
			wanted := ""
			if i+1 < len(blocks) && blocks[i+1][1] == "text" {
				wanted = blocks[i+1][3]
			}
			late := time.Now().Add(time.Minute)
			for {
				said := command(text)
				missing, ok := missingLine(said, wanted)
				if ok && !strings.Contains(said, "it ended with") {
					break
				}
				if note != "soon" || time.Now().After(late) {
					t.Fatalf("%s: the page says %q, the command\n%s", text, missing, said)
				}
			}
			ran++
		}
	}
	if ran < 15 {
		t.Errorf("only %d of the page's commands were run", ran)
	}
}

// missingLine returns the first of a page's lines that a command has not printed, in order. ok is true if it has
// printed all.
func missingLine(said, page string) (line string, ok bool) {
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		_, after, found := strings.Cut(said, line)
		if !found {
			return line, false
		}
		said = after
	}
	return "", true
}

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// buildReceiver builds the page's program, with the libraries that this module has.
func buildReceiver(t *testing.T, folder, name, source string) {
	t.Helper()
	file := filepath.Join(folder, name)
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", strings.TrimSuffix(file, ".go"), file).CombinedOutput(); err != nil {
		t.Fatalf("build the page's receiver: %v\n%s", err, out)
	}
}

// endReceiver ends the page's receiver if the page did not get that far.
func endReceiver(t *testing.T, folder string) {
	text, err := os.ReadFile(filepath.Join(folder, "receiver.pid"))
	if err != nil {
		return // it was never started
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		t.Error(err)
	} else if t.Failed() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
