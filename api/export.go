package api

import (
	"math"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/wire"
)

// exportEvents streams the whole log as lines in a format that import accepts: Manifold's own, or CloudEvents.
func (s *Server) exportEvents(c echo.Context, caller access.Caller) error {
	from, err := integer(c.QueryParams(), "from")
	if err != nil {
		return err
	}
	next, err := s.logSlices(c, caller.Tenant, reading{from: from})
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return s.streamEvents(c, caller.Tenant, math.MaxInt64, next, wire.ExportForm(c.Request()))
}
