package group

import (
	"context"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// HoldsSQL returns, for each group of a tenant ($1) that may select events of a category ($2), the position up to
// which it needs no more of them: it has read all of them, and everything unsettled is after it. Dead letters are not
// included; they hold their events one by one. A group with a final position needs no events after that.
const HoldsSQL = `
	select s.name, l.position from subscriptions as s
	cross join lateral (
		select min(case when l.oldest > 0 then least(l.oldest - 1, l.read_to)
			when (s.definition->>'to')::bigint > 0 and l.read_to >= (s.definition->>'to')::bigint then 9223372036854775807
			else l.read_to end) as position
		from subscription_ledgers as l where l.tenant_id = $1::uuid and l.name = s.name
	) as l
	where s.tenant_id = $1::uuid and case
		when s.definition ? 'stream' then split_part(s.definition->>'stream', '-', 1) = $2::text
		else not s.definition ? 'categories' or s.definition->'categories' ? $2::text end`

var groupHolds = pg.Statement{Name: "manifold_group_holds", SQL: HoldsSQL + ` order by l.position, s.name`}

// GroupHolds returns the groups of a tenant that may still have to read events of a category.
func (s *Postgres) GroupHolds(ctx context.Context, tenant domain.TenantID, category string) ([]domain.RetentionHold, error) {
	var holds []domain.RetentionHold
	err := s.db.Read(ctx, tenant, func() { holds = nil }, pg.Query{Statement: &groupHolds, Params: [][]byte{pg.TenantParam(tenant), []byte(category)}, Row: func(values [][]byte) error {
		holds = append(holds, domain.RetentionHold{Kind: domain.HoldGroup, Name: string(values[0]), Position: pg.Int8Value(values[1])})
		return nil
	}})
	return holds, err
}
