package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestGuideToProjections(t *testing.T) {
	t.Parallel()
	runGuide(t, "write-a-projection.md", 10)
}

// runGuide writes a guide's files and runs its commands (at least that many) in the guide's order, for a tenant with the
// events of the demo. Each command must print the output below it, line by line, and exit as the guide says.
func runGuide(t *testing.T, name string, least int) {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join("..", "docs", "guides", name))
	if err != nil {
		t.Fatal(err)
	}
	tenant := sharedTenant(t, "guide")
	must(t, tenant, "import", filepath.Join("..", "service", "demo.ndjson")) // guides begin with make dev, whose tenant has them
	environ := append(tenant, "PATH="+filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH"))
	folder := t.TempDir()
	codes := map[string]int{"": 0, "fails": 1, "differs": 2}
	said, ran := "", 0
	for _, block := range regexp.MustCompile("(?ms)^```(yaml|sh|text) *([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(string(guide), -1) {
		kind, note, text := block[1], block[2], block[3]
		switch kind {
		case "yaml":
			file := filepath.Join(folder, note)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			code, known := codes[note]
			if !known {
				t.Fatalf("a command is said to end with %q", note)
			}
			shell := exec.CommandContext(t.Context(), "bash", "-ec", text)
			shell.Dir, shell.Env = folder, withEnviron(environ)
			out, err := shell.CombinedOutput()
			if shell.ProcessState == nil {
				t.Fatal(err)
			}
			said = string(out)
			if got := shell.ProcessState.ExitCode(); got != code {
				t.Fatalf("%s ends with %d, want %d:\n%s", text, got, code, said)
			}
			ran++
		case "text":
			rest := said
			for line := range strings.Lines(text) {
				_, after, found := strings.Cut(rest, strings.TrimRight(line, "\n"))
				if !found {
					t.Fatalf("the guide says %q, the command\n%s", line, said)
				}
				rest = after
			}
		}
	}
	if ran < least {
		t.Errorf("only %d of the guide's commands were run", ran)
	}
}
