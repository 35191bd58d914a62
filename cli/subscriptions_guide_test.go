package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands of docs/guides/subscriptions.md about groups run in the page's order, and each prints the output below
// it, piece by piece. The first command prepares the others.
func TestGuideToGroups(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("MANIFOLD_TEST_CLIENTS") == "required" {
			t.Fatal("there is no curl")
		}
		t.Skip("there is no curl: the commands of docs/guides/subscriptions.md were not run")
	}
	page, err := os.ReadFile(filepath.Join("..", "docs", "guides", "subscriptions.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, groups, begins := strings.Cut(string(page), "\n## Groups\n")
	groups, _, ends := strings.Cut(groups, "\n## The command line\n")
	if !begins || !ends {
		t.Fatal("the page has other headings")
	}
	environ := sharedTenant(t, "guide")
	begin, said, ran := "", "", 0
	for _, block := range regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$").FindAllStringSubmatch(groups, -1) {
		kind, text := block[1], block[2]
		switch {
		case begin == "":
			begin = "set -e\n" + text
		case kind == "sh":
			shell := exec.CommandContext(t.Context(), "bash", "-c", begin+text)
			shell.Env = withEnviron(environ)
			out, err := shell.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", text, err, out)
			}
			said = string(out)
			ran++
		default:
			rest := said
			for line := range strings.Lines(text) {
				_, after, found := strings.Cut(rest, strings.TrimSuffix(line, "\n"))
				if !found {
					t.Fatalf("the page says\n%sthe service\n%s", line, said)
				}
				rest = after
			}
		}
	}
	if ran < 10 {
		t.Errorf("only %d of the page's commands were run", ran)
	}
}
