package docs

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// page is a page of the site.
type page struct {
	source   string // file of the repository
	path     string // below /docs
	Title    string
	Contents []heading // the headings of levels 2 and 3
	listed   bool      // in the navigation
	markdown []byte
	document ast.Node
	body     string
}

// heading is a heading with its anchor.
type heading struct {
	Level     int
	ID, Title string
}

// markdown reads and writes pages. Tables and bare addresses are not in standard Markdown.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Linkify),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(blocks{}, 100))),
)

func parsePage(source string, content []byte) *page {
	p := &page{source: source, path: sitePath(source), Title: source, markdown: content}
	context := parser.NewContext(parser.WithIDs(anchors{}))
	p.document = markdown.Parser().Parse(text.NewReader(content), parser.WithContext(context))
	for node := p.document.FirstChild(); node != nil; node = node.NextSibling() {
		h, ok := node.(*ast.Heading)
		switch {
		case !ok || h.Level > 3:
		case h.Level == 1:
			p.Title = plainText(h, content)
		default:
			id, _ := h.AttributeString("id")
			p.Contents = append(p.Contents, heading{Level: h.Level, ID: fmt.Sprintf("%s", id), Title: plainText(h, content)})
		}
	}
	return p
}

// anchors gives headings the same ids as GitHub and docs_test.go do.
type anchors map[string]bool

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// Generate returns the id of a heading.
func (a anchors) Generate(title []byte, _ ast.NodeKind) []byte {
	slug := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(string(title))), ""), " ", "-")
	id := slug
	for n := 1; a[id]; n++ {
		id = fmt.Sprintf("%s-%d", slug, n)
	}
	a[id] = true
	return []byte(id)
}

// Put records an id that a page gives itself.
func (a anchors) Put(id []byte) { a[string(id)] = true }

// targets returns the files of the repository that the page links to or shows.
func (p *page) targets() []string {
	var all []string
	p.eachLink(func(_ ast.Node, destination *[]byte) {
		if target, _, local := p.target(string(*destination)); local {
			all = append(all, target)
		}
	})
	return all
}

// eachLink calls do for each link and image, with its destination, which do may change.
func (p *page) eachLink(do func(node ast.Node, destination *[]byte)) {
	_ = ast.Walk(p.document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := node.(*ast.Link); ok && !entering { // so that do may replace it
			do(link, &link.Destination)
		}
		if image, ok := node.(*ast.Image); ok && !entering {
			do(image, &image.Destination)
		}
		return ast.WalkContinue, nil
	})
}

// target returns the file of the repository to which a link leads.
func (p *page) target(destination string) (file, fragment string, local bool) {
	file, fragment, _ = strings.Cut(destination, "#")
	if strings.Contains(destination, ":") {
		return "", "", false
	}
	if file == "" {
		return p.source, fragment, true
	}
	return path.Join(path.Dir(p.source), file), fragment, true
}

// render makes the page's HTML, whose links lead to the pages of the site.
func (p *page) render(s *Site) error {
	var source []ast.Node // links to files that the site does not have
	p.eachLink(func(node ast.Node, destination *[]byte) {
		file, fragment, local := p.target(string(*destination))
		if !local {
			return
		}
		if fragment != "" {
			fragment = "#" + fragment
		}
		switch target := s.sources[file]; {
		case target == p:
			*destination = []byte(fragment)
		case target != nil:
			if named := plainText(node, p.markdown); named == path.Base(file) || named == file {
				node.RemoveChildren(node)
				node.AppendChild(node, ast.NewString([]byte(target.Title)))
			}
			*destination = []byte(s.href(p.path, target.path) + fragment)
		case isImage(file):
			*destination = []byte(s.loadHref(p.path, sitePath(file)))
			for _, form := range forms {
				if s.images[sitePath(formOf(file, form.suffix))] != "" {
					node.SetAttributeString(form.suffix, true)
				}
			}
		case path.Ext(file) == ".yaml":
			*destination = []byte(s.contractHref(p.path, file))
		default:
			source = append(source, node)
		}
	})
	for _, link := range source {
		for link.HasChildren() {
			link.Parent().InsertBefore(link.Parent(), link, link.FirstChild())
		}
		link.Parent().RemoveChild(link.Parent(), link)
	}
	if title, ok := p.document.FirstChild().(*ast.Heading); ok && title.Level == 1 { // which the template shows
		p.document.RemoveChild(p.document, title)
	}
	var out bytes.Buffer
	err := markdown.Renderer().Render(&out, p.markdown, p.document)
	p.body = out.String()
	return err
}

// navigation returns the sections of the first page with their links.
func (s *Site) navigation() []section {
	var all []section
	first := s.pages[""]
	for node := first.document.FirstChild(); node != nil; node = node.NextSibling() {
		if h, ok := node.(*ast.Heading); ok {
			if h.Level == 2 {
				all = append(all, section{Title: plainText(h, first.markdown)})
			}
			continue
		}
		if len(all) == 0 {
			continue
		}
		current := &all[len(all)-1]
		_ = ast.Walk(node, func(inner ast.Node, entering bool) (ast.WalkStatus, error) {
			link, ok := inner.(*ast.Link)
			if !ok || !entering {
				return ast.WalkContinue, nil
			}
			file, _, local := first.target(string(link.Destination))
			if target := s.sources[file]; target != nil {
				target.listed = true
				current.Entries = append(current.Entries, entry{page: target, Title: target.Title})
			} else if local {
				current.Entries = append(current.Entries, entry{file: file, Title: plainText(link, first.markdown)})
			}
			return ast.WalkSkipChildren, nil
		})
	}
	return all
}

// plainText returns a node's text without markup.
func plainText(node ast.Node, source []byte) string {
	var out strings.Builder
	writeText(&out, node, source)
	return strings.Join(strings.Fields(out.String()), " ")
}

// writeText appends a node's text, with spaces between blocks.
func writeText(out *strings.Builder, node ast.Node, source []byte) {
	_ = ast.Walk(node, func(inner ast.Node, entering bool) (ast.WalkStatus, error) {
		if inner.Type() == ast.TypeBlock {
			out.WriteByte(' ')
		}
		if !entering {
			return ast.WalkContinue, nil
		}
		switch inner := inner.(type) {
		case *ast.Text:
			out.Write(inner.Segment.Value(source))
			if inner.SoftLineBreak() || inner.HardLineBreak() {
				out.WriteByte(' ')
			}
		case *ast.String:
			out.Write(inner.Value)
		case *ast.AutoLink:
			out.Write(inner.Label(source))
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			out.Write(inner.Lines().Value(source))
		}
		return ast.WalkContinue, nil
	})
}

// blocks writes the blocks that the site shows differently from plain HTML.
type blocks struct{}

// RegisterFuncs says which blocks these are.
func (b blocks) RegisterFuncs(registerer renderer.NodeRendererFuncRegisterer) {
	registerer.Register(ast.KindHeading, b.heading)
	registerer.Register(ast.KindFencedCodeBlock, b.code)
	registerer.Register(ast.KindImage, b.image)
	registerer.Register(tables.KindTable, b.table)
	registerer.Register(tables.KindTableCell, b.cell)
}

// heading writes a heading with a link to itself.
func (blocks) heading(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	h := node.(*ast.Heading)
	id, _ := h.AttributeString("id")
	if entering {
		fmt.Fprintf(w, `<h%d id="%s">`, h.Level, id)
		return ast.WalkContinue, nil
	}
	if h.Level > 1 {
		fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to: %s">#</a>`, id, util.EscapeHTML([]byte(plainText(h, source))))
	}
	fmt.Fprintf(w, "</h%d>\n", h.Level)
	return ast.WalkContinue, nil
}

// code writes a block of code, with the name of its file if the block gives one: ```yaml totals.yaml.
func (blocks) code(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := node.(*ast.FencedCodeBlock)
	language, name := string(block.Language(source)), ""
	if block.Info != nil {
		if _, note, _ := strings.Cut(string(block.Info.Segment.Value(source)), " "); strings.Contains(note, ".") {
			name = note
		}
	}
	fmt.Fprintf(w, `<div class="code" data-language="%s">`, util.EscapeHTML([]byte(language)))
	if name != "" {
		fmt.Fprintf(w, `<p class="file">%s</p>`, util.EscapeHTML([]byte(name)))
	}
	fmt.Fprintf(w, "<pre><code>%s</code></pre></div>\n", util.EscapeHTML(block.Lines().Value(source)))
	return ast.WalkSkipChildren, nil
}

// image writes an image that is loaded when it comes into view. An image with several forms is shown in the one for the
// reader's screen, and links to its full size.
func (blocks) image(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	file := string(node.(*ast.Image).Destination)
	var sources strings.Builder
	for _, form := range forms {
		if _, found := node.AttributeString(form.suffix); found {
			fmt.Fprintf(&sources, `<source media="%s" srcset="%s">`, form.media, util.EscapeHTML([]byte(formOf(file, form.suffix))))
		}
	}
	image := fmt.Sprintf(`<img src="%s" alt="%s" loading="lazy">`, util.EscapeHTML([]byte(file)), util.EscapeHTML([]byte(plainText(node, source))))
	if sources.Len() > 0 {
		image = fmt.Sprintf(`<a class="screenshot" href="%s"><picture>%s%s</picture></a>`, util.EscapeHTML([]byte(file)), sources.String(), image)
	}
	_, _ = w.WriteString(image)
	return ast.WalkSkipChildren, nil
}

// table writes a table that scrolls if it is wider than the page.
func (blocks) table(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString("<div class=\"table\"><table>\n")
	} else {
		_, _ = w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}

// cell writes a cell. A header's cell without text is no header.
func (blocks) cell(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	cell, tag := node.(*tables.TableCell), "td"
	if cell.Parent().Kind() == tables.KindTableHeader && cell.HasChildren() {
		tag = "th"
	}
	switch {
	case !entering:
		fmt.Fprintf(w, "</%s>\n", tag)
	case cell.Alignment == tables.AlignNone:
		fmt.Fprintf(w, "<%s>", tag)
	default:
		fmt.Fprintf(w, `<%s align="%s">`, tag, cell.Alignment)
	}
	return ast.WalkContinue, nil
}
