package registry

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Limits of upcasters.
const (
	maxUpcasters        = 1000    // of one owner
	maxUpcasterBytes    = 1 << 20 // of all expressions of one owner
	MaxUpcastersPerType = 30      // of one owner and event type; shared ones can add as many steps to an event's chain
)

// The upcasters of an owner share one revision, in upcaster_sets, so that removals are noticed as well. A change of an
// upcaster locks that row first. Shared upcasters are rows of domain.Everyone.

const upcasterColumns = "u.event_type, u.version, u.expression, u.revision, u.by, u.updated_at"

// upcasterRevision selects the tenant's own revision and the shared one, with a placeholder for the tenant. Reads of
// the log for a projection use it, too.
const upcasterRevision = `
	coalesce((select r.revision from upcaster_sets as r where r.tenant_id = %[1]s), 0),
	coalesce((select r.revision from upcaster_sets as r where r.tenant_id = '00000000-0000-0000-0000-000000000000'), 0)`

var upcasterRevisions = pg.Statement{Name: "manifold_upcaster_revisions", SQL: "select " + fmt.Sprintf(upcasterRevision, "$1::uuid")}

// UpcasterRevision returns the revision of the upcasters that are in force for a tenant now.
func (s *Registry) UpcasterRevision(ctx context.Context, tenant domain.TenantID) (domain.UpcasterRevision, error) {
	var revision domain.UpcasterRevision
	err := s.db.Read(ctx, tenant, nil, UpcasterRevisionQuery(tenant, &revision))
	return revision, err
}

// UpcasterRevisionQuery is UpcasterRevision as one query of a larger read under the tenant.
func UpcasterRevisionQuery(tenant domain.TenantID, revision *domain.UpcasterRevision) pg.Query {
	return pg.Query{Statement: &upcasterRevisions, Params: [][]byte{pg.TenantParam(tenant)}, Row: func(values [][]byte) error {
		*revision = domain.UpcasterRevision{Own: pg.Int8Value(values[0]), Shared: pg.Int8Value(values[1])}
		return nil
	}}
}

// BySystem reads upcasters with the system login. It is for callers that may already hold a connection of the app
// login, as an append does, and must not wait for another one.
type BySystem struct{ registry *Registry }

// BySystem returns the upcasters as the system login reads them.
func (s *Registry) BySystem() BySystem { return BySystem{s} }

// UpcasterRevision does the same as Registry.UpcasterRevision.
func (s BySystem) UpcasterRevision(ctx context.Context, tenant domain.TenantID) (domain.UpcasterRevision, error) {
	scan := func(row pgx.CollectableRow) (r domain.UpcasterRevision, err error) {
		return r, row.Scan(&r.Own, &r.Shared)
	}
	revision, err := pg.LookUp(ctx, s.registry.db.Foreground, tenant, scan, "select "+fmt.Sprintf(upcasterRevision, "$1"), tenant)
	if err != nil {
		return domain.UpcasterRevision{}, pg.Unavailable(fmt.Errorf("read the revision of the upcasters: %w", err))
	}
	return revision, nil
}

// Upcasters does the same as Registry.Upcasters.
func (s BySystem) Upcasters(ctx context.Context, owner domain.TenantID) (upcasters []domain.Upcaster, revision int64, err error) {
	err = pg.InTurn(ctx, s.registry.db.Foreground, owner, func(tx pgx.Tx) error {
		upcasters, revision, err = readUpcasters(ctx, tx, owner)
		return err
	})
	return upcasters, revision, err
}

// Upcasters returns an owner's upcasters, ordered by type and version, with their common revision.
func (s *Registry) Upcasters(ctx context.Context, owner domain.TenantID) (upcasters []domain.Upcaster, revision int64, err error) {
	err = pg.Under(ctx, s.db.App, owner, func(tx pgx.Tx) error {
		upcasters, revision, err = readUpcasters(ctx, tx, owner)
		return err
	})
	return upcasters, revision, err
}

func readUpcasters(ctx context.Context, tx pgx.Tx, owner domain.TenantID) (upcasters []domain.Upcaster, revision int64, err error) {
	// Read the revision first: everything read after it is at least as new.
	if err := tx.QueryRow(ctx, "select coalesce((select r.revision from upcaster_sets r where r.tenant_id = $1), 0)", owner).Scan(&revision); err != nil {
		return nil, 0, fmt.Errorf("read the revision of the upcasters: %w", err)
	}
	rows, _ := tx.Query(ctx, "select "+upcasterColumns+" from upcasters u where u.tenant_id = $1 order by u.event_type, u.version", owner)
	if upcasters, err = pgx.CollectRows(rows, scanUpcaster(owner)); err != nil {
		return nil, 0, fmt.Errorf("list the upcasters: %w", err)
	}
	return upcasters, revision, nil
}

// Upcaster returns an owner's upcaster for a type and version, or domain.CodeNotFound if there is none.
func (s *Registry) Upcaster(ctx context.Context, owner domain.TenantID, eventType string, version int64) (upcaster domain.Upcaster, err error) {
	err = pg.Under(ctx, s.db.App, owner, func(tx pgx.Tx) error {
		upcaster, err = readUpcaster(ctx, tx, owner, eventType, version)
		return err
	})
	return upcaster, err
}

// InTransaction is what another owner of tables does in a transaction of this one, under the same tenant.
type InTransaction func(tx pgx.Tx) error

// PutUpcaster stores an upcaster and replaces its owner's previous one for the same type and version. It returns the
// stored upcaster and the previous one, or nil if there was none. If the expression is the same, nothing changes. All
// of also happens in the same transaction, in either case, and again if that is repeated after a deadlock.
func (s *Registry) PutUpcaster(ctx context.Context, upcaster domain.Upcaster, also ...InTransaction) (kept domain.Upcaster, before *domain.Upcaster, err error) {
	err = s.changeUpcasters(ctx, upcaster.Owner, func(tx pgx.Tx, next int64) (changed bool, err error) {
		before = nil // an earlier attempt may have seen one
		for _, do := range also {
			if err := do(tx); err != nil {
				return false, err
			}
		}
		there, err := readUpcaster(ctx, tx, upcaster.Owner, upcaster.Type, upcaster.Version)
		switch {
		case err == nil:
			before = &there
			if there.Expression == upcaster.Expression {
				kept = there
				return false, nil
			}
		case !domain.IsCode(err, domain.CodeNotFound):
			return false, err
		}
		if err := checkUpcasterRoom(ctx, tx, upcaster); err != nil {
			return false, err
		}
		kept, changed, err = pg.SelectOne(ctx, tx, "keep an upcaster", scanUpcaster(upcaster.Owner), `
			insert into upcasters as u (tenant_id, event_type, version, expression, revision, by) values ($1, $2, $3, $4, $5, $6)
			on conflict (tenant_id, event_type, version) do update
			set expression = excluded.expression, revision = excluded.revision, by = excluded.by, updated_at = excluded.updated_at
			returning `+upcasterColumns,
			upcaster.Owner, upcaster.Type, upcaster.Version, upcaster.Expression, next, upcaster.By)
		return changed, err
	})
	return kept, before, err
}

// DeleteUpcaster removes an owner's upcaster, or returns domain.CodeNotFound if there is none.
func (s *Registry) DeleteUpcaster(ctx context.Context, owner domain.TenantID, eventType string, version int64) error {
	return s.changeUpcasters(ctx, owner, func(tx pgx.Tx, _ int64) (changed bool, err error) {
		deleted, err := pg.Exec(ctx, tx, "delete an upcaster",
			"delete from upcasters u where u.tenant_id = $1 and u.event_type = $2 and u.version = $3", owner, eventType, version)
		if err == nil && deleted == 0 {
			err = noUpcaster(eventType, version)
		}
		return err == nil, err
	})
}

// changeUpcasters runs do in a transaction under the owner, during which nobody else changes the owner's upcasters. If
// do reports a change, next becomes their revision. Afterwards, appends fold into inline builds with the upcasters then
// in force. That happens even if nothing has changed, because an earlier call may have died halfway.
func (s *Registry) changeUpcasters(ctx context.Context, owner domain.TenantID, do func(tx pgx.Tx, next int64) (changed bool, err error)) error {
	err := s.changeProjection(ctx, domain.ProjectionID{Owner: owner}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into upcaster_sets (tenant_id, revision) values ($1, 0) on conflict (tenant_id) do nothing", owner); err != nil {
			return fmt.Errorf("make the row of the upcasters' revision: %w", err)
		}
		var revision int64
		if err := tx.QueryRow(ctx, "select r.revision from upcaster_sets r where r.tenant_id = $1 for update", owner).Scan(&revision); err != nil {
			return fmt.Errorf("lock the upcasters: %w", err)
		}
		changed, err := do(tx, revision+1)
		if err != nil || !changed {
			return err
		}
		_, err = pg.Exec(ctx, tx, "raise the upcasters' revision", "update upcaster_sets set revision = $2 where tenant_id = $1", owner, revision+1)
		return err
	})
	if err != nil {
		return err
	}
	return s.reopenInline(ctx, owner)
}

// reopenInline makes the writers of a tenant, or of every tenant, reopen the inline builds that appends fold into.
func (s *Registry) reopenInline(ctx context.Context, owner domain.TenantID) error {
	tenants, err := pg.Select(ctx, s.db.System, "list the tenants with inline builds", pgx.RowTo[domain.TenantID],
		"select distinct b.tenant_id from tenant_builds b where b.base is null and (b.tenant_id = $1 or $2)", owner, owner == domain.Everyone)
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		_, err := pg.ExecUnder(ctx, s.db.App, tenant, "reopen the inline builds of a tenant",
			"update logs l set inline_revision = l.inline_revision + 1 where l.tenant_id = $1", tenant)
		if err != nil {
			return err
		}
	}
	return nil
}

// checkUpcasterRoom returns an error if the upcaster, together with its owner's others, exceeds a limit.
func checkUpcasterRoom(ctx context.Context, tx pgx.Tx, upcaster domain.Upcaster) error {
	var all, ofType, bytes int
	err := tx.QueryRow(ctx, `
		select count(*), count(*) filter (where u.event_type = $2), coalesce(sum(octet_length(u.expression)), 0)
		from upcasters u where u.tenant_id = $1 and (u.event_type, u.version) <> ($2, $3)`,
		upcaster.Owner, upcaster.Type, upcaster.Version).Scan(&all, &ofType, &bytes)
	switch {
	case err != nil:
		return fmt.Errorf("count the upcasters: %w", err)
	case all >= maxUpcasters:
		return domain.Errorf(domain.CodeInvalidRequest, "", "there are %d upcasters, the most allowed; remove some", all)
	case ofType >= MaxUpcastersPerType:
		return domain.Errorf(domain.CodeInvalidRequest, "", "%s has %d upcasters, the most an event type may have; combine several steps", upcaster.Type, ofType)
	case bytes+len(upcaster.Expression) > maxUpcasterBytes:
		return domain.Errorf(domain.CodeInvalidRequest, "expression", "with this one the upcasters would have %d bytes; at most %d are allowed in total", bytes+len(upcaster.Expression), maxUpcasterBytes)
	}
	return nil
}

func readUpcaster(ctx context.Context, tx pgx.Tx, owner domain.TenantID, eventType string, version int64) (domain.Upcaster, error) {
	upcaster, ok, err := pg.SelectOne(ctx, tx, "read an upcaster", scanUpcaster(owner),
		"select "+upcasterColumns+" from upcasters u where u.tenant_id = $1 and u.event_type = $2 and u.version = $3", owner, eventType, version)
	if err == nil && !ok {
		err = noUpcaster(eventType, version)
	}
	return upcaster, err
}

func scanUpcaster(owner domain.TenantID) pgx.RowToFunc[domain.Upcaster] {
	return func(row pgx.CollectableRow) (domain.Upcaster, error) {
		upcaster := domain.Upcaster{Owner: owner}
		err := row.Scan(&upcaster.Type, &upcaster.Version, &upcaster.Expression, &upcaster.Revision, &upcaster.By, (*pg.Moment)(&upcaster.UpdatedAt))
		return upcaster, err
	}
}

func noUpcaster(eventType string, version int64) error {
	return domain.Errorf(domain.CodeNotFound, "", "there is no upcaster for version %d of %s", version, eventType)
}
