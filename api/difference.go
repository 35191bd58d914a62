package api

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/rebuild"
)

// exportDifference streams the documents that a rebuild would change, a line for each.
func (s *Server) exportDifference(c echo.Context, caller access.Caller) error {
	ctx := c.Request().Context()
	id, err := operations{s}.changeable(ctx, caller, c.Param("name"))
	if err != nil {
		return err
	}
	rebuildID, err := parseRebuildID(c.Param("rebuildId"))
	if err != nil {
		return err
	}
	query, err := differenceQuery(c, caller)
	if err != nil {
		return err
	}
	if c.Request().Method == http.MethodHead {
		c.Response().Header().Set("Content-Type", wire.Ndjson)
		return c.NoContent(http.StatusOK) // the length is unknown without comparing everything
	}
	stream := s.budgets.comparing.Account(caller.Tenant)
	defer stream.Close()
	if err := stream.Wait(ctx, 1, transfer.RoomPatience); err != nil {
		return err
	}
	room := s.budgets.answers.Account(caller.Tenant)
	defer room.Close()
	if err := room.Wait(ctx, answerRoom["exportDifference"], transfer.RoomPatience); err != nil {
		return err
	}
	lines := s.newLines(c)
	err = s.config.Rebuilds.EachDifference(ctx, id, rebuildID, query, func(d rebuild.DifferentDocument) error {
		return lines.add(openapi.DifferentDocument{
			Tenant: d.Tenant.String(), Id: d.ID, Kind: string(d.Kind), Fields: d.Fields, Live: d.Live, Built: d.Built,
		})
	}, lines.keepAlive)
	if err != nil {
		return err
	}
	return lines.flush()
}

// differenceQuery reads the parameters of exportDifference.
func differenceQuery(c echo.Context, caller access.Caller) (query rebuild.DifferenceQuery, err error) {
	params := c.QueryParams()
	if tenant := paramOf(params, "tenant"); tenant != nil {
		if caller.Tenant != domain.Everyone {
			return query, domain.Errorf(domain.CodeForbidden, "query tenant", "only for the operator's key; a tenant's own projection has documents of that tenant alone")
		}
		if query.Tenant, err = parseTenantID("query tenant", *tenant); err != nil {
			return query, err
		}
	}
	after := paramOf(params, "after")
	if after == nil {
		return query, nil
	}
	tenant, document, ok := strings.Cut(*after, "/")
	if query.AfterTenant, err = parseTenantID("query after", tenant); err != nil || !ok || document == "" {
		return query, domain.Errorf(domain.CodeInvalidRequest, "query after", "%q is not a tenant's id and a document's id with a slash between them", domain.Clip(*after, 80))
	}
	query.After = document
	return query, nil
}
