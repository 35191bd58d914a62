package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestGuideToPublishing(t *testing.T) {
	t.Parallel()
	runPage(t, "guides/publish.md", 5)
}

func TestGuideToCloudEvents(t *testing.T) {
	t.Parallel()
	runPage(t, "reference/cloudevents.md", 5)
}

// runPage runs the commands of a page (at least that many) in its order, on a separate service. Each command must
// print the output below it, piece by piece.
func runPage(t *testing.T, name string, least int) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("MANIFOLD_TEST_CLIENTS") == "required" {
			t.Fatal("there is no curl")
		}
		t.Skipf("there is no curl: the commands of docs/%s were not run", name)
	}
	page, err := os.ReadFile(filepath.Join("..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	environ := append(sharedTenant(t, "guide"), "PATH="+filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH"))
	said, ran := "", 0
	for _, block := range regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		kind, text := block[1], block[2]
		if kind == "sh" {
			shell := exec.CommandContext(t.Context(), "bash", "-ec", text)
			shell.Env = withEnviron(environ)
			out, err := shell.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", text, err, out)
			}
			said = strings.ReplaceAll(string(out), "\r", "")
			ran++
			continue
		}
		rest := said
		for piece := range strings.FieldsFuncSeq(strings.ReplaceAll(text, "...", "\n"), func(r rune) bool { return r == '\n' }) {
			_, after, found := strings.Cut(rest, piece)
			if !found {
				t.Fatalf("the page says\n%s\nthe service\n%s", piece, said)
			}
			rest = after
		}
	}
	if ran < least {
		t.Errorf("only %d of the page's commands were run", ran)
	}
}

func TestGuideToReports(t *testing.T) {
	t.Parallel()
	runPage(t, "guides/reports.md", 5)
}
