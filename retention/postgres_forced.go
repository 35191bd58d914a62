package retention

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// MissingForced returns the names for which nothing exists now: no group of the tenant, and no projection, neither its
// own nor a shared one. A webhook's groups exist as long as the webhook does, and the group of a projection's changes
// as long as the projection does, even if they have not been created yet.
func (s *Postgres) MissingForced(ctx context.Context, tenant domain.TenantID, force Force) (missing Force, err error) {
	webhooks, projections := []string{}, slices.Concat([]string{}, force.Projections, force.Rebuilds)
	for _, group := range force.Groups {
		switch kind, name, _ := domain.ParseServiceGroup(group); kind {
		case domain.ServiceWebhook, domain.ServiceReplay:
			webhooks = append(webhooks, name)
		case domain.ServiceChanges:
			projections = append(projections, name)
		}
	}
	type of struct{ what, name string }
	there := make(map[of]bool)
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			select 'group', s.name from subscriptions s where s.tenant_id = $1 and s.name = any($3)
			union all
			select 'webhook', w.name from webhooks w where w.tenant_id = $1 and w.name = any($4)
			union all
			select 'projection', p.name from projections p where p.tenant_id in ($1, $2) and p.name = any($5)`,
			tenant, domain.Everyone, orEmpty(force.Groups), webhooks, projections)
		var one of
		_, err := pgx.ForEachRow(rows, []any{&one.what, &one.name}, func() error {
			there[one] = true
			return nil
		})
		if err != nil {
			return fmt.Errorf("look up the readers for which a retention policy does not wait: %w", err)
		}
		return nil
	})
	if err != nil {
		return Force{}, err
	}
	for _, group := range force.Groups {
		kind, name, _ := domain.ParseServiceGroup(group)
		switch {
		case there[of{"group", group}]:
		case (kind == domain.ServiceWebhook || kind == domain.ServiceReplay) && there[of{"webhook", name}]:
		case kind == domain.ServiceChanges && there[of{"projection", name}]:
		default:
			missing.Groups = append(missing.Groups, group)
		}
	}
	noProjection := func(name string) bool { return !there[of{"projection", name}] }
	missing.Projections = sift(force.Projections, noProjection)
	missing.Rebuilds = sift(force.Rebuilds, noProjection)
	return missing, nil
}

// sift returns the wanted elements of a list; nil if there are none.
func sift(list []string, wanted func(string) bool) (some []string) {
	for _, one := range list {
		if wanted(one) {
			some = append(some, one)
		}
	}
	return some
}
