package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/console"
)

// consoleRoutes registers the web console, and leads / there.
func (s *Server) consoleRoutes() error {
	handler, err := console.New()
	if err != nil {
		return err
	}
	methods := []string{http.MethodGet, http.MethodHead}
	s.echo.Match(methods, "/", func(c echo.Context) error { return c.Redirect(http.StatusFound, console.Path) })
	s.echo.Match(methods, console.Path, echo.WrapHandler(handler))
	s.echo.Match(methods, console.Path+"/*", echo.WrapHandler(handler))
	return nil
}
