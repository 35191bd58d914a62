package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// A tenant's appends fold into its inline builds: its rows of tenant_builds without a base. logs.inline_revision grows
// with each change of them, in the transaction of the change, which holds the log's row. A writer goes by the rows that
// it has read under that revision, and moves the head only where it is the same still. So whoever has changed the rows
// can go by it that every event behind that was folded into the builds that they name.
// docs/decisions/0025-inline-in-the-appends-transaction.md has the whole argument, and 0056 why no broken connection ends one.

// Inline is what folds events into inline builds. It is used by the writers of many tenants at once.
type Inline interface {
	// Open makes ready to fold into a tenant's builds, each with its Definition, whose log is at head and does not move
	// meanwhile. gone are those that this process cannot fold into, whatever their checkpoint is; where there is one, folds
	// is of no use. Else checkpoints are the statements that read the builds' checkpoints, in their order: one row with one
	// bigint, or no row for 0; SQLSTATE 42P01 where a build has no table. folds is right if all of them are at head. Open asks
	// no database about the builds: what another connection says need not be so while this one holds the log.
	Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (folds InlineFolds, checkpoints []domain.Statement, gone []domain.TenantBuild, err error)

	// Mend folds what is in the log up to head into builds that are behind. It returns those for which that cannot be done,
	// or not soon; a connection that fails is an error, and says nothing about a build.
	Mend(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (unfit []domain.TenantBuild, err error)
}

// InlineFolds fold what is appended to one tenant's log into its inline builds, batch by batch. They are for one
// goroutine at a time, and keep nothing that must be closed.
type InlineFolds interface {
	// Begin begins a batch behind head, anew where it was begun already.
	Begin(head int64)

	// Fold folds the events of one request, which stand behind one another and behind everything folded since Begin. Where
	// again is true it has folded nothing: Load is to be called, and then everything folded once more since Begin. An error
	// refuses the request, and nothing of it was folded. Where ctx ends nothing is known.
	Fold(ctx context.Context, events []domain.Event) (again bool, err error)

	// Load loads the documents that Fold has missed, as they are at the head. Where current is false a build is not there
	// any more.
	Load(ctx context.Context) (current bool, err error)

	// Save returns what saves the batch, up to position to, in the transaction that appends it.
	Save(to int64) ([]domain.Statement, error)

	// Committed says that it was saved: the next batch begins at to.
	Committed()

	// Forget says that others have appended: documents are to be loaded anew.
	Forget()
}

// SQLSTATEs by which the transaction of an append with inline builds fails where it cannot be right: see the migrations.
const (
	lostAttempt    = "ML001" // the head, or the builds to fold into, are not those that were known
	buildElsewhere = "ML002" // a build is not where the batch begins
	noTable        = "42P01"
)

var (
	inlineBuilds = statement{"manifold_inline_builds", `
		select b.owner, b.name, b.build, coalesce(b.definition, p.definition)::text, p.build is not null, coalesce(b.pinned_to, 0)
		from tenant_builds as b
		left join projections as p on p.tenant_id = b.owner and p.name = b.name
		where b.tenant_id = $1::uuid and b.base is null
		order by b.owner, b.name`}

	// Where nothing was ever appended, a projection's empty build is at the head: the first append folds into it. The
	// definition is noted with each build, since a rebuild moves tenant by tenant to another one.
	beginInline = statement{"manifold_begin_inline", `
		with begun as (
			insert into tenant_builds (tenant_id, owner, name, build, definition)
			select l.tenant_id, p.tenant_id, p.name, p.build, p.definition
			from logs as l
			cross join projections as p
			where l.tenant_id = $1::uuid and l.head = 0 and p.tenant_id in ($1::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
				and p.definition ->> 'mode' = 'inline' and p.held_by is null
			on conflict do nothing
			returning tenant_id)
		update logs as l set inline_revision = l.inline_revision + 1
		where l.tenant_id = $1::uuid and exists (select from begun)`}

	// EndInline in the transaction of an attempt that holds the log's row, but for pinned builds: a base above 0 is that of a
	// pinned build, which its tenant keeps, and which the runner follows.
	endInline = statement{"manifold_end_inline", `
		with ended as (
			update tenant_builds as b
			set base = $5::bigint, held_by = null, updated_at = now(),
				pinned_to = case when $5::bigint > 0 then b.pinned_to end, fault = case when $5::bigint > 0 then b.fault end
			where b.tenant_id = $1::uuid and b.owner = $2::uuid and b.name = $3::text and b.build = $4::bigint and b.base is null
			returning b.tenant_id)
		update logs as l set inline_revision = l.inline_revision + 1
		where l.tenant_id = $1::uuid and exists (select from ended)`}

	notifyProjections = statement{"manifold_notify_projections", "select pg_notify('" + projectionsChannel + "', '')"}

	// A statement about a table that is not there must not cost the lock.
	beforeCheckpoint = statement{"manifold_before_checkpoint", "savepoint checkpoint"}
	undoCheckpoint   = statement{"manifold_undo_checkpoint", "rollback to savepoint checkpoint"}
)

// errReopen ends an attempt that has found out what is to be done before the next one, without its connection.
var errReopen = errors.New("the inline builds are to be seen to first")

// mendTries is how often in a row builds are mended that were behind, until they are left to the runner.
const mendTries = 3

// openFolds reads what the tenant's appends fold into. The log's row is locked.
func (a *attempt) openFolds(ctx context.Context, revision, head int64) error {
	log, s := a.log, a.w.store
	log.revision, log.folds = revision, nil
	if revision == 0 || s.inline == nil {
		return nil
	}
	var builds, gone []domain.TenantBuild
	a.x.send(&inlineBuilds, [][]byte{tenantParam(a.w.tenant)}, func(values [][]byte) error {
		build := domain.TenantBuild{Tenant: a.w.tenant, Build: int8Value(values[2]), Definition: new(domain.Definition)}
		build.Owner, build.Name = domain.TenantID(uuidValue(values[0])), string(values[1])
		if !boolValue(values[4]) || values[3] == nil {
			gone = append(gone, build) // the projection was deleted
			return nil
		}
		if err := decodeStrictly(slices.Clone(values[3]), build.Definition); err != nil {
			s.log.Warn("an inline build's definition is of another release", "projection", build.Name, "tenant", build.Tenant.String(), "build", build.Build, "error", err)
			gone = append(gone, build) // appends come first
			return nil
		}
		build.PinnedTo = int8Value(values[5])
		builds = append(builds, build)
		return nil
	})
	if err := a.x.run(); err != nil {
		return err
	}
	var behind []domain.TenantBuild
	if len(gone) == 0 && len(builds) > 0 {
		var checkpoints []domain.Statement
		var err error
		if log.folds, checkpoints, gone, err = s.inline.Open(ctx, a.w.tenant, head, builds); err != nil {
			return err
		}
		if len(gone) == 0 {
			if gone, behind, err = a.compareCheckpoints(head, builds, checkpoints); err != nil {
				return err
			}
		}
	}
	switch {
	case len(gone) > 0 && log.begun:
		log.plain = true // none of them is there when this transaction has ended; the runner begins those that can be
		a.before = func(context.Context) error { return nil }
	case len(gone) > 0:
		if err := a.endInline(gone); err != nil {
			return err
		}
		a.before = func(context.Context) error { return nil }
	case len(behind) > 0:
		a.before = func(ctx context.Context) (err error) {
			if log.mends >= mendTries {
				log.unfit, log.mends = behind, 0
				return nil
			}
			if log.unfit, err = s.inline.Mend(ctx, a.w.tenant, head, behind); err == nil {
				log.mends++
			}
			return err
		}
	default:
		log.mends = 0
		return nil
	}
	return errReopen
}

// compareCheckpoints holds the builds' checkpoints against the head, in the transaction that holds the log's row: if its
// connection breaks, there is no answer to draw a wrong conclusion from. gone are the builds that cannot be folded into any
// more: they have no table, are beyond the head, or are behind and were found unfit to be caught up. behind are the others
// that are not at the head.
func (a *attempt) compareCheckpoints(head int64, builds []domain.TenantBuild, checkpoints []domain.Statement) (gone, behind []domain.TenantBuild, err error) {
	unfit := func(build domain.TenantBuild) bool {
		return slices.ContainsFunc(a.log.unfit, func(u domain.TenantBuild) bool { return u.ProjectionID == build.ProjectionID && u.Build == build.Build })
	}
	defer func() { a.log.unfit = nil }()
	for i, build := range builds {
		var checkpoint int64
		a.x.send(&beforeCheckpoint, nil, nil)
		a.x.send(&statement{checkpoints[i].Name, checkpoints[i].SQL}, checkpoints[i].Params, func(values [][]byte) error {
			checkpoint = int8Value(values[0])
			return nil
		})
		err := a.x.run()
		switch {
		case sqlState(err) == noTable:
			a.x.send(&undoCheckpoint, nil, nil)
			if err := a.x.run(); err != nil {
				return nil, nil, err
			}
			build.PinnedTo = 0 // there is nothing to keep
			gone = append(gone, build)
		case err != nil:
			return nil, nil, fmt.Errorf("read the checkpoint of the inline build %d of projection %q: %w", build.Build, build.Name, err)
		case checkpoint > head, checkpoint < head && unfit(build):
			gone = append(gone, build)
		case checkpoint < head:
			behind = append(behind, build)
		}
	}
	return gone, behind, nil
}

// endInline ends builds in the transaction that has found out that they cannot be folded into.
func (a *attempt) endInline(builds []domain.TenantBuild) error {
	s := a.w.store
	for i := range builds {
		build := &builds[i]
		base := cmp.Or(build.PinnedTo, ended)
		s.log.Warn("appends do not fold into an inline build any more; the projection goes on behind them until it has caught up", "projection", build.Name,
			"tenant", build.Tenant.String(), "build", build.Build)
		a.x.send(&endInline, [][]byte{tenantParam(a.w.tenant), tenantParam(build.Owner), []byte(build.Name), int8Param(build.Build), int8Param(base)}, nil)
	}
	a.x.send(&notifyProjections, nil, nil)
	a.x.commit()
	if err := a.x.run(); err != nil {
		return err
	}
	a.begun = false
	s.projectionsChanged.tell(struct{}{})
	return nil
}

// events returns a request's events as they are in the log, if they stand there behind head. Versions are those behind what
// the plan has accepted so far.
func (b *batch) eventsOf(r *request, head int64) []domain.Event {
	events := make([]domain.Event, 0, r.events)
	clear(b.ahead)
	position := head + int64(b.rows)
	for i := range r.append.Streams {
		stream := &r.append.Streams[i]
		version, again := b.ahead[stream.Stream]
		if !again {
			version = b.versions[stream.Stream]
		}
		for j := range stream.Events {
			e := &stream.Events[j]
			position++
			version++
			events = append(events, domain.Event{
				ID: r.ids[len(events)], Stream: stream.Stream, Version: version, Position: position, Type: e.Type,
				Data: e.Data, Metadata: e.Metadata, OccurredAt: e.OccurredAt,
			})
		}
		if len(r.append.Streams) > 1 {
			if b.ahead == nil {
				b.ahead = make(map[string]int64)
			}
			b.ahead[stream.Stream] = version
		}
	}
	return events
}

// refusal names the request's event that an inline projection cannot fold, by its place.
func (r *request) refusal(err error) error {
	refused, ok := errors.AsType[*domain.Error](err)
	if !ok {
		return err
	}
	for n, id := range r.ids {
		if id.String() == refused.Where {
			i, j := r.place(n)
			refused.Where, refused.Stream = place(r.append, i, j, "data"), r.append.Streams[i].Stream
			break
		}
	}
	return refused
}

// sendFolds sends what saves the documents that a batch was folded into.
func (a *attempt) sendFolds(b *batch) error {
	if a.log.folds == nil {
		return nil
	}
	statements, err := a.log.folds.Save(a.log.head + int64(b.rows))
	if err != nil {
		return err
	}
	for i := range statements {
		a.x.send(&statement{statements[i].Name, statements[i].SQL}, statements[i].Params, nil)
	}
	return nil
}

// InlineBuilds returns every tenant's inline build of a projection, with its Definition.
func (s *Store) InlineBuilds(ctx context.Context, id domain.ProjectionID) ([]domain.TenantBuild, error) {
	rows, _ := s.system.Query(ctx, `
		select b.tenant_id, b.owner, b.name, b.build, coalesce(b.base, 0), b.definition, coalesce(b.pinned_to, 0) from tenant_builds b
		where b.owner = $1 and b.name = $2 and b.base is null and ($3 or b.tenant_id = $1) order by b.tenant_id`, id.Owner, id.Name, id.Shared())
	builds, err := pgx.CollectRows(rows, scanInline)
	if err != nil {
		return nil, unavailable(fmt.Errorf("list a projection's inline builds: %w", err))
	}
	return builds, nil
}

// StrayInlineBuilds returns the inline builds that are not what their projection has any more: it is gone, is not inline now
// or has another definition, or the build was retired. Those that a rebuild under way has made are where they belong. What
// such a rebuild was moving away from inline, and has left behind, is among them, with its Base; what is pinned is not.
func (s *Store) StrayInlineBuilds(ctx context.Context) ([]domain.TenantBuild, error) {
	rows, _ := s.system.Query(ctx, `
		select b.tenant_id, b.owner, b.name, b.build, coalesce(b.base, 0), b.definition, coalesce(b.pinned_to, 0)
		from tenant_builds b left join projections p on p.tenant_id = b.owner and p.name = b.name
		where (b.base is null
			and (p.definition ->> 'mode' is distinct from 'inline' or b.definition is distinct from p.definition
				or exists (select from retired_builds r where r.tenant_id = b.owner and r.name = b.name and r.build = b.build and r.drop_at < 'infinity'))
			or b.base = p.build and b.definition <> p.definition)
			and (b.pinned_to is null or b.pinned_to is distinct from p.build)
			and not exists (select from rebuilds r where r.tenant_id = b.owner and r.name = b.name and r.build = b.build and `+running+`)
		order by b.tenant_id, b.owner, b.name`)
	builds, err := pgx.CollectRows(rows, scanInline)
	if err != nil {
		return nil, unavailable(fmt.Errorf("list the stray inline builds: %w", err))
	}
	return builds, nil
}

func scanInline(row pgx.CollectableRow) (domain.TenantBuild, error) {
	var b domain.TenantBuild
	var definition []byte
	err := row.Scan(&b.Tenant, &b.Owner, &b.Name, &b.Build, &b.Base, &definition, &b.PinnedTo)
	if err == nil && definition != nil {
		b.Definition = new(domain.Definition)
		err = decodeStrictly(definition, b.Definition)
	}
	return b, err
}

// BeginInline has the tenant's appends fold into the build that is live for it, as LiveProjection has returned it, from now
// on, if ready says that this is at the log's head; nobody appends meanwhile, so ready must not take long. begun is false
// where it is not ready, where another build is live or a rebuild holds it still, where the projection is not inline, and
// where there is no log: its first append does that.
func (s *Store) BeginInline(ctx context.Context, tenant domain.TenantID, live domain.Projection, ready func(ctx context.Context, head int64) (bool, error)) (begun bool, err error) {
	err = s.changeInline(ctx, tenant, func(tx pgx.Tx, head int64, there bool) (bool, error) {
		if !there {
			return false, nil
		}
		if ok, err := ready(ctx, head); err != nil || !ok {
			return false, err
		}
		made, err := tx.Exec(ctx, `
			insert into tenant_builds as t (tenant_id, owner, name, build, definition, pinned_to, fault, fault_position)
			select l.tenant_id, p.tenant_id, p.name, coalesce(b.build, p.build), coalesce(b.definition, p.definition),
				b.pinned_to, b.fault, b.fault_position
			from logs l cross join projections p left join tenant_builds b on `+inForce("$1")+`
			where l.tenant_id = $1 and p.tenant_id = $2 and p.name = $3 and coalesce(b.build, p.build) = $4
				and coalesce(b.definition, p.definition) ->> 'mode' = 'inline' and p.held_by is null and b.held_by is null
			on conflict (tenant_id, owner, name) do update
			  set build = excluded.build, base = null, definition = excluded.definition, held_by = null, pinned_to = excluded.pinned_to,
			    fault = excluded.fault, fault_position = excluded.fault_position, updated_at = now()
			  where t.base is not null`, tenant, live.Owner, live.Name, live.Build)
		if err != nil {
			return false, fmt.Errorf("begin an inline build: %w", err)
		}
		begun = made.RowsAffected() > 0
		return begun, nil
	})
	return begun && err == nil, err
}

// MoveInline has the tenant's appends fold into another build than from, if ready says that this is at the log's head, as
// for BeginInline. Where to has a Base, it is not inline: it is followed behind the appends, and in force while Base is the
// projection's live build; below 0 never, so that the projection's own is live for the tenant. moved is false where it is
// not ready; where from, with its Base, is not the tenant's any more it is domain.CodeConflict.
func (s *Store) MoveInline(ctx context.Context, from, to domain.TenantBuild, ready func(ctx context.Context, head int64) (bool, error)) (moved bool, err error) {
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
		done, err := tx.Exec(ctx, `
			update tenant_builds b set build = $5, base = nullif($6::bigint, 0), definition = $7, held_by = null, pinned_to = $9,
			  fault = case when $9::bigint is not null then b.fault end, updated_at = now()
			where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.build = $4
				and b.base is not distinct from nullif($8::bigint, 0)`,
			from.Tenant, from.Owner, from.Name, from.Build, to.Build, to.Base, definition, from.Base, pinned)
		switch {
		case err != nil:
			return false, fmt.Errorf("move a tenant to another build: %w", err)
		case done.RowsAffected() == 0:
			return false, domain.Errorf(domain.CodeConflict, "", "build %d of projection %q is not tenant %s's any more", from.Build, from.Name, from.Tenant)
		}
		moved = true
		return true, nil
	})
	return moved && err == nil, err
}

// ended is the base of a tenant's build that is not in force any more, whatever the projection's own is. Its row goes in a
// while: until then it tells those who look for changes.
const ended = -1

// EndInline has the tenant's appends not fold into the build any more: the projection's own is live for it then, if there
// is one, and followed behind the appends. Where the build is not the tenant's it does nothing.
func (s *Store) EndInline(ctx context.Context, build domain.TenantBuild) error {
	return s.changeInline(ctx, build.Tenant, func(tx pgx.Tx, _ int64, _ bool) (bool, error) {
		done, err := tx.Exec(ctx, `
			update tenant_builds b set base = $5, held_by = null, pinned_to = null, fault = null, updated_at = now()
			where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.build = $4 and b.base is null`,
			build.Tenant, build.Owner, build.Name, build.Build, ended)
		if err != nil {
			return false, fmt.Errorf("end an inline build: %w", err)
		}
		return done.RowsAffected() > 0, nil
	})
}

// endInlineOf does so for all tenants, behind the removal of a projection. What it leaves undone is stray.
func (s *Store) endInlineOf(ctx context.Context, id domain.ProjectionID) error {
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

// changeInline runs change while nobody appends to the tenant's log, which is at head, or (there is false) does not exist,
// and lets every writer know that there was one.
//
// A change reads the log by another connection than the one that it holds, and the tenant's writer waits with a third: so
// only a few are made at a time, else all of them could wait for a connection for ever.
func (s *Store) changeInline(ctx context.Context, tenant domain.TenantID, change func(tx pgx.Tx, head int64, there bool) (changed bool, err error)) error {
	select {
	case s.inlineChanges <- struct{}{}:
		defer func() { <-s.inlineChanges }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	changed := false
	err := under(ctx, s.app, tenant, func(tx pgx.Tx) error {
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
		return notify(ctx, tx, projectionsChannel, "")
	})
	if err == nil && changed {
		s.projectionsChanged.tell(struct{}{})
	}
	return err
}
