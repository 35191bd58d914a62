package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// appRole is the login that appends, in the log's database. It may write documents as well, under the tenant in the
// setting manifold.tenant like everybody: an inline projection's are saved in the append's own transaction.
const appRole = "manifold_app"

var _ drivers.Transactional = (*Driver)(nil)

// findLog finds out whether this is the log's own database.
func (d *Driver) findLog(ctx context.Context) error {
	return d.pool.QueryRow(ctx, `select to_regprocedure($1) is not null and exists (select from pg_roles where rolname = $2)`,
		schema+".lost_attempt()", appRole).Scan(&d.withLog)
}

// admit lets the appending login write to the tables that an older release has made.
func (d *Driver) admit(ctx context.Context) error {
	if !d.withLog {
		return nil
	}
	rows, err := d.pool.Query(ctx, `select c.oid::regclass::text from pg_class c
		where c.relnamespace = to_regnamespace($1) and c.relkind = 'r' and c.relowner = (select oid from pg_roles where rolname = current_user)
			and not has_table_privilege($2, c.oid, 'insert')`, schema, appRole)
	if err != nil {
		return err
	}
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		tables = append(tables, table)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := d.pool.Exec(ctx, fmt.Sprintf(admission, table)); err != nil {
			return err
		}
	}
	return nil
}

// admission is what the appending login needs on a table. Row-level security holds for it as for everybody.
const admission = "grant select, insert, update, delete on %[1]s to " + appRole

// SaveIn is Save for a transaction that is the append's. It is one statement but for deletions: the first part of it moves
// the checkpoint, and the second writes the documents behind the row that was moved, so that their tenant comes from a row
// of the same tenant. Where there was no such row, the function that the migrations have made fails the transaction.
func (d *Driver) SaveIn(build domain.Build, tenant domain.TenantID, batch drivers.Batch) ([]domain.Statement, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return nil, err
	}
	if err := batch.Check(); err != nil {
		return nil, err
	}
	if !d.withLog || batch.From == batch.To {
		return nil, domain.Errorf(domain.CodeUnsupported, "database", "documents can be saved with an append in the log's own database only, and going forward")
	}
	name := preparedName(build)
	params := [][]byte{encodeTenant(tenant), encodeInt(build.Number), encodeInt(batch.To)}
	move := "insert into " + table + ` (tenant_id, build, id, version) values ($1::uuid, $2::bigint, '', $3::bigint)
			on conflict do nothing returning tenant_id, build`
	kind := "first"
	if batch.From > 0 {
		move = "update " + table + ` c set version = $3::bigint
			where c.tenant_id = $1::uuid and c.build = $2::bigint and c.id = '' and c.version = $4::bigint returning c.tenant_id, c.build`
		kind, params = "next", append(params, encodeInt(batch.From))
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
		// Without arrays it is a fifth cheaper, and most appends change one document of a projection.
		one := &batch.Upserts[0]
		kind += "_one"
		save.SQL += into + fmt.Sprintf("$%d::text, $%d::bigint, $%d::jsonb from moved m", n+1, n+2, n+3) + upsert
		save.Params = append(save.Params, []byte(one.ID), encodeInt(one.Version), append([]byte{jsonbVersion}, one.Data...))
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
			Params: [][]byte{encodeTenant(tenant), encodeInt(build.Number), []byte(deletion.ID), encodeInt(deletion.Version)},
		})
	}
	return statements, nil
}

// CheckpointIn is Checkpoint for a transaction that is the append's.
func (d *Driver) CheckpointIn(build domain.Build, tenant domain.TenantID) (domain.Statement, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return domain.Statement{}, err
	}
	return domain.Statement{
		Name:   "manifold_checkpoint_" + preparedName(build),
		SQL:    "select c.version from " + table + " c where c.tenant_id = $1::uuid and c.build = $2::bigint and c.id = ''",
		Params: [][]byte{encodeTenant(tenant), encodeInt(build.Number)},
	}, nil
}

// preparedName tells the prepared statements of different tables apart. A shared build's number is its own; all other
// builds are in one table.
func preparedName(build domain.Build) string {
	if build.Shared() {
		return strconv.FormatInt(build.Number, 10)
	}
	return "common"
}
