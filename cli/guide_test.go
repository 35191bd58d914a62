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

func TestGuideToErasingPeople(t *testing.T) {
	t.Parallel()
	runGuide(t, "erase-a-person.md", 6)
}

// runGuide runs the commands of a guide for a new tenant.
func runGuide(t *testing.T, name string, least int) {
	t.Helper()
	runPage(t, "guides/"+name, least)
}

// runPage runs the commands of a page of docs for a new tenant.
func runPage(t *testing.T, name string, least int) {
	t.Helper()
	needCurl(t, name)
	runCommands(t, name, least, sharedTenant(t, "page"))
}

// needCurl skips a test of a page's commands without curl.
func needCurl(t *testing.T, page string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("MANIFOLD_TEST_CLIENTS") == "required" {
			t.Fatal("there is no curl")
		}
		t.Skip("there is no curl: the commands of docs/" + page + " were not run")
	}
}

// aTime is when an event was appended.
var aTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)

// runCommands writes the files of a page of docs and runs its commands (at least that many) in the page's order. Each
// command must exit as the page says and print the output below it, line by line; "..." is any text, and times differ.
func runCommands(t *testing.T, name string, least int, environ []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	runText(t, string(page), least, environ)
}

// runText is runCommands for the text of a page, or for a part of it.
func runText(t *testing.T, page string, least int, environ []string) {
	t.Helper()
	environ = append(environ, "PATH="+filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH"))
	folder := t.TempDir()
	codes := map[string]int{"": 0, "fails": 1, "differs": 2}
	said, ran := "", 0
	for _, block := range regexp.MustCompile("(?ms)^```(yaml|sh|text) *([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		kind, note, text := block[1], block[2], block[3]
		switch {
		case kind == "yaml" && note != "":
			file := filepath.Join(folder, note)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case kind == "sh":
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
			said = aTime.ReplaceAllString(strings.ReplaceAll(string(out), "\r", ""), "(a time)")
			if got := shell.ProcessState.ExitCode(); got != code {
				t.Fatalf("%s ends with %d, want %d:\n%s", text, got, code, said)
			}
			ran++
		case kind == "text":
			rest := said
			for piece := range strings.FieldsFuncSeq(strings.ReplaceAll(aTime.ReplaceAllString(text, "(a time)"), "...", "\n"), func(r rune) bool { return r == '\n' }) {
				_, after, found := strings.Cut(rest, piece)
				if !found {
					t.Fatalf("the page says %q, the command\n%s", piece, said)
				}
				rest = after
			}
		}
	}
	if ran < least {
		t.Errorf("only %d of the page's commands were run", ran)
	}
}
