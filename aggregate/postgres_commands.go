package aggregate

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
)

// The outcome of a command with an idempotency key is in its events, whose ids derive from the key. Only an outcome
// without events needs a row here. Its id is the one that the first event would have had.

// keptOutcome is the outcome of a command that appended nothing.
type keptOutcome struct {
	Rejected *Rejection `json:"rejected,omitempty"`
	Version  int64      `json:"version"` // of the stream
}

const (
	// outcomesKept is for how long outcomes are kept.
	outcomesKept = "1 day"
	// maxOutcomes is about how many of a tenant are kept at most.
	maxOutcomes = 100_000
	// outcomesBetweenCounts is after how many new ones, on average, the oldest beyond maxOutcomes are removed.
	outcomesBetweenCounts = 100
)

var selectOutcome = pg.Statement{Name: "manifold_command_outcome", SQL: `
	select o.outcome from command_outcomes as o where o.tenant_id = $1::uuid and o.outcome_id = $2::uuid`}

// earlierOutcome returns the kept outcome with an id, or else the position of the event with the id. Nil and 0 mean
// that there is neither.
func (s *Postgres) earlierOutcome(ctx context.Context, tenant domain.TenantID, id domain.EventID) (kept *keptOutcome, position int64, err error) {
	err = s.db.Read(ctx, tenant, func() { kept, position = nil, 0 },
		eventlog.EventPositionQuery(tenant, id, &position),
		pg.Query{Statement: &selectOutcome, Params: [][]byte{pg.TenantParam(tenant), pg.UUIDParam(id)}, Row: func(values [][]byte) error {
			kept = &keptOutcome{}
			return json.Unmarshal(pg.JSONValue(values[0]), kept)
		}})
	if position > 0 {
		kept = nil
	}
	return kept, position, err
}

// keepOutcome keeps an outcome. If another one is kept with the same id, it returns that.
func (s *Postgres) keepOutcome(ctx context.Context, tenant domain.TenantID, id domain.EventID, outcome keptOutcome) (other *keptOutcome, err error) {
	text, err := json.Marshal(outcome)
	if err != nil {
		return nil, fmt.Errorf("write the outcome of a command: %w", err)
	}
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		kept, err := pg.Exec(ctx, tx, "keep the outcome of a command", `
			insert into command_outcomes (tenant_id, outcome_id, outcome) values ($1, $2, $3)
			on conflict (tenant_id, outcome_id) do nothing`, tenant, id, text)
		if err != nil {
			return err
		}
		if kept == 0 {
			found, ok, err := pg.SelectOne(ctx, tx, "read the outcome of a command", pgx.RowTo[[]byte],
				"select o.outcome from command_outcomes o where o.tenant_id = $1 and o.outcome_id = $2", tenant, id)
			if err != nil || !ok {
				return err
			}
			other = &keptOutcome{}
			return json.Unmarshal(found, other)
		}
		if _, err := pg.Exec(ctx, tx, "remove old outcomes of commands",
			"delete from command_outcomes o where o.tenant_id = $1 and o.kept_at < now() - interval '"+outcomesKept+"'", tenant); err != nil {
			return err
		}
		if rand.IntN(outcomesBetweenCounts) > 0 {
			return nil
		}
		_, err = pg.Exec(ctx, tx, "remove outcomes of commands beyond their number", `
			delete from command_outcomes o where o.tenant_id = $1 and o.kept_at <= (
			  select l.kept_at from command_outcomes l where l.tenant_id = $1 order by l.kept_at desc offset $2 limit 1)`, tenant, maxOutcomes)
		return err
	})
	return other, err
}
