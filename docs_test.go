package manifold_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	pageLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	notSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestLinksInTheDocumentation follows every link between pages of this repository, including the link's heading.
func TestLinksInTheDocumentation(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	if len(pages) < 50 {
		t.Fatalf("only %d pages were found", len(pages))
	}
	for page, text := range pages {
		for _, link := range pageLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") || strings.HasPrefix(link[1], "mailto:") {
				continue
			}
			path, heading, _ := strings.Cut(link[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: there is no %s", page, link[1])
			} else if heading != "" && !headings(pages[target])[heading] {
				t.Errorf("%s: %s has no heading %q", page, target, heading)
			}
		}
	}
}

// TestDecisionsAreListed reports decisions that no page links to.
func TestDecisionsAreListed(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	list := pages[filepath.Join("docs", "decisions", "README.md")]
	for page := range pages {
		if folder, name := filepath.Split(page); strings.HasSuffix(folder, "decisions/") && !strings.Contains(list, "("+name+")") && name != "README.md" {
			t.Errorf("docs/decisions/README.md does not list %s", name)
		}
	}
}

// pagesOf returns the text of each page of the repository, by its path.
func pagesOf(t *testing.T) map[string]string {
	t.Helper()
	pages := make(map[string]string)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		pages[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// headings returns a page's headings in the form that links use.
func headings(page string) map[string]bool {
	all := make(map[string]bool)
	code := false
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		title := strings.TrimLeft(line, "#")
		if code || len(title) == len(line) || !strings.HasPrefix(title, " ") {
			continue
		}
		slug := strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
		name := slug
		for n := 1; all[name]; n++ {
			name = fmt.Sprintf("%s-%d", slug, n)
		}
		all[name] = true
	}
	return all
}
