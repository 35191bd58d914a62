package api

import (
	"context"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/usage"
)

// usageDays is how many days before the last one an answer has unless the request says otherwise.
const usageDays = 30

func (s operations) GetUsage(ctx context.Context, caller access.Caller, request openapi.GetUsageRequest) (*openapi.Response, error) {
	from, to, err := usagePeriod(request.Params.From, request.Params.To)
	if err != nil {
		return nil, err
	}
	days, err := s.config.UsageTables.UsageDays(ctx, caller.Tenant, from, to)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.UsageList{Days: convert(days, usageAnswer)}), nil
}

// exportUsage streams the usage of all tenants, a line at a time.
func (s *Server) exportUsage(c echo.Context, _ access.Caller) error {
	query := c.QueryParams()
	from, to, err := usagePeriod(paramOf(query, "from"), paramOf(query, "to"))
	if err != nil {
		return err
	}
	lines := s.newLines(c)
	err = s.config.UsageTables.EachUsageDay(c.Request().Context(), from, to, func(day usage.Day) error {
		return lines.add(tenantUsage{day.Tenant, usageAnswer(day)})
	})
	if err != nil {
		return err
	}
	return lines.flush()
}

// tenantUsage is a line of the export.
type tenantUsage struct {
	Tenant domain.TenantID `json:"tenant"`
	openapi.Usage
}

// paramOf returns a parameter of the query; nil if it is missing.
func paramOf(query url.Values, name string) *string {
	if !query.Has(name) {
		return nil
	}
	return new(query.Get(name))
}

// usagePeriod parses the days of a request; nil is the default.
func usagePeriod(first, last *string) (from, to time.Time, err error) {
	to = time.Now().UTC().Truncate(24 * time.Hour)
	if last != nil {
		if to, err = time.Parse(time.DateOnly, *last); err != nil {
			return from, to, domain.Errorf(domain.CodeInvalidRequest, "query to", "%q is not a day such as 2026-03-31", domain.Clip(*last, 40))
		}
	}
	from = to.AddDate(0, 0, -usageDays)
	if first != nil {
		if from, err = time.Parse(time.DateOnly, *first); err != nil {
			return from, to, domain.Errorf(domain.CodeInvalidRequest, "query from", "%q is not a day such as 2026-03-01", domain.Clip(*first, 40))
		}
	}
	if from.After(to) {
		return from, to, domain.Errorf(domain.CodeInvalidRequest, "query from", "it is after the last day, %s", to.Format(time.DateOnly))
	}
	return from, to, nil
}

func usageAnswer(day usage.Day) openapi.Usage {
	return openapi.Usage{
		Day: day.Day.Format(time.DateOnly), Events: day.Events, Bytes: day.Bytes, Documents: day.Documents,
		Deliveries: day.Deliveries, ExpressionSteps: day.Steps,
	}
}
