package aggregate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

var aggregateQuota = pg.Quota{Items: "aggregate definitions", Table: "aggregates", Max: MaxAggregates}

// PutAggregate stores the definition of a category's aggregates and replaces a previous one. A tenant may have
// MaxAggregates; beyond that the error is domain.CodeQuotaExceeded.
func (s *Postgres) PutAggregate(ctx context.Context, tenant domain.TenantID, aggregate Definition) error {
	definition, err := json.Marshal(aggregate)
	if err != nil {
		return fmt.Errorf("write the aggregate's definition: %w", err)
	}
	var commands []byte
	if len(aggregate.Commands) > 0 {
		if commands, err = json.Marshal(aggregate.Commands); err != nil {
			return fmt.Errorf("write the aggregate's commands: %w", err)
		}
	}
	return pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		created, err := pg.Exec(ctx, tx, "create an aggregate", `
			insert into aggregates (tenant_id, category, definition, commands) values ($1, $2, $3, $4)
			on conflict (tenant_id, category) do nothing`, tenant, aggregate.Category, definition, commands)
		switch {
		case err != nil:
			return err
		case created > 0:
			return aggregateQuota.Check(ctx, tx, tenant)
		}
		_, err = pg.Exec(ctx, tx, "change an aggregate",
			"update aggregates a set definition = $3, commands = $4, updated_at = now() where a.tenant_id = $1 and a.category = $2",
			tenant, aggregate.Category, definition, commands)
		return err
	})
}

// Aggregate returns the definition of a category's aggregates, or domain.CodeNotFound if there is none.
func (s *Postgres) Aggregate(ctx context.Context, tenant domain.TenantID, category string) (Definition, error) {
	var stored storedDefinition
	if err := s.db.Read(ctx, tenant, nil, stored.query(tenant, category)); err != nil {
		return Definition{}, err
	}
	return stored.decode(category)
}

// storedDefinition is a definition as the database has it, in JSON. No text means that the category has none. The
// commands are separate, so that a previous release can read the rest.
type storedDefinition struct {
	text, commands []byte
	updated        time.Time
}

func (d *storedDefinition) bytes() int { return len(d.text) + len(d.commands) }

func (d *storedDefinition) equal(other storedDefinition) bool {
	return bytes.Equal(d.text, other.text) && bytes.Equal(d.commands, other.commands)
}

var selectAggregate = pg.Statement{Name: "manifold_aggregate", SQL: `
	select a.definition, a.commands, a.updated_at from aggregates as a where a.tenant_id = $1::uuid and a.category = $2::text`}

// query reads the definition.
func (d *storedDefinition) query(tenant domain.TenantID, category string) pg.Query {
	return pg.Query{Statement: &selectAggregate, Params: [][]byte{pg.TenantParam(tenant), []byte(category)}, Row: func(values [][]byte) error {
		d.text, d.commands, d.updated = bytes.Clone(pg.JSONValue(values[0])), bytes.Clone(pg.JSONValue(values[1])), pg.TimeValue(values[2])
		return nil
	}}
}

// decode returns the definition, or domain.CodeNotFound if there is none.
func (d *storedDefinition) decode(category string) (definition Definition, err error) {
	if d.text == nil {
		return Definition{}, noAggregate(category)
	}
	if err := pg.DecodeStrictly(d.text, &definition); err != nil {
		return Definition{}, err
	}
	if d.commands != nil {
		if err := pg.DecodeStrictly(d.commands, &definition.Commands); err != nil {
			return Definition{}, err
		}
	}
	definition.UpdatedAt = d.updated
	return definition, nil
}

// Aggregates returns a tenant's aggregate definitions, ordered by category.
func (s *Postgres) Aggregates(ctx context.Context, tenant domain.TenantID) ([]Definition, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list the aggregates", scanAggregate,
		"select a.definition, a.commands, a.updated_at from aggregates a where a.tenant_id = $1 order by a.category", tenant)
}

// DeleteAggregate removes the definition of a category's aggregates and the snapshots that definitions folded. Clients'
// snapshots stay. It returns domain.CodeNotFound if there is no definition.
func (s *Postgres) DeleteAggregate(ctx context.Context, tenant domain.TenantID, category string) error {
	deleted, err := pg.ExecUnder(ctx, s.db.App, tenant, "delete an aggregate",
		"delete from aggregates a where a.tenant_id = $1 and a.category = $2", tenant, category)
	switch {
	case err != nil:
		return err
	case deleted == 0:
		return noAggregate(category)
	}
	// A separate transaction may remove the snapshots, because they are no longer read.
	return s.deleteDefinitionSnapshots(ctx, tenant, category)
}

func scanAggregate(row pgx.CollectableRow) (Definition, error) {
	var stored storedDefinition
	if err := row.Scan(&stored.text, &stored.commands, (*pg.Moment)(&stored.updated)); err != nil {
		return Definition{}, err
	}
	return stored.decode("")
}

func noAggregate(category string) error {
	return domain.Errorf(domain.CodeNotFound, "", "category %q has no aggregate definition; put one at /v1/aggregates/%s", category, category)
}
