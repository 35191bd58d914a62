// Package docs makes the documentation site from the repository's Markdown files.
//
// New reads the pages, beginning with docs/README.md: every page that a link leads to is part of the site, and the
// headings and links of docs/README.md are the navigation. So the site has no list of pages and no copy of their text.
// File returns a page, or a file that pages load, and Write writes the whole site into a folder.
//
// Two pages are shown in another form than their file: openapi.yaml as Swagger UI, and the table of package problem as
// the list of error codes. Pages load nothing from elsewhere, and contain neither scripts nor styles.
package docs

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/swaggest/swgui/v5/static"

	"github.com/manifold-es/manifold/api/problem"
)

//go:generate cp ../../console/web/icon.svg assets

//go:embed assets
var assets embed.FS

// Links says how the pages of a site refer to each other.
type Links int

const (
	// Served pages are at /docs of a service: /docs/guides/rebuild. They link to its contracts, too.
	Served Links = iota
	// Relative pages are files, such as guides/rebuild.html, which can be hosted below any address.
	Relative
)

const (
	root     = "/docs"
	home     = "docs/README.md"
	contract = "openapi.yaml"
	codes    = "api/problem/problem.go"

	contractPath = "api"
	codesPath    = "errors"
)

// kinds are the media types of the files that pages load, by the ends of their names.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".webp": "image/webp",
	".json": "application/json",
}

// Site is the documentation. It may be used concurrently.
type Site struct {
	links    Links
	files    fs.FS
	template *template.Template
	pages    map[string]*page  // by path below /docs, such as guides/rebuild
	sources  map[string]*page  // by file of the repository
	loaded   map[string][]byte // the files that pages load, by path below /docs
	images   map[string]string // files of the repository by path below /docs; they are read on request
	sections []section
	version  string
}

// section is a part of the navigation.
type section struct {
	Title   string
	Entries []entry
}

// entry is a link of the navigation: to a page, or to a file that is not a page.
type entry struct {
	page        *page
	Title, file string
}

// File is an answer to a request, or a file to write.
type File struct {
	Kind    string // media type
	Content []byte
	Gzipped bool   // Content is compressed
	Policy  string // of a page: its Content-Security-Policy
}

// The policies forbid inline code, and everything from other origins. Swagger UI has images in its style sheet, and
// makes HTML from strings.
const (
	contractPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)

// New makes the site of the pages in files, the root of the repository. If files is nil, the site has only the contract
// and the error codes. New fails if a page links to a page that does not exist.
func New(files fs.FS, links Links) (*Site, error) {
	s := &Site{links: links, files: files, pages: make(map[string]*page), sources: make(map[string]*page), loaded: make(map[string][]byte), images: make(map[string]string)}
	var err error
	if s.template, err = template.ParseFS(assets, "assets/*.html"); err != nil {
		return nil, fmt.Errorf("documentation: %w", err)
	}
	if err := errors.Join(s.load(), s.loadAssets()); err != nil {
		return nil, fmt.Errorf("documentation: %w", err)
	}
	s.sections = s.navigation()
	for _, p := range s.pages {
		if err := p.render(s); err != nil {
			return nil, fmt.Errorf("documentation: %s: %w", p.source, err)
		}
	}
	if s.loaded["search.json.gz"], err = s.searchIndex(); err != nil {
		return nil, fmt.Errorf("documentation: %w", err)
	}
	for _, p := range s.pages {
		p.document, p.markdown = nil, nil
	}
	if s.version, err = s.hash(); err != nil {
		return nil, fmt.Errorf("documentation: %w", err)
	}
	return s, nil
}

// load reads the pages, from the first one along the links.
func (s *Site) load() error {
	var problems []error
	for queue := []string{home}; len(queue) > 0; queue = queue[1:] {
		source := queue[0]
		if s.sources[source] != nil {
			continue
		}
		text, err := s.read(source)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		p := parsePage(source, text)
		s.sources[source], s.pages[p.path] = p, p
		for _, target := range p.targets() {
			switch {
			case isPage(target):
				queue = append(queue, target)
			case isImage(target):
				if err := s.addImage(target); err != nil {
					problems = append(problems, fmt.Errorf("%s: %w", source, err))
				}
			}
		}
	}
	return errors.Join(problems...)
}

// read returns a file of the repository, or the text of a page that is made from one.
func (s *Site) read(source string) ([]byte, error) {
	switch {
	case source == contract:
		return []byte("# The contract\n"), nil
	case source == codes:
		return codesPage(), nil
	case s.files != nil:
		return fs.ReadFile(s.files, source)
	case source == home:
		return []byte("# Documentation\n\n## Reference\n\n- [openapi.yaml](../openapi.yaml)\n- [errors](../api/problem/problem.go)\n"), nil
	}
	return nil, fs.ErrNotExist
}

// codesPage lists the codes of errors.
func codesPage() []byte {
	var page bytes.Buffer
	page.WriteString("# Error codes\n\nAn error is `application/problem+json` (RFC 9457). Programs tell errors apart by `code`, which never " +
		"changes its meaning; people read `detail`. `where` names the place in the request, and `requestId` the line in the service's log.\n")
	for _, kind := range problem.Kinds() {
		fmt.Fprintf(&page, "\n## %s\n\n`%d` **%s.** %s\n", kind.Code, kind.Status, kind.Title, kind.Advice)
	}
	return page.Bytes()
}

// isPage reports whether a file of the repository is a page of the site.
func isPage(source string) bool {
	return path.Ext(source) == ".md" || source == contract || source == codes
}

// isImage reports whether a file of the repository is an image that pages show.
func isImage(file string) bool { return strings.HasPrefix(kinds[path.Ext(file)], "image/") }

// forms are the other forms of an image: the end of the file's name, and the screens on which it is shown. The first
// that applies is shown.
var forms = []struct{ suffix, media string }{
	{"-phone-dark", "(max-width: 480px) and (prefers-color-scheme: dark)"}, {"-phone", "(max-width: 480px)"}, {"-dark", "(prefers-color-scheme: dark)"},
}

// formOf returns the name of a form of an image.
func formOf(image, suffix string) string {
	extension := path.Ext(image)
	return strings.TrimSuffix(image, extension) + suffix + extension
}

// addImage adds an image, and its other forms if there are some.
func (s *Site) addImage(file string) error {
	if _, err := fs.Stat(s.files, file); err != nil {
		return err
	}
	s.images[sitePath(file)] = file
	for _, form := range forms {
		name := formOf(file, form.suffix)
		if _, err := fs.Stat(s.files, name); err == nil {
			s.images[sitePath(name)] = name
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sitePath returns where a file of the repository is below /docs.
func sitePath(source string) string {
	switch source {
	case home:
		return ""
	case contract:
		return contractPath
	case codes:
		return codesPath
	}
	name := strings.TrimPrefix(source, "docs/")
	if bare, isPage := strings.CutSuffix(name, ".md"); isPage {
		name = strings.TrimSuffix(strings.ToLower(bare), "/readme")
	}
	return name
}

// loadAssets reads the files that all pages load, and Swagger UI.
func (s *Site) loadAssets() error {
	for _, asset := range []struct {
		files fs.FS
		name  string
	}{
		{assets, "assets/style.css"}, {assets, "assets/site.js"}, {assets, "assets/contract.js"}, {assets, "assets/icon.svg"},
		{static.FS, "swagger-ui.css.gz"}, {static.FS, "swagger-ui-bundle.js.gz"},
	} {
		content, err := fs.ReadFile(asset.files, asset.name)
		if err != nil {
			return err
		}
		s.loaded[path.Base(asset.name)] = content
	}
	return nil
}

// hash identifies the site's content.
func (s *Site) hash() (string, error) {
	all := sha256.New()
	for _, p := range slices.Sorted(maps.Keys(s.pages)) {
		fmt.Fprintf(all, "%s\x00%s\x00", p, s.pages[p].body)
	}
	for _, name := range slices.Sorted(maps.Keys(s.loaded)) {
		fmt.Fprintf(all, "%s\x00%s\x00", name, s.loaded[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.images)) {
		content, err := s.read(s.images[name])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s\x00%s\x00", name, content)
	}
	return hex.EncodeToString(all.Sum(nil)[:8]), nil
}

// Version changes with the site's content. It is the same for all files.
func (s *Site) Version() string { return s.version }

// Pages returns the paths of all pages below /docs, sorted. The first one is the start, "".
func (s *Site) Pages() []string { return slices.Sorted(maps.Keys(s.pages)) }

// File returns the page or file at a path below /docs, such as guides/rebuild.
func (s *Site) File(name string) (File, bool, error) {
	if p := s.pages[name]; p != nil {
		file, err := s.execute("page.html", p)
		return file, true, err
	}
	if source, found := s.images[name]; found {
		content, err := s.read(source)
		return File{Kind: kinds[path.Ext(name)], Content: content}, true, err
	}
	if content, found := s.loaded[name]; found {
		return File{Kind: kinds[path.Ext(name)], Content: content}, true, nil
	}
	content, found := s.loaded[name+".gz"]
	return File{Kind: kinds[path.Ext(name)], Content: content, Gzipped: true}, found, nil
}

// Missing returns the page for a path that does not exist.
func (s *Site) Missing() (File, error) {
	return s.execute("page.html", &page{Title: "There is no such page", body: "<p>The address is wrong, or the page is of another release. Search, or choose a page.</p>"})
}

// Start returns the page at the service's root, which leads to the console and to the documentation.
func (s *Site) Start() (File, error) { return s.execute("start.html", &page{Title: "Manifold"}) }

// view is what the templates show.
type view struct {
	*page
	site *Site
}

func (s *Site) execute(name string, p *page) (File, error) {
	var content bytes.Buffer
	if err := s.template.ExecuteTemplate(&content, name, view{p, s}); err != nil {
		return File{}, fmt.Errorf("documentation: %w", err)
	}
	file := File{Kind: "text/html; charset=utf-8", Content: content.Bytes(), Policy: pagePolicy}
	if p.source == contract {
		file.Policy = contractPolicy
	}
	return file, nil
}

// Body returns the page's text as HTML.
func (v view) Body() template.HTML { return template.HTML(v.body) } //nolint:gosec // rendered from our own files

// Sections returns the navigation.
func (v view) Sections() []section { return v.site.sections }

// IsContract reports whether the page is the contract.
func (v view) IsContract() bool { return v.source == contract }

// Current reports whether the page belongs to an entry of the navigation: it is the entry's page, or in its folder.
func (v view) Current(e entry) string {
	switch {
	case e.page == nil || v.source == "":
		return ""
	case e.page == v.page:
		return "page"
	case !v.listed && strings.HasPrefix(v.path, e.page.path+"/"):
		return "true"
	}
	return ""
}

// Href returns the link to an entry of the navigation.
func (v view) Href(e entry) string {
	if e.page == nil {
		return v.site.contractHref(v.path, e.file)
	}
	return v.site.href(v.path, e.page.path)
}

// To returns the link to a page.
func (v view) To(path string) string { return v.site.href(v.path, path) }

// Load returns the link to a file that the page loads.
func (v view) Load(name string) string { return v.site.loadHref(v.path, name) }

// Contract returns the link to one of the service's contracts.
func (v view) Contract(name string) string { return v.site.contractHref(v.path, name) }

// Relative reports whether pages are files.
func (v view) Relative() bool { return v.site.links == Relative }

// href returns the link from a page to another one.
func (s *Site) href(from, to string) string {
	if s.links == Served {
		return strings.TrimSuffix(root+"/"+to, "/")
	}
	return up(from) + htmlFile(to)
}

// htmlFile returns the name of a page's file.
func htmlFile(page string) string {
	if page == "" {
		page = "index"
	}
	return page + ".html"
}

// loadHref returns the link from a page to a file below /docs.
func (s *Site) loadHref(from, name string) string {
	if s.links == Served {
		return root + "/" + name
	}
	return up(from) + name
}

// contractHref returns the link from a page to openapi.yaml or asyncapi.yaml, which a service has at its root.
func (s *Site) contractHref(from, name string) string {
	if s.links == Served {
		return "/" + name
	}
	return up(from) + name
}

// up leads from a page's folder to the site's.
func up(from string) string { return strings.Repeat("../", strings.Count(from, "/")) }
