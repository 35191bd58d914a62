package api

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/delivery/report"
	"github.com/manifold-es/manifold/domain"
)

func (s operations) GetReports(ctx context.Context, caller access.Caller, _ openapi.GetReportsRequest) (*openapi.Response, error) {
	settings, err := s.config.Reports.Settings(ctx, caller.Tenant)
	return openapi.OK(reportsOf(settings)), err
}

func (s operations) PutReports(ctx context.Context, caller access.Caller, request openapi.PutReportsRequest) (*openapi.Response, error) {
	if request.Body.MaxLag != 0 && !request.Body.Enabled {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "maxLag", "nothing is reported while reports are disabled; leave it out")
	}
	settings, err := s.config.Reports.Put(ctx, caller.Tenant, request.Body.Enabled, time.Duration(request.Body.MaxLag)*time.Second)
	return openapi.OK(reportsOf(settings)), err
}

func reportsOf(settings report.Settings) openapi.Reports {
	return openapi.Reports{Enabled: settings.Enabled, Since: moment(settings.Since), MaxLag: int64(settings.MaxLag / time.Second)}
}
