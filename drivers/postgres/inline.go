package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// appRole is the login that appends, in the log's database. It may write documents too, under the tenant in the setting
// manifold.tenant like every login: an inline projection's documents are saved in the append's own transaction.
const appRole = "manifold_app"

var _ drivers.Transactional = (*Driver)(nil)

// detectLog determines whether this is the log's own database.
func (d *Driver) detectLog(ctx context.Context) error {
	return d.pool.QueryRow(ctx, `select to_regprocedure($1) is not null and exists (select from pg_roles where rolname = $2)`,
		schema+".lost_attempt()", appRole).Scan(&d.withLog)
}

// detectCluster determines whether the log's database is this one and distributed. If so, it replaces the pool by one
// with other settings.
func (d *Driver) detectCluster(ctx context.Context, config Config, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	var err error
	if d.distributed, err = migrations.IsDistributed(ctx, pool); err != nil || !d.distributed {
		return pool, err
	}
	if problem, err := migrations.PropagationProblem(ctx, pool); err != nil || problem != "" {
		return pool, cmp.Or(err, errors.New(problem))
	}
	adapted := maps.Clone(settings)
	maps.Copy(adapted, pg.DistributedSettings)
	other, err := connect(ctx, config.URL, config.MaxConns, adapted)
	if err != nil {
		return pool, err
	}
	pool.Close()
	d.nodes = pg.NewNodes(other, commonTable, d.log)
	return other, nil
}

// Node returns the node of a cluster with a tenant's documents, or -1 if that is not known yet; false: the database is
// not distributed. It does not wait for the database.
func (d *Driver) Node(tenant domain.TenantID) (node int32, distributed bool) {
	return d.nodes.Of(tenant), d.distributed
}

// grantTables grants the appending login access to tables that an older release created.
func (d *Driver) grantTables(ctx context.Context) error {
	if !d.withLog {
		return nil
	}
	rows, _ := d.pool.Query(ctx, `select c.oid::regclass::text from pg_class c
		where c.relnamespace = to_regnamespace($1) and c.relkind = 'r' and c.relowner = (select oid from pg_roles where rolname = current_user)
			and not has_table_privilege($2, c.oid, 'insert') and c.oid is distinct from to_regclass($3)`, schema, appRole, beaconsTable)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := d.pool.Exec(ctx, fmt.Sprintf(grantToAppRole, table)); err != nil {
			return err
		}
	}
	return nil
}

// grantToAppRole grants the appending login access to a table. Row-level security applies to it as to every login.
const grantToAppRole = "grant select, insert, update, delete on %[1]s to " + appRole

// SaveIn is Save within the append's transaction. Except for deletions it is one statement. Its first part moves the
// checkpoint. Its second part writes the documents only if that row was moved, so that their tenant comes from a row of
// the same tenant. If there was no such row, a function from the migrations fails the transaction.
func (d *Driver) SaveIn(build domain.Build, tenant domain.TenantID, batch drivers.Batch) ([]domain.Statement, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return nil, err
	}
	if err := batch.Check(); err != nil {
		return nil, err
	}
	if !d.withLog || batch.IsRepair() {
		return nil, domain.Errorf(domain.CodeUnsupported, "database", "documents can be saved with an append only in the log's own database, and a repair not at all")
	}
	name := preparedName(build)
	params := [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number), pg.Int8Param(batch.To)}
	move := "insert into " + table + ` (tenant_id, build, id, version) values ($1::uuid, $2::bigint, '', $3::bigint)
			on conflict do nothing returning tenant_id, build`
	kind := "first"
	if batch.From > 0 {
		move = "update " + table + ` c set version = $3::bigint
			where c.tenant_id = $1::uuid and c.build = $2::bigint and c.id = '' and c.version = $4::bigint returning c.tenant_id, c.build`
		kind, params = "next", append(params, pg.Int8Param(batch.From))
	}
	const failing = ` select ` + schema + `.lost_attempt() where not exists (select from moved)`
	n := len(params)
	into := `, saved as (insert into ` + table + ` as t (tenant_id, build, id, version, document) select m.tenant_id, m.build, `
	upsert := ` on conflict (tenant_id, build, id) do update set version = excluded.version, document = excluded.document
			where t.version < excluded.version)`
	save := domain.Statement{SQL: "with moved as (" + move + ")", Params: params}
	switch len(batch.Upserts) {
	case 0:
	case 1:
		// Without arrays this takes a fifth less time, and most appends change one document of a projection.
		one := &batch.Upserts[0]
		kind += "_one"
		save.SQL += into + fmt.Sprintf("$%d::text, $%d::bigint, $%d::jsonb from moved m", n+1, n+2, n+3) + upsert
		save.Params = append(save.Params, []byte(one.ID), pg.Int8Param(one.Version), pg.AppendJSON(nil, one.Data))
	default:
		kind += "_many"
		save.SQL += into + fmt.Sprintf(`b.id, b.version, b.document
			from moved m, unnest($%d::text[], $%d::bigint[], $%d::jsonb[]) as b (id, version, document)`, n+1, n+2, n+3) + upsert
		save.Params = append(save.Params, encodeDocuments(batch.Upserts)...)
	}
	save.SQL += failing
	save.Name = "manifold_save_" + kind + "_" + name
	statements := []domain.Statement{save}
	for _, deletion := range batch.Deletes {
		statements = append(statements, domain.Statement{
			Name: "manifold_remove_" + name,
			SQL: "delete from " + table + ` t where t.tenant_id = $1::uuid and t.build = $2::bigint and t.id = $3::text and t.version < $4::bigint
				and t.id <> ''`,
			Params: [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number), []byte(deletion.ID), pg.Int8Param(deletion.Version)},
		})
	}
	if d.keepsKeys(build) {
		statements = append(statements, keysIn(build, params[:2:2], batch)...)
	}
	return statements, nil
}

// CheckpointIn is Checkpoint within the append's transaction.
func (d *Driver) CheckpointIn(build domain.Build, tenant domain.TenantID) (domain.Statement, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return domain.Statement{}, err
	}
	return domain.Statement{
		Name:   "manifold_checkpoint_" + preparedName(build),
		SQL:    "select c.version from " + table + " c where c.tenant_id = $1::uuid and c.build = $2::bigint and c.id = ''",
		Params: [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number)},
	}, nil
}

// preparedName distinguishes the prepared statements of different tables. A shared build's number is unique; all other
// builds share one table.
func preparedName(build domain.Build) string {
	if build.Shared() {
		return strconv.FormatInt(build.Number, 10)
	}
	return "common"
}
