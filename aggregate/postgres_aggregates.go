package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

var aggregateQuota = pg.Quota{Things: "aggregate definitions", Table: "aggregates", Most: domain.MaxAggregates}

// PutAggregate stores the definition of a category's aggregates and replaces a previous one. A tenant may have
// domain.MaxAggregates; beyond that the error is domain.CodeQuotaExceeded.
func (s *Postgres) PutAggregate(ctx context.Context, tenant domain.TenantID, aggregate domain.Aggregate) error {
	definition, err := json.Marshal(aggregate)
	if err != nil {
		return fmt.Errorf("write the aggregate's definition: %w", err)
	}
	return pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		created, err := tx.Exec(ctx, `
			insert into aggregates (tenant_id, category, definition) values ($1, $2, $3)
			on conflict (tenant_id, category) do nothing`, tenant, aggregate.Category, definition)
		switch {
		case err != nil:
			return fmt.Errorf("create an aggregate: %w", err)
		case created.RowsAffected() > 0:
			return aggregateQuota.Check(ctx, tx, tenant)
		}
		_, err = tx.Exec(ctx, "update aggregates a set definition = $3, updated_at = now() where a.tenant_id = $1 and a.category = $2",
			tenant, aggregate.Category, definition)
		if err != nil {
			return fmt.Errorf("change an aggregate: %w", err)
		}
		return nil
	})
}

// Aggregate returns the definition of a category's aggregates, or domain.CodeNotFound if there is none.
func (s *Postgres) Aggregate(ctx context.Context, tenant domain.TenantID, category string) (domain.Aggregate, error) {
	var aggregate domain.Aggregate
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx,
			"select a.definition, a.updated_at from aggregates a where a.tenant_id = $1 and a.category = $2", tenant, category)
		var err error
		aggregate, err = pgx.CollectExactlyOneRow(rows, scanAggregate)
		if errors.Is(err, pgx.ErrNoRows) {
			return noAggregate(category)
		}
		if err != nil {
			return fmt.Errorf("read an aggregate: %w", err)
		}
		return nil
	})
	return aggregate, err
}

// Aggregates returns a tenant's aggregate definitions, ordered by category.
func (s *Postgres) Aggregates(ctx context.Context, tenant domain.TenantID) ([]domain.Aggregate, error) {
	var aggregates []domain.Aggregate
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx,
			"select a.definition, a.updated_at from aggregates a where a.tenant_id = $1 order by a.category", tenant)
		var err error
		if aggregates, err = pgx.CollectRows(rows, scanAggregate); err != nil {
			return fmt.Errorf("list the aggregates: %w", err)
		}
		return nil
	})
	return aggregates, err
}

// DeleteAggregate removes the definition of a category's aggregates and the snapshots that definitions folded. Clients'
// snapshots stay. It returns domain.CodeNotFound if there is no definition.
func (s *Postgres) DeleteAggregate(ctx context.Context, tenant domain.TenantID, category string) error {
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		gone, err := tx.Exec(ctx, "delete from aggregates a where a.tenant_id = $1 and a.category = $2", tenant, category)
		switch {
		case err != nil:
			return fmt.Errorf("delete an aggregate: %w", err)
		case gone.RowsAffected() == 0:
			return noAggregate(category)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// A separate transaction may remove the snapshots, because they are no longer read.
	return s.deleteDefinitionSnapshots(ctx, tenant, category)
}

func scanAggregate(row pgx.CollectableRow) (domain.Aggregate, error) {
	var aggregate domain.Aggregate
	var definition []byte
	var updated pg.Moment
	if err := row.Scan(&definition, &updated); err != nil {
		return domain.Aggregate{}, err
	}
	if err := pg.DecodeStrictly(definition, &aggregate); err != nil {
		return domain.Aggregate{}, err
	}
	aggregate.UpdatedAt = updated.Time()
	return aggregate, nil
}

func noAggregate(category string) error {
	return domain.Errorf(domain.CodeNotFound, "", "category %q has no aggregate definition; put one at /v1/aggregates/%s", category, category)
}
