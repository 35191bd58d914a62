package api

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/swaggest/swgui/v5/static"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/domain"
)

// docsFiles are the documentation pages. Swagger UI, which is embedded too, shows the contract. The pages load nothing
// from elsewhere, so they work offline.
//
//go:embed docs
var docsFiles embed.FS

const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) docs(c echo.Context, _ access.Caller) error {
	page, err := docsFiles.ReadFile("docs/index.html")
	if err != nil {
		return err
	}
	return s.page(c, page)
}

func (s *Server) docsErrors(c echo.Context, _ access.Caller) error { return s.page(c, s.errorPage) }

func (s *Server) page(c echo.Context, page []byte) error {
	c.Response().Header().Set("Content-Security-Policy", docsPolicy)
	c.Response().Header().Set("Referrer-Policy", "no-referrer")
	return c.HTMLBlob(http.StatusOK, page)
}

// docsAssets registers the files that the pages load.
func (s *Server) docsAssets() error {
	for _, asset := range []struct {
		files      fs.FS
		name, kind string
	}{
		{docsFiles, "docs/style.css", "text/css; charset=utf-8"},
		{docsFiles, "docs/start.js", "text/javascript; charset=utf-8"},
		{static.FS, "swagger-ui.css.gz", "text/css; charset=utf-8"},
		{static.FS, "swagger-ui-bundle.js.gz", "text/javascript; charset=utf-8"},
	} {
		content, err := fs.ReadFile(asset.files, asset.name)
		if err != nil {
			return err
		}
		name, compressed := strings.CutSuffix(path.Base(asset.name), ".gz")
		s.echo.Match([]string{http.MethodGet, http.MethodHead}, "/docs/"+name, func(c echo.Context) error {
			header := c.Response().Header()
			header.Set("Cache-Control", "max-age=3600")
			if compressed {
				header.Set("Content-Encoding", "gzip") // every browser accepts it
			}
			return c.Blob(http.StatusOK, asset.kind, content)
		})
	}
	return nil
}

func renderErrorPage(problems []problem.Kind) ([]byte, error) {
	type line struct {
		Code          domain.Code
		Status, Class int
		Title, Advice string
	}
	var lines []line
	for _, p := range problems {
		lines = append(lines, line{Code: p.Code, Status: p.Status, Class: p.Status / 100, Title: p.Title, Advice: p.Advice})
	}
	parsed, err := template.ParseFS(docsFiles, "docs/errors.html")
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	err = parsed.Execute(&page, lines)
	return page.Bytes(), err
}
