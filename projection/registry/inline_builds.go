package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
)

// InlineBuilds returns every tenant's inline build of a projection, with its Definition.
func (s *Registry) InlineBuilds(ctx context.Context, id domain.ProjectionID) ([]domain.TenantBuild, error) {
	return pg.Select(ctx, s.db.System, "list a projection's inline builds", scanTenantBuild, "select "+tenantBuildColumns+` from tenant_builds b
		where b.owner = $1 and b.name = $2 and b.base is null and ($3 or b.tenant_id = $1) order by b.tenant_id`, id.Owner, id.Name, id.Shared())
}

// StrayInlineBuilds returns the inline builds that no longer match their projection: it was deleted, is not inline, or
// has another definition, or the build was retired. Builds made by a running rebuild do match. The result includes
// builds, with their Base, that a rebuild away from inline has left unfinished. It leaves out pinned builds.
func (s *Registry) StrayInlineBuilds(ctx context.Context) ([]domain.TenantBuild, error) {
	return pg.Select(ctx, s.db.System, "list the stray inline builds", scanTenantBuild, "select "+tenantBuildColumns+`
		from tenant_builds b left join projections p on p.tenant_id = b.owner and p.name = b.name
		where (b.base is null
			and (p.definition ->> 'mode' is distinct from 'inline' or b.definition is distinct from p.definition
				or exists (select from retired_builds r where r.tenant_id = b.owner and r.name = b.name and r.build = b.build and r.drop_at < 'infinity'))
			or b.base = p.build and b.definition <> p.definition)
			and (b.pinned_to is null or b.pinned_to is distinct from p.build)
			and not exists (select from rebuilds r where r.tenant_id = b.owner and r.name = b.name and r.build = b.build and `+running+`)
		order by b.tenant_id, b.owner, b.name`)
}

// BeginInline makes the tenant's appends fold into the build that is live for it, as returned by LiveProjection, if
// ready reports that the build is at the log's head. Nobody can append meanwhile, so ready must be quick. begun is
// false if the build is not ready, another build is live, a rebuild holds it still, or the projection is not inline. It
// is also false if there is no log: its first append begins the build.
func (s *Registry) BeginInline(ctx context.Context, tenant domain.TenantID, live domain.Projection, ready func(ctx context.Context, head int64) (bool, error)) (begun bool, err error) {
	err = s.changeInline(ctx, tenant, func(tx pgx.Tx, head int64, there bool) (bool, error) {
		if !there {
			return false, nil
		}
		if ok, err := ready(ctx, head); err != nil || !ok {
			return false, err
		}
		made, err := pg.Exec(ctx, tx, "begin an inline build", `
			insert into tenant_builds as t (tenant_id, owner, name, build, definition, pinned_to, fault, fault_position)
			select l.tenant_id, p.tenant_id, p.name, coalesce(b.build, p.build), coalesce(b.definition, p.definition),
				b.pinned_to, b.fault, b.fault_position
			from logs l cross join projections p left join tenant_builds b on `+inForce("$1")+`
			where l.tenant_id = $1 and p.tenant_id = $2 and p.name = $3 and coalesce(b.build, p.build) = $4
				and coalesce(b.definition, p.definition) ->> 'mode' = 'inline' and p.held_by is null and b.held_by is null
			on conflict (tenant_id, owner, name) do update
			  set build = excluded.build, base = null, definition = excluded.definition, held_by = null, pinned_to = excluded.pinned_to,
			    fault = excluded.fault, fault_position = excluded.fault_position, updated_at = excluded.updated_at
			  where t.base is not null`, tenant, live.Owner, live.Name, live.Build)
		begun = made > 0
		return begun, err
	})
	return begun && err == nil, err
}

// MoveInline makes the tenant's appends fold into another build than from, if ready reports that it is at the log's
// head, as for BeginInline. If to has a Base, it is not inline: it follows after the appends, and is in force while
// Base is the projection's live build. A Base below 0 means never, so that the projection's own build is live for the
// tenant. moved is false if the build is not ready. It returns domain.CodeConflict if from, with its Base, is no longer
// the tenant's.
func (s *Registry) MoveInline(ctx context.Context, from, to domain.TenantBuild, ready func(ctx context.Context, head int64) (bool, error)) (moved bool, err error) {
	var definition []byte
	if to.Definition != nil {
		if definition, err = json.Marshal(to.Definition); err != nil {
			return false, fmt.Errorf("write a build's definition: %w", err)
		}
	}
	var pinned *int64
	if to.PinnedTo != 0 {
		pinned = &to.PinnedTo
	}
	err = s.changeInline(ctx, from.Tenant, func(tx pgx.Tx, head int64, there bool) (bool, error) {
		if there {
			if ok, err := ready(ctx, head); err != nil || !ok {
				return false, err
			}
		}
		changed, err := pg.Exec(ctx, tx, "move a tenant to another build", `
			update tenant_builds b set build = @to, base = nullif(@toBase::bigint, 0), definition = @definition, held_by = null, pinned_to = @pinned,
			  fault = case when @pinned::bigint is not null then b.fault end, updated_at = now()
			where b.tenant_id = @tenant and b.owner = @owner and b.name = @name and b.build = @from
			  and b.base is not distinct from nullif(@fromBase::bigint, 0)`,
			pgx.NamedArgs{
				"tenant": from.Tenant, "owner": from.Owner, "name": from.Name, "from": from.Build, "fromBase": from.Base,
				"to": to.Build, "toBase": to.Base, "definition": definition, "pinned": pinned,
			})
		switch {
		case err != nil:
			return false, err
		case changed == 0:
			return false, domain.Errorf(domain.CodeConflict, "", "build %d of projection %q is no longer tenant %s's", from.Build, from.Name, from.Tenant)
		}
		moved = true
		return true, nil
	})
	return moved && err == nil, err
}

// EndInline stops folding the tenant's appends into the build. The projection's own build, if there is one, is then
// live for the tenant and follows after the appends. If the build is not the tenant's, EndInline does nothing.
func (s *Registry) EndInline(ctx context.Context, build domain.TenantBuild) error {
	return s.changeInline(ctx, build.Tenant, func(tx pgx.Tx, _ int64, _ bool) (bool, error) {
		ended, err := pg.Exec(ctx, tx, "end an inline build", `
			update tenant_builds b set base = $5, held_by = null, pinned_to = null, fault = null, updated_at = now()
			where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.build = $4 and b.base is null`,
			build.Tenant, build.Owner, build.Name, build.Build, eventlog.EndedBase)
		return ended > 0, err
	})
}

// endInlineOf does the same for all tenants after a projection was removed. Builds that it misses are stray.
func (s *Registry) endInlineOf(ctx context.Context, id domain.ProjectionID) error {
	builds, err := s.InlineBuilds(ctx, id)
	if err != nil {
		return err
	}
	for _, build := range builds {
		if err := s.EndInline(ctx, build); err != nil {
			return err
		}
	}
	return nil
}

// changeInline runs change while nobody appends to the tenant's log, and then informs every writer of the change. The
// log is at head; there is false if it does not exist.
//
// A change reads the log over another connection than the one it holds, and the tenant's writer waits with a third. So
// only a few changes run at a time; otherwise all of them could wait for a connection endlessly.
func (s *Registry) changeInline(ctx context.Context, tenant domain.TenantID, change func(tx pgx.Tx, head int64, there bool) (changed bool, err error)) error {
	select {
	case s.inlineChanges <- struct{}{}:
		defer func() { <-s.inlineChanges }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	changed := false
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		var head int64
		err := tx.QueryRow(ctx, "select l.head from logs l where l.tenant_id = $1 for update", tenant).Scan(&head)
		there := err == nil
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("lock a log: %w", err)
		}
		if changed, err = change(tx, head, there); err != nil || !changed {
			return err
		}
		if _, err := tx.Exec(ctx, "update logs l set inline_revision = l.inline_revision + 1 where l.tenant_id = $1", tenant); err != nil {
			return fmt.Errorf("note a change of inline builds: %w", err)
		}
		return pg.Notify(ctx, tx, pg.ProjectionsChannel, "")
	})
	if err == nil && changed {
		s.db.ProjectionsChanged.Notify(struct{}{})
	}
	return err
}
