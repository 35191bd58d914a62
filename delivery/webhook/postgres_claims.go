package webhook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// ClaimEvents reports for each claim of a service group whether it is a duplicate. It is one if another event with the
// same id is no duplicate and was recorded less than window before it, or after it if that event was claimed first. All
// other claims are stored for the group. Events of one call are processed in the order of their positions. So repeating
// a call gives the same answer, in any process. If the webhook or the group no longer exists, all are duplicates.
func (s *Postgres) ClaimEvents(
	ctx context.Context, tenant domain.TenantID, group string, window time.Duration, claims []Claim,
) (duplicate []bool, err error) {
	duplicate = make([]bool, len(claims))
	if len(claims) == 0 {
		return duplicate, nil
	}
	kind, name, ok := domain.ParseServiceGroup(group)
	if !ok {
		return nil, fmt.Errorf("claim events of a service group: %q is none", group)
	}
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		for i := range duplicate {
			duplicate[i] = true
		}
		// The lock makes decisions for a group one at a time, and those for a webhook and its replay.
		lock := func() error { return lockGroup(ctx, tx, tenant, group) }
		if kind == domain.ServiceWebhook || kind == domain.ServiceReplay {
			lock = func() error { _, err := lockWebhook(ctx, tx, tenant, name); return err }
		}
		if err := lock(); err != nil {
			if domain.IsCode(err, domain.CodeNotFound) {
				return nil
			}
			return err
		}
		there, err := readClaims(ctx, tx, tenant, group, claims)
		if err != nil {
			return err
		}
		var taken []Claim
		for _, i := range byPosition(claims) {
			claim := claims[i]
			own := func(other Claim) bool { return other.Position == claim.Position }
			near := func(other Claim) bool { return claim.RecordedAt.Sub(other.RecordedAt).Abs() < window }
			switch of := there[claim.ID]; {
			case slices.ContainsFunc(of, own):
				duplicate[i] = false
			case !slices.ContainsFunc(of, near):
				duplicate[i] = false
				there[claim.ID] = append(of, claim)
				taken = append(taken, claim)
			}
		}
		return insertClaims(ctx, tx, tenant, group, taken)
	})
	if err != nil {
		return nil, fmt.Errorf("claim events of %s: %w", group, err)
	}
	return duplicate, nil
}

// lockGroup locks the row of a service group. It does not conflict with the group's deliveries.
func lockGroup(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string) error {
	locked, err := tx.Exec(ctx, "select from subscriptions as s where s.tenant_id = $1 and s.name = $2 for no key update", tenant, name)
	if err == nil && locked.RowsAffected() == 0 {
		err = domain.Errorf(domain.CodeNotFound, "", "there is no group %q", name)
	}
	return err
}

// byPosition returns the indexes of claims in the order of their events' positions.
func byPosition(claims []Claim) []int {
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(claims[a].Position - claims[b].Position) })
	return order
}

// readClaims reads, for each given claim, the stored claims of its id that are closest to it in the log, including
// itself. They are also the closest in time, since events are recorded in the log's order.
func readClaims(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, group string, claims []Claim) (map[[32]byte][]Claim, error) {
	ids, positions := make([][]byte, len(claims)), make([]int64, len(claims))
	for i := range claims {
		ids[i], positions[i] = claims[i].ID[:], claims[i].Position
	}
	rows, _ := tx.Query(ctx, nearClaims, tenant, group, ids, positions)
	there := make(map[[32]byte][]Claim, len(ids))
	var id []byte
	var claim Claim
	_, err := pgx.ForEachRow(rows, []any{&id, &claim.Position, (*pg.Moment)(&claim.RecordedAt)}, func() error {
		copy(claim.ID[:], id)
		there[claim.ID] = append(there[claim.ID], claim)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read claims: %w", err)
	}
	return there, nil
}

// nearClaims looks up each claim separately, in the order of the primary key. Otherwise a planner that expects few rows
// would read all of a group's claims.
const nearClaims = `
	select c.claim, c.position, c.recorded_at from unnest($3::bytea[], $4::bigint[]) as i(claim, position)
	cross join lateral (
		(select * from webhook_claims as b where b.tenant_id = $1 and b.name = $2 and b.claim = i.claim and b.position <= i.position
			order by b.position desc limit 1)
		union all
		(select * from webhook_claims as a where a.tenant_id = $1 and a.name = $2 and a.claim = i.claim and a.position > i.position
			order by a.position limit 1)
	) as c`

// insertClaims stores claims of a service group.
func insertClaims(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, group string, claims []Claim) error {
	if len(claims) == 0 {
		return nil
	}
	ids, positions, recorded := make([][]byte, len(claims)), make([]int64, len(claims)), make([]time.Time, len(claims))
	for i := range claims {
		ids[i], positions[i], recorded[i] = claims[i].ID[:], claims[i].Position, claims[i].RecordedAt
	}
	_, err := tx.Exec(ctx, `
		insert into webhook_claims (tenant_id, name, claim, position, recorded_at)
		select s.tenant_id, s.name, c.* from subscriptions as s cross join unnest($3::bytea[], $4::bigint[], $5::timestamptz[]) as c
		where s.tenant_id = $1 and s.name = $2`, tenant, group, ids, positions, recorded)
	if err != nil {
		return fmt.Errorf("keep claims: %w", err)
	}
	return nil
}
