package migrations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// undistribute reverts what distributing changes in tables, if the database is not distributed: it comes from the dump
// of a distributed one. Row-level security is forced again on the owner of the log's tables, and the documents' login
// owns the documents again. Its driver does the rest when it opens the database. It does what is missing, so it may be
// repeated.
func undistribute(ctx context.Context, conn *pgx.Conn) error {
	for end := time.Now().Add(lockPatience); ; {
		err := tryUndistribute(ctx, conn)
		if !isLockTimeout(err) || time.Now().After(end) {
			return err
		}
		if err := pause(ctx, lockPause); err != nil {
			return err
		}
	}
}

func tryUndistribute(ctx context.Context, conn *pgx.Conn) error {
	if distributed, err := IsDistributed(ctx, conn); err != nil || distributed {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := LockDistribution(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "set local lock_timeout = '"+lockTimeout+"'"); err != nil {
			return err
		}
		const force = `
			select format('alter table %s force row level security', c.oid::regclass) from pg_class c
			where c.relnamespace = to_regnamespace('manifold') and c.relkind = 'r' and c.relrowsecurity and not c.relforcerowsecurity`
		if err := executeEach(ctx, tx, force); err != nil {
			return plain(err)
		}
		return returnDocuments(ctx, tx)
	})
}

// returnDocuments lets the documents' login own the tables that RoleViews owns, with their functions and statistics.
// The login may have another name than RoleDocuments: it is the one that a table's policy for checkpoints is for.
func returnDocuments(ctx context.Context, tx pgx.Tx) error {
	const owned = `
		with documents as (
		  select n.oid as schema, v.oid as views,
		    coalesce((select min(l.rolname) from pg_policy p join pg_class t on t.oid = p.polrelid join pg_roles l on l.oid = any (p.polroles)
		      where t.relnamespace = n.oid and p.polname = 'checkpoints'), '` + string(RoleDocuments) + `') as login
		  from pg_namespace n, pg_roles v where n.nspname = 'manifold_documents' and v.rolname = '` + string(RoleViews) + `'
		), owned as (
		  select 'table ' || c.oid::regclass as object, d.login from documents d join pg_class c on c.relnamespace = d.schema and c.relowner = d.views
		  where c.relkind = 'r'
		  union all
		  select 'function ' || f.oid::regprocedure, d.login from documents d join pg_proc f on f.pronamespace = d.schema and f.proowner = d.views
		  union all
		  select format('statistics manifold_documents.%I', s.stxname), d.login
		  from documents d join pg_statistic_ext s on s.stxnamespace = d.schema and s.stxowner = d.views
		)
		`
	// To change an owner, one must have the rights of both roles. The migrator takes them for this transaction.
	var grants, revokes []string
	rows, _ := tx.Query(ctx, owned+`
		select format('grant %I to current_user', role), format('revoke %I from current_user', role)
		from (select distinct unnest(array[login, '`+string(RoleViews)+`']) as role from owned) roles where not pg_has_role(role, 'usage')`)
	var grant, revoke string
	_, err := pgx.ForEachRow(rows, []any{&grant, &revoke}, func() error {
		grants, revokes = append(grants, grant), append(revokes, revoke)
		return nil
	})
	if err == nil {
		err = execute(ctx, tx, grants)
	}
	if err == nil {
		err = executeEach(ctx, tx, owned+"select format('alter %s owner to %I', object, login) from owned")
	}
	if err == nil {
		err = execute(ctx, tx, revokes)
	}
	if native, ok := errors.AsType[*pgconn.PgError](err); ok && native.Code == insufficientPrivilege {
		return fmt.Errorf("the documents belong to %s: %w; run `manifold migrate up` as a superuser (database.migrator)", RoleViews, err)
	}
	return err
}

// executeEach executes the statements that a query returns.
func executeEach(ctx context.Context, tx pgx.Tx, query string, args ...any) error {
	rows, _ := tx.Query(ctx, query, args...)
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	return execute(ctx, tx, statements)
}

func execute(ctx context.Context, tx pgx.Tx, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
