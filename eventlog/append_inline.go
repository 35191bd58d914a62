package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// A tenant's appends fold into its inline builds, which are its rows of tenant_builds without a base. Each change of
// these rows increments logs.inline_revision, in the same transaction, which holds the log's row. A writer uses the
// rows that it has read under one revision, and moves the head only if the revision is still the same. So after a
// change of the rows, every later event is folded into the builds that they name.
// docs/decisions/0025-inline-in-the-appends-transaction.md has the whole argument, and 0056 explains why a broken
// connection never ends an inline build.

// Inline folds events into inline builds. The writers of many tenants call it concurrently.
type Inline interface {
	// Open prepares to fold into a tenant's builds, each with its Definition. The log is at head and does not move
	// meanwhile. gone lists the builds that this process cannot fold into, whatever their checkpoint; if there are any,
	// folds must not be used. Otherwise, checkpoints are the statements that read the builds' checkpoints, in order.
	// Each returns one row with one bigint, or no row for 0, or fails with SQLSTATE 42P01 if a build has no table.
	// folds is valid if all checkpoints are at head. Open asks no database about the builds: another connection's
	// answer may not hold while this one holds the log.
	Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (folds InlineFolds, checkpoints []domain.Statement, gone []domain.TenantBuild, err error)

	// CatchUp folds the log up to head into builds that lag behind. It returns the builds for which this is not
	// possible, or not soon. A failed connection is an error, and says nothing about a build.
	CatchUp(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (unfit []domain.TenantBuild, err error)
}

// InlineFolds folds the events appended to one tenant's log into its inline builds, batch by batch. It is not safe for
// concurrent use, and holds nothing that must be closed.
type InlineFolds interface {
	// Begin begins a batch after head, or restarts a batch that was begun.
	Begin(head int64)

	// Fold folds the events of one request. They are consecutive, and follow everything folded since Begin. If mustLoad
	// is true, nothing was folded: call Load, and then fold everything since Begin once more. An error refuses the
	// request, and nothing of it was folded. If ctx ends, the outcome is unknown.
	Fold(ctx context.Context, events []domain.Event) (mustLoad bool, err error)

	// Full reports whether what was folded since Begin is enough for one batch: further requests wait for the next one.
	Full() bool

	// Load loads the documents that Fold was missing, as of the head. current is false if a build no longer exists.
	Load(ctx context.Context) (current bool, err error)

	// Save returns the statements that save the batch, up to position to, in the transaction that appends it.
	Save(to int64) ([]domain.Statement, error)

	// Committed says that the batch was saved: the next batch begins at to.
	Committed()

	// Forget says that other processes have appended: documents must be reloaded.
	Forget()
}

// SQLSTATEs with which the transaction of an append with inline builds fails if its assumptions are wrong: see the
// migrations.
const (
	lostAttempt    = "ML001" // the head, or the builds to fold into, have changed
	buildElsewhere = "ML002" // a build is not at the batch's beginning
	noTable        = "42P01"
)

var (
	inlineBuilds = pg.Statement{Name: "manifold_inline_builds", SQL: `
		select b.owner, b.name, b.build, coalesce(b.definition, p.definition)::text, p.build is not null, coalesce(b.pinned_to, 0)
		from tenant_builds as b
		left join projections as p on p.tenant_id = b.owner and p.name = b.name
		where b.tenant_id = $1::uuid and b.base is null
		order by b.owner, b.name`}

	// If nothing was ever appended, a projection's empty build is at the head, and the first append folds into it. Each
	// row contains the definition, because a rebuild moves tenant by tenant to another one.
	beginInline = pg.Statement{Name: "manifold_begin_inline", SQL: `
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

	// EndInline in the transaction of an attempt that holds the log's row, except for pinned builds. A base above 0
	// marks a pinned build, which its tenant keeps and the runner follows.
	endInline = pg.Statement{Name: "manifold_end_inline", SQL: `
		with ended as (
			update tenant_builds as b
			set base = $5::bigint, held_by = null, updated_at = now(),
				pinned_to = case when $5::bigint > 0 then b.pinned_to end, fault = case when $5::bigint > 0 then b.fault end
			where b.tenant_id = $1::uuid and b.owner = $2::uuid and b.name = $3::text and b.build = $4::bigint and b.base is null
			returning b.tenant_id)
		update logs as l set inline_revision = l.inline_revision + 1
		where l.tenant_id = $1::uuid and exists (select from ended)`}

	notifyProjections = pg.Statement{Name: "manifold_notify_projections", SQL: "select pg_notify('" + pg.ProjectionsChannel + "', '')"}

	// A failed statement about a missing table must not lose the lock.
	beforeCheckpoint = pg.Statement{Name: "manifold_before_checkpoint", SQL: "savepoint checkpoint"}
	undoCheckpoint   = pg.Statement{Name: "manifold_undo_checkpoint", SQL: "rollback to savepoint checkpoint"}
)

// errReopen ends an attempt that has found work to do before the next one, without its connection.
var errReopen = errors.New("the inline builds must be reopened first")

// maxCatchUps is how many consecutive times lagging builds are caught up before they are left to the runner.
const maxCatchUps = 3

// openFolds reads which builds the tenant's appends fold into. The caller holds the lock on the log's row. Audit logs
// have none: a process of an older release may begin builds there, and an event that they cannot fold must not stop an
// action.
func (a *attempt) openFolds(ctx context.Context, revision, head int64) error {
	log, s := a.log, a.w.store
	log.revision, log.folds = revision, nil
	if revision == 0 || s.inline == nil || a.w.tenant.IsAuditLog() {
		return nil
	}
	var builds, gone []domain.TenantBuild
	a.x.Send(&inlineBuilds, [][]byte{pg.TenantParam(a.w.tenant)}, func(values [][]byte) error {
		build := domain.TenantBuild{Tenant: a.w.tenant, Build: pg.Int8Value(values[2]), Definition: new(domain.Definition)}
		build.Owner, build.Name = domain.TenantID(pg.UUIDValue(values[0])), string(values[1])
		if !pg.BoolValue(values[4]) || values[3] == nil {
			gone = append(gone, build) // the projection was deleted
			return nil
		}
		if err := pg.DecodeStrictly(slices.Clone(values[3]), build.Definition); err != nil {
			s.db.Log.Warn("an inline build's definition is of another release", "projection", build.Name, "tenant", build.Tenant.String(), "build", build.Build, "error", err)
			gone = append(gone, build) // appends have priority
			return nil
		}
		build.PinnedTo = pg.Int8Value(values[5])
		builds = append(builds, build)
		return nil
	})
	if err := a.x.Run(); err != nil {
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
		log.plain = true // none of them exists after this transaction; the runner begins those that can be begun
		a.before = func(context.Context) error { return nil }
	case len(gone) > 0:
		if err := a.endInline(gone); err != nil {
			return err
		}
		a.before = func(context.Context) error { return nil }
	case len(behind) > 0:
		a.before = func(ctx context.Context) (err error) {
			if log.catchUps >= maxCatchUps {
				log.unfit, log.catchUps = behind, 0
				return nil
			}
			if log.unfit, err = s.inline.CatchUp(ctx, a.w.tenant, head, behind); err == nil {
				log.catchUps++
			}
			return err
		}
	default:
		log.catchUps = 0
		return nil
	}
	return errReopen
}

// compareCheckpoints compares the builds' checkpoints with the head, in the transaction that holds the log's row. If
// the connection breaks, there is no answer, and so no wrong conclusion. gone are the builds that can no longer be
// folded into: they have no table, are beyond the head, or lag behind and cannot be caught up. behind are the others
// that are not at the head.
func (a *attempt) compareCheckpoints(head int64, builds []domain.TenantBuild, checkpoints []domain.Statement) (gone, behind []domain.TenantBuild, err error) {
	unfit := func(build domain.TenantBuild) bool {
		return slices.ContainsFunc(a.log.unfit, func(u domain.TenantBuild) bool { return u.ProjectionID == build.ProjectionID && u.Build == build.Build })
	}
	defer func() { a.log.unfit = nil }()
	for i, build := range builds {
		var checkpoint int64
		a.x.Send(&beforeCheckpoint, nil, nil)
		a.x.Send(&pg.Statement{Name: checkpoints[i].Name, SQL: checkpoints[i].SQL}, checkpoints[i].Params, func(values [][]byte) error {
			checkpoint = pg.Int8Value(values[0])
			return nil
		})
		err := a.x.Run()
		switch {
		case pg.SQLState(err) == noTable:
			a.x.Send(&undoCheckpoint, nil, nil)
			if err := a.x.Run(); err != nil {
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

// endInline ends builds in the transaction that has found that they cannot be folded into.
func (a *attempt) endInline(builds []domain.TenantBuild) error {
	s := a.w.store
	for i := range builds {
		build := &builds[i]
		base := cmp.Or(build.PinnedTo, EndedBase)
		s.db.Log.Warn("appends no longer fold into an inline build; the projection follows asynchronously until it has caught up", "projection", build.Name,
			"tenant", build.Tenant.String(), "build", build.Build)
		a.x.Send(&endInline, [][]byte{pg.TenantParam(a.w.tenant), pg.TenantParam(build.Owner), []byte(build.Name), pg.Int8Param(build.Build), pg.Int8Param(base)}, nil)
	}
	a.x.Send(&notifyProjections, nil, nil)
	a.x.Commit()
	if err := a.x.Run(); err != nil {
		return err
	}
	a.begun = false
	s.db.ProjectionsChanged.Notify(struct{}{})
	return nil
}

// eventsOf returns a request's events as they will be in the log if they are appended after head. Their versions follow
// those that the plan has accepted so far.
func (b *batch) eventsOf(r *request, head int64) []domain.Event {
	events := make([]domain.Event, 0, r.events)
	clear(b.ahead)
	position := head + int64(b.rows)
	for i := range r.append.Streams {
		stream := &r.append.Streams[i]
		version, known := b.ahead[stream.Stream]
		if !known {
			version = b.versions[stream.Stream]
		}
		for j := range stream.Events {
			e := &stream.Events[j]
			position++
			version++
			events = append(events, domain.Event{
				ID: r.ids[len(events)], Stream: stream.Stream, Version: version, Position: position, Type: e.Type,
				Data: e.Data, Metadata: e.Metadata, Tags: e.Tags, OccurredAt: e.OccurredAt,
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

// refusal sets the place of the request's event that an inline projection cannot fold.
func (r *request) refusal(err error) error {
	refused, ok := errors.AsType[*domain.Error](err)
	if !ok {
		return err
	}
	for n, id := range r.ids {
		if id.String() == refused.Where {
			i, j := r.place(n)
			refused.Where, refused.Stream = Place(r.append, i, j, "data"), r.append.Streams[i].Stream
			break
		}
	}
	return refused
}

// sendFolds sends the statements that save the documents which a batch was folded into.
func (a *attempt) sendFolds(b *batch) error {
	if a.log.folds == nil {
		return nil
	}
	statements, err := a.log.folds.Save(a.log.head + int64(b.rows))
	if err != nil {
		return err
	}
	for i := range statements {
		a.x.Send(&pg.Statement{Name: statements[i].Name, SQL: statements[i].SQL}, statements[i].Params, nil)
	}
	return nil
}

// EndedBase is the base of a tenant's build that is no longer in force, whatever the projection's own build is. Its row
// is removed after a while; until then it informs readers of changes.
const EndedBase = -1
