package api

import (
	"math"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
)

// exportEvents streams the log, or a part of it, as lines in a format that import accepts: Manifold's own, or
// CloudEvents.
func (s *Server) exportEvents(c echo.Context, caller access.Caller) error {
	request, err := readingOf(c)
	if err != nil {
		return err
	}
	if request.to, err = integer(c.QueryParams(), "to"); err != nil {
		return err
	}
	if err := caller.AllowEach(request.categories, auth.ScopeEventsRead); err != nil {
		return problem.At("query categories", err)
	}
	next, err := s.logSlices(c, caller.Tenant, request)
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return s.streamEvents(c, caller.ShareOf(), math.MaxInt64, next, wire.ExportForm(c.Request()))
}
