// Package console serves the web console: a page, its scripts and a style sheet, which are embedded. Handler serves
// them below /console. The page calls the public API with the credential that its user gives it, so the package knows
// no tenant.
//
// The sources are in web, in TypeScript. `go generate` bundles them into dist.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"
)

//go:generate go tool -modfile=../tools/go.mod esbuild web/src/main.tsx web/src/editor.ts web/src/style.css --bundle --minify --format=esm --target=es2022 --tsconfig=web/tsconfig.json --legal-comments=none --log-level=warning --outdir=dist
//go:generate cp web/index.html web/icon.svg dist

//go:embed dist
var dist embed.FS

// Path is where the console is served. Every path below it that is not a file gives the page.
const Path = "/console"

// policy forbids inline code, and everything from other origins, except to connect to those given.
func policy(connect []string) string {
	return "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src " + strings.Join(append([]string{"'self'"}, connect...), " ") + "; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
}

// file is an embedded file as it is sent.
type file struct {
	kind       string
	content    []byte
	compressed []byte // by gzip
}

// Handler serves the console.
type Handler struct {
	page    file
	files   map[string]file // by path
	connect func() []string
}

// New prepares the files. It fails only if the embedded files are damaged. The files' names contain a hash of their
// content, so that browsers keep them for good, and ask only for the page again. connect returns the origins, besides
// the console's own, to which the page may connect: those of issuers with which people sign in.
func New(connect func() []string) (*Handler, error) {
	h := &Handler{files: make(map[string]file), connect: connect}
	names := make(map[string]string)
	for _, asset := range []struct{ name, kind string }{
		{"main.js", "text/javascript; charset=utf-8"}, {"editor.js", "text/javascript; charset=utf-8"}, {"style.css", "text/css; charset=utf-8"}, {"icon.svg", "image/svg+xml"},
	} {
		content, err := dist.ReadFile("dist/" + asset.name)
		if err != nil {
			return nil, fmt.Errorf("console: %w", err)
		}
		hash := sha256.Sum256(content)
		extension := path.Ext(asset.name)
		names[asset.name] = Path + "/assets/" + strings.TrimSuffix(asset.name, extension) + "-" + hex.EncodeToString(hash[:6]) + extension
		if h.files[names[asset.name]], err = newFile(asset.kind, content); err != nil {
			return nil, err
		}
	}
	parsed, err := template.ParseFS(dist, "dist/index.html")
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	var page bytes.Buffer
	given := struct{ Script, Editor, Style, Icon string }{names["main.js"], names["editor.js"], names["style.css"], names["icon.svg"]}
	if err := parsed.Execute(&page, given); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	h.page, err = newFile("text/html; charset=utf-8", page.Bytes())
	return h, err
}

func newFile(kind string, content []byte) (file, error) {
	var compressed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err == nil {
		_, err = writer.Write(content)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		return file{}, fmt.Errorf("console: compress: %w", err)
	}
	return file{kind, content, compressed.Bytes()}, nil
}

// ServeHTTP answers GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	served, isAsset := h.files[request.URL.Path]
	switch {
	case isAsset:
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	case strings.HasPrefix(request.URL.Path, Path+"/assets/"):
		// A file of another release: the page that asks for it is of that release, too.
		header.Set("Cache-Control", "no-store")
		http.Error(w, "there is no such file in this release; load the console again", http.StatusNotFound)
		return
	default:
		served = h.page
		header.Set("Cache-Control", "no-cache")
		header.Set("Content-Security-Policy", policy(h.connect()))
	}
	header.Set("Content-Type", served.kind)
	header.Set("Vary", "Accept-Encoding")
	content := served.content
	if acceptsGzip(request.Header.Get("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
		content = served.compressed
	}
	header.Set("Content-Length", fmt.Sprint(len(content)))
	if request.Method != http.MethodHead {
		_, _ = w.Write(content) // the client may have gone
	}
}

// acceptsGzip reports whether a client takes gzip. Every browser names it without a weight.
func acceptsGzip(accepted string) bool {
	for coding := range strings.SplitSeq(accepted, ",") {
		if strings.TrimSpace(coding) == "gzip" {
			return true
		}
	}
	return false
}
