package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/relational"
	"github.com/manifold-es/manifold/pg"
)

// SwapTable points the projection's view at the build, and at the overrides' builds for their tenants. "create or
// replace" keeps the privileges that were granted on it. A view that is already correct is left alone, so that nobody
// waits for it. SwapTable recognizes it by its comment, which identifies the overrides, and by its dependencies. In a
// distributed database it drops the view that an earlier release or a dump has left (see PublicNames), unless other
// views depend on it, or it has another owner.
func (d *Driver) SwapTable(ctx context.Context, build domain.Build, overrides []drivers.Override) error {
	return dialect.SwapTable(build, overrides, func(view relational.View) error {
		err := d.defineShortly(ctx, relational.SwapPatience, view.Name, func(tx pgx.Tx) error { return d.swapView(ctx, tx, build, view) })
		if state := pg.SQLState(err); !d.PublicNames() && (state == dependentObjects || state == insufficientPrivilege) {
			d.log.WarnContext(ctx, "a view that an earlier release or a dump has left cannot be dropped; drop it yourself", "view", view.Name, "error", err)
			err = nil // nothing in Manifold reads it
		}
		return err
	})
}

// PublicNames reports whether SwapTable makes views for people. In a distributed database it does not: on the workers
// only superusers could read them.
func (d *Driver) PublicNames() bool { return !d.distributed }

func (d *Driver) swapView(ctx context.Context, tx pgx.Tx, build domain.Build, view relational.View) error {
	comment := viewComment(build, view)
	var existing, referenced int
	var commented bool
	err := tx.QueryRow(ctx, `with tables as (select to_regclass(name) as oid from unnest($2::text[]) as name)
			select (select count(oid) from tables),
				(select count(distinct d.refobjid) from pg_rewrite r join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
					where r.ev_class = to_regclass($1) and d.refclassid = 'pg_class'::regclass and d.refobjid in (select oid from tables)),
				coalesce(obj_description(to_regclass($1), 'pg_class') = $3, false)`, view.Name, view.Tables, comment).Scan(&existing, &referenced, &commented)
	if err != nil {
		return err
	}
	if existing < len(view.Tables) {
		return drivers.ErrNoTable
	}
	if !d.PublicNames() {
		return dropView(ctx, tx, view.Name)
	}
	if commented && referenced == len(view.Tables) {
		return nil
	}
	if d.views {
		// The login does not inherit this role's rights. It creates the view as the role, and only in this
		// transaction.
		if _, err := tx.Exec(ctx, "set local role "+viewsRole); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "create or replace view "+view.Name+" as "+view.Query); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "comment on view "+view.Name+" is "+literal(comment))
	return err
}

// dropView drops a view, if it exists. It locks nothing otherwise.
func dropView(ctx context.Context, tx pgx.Tx, view string) error {
	if exists, err := relationExists(ctx, tx.QueryRow, view); err != nil || !exists {
		return err
	}
	_, err := tx.Exec(ctx, "drop view "+view)
	return err
}

// viewComment describes a view for people, and contains a hash that identifies the overrides.
func viewComment(build domain.Build, view relational.View) string {
	comment := "the documents of the shared projection " + build.Name
	if others := len(view.Tables) - 1; others > 0 {
		hash := sha256.Sum256([]byte(view.Query))
		comment += fmt.Sprintf("; those of some tenants are from %d other builds (%s)", others, hex.EncodeToString(hash[:8]))
	}
	return comment
}
