package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The commands of docs/publish.md run in the page's order, and each says what stands below it, piece by piece.
func TestGuideToPublishing(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("MANIFOLD_TEST_CLIENTS") == "required" {
			t.Fatal("there is no curl")
		}
		t.Skip("there is no curl: the commands of docs/publish.md were not run")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "publish.md"))
	if err != nil {
		t.Fatal(err)
	}
	url, _ := serve(t)
	environ := append(newTenant(t, url, "guide"), "PATH="+filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH"))
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
	if ran < 5 {
		t.Errorf("only %d of the page's commands were run", ran)
	}
}
