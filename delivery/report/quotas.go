package report

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// A quota is reported when quotaWarnAt percent of it are used, and again when less than quotaEndAt are.
const (
	quotaWarnAt = 80
	quotaEndAt  = 75
)

// quotaUsed is the data of QuotaNearlyReached and QuotaRelieved.
type quotaUsed struct {
	Quota string `json:"quota"`
	Used  int64  `json:"used"`
	Limit int64  `json:"limit"`
}

// findQuotas looks for quotas of which most is used.
func (r *Reporter) findQuotas(ctx context.Context, tenant domain.TenantID, f *findings, open map[string]alert) error {
	f.includeKind(KindQuota)
	if r.config.Quotas == nil {
		return nil
	}
	quotas, err := r.config.Quotas(ctx, tenant)
	if err != nil {
		return err
	}
	for _, q := range quotas {
		name := string(q.Quota)
		_, isOpen := open[name]
		percent := float64(q.Used) / float64(max(q.Limit, 1)) * 100
		switch {
		case isOpen && percent < quotaEndAt:
			f.add(KindQuota, name, ended)
		case isOpen:
			f.add(KindQuota, name, holds)
		case percent >= quotaWarnAt:
			if err := f.begin(KindQuota, name, "", quotaUsed{Quota: name, Used: q.Used, Limit: q.Limit}); err != nil {
				return err
			}
		}
	}
	return nil
}
