package api

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/docs"
)

// docsRoutes registers the start page and the documentation. The contract lists only some of the pages.
func (s *Server) docsRoutes() {
	methods := []string{http.MethodGet, http.MethodHead}
	s.echo.Match(methods, "/", s.compressed(func(c echo.Context) error {
		site, err := s.site()
		if err != nil {
			return err
		}
		page, err := site.Start()
		if err != nil {
			return err
		}
		return writeDocs(c, page, site.Version())
	}))
	s.echo.Match(methods, "/docs/*", s.compressed(s.docsFile))
}

// compressed compresses the answers of a handler outside the contract.
func (s *Server) compressed(handle echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		return s.compressor.Run(c.Request().Context(), c, access.Caller{}.ShareOf(), func() error { return handle(c) })
	}
}

// docs is GET /docs and GET /docs/errors.
func (s *Server) docs(c echo.Context, _ access.Caller) error { return s.docsFile(c) }

// docsFile answers with a page or a file of the documentation.
func (s *Server) docsFile(c echo.Context) error {
	name := strings.Trim(strings.TrimPrefix(c.Request().URL.Path, "/docs"), "/")
	if strings.HasSuffix(c.Request().URL.Path, "/") {
		return c.Redirect(http.StatusMovedPermanently, strings.TrimSuffix("/docs/"+name, "/"))
	}
	site, err := s.site()
	if err != nil {
		return err
	}
	file, found, err := site.File(name)
	if err != nil {
		return err
	}
	if found {
		return writeDocs(c, file, site.Version())
	}
	missing, err := site.Missing()
	if err != nil {
		return err
	}
	setDocsHeader(c, missing)
	return c.Blob(http.StatusNotFound, missing.Kind, missing.Content)
}

// writeDocs answers with a file, or that the client has it.
func writeDocs(c echo.Context, file docs.File, version string) error {
	setDocsHeader(c, file)
	header := c.Response().Header()
	header.Set("Cache-Control", "no-cache") // caches may store it, but must revalidate it each time
	header.Set("ETag", `W/"`+version+`"`)
	if file.Gzipped {
		header.Set("Content-Encoding", "gzip") // every browser accepts it
	}
	// An answer to HEAD has the header of the compressed one. The server drops its body.
	request := c.Request().Clone(c.Request().Context())
	request.Method = http.MethodGet
	http.ServeContent(c.Response(), request, "", time.Time{}, bytes.NewReader(file.Content))
	return nil
}

func setDocsHeader(c echo.Context, file docs.File) {
	header := c.Response().Header()
	header.Set("Content-Type", file.Kind)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	if file.Policy != "" {
		header.Set("Content-Security-Policy", file.Policy)
	}
}
