package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/console"
)

// consoleRoutes registers the web console.
func (s *Server) consoleRoutes() error {
	handler, err := console.New(s.signInOrigins)
	if err != nil {
		return err
	}
	methods := []string{http.MethodGet, http.MethodHead}
	s.echo.Match(methods, console.Path, echo.WrapHandler(handler))
	s.echo.Match(methods, console.Path+"/*", echo.WrapHandler(handler))
	return nil
}
