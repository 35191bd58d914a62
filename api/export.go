package api

import (
	"math"

	"github.com/labstack/echo/v4"
)

// exportEvents streams the whole log as lines in a format that import accepts: Manifold's own, or CloudEvents.
func (s *Server) exportEvents(c echo.Context, caller caller) error {
	from, err := integer(c.QueryParams(), "from")
	if err != nil {
		return err
	}
	next, err := s.logSlices(c, caller.tenant, reading{from: from})
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return s.streamEvents(c, caller.tenant, math.MaxInt64, next, exportForm(c.Request()))
}
