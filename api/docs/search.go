package docs

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// indexed is a page in the search index, which the browser loads when its user begins to search. The index has the
// pages' whole text, since one searches for a setting or a header more often than for a title.
type indexed struct {
	Path  string      `json:"path"` // below /docs
	Title string      `json:"title"`
	Parts [][3]string `json:"parts"` // anchor, heading, text below; the first part has neither anchor nor heading
}

// searchIndex returns the index as compressed JSON.
func (s *Site) searchIndex() ([]byte, error) {
	var all []indexed
	for _, name := range s.Pages() {
		if p := s.pages[name]; p.source != contract {
			all = append(all, indexed{"/" + p.path, p.Title, p.parts()})
		}
	}
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	err := errors.Join(json.NewEncoder(writer).Encode(all), writer.Close())
	return compressed.Bytes(), err
}

// parts returns the page's text by heading.
func (p *page) parts() [][3]string {
	var all [][3]string
	var below strings.Builder
	var current heading
	end := func() {
		all = append(all, [3]string{current.ID, current.Title, strings.Join(strings.Fields(below.String()), " ")})
		below.Reset()
	}
	headings := p.Contents
	for node := p.document.FirstChild(); node != nil; node = node.NextSibling() {
		switch h, ok := node.(*ast.Heading); {
		case !ok || h.Level > 3:
			writeText(&below, node, p.markdown)
		case h.Level > 1:
			end()
			current, headings = headings[0], headings[1:]
		}
	}
	end()
	return all
}
