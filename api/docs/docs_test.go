package docs_test

import (
	"bytes"
	"errors"
	"html"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/manifold-es/manifold/api/docs"
)

var (
	reference = regexp.MustCompile(`(?:href|src|srcset|data-index|data-start|data-url)="([^"]*)"`)
	anchor    = regexp.MustCompile(`\bid="([^"]*)"`)
)

// served is the repository's site as a service has it.
var served = sync.OnceValues(func() (*docs.Site, error) { return docs.New(os.DirFS(filepath.Join("..", "..")), docs.Served) })

// files returns every page and file of the repository's site by the path at which it is.
func files(t *testing.T, links docs.Links) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	if links == docs.Relative {
		site, err := docs.New(os.DirFS(filepath.Join("..", "..")), links)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(t.TempDir(), "site")
		written, err := site.Write(folder)
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(folder, func(name string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			relative, _ := filepath.Rel(folder, name)
			all["/"+filepath.ToSlash(relative)], err = os.ReadFile(name)
			return err
		})
		if err != nil || written != len(all) {
			t.Fatalf("%d files, %d written: %v", len(all), written, err)
		}
		if _, err := site.Write(folder); err == nil {
			t.Error("a folder with files was written to again")
		}
		return all
	}
	site, err := served()
	if err != nil {
		t.Fatal(err)
	}
	start, err := site.Start()
	if err != nil {
		t.Fatal(err)
	}
	// The service has these at its root, too.
	for _, other := range []string{"/console", "/openapi.yaml", "/asyncapi.yaml"} {
		all[other] = nil
	}
	all["/"] = start.Content
	for _, name := range append(site.Pages(), "style.css", "site.js", "contract.js", "icon.svg", "search.json", "swagger-ui.css", "swagger-ui-bundle.js") {
		file, found, err := site.File(name)
		if err != nil || !found || file.Kind == "" {
			t.Fatalf("%s: %v, %v, %q", name, found, err, file.Kind)
		}
		all[strings.TrimSuffix("/docs/"+name, "/")] = file.Content
	}
	for _, source := range images(t) {
		file, found, err := site.File(source)
		if err != nil || !found {
			t.Errorf("%s: %v, %v", source, found, err)
		}
		all["/docs/"+source] = file.Content
	}
	return all
}

func images(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "..", "docs", "*", "*.svg"))
	screenshots, unlisted := filepath.Glob(filepath.Join("..", "..", "docs", "images", "*", "*.webp"))
	if err := errors.Join(err, unlisted); err != nil {
		t.Fatal(err)
	}
	names = append(names, screenshots...)
	for i, name := range names {
		names[i], _ = filepath.Rel(filepath.Join("..", "..", "docs"), name)
	}
	return names
}

// Every link and every anchor of the site leads somewhere, in both forms, and nothing is loaded from elsewhere.
func TestLinks(t *testing.T) {
	t.Parallel()
	for name, links := range map[string]docs.Links{"served": docs.Served, "relative": docs.Relative} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := files(t, links)
			anchors := make(map[string]map[string]bool)
			for at, content := range all {
				anchors[at] = make(map[string]bool)
				for _, found := range anchor.FindAllSubmatch(content, -1) {
					if anchors[at][string(found[1])] {
						t.Errorf("%s has two elements with the id %q", at, found[1])
					}
					anchors[at][string(found[1])] = true
				}
			}
			pages := 0
			for at, content := range all {
				if !bytes.HasPrefix(content, []byte("<!doctype html>")) {
					continue
				}
				pages++
				if bytes.Contains(content, []byte("<script>")) || regexp.MustCompile(`<[^>]* style="`).Match(content) {
					t.Errorf("%s has inline code or style, which its policy forbids", at)
				}
				for _, found := range reference.FindAllSubmatch(content, -1) {
					link := html.UnescapeString(string(found[1]))
					if strings.HasPrefix(link, "https://") || strings.HasPrefix(link, "http://") {
						if !bytes.Contains(content, []byte(`<a href="`+string(found[1]))) {
							t.Errorf("%s loads %s", at, link)
						}
						continue
					}
					target, fragment, _ := strings.Cut(link, "#")
					switch {
					case target == "":
						target = at
					case !strings.HasPrefix(target, "/"):
						target = path.Join(path.Dir(at), target)
					}
					if _, found := all[target]; !found {
						t.Errorf("%s links to %s, which does not exist", at, link)
					} else if fragment != "" && !anchors[target][fragment] && !strings.HasPrefix(link, "/console") {
						t.Errorf("%s links to %s, which has no such anchor", at, link)
					}
				}
			}
			if pages < 100 {
				t.Errorf("the site has only %d pages", pages)
			}
		})
	}
}

// Every page below docs is part of the site.
func TestEveryPageIsReached(t *testing.T) {
	t.Parallel()
	all := files(t, docs.Served)
	names, err := filepath.Glob(filepath.Join("..", "..", "docs", "*", "*.md"))
	if err != nil || len(names) < 100 {
		t.Fatalf("%d pages: %v", len(names), err)
	}
	for _, name := range names {
		name, _ = filepath.Rel(filepath.Join("..", "..", "docs"), strings.TrimSuffix(strings.TrimSuffix(name, ".md"), "/README"))
		if all["/docs/"+name] == nil {
			t.Errorf("no page leads to docs/%s", name)
		}
	}
}

// The search index stays small enough to be loaded when somebody begins to search.
func TestSearchIndexIsBounded(t *testing.T) {
	t.Parallel()
	site, err := served()
	if err != nil {
		t.Fatal(err)
	}
	index, found, err := site.File("search.json")
	if err != nil || !found || !index.Gzipped {
		t.Fatalf("%v, %v, %v", found, index.Gzipped, err)
	}
	if size := len(index.Content); size < 50_000 || size > 300_000 {
		t.Errorf("the index has %d bytes", size)
	}
}

// An image is shown in the form for the reader's screen, if it has forms.
func TestFormsOfImages(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"docs/README.md": {Data: []byte("# Start\n\n![All](all.webp) ![One](one.webp)\n")}}
	for _, name := range []string{"all", "all-dark", "all-phone", "all-phone-dark", "one"} {
		files["docs/"+name+".webp"] = &fstest.MapFile{Data: []byte(name)}
	}
	site, err := docs.New(files, docs.Served)
	if err != nil {
		t.Fatal(err)
	}
	page, _, err := site.File("")
	if err != nil {
		t.Fatal(err)
	}
	want := `<a class="screenshot" href="/docs/all.webp"><picture>` +
		`<source media="(max-width: 480px) and (prefers-color-scheme: dark)" srcset="/docs/all-phone-dark.webp">` +
		`<source media="(max-width: 480px)" srcset="/docs/all-phone.webp">` +
		`<source media="(prefers-color-scheme: dark)" srcset="/docs/all-dark.webp">` +
		`<img src="/docs/all.webp" alt="All" loading="lazy"></picture></a> <img src="/docs/one.webp" alt="One" loading="lazy">`
	if !strings.Contains(string(page.Content), want) {
		t.Errorf("the page lacks %s:\n%s", want, page.Content)
	}
	if file, found, err := site.File("all-phone-dark.webp"); err != nil || !found || string(file.Content) != "all-phone-dark" {
		t.Errorf("a form is missing: %v, %v", found, err)
	}
}

// Without the repository's pages, as in a test of the service, the contract and the error codes are there.
func TestWithoutPages(t *testing.T) {
	t.Parallel()
	site, err := docs.New(nil, docs.Served)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(site.Pages(), " "); got != " api errors" {
		t.Errorf("the pages are %q", got)
	}
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := docs.New(os.DirFS(filepath.Join("..", "..")), docs.Served); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPage(b *testing.B) {
	site, err := served()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := site.File("reference/api"); err != nil {
			b.Fatal(err)
		}
	}
}
