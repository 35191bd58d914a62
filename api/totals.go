package api

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/totals"
)

func (s operations) GetTotals(ctx context.Context, _ access.Caller, request openapi.GetTotalsRequest) (*openapi.Response, error) {
	params := request.Params
	page, err := listPageOf(params.PageSize, params.PageToken, parseTotalsPlace)
	if err != nil {
		return nil, err
	}
	query := totals.Query{Per: totals.Per(value(params.Per)), KeyPrefix: value(params.KeyPrefix), After: page.after, Limit: page.size}
	if query.Per == "" {
		query.Per = totals.PerTenant
	}
	if params.Tenant != nil {
		if query.Tenant, err = parseTenantID("query tenant", *params.Tenant); err != nil {
			return nil, err
		}
	}
	found, err := s.config.Totals.Read(ctx, request.Name, query)
	if err != nil {
		return nil, err
	}
	body := openapi.TotalsPage{
		Sum: convert(found.Totals.Sum, func(path string) string { return path }), By: found.Totals.By, Tenants: found.Tenants, Pending: found.Pending, KeysDropped: found.KeysDropped,
		All: totalAnswer(found.All), Totals: convert(found.Rows, totalAnswer),
	}
	answer := openapi.OK(body)
	if found.More {
		last := found.Rows[len(found.Rows)-1]
		answer.With("Link", pageLink("/v1/admin/totals/"+request.Name, url.Values{
			"per": optional(params.Per), "tenant": optional(params.Tenant), "keyPrefix": optional(params.KeyPrefix),
		}, page.size, pageToken(last.Tenant.String()+" "+last.Key)))
	}
	return answer, nil
}

// parseTotalsPlace parses what GetTotals puts into a page token.
func parseTotalsPlace(text string) (*totals.After, error) {
	tenant, key, ok := strings.Cut(text, " ")
	if !ok {
		return nil, errors.New("a tenant and a key are expected")
	}
	id, err := domain.ParseTenantID(tenant)
	return &totals.After{Tenant: id, Key: key}, err
}

func totalAnswer(row totals.Row) openapi.Total {
	answer := openapi.Total{TenantName: row.TenantName, Key: row.Key, Documents: row.Documents, Sums: make(map[string]string, len(row.Sums))}
	if row.Tenant != domain.Everyone {
		answer.Tenant = row.Tenant.String()
	}
	for _, sum := range row.Sums {
		answer.Sums[sum.Field] = sum.Total
		if skipped := row.Documents - sum.Documents; skipped > 0 {
			if answer.Skipped == nil {
				answer.Skipped = make(map[string]int64)
			}
			answer.Skipped[sum.Field] = skipped
		}
	}
	if row.State != nil {
		answer.Build, answer.Position, answer.KeysDropped = row.State.Build, &row.State.Position, row.State.KeysDropped
		answer.ComputedAt = moment(row.State.ComputedAt)
	}
	return answer
}
