package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

const (
	// calmAfter is how many attempts under the lock must pass without interference before the lock is skipped again.
	calmAfter = 16
	// maxForeignEvents is how many foreign events a writer reads at most to update the versions it remembers.
	maxForeignEvents = 4000
	// maxUnexplained is how often a violated constraint without a duplicate is attributed to wrong remembered versions.
	maxUnexplained = 3
)

// The statements of an append. Each names the tenant, although row-level security adds it as well, so that the database
// can be sharded by tenant. For the same reason the events take their tenant_id from the log's row.
var (
	moveHead = pg.Statement{Name: "manifold_move_head", SQL: `
		update logs as l
		set head = $2::bigint + $3::bigint, last_batch = $4::uuid, last_at = greatest(l.last_at, now())
		where l.tenant_id = $1::uuid and l.head = $2::bigint and l.last_batch is not distinct from $5::uuid
			and l.inline_revision = $6::bigint
		returning l.last_at`}

	// Like moveHead, if streams whose versions were not read have the versions that the batch assumes.
	moveHeadIf = pg.Statement{Name: "manifold_move_head_if", SQL: `
		update logs as l
		set head = $2::bigint + $3::bigint, last_batch = $4::uuid, last_at = greatest(l.last_at, now())
		where l.tenant_id = $1::uuid and l.head = $2::bigint and l.last_batch is not distinct from $5::uuid
			and l.inline_revision = $6::bigint
			and not exists (
				select from unnest($7::text[], $8::bigint[]) as s(stream_id, version)
				where s.version <> greatest(
					(select e.stream_version from events as e where e.tenant_id = $1::uuid and e.stream_id = s.stream_id
						order by e.stream_version desc limit 1),
					(select f.version from stream_floors as f where f.tenant_id = $1::uuid and f.stream_id = s.stream_id), 0))
		returning l.last_at`}

	// Like the two above, for batches that save documents afterwards. Those must not be saved if the head does not
	// move.
	moveHeadInline   = orFail("manifold_move_head_inline", moveHead)
	moveHeadIfInline = orFail("manifold_move_head_if_inline", moveHeadIf)

	// If the head was not moved, there is no such batch, and nothing is inserted.
	insertEvents = pg.Statement{Name: "manifold_insert_events", SQL: `
		insert into events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, metadata, occurred_at, created_at)
		select l.tenant_id, $3::bigint + e.n, e.event_id, e.stream_id, e.stream_version, e.event_type, e.event_data, e.metadata, e.occurred_at, l.last_at
		from logs as l
		cross join unnest($4::uuid[], $5::text[], $6::bigint[], $7::text[], $8::jsonb[], $9::jsonb[], $10::timestamptz[])
			with ordinality as e(event_id, stream_id, stream_version, event_type, event_data, metadata, occurred_at, n)
		where l.tenant_id = $1::uuid and l.last_batch = $2::uuid`}

	// Like insertEvents, for a batch of one event, as is usual in a log with little traffic. It is a tenth cheaper.
	insertEvent = pg.Statement{Name: "manifold_insert_event", SQL: `
		insert into events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, metadata, occurred_at, created_at)
		select l.tenant_id, $3::bigint + 1, $4::uuid, $5::text, $6::bigint, $7::text, $8::jsonb, $9::jsonb, $10::timestamptz, l.last_at
		from logs as l
		where l.tenant_id = $1::uuid and l.last_batch = $2::uuid`}

	makeLog  = pg.Statement{Name: "manifold_make_log", SQL: `insert into logs (tenant_id) values ($1::uuid) on conflict do nothing`}
	lockLog  = pg.Statement{Name: "manifold_lock_log", SQL: `select l.head, l.last_batch, l.inline_revision from logs as l where l.tenant_id = $1::uuid for update`}
	checkLog = pg.Statement{Name: "manifold_check_log", SQL: `select l.head, l.last_batch, l.inline_revision from logs as l where l.tenant_id = $1::uuid`}

	// The lock of the log's row makes the transaction's commit wait for the synchronous standbys, if there are any.
	awaitStandbys = pg.Statement{Name: "manifold_await_standbys", SQL: `
		select l.head from logs as l where l.tenant_id = $1::uuid and current_setting('synchronous_standby_names') <> '' for update`}

	tenantState = pg.Statement{Name: "manifold_tenant_state", SQL: `select t.state from tenants as t where t.tenant_id = $1::uuid`}

	versionsAbove = pg.Statement{Name: "manifold_versions_above", SQL: `
		select e.stream_id, e.stream_version from events as e
		where e.tenant_id = $1::uuid and e.position > $2::bigint order by e.position limit $3::bigint`}

	// A stream's version is that of its newest event, or the version that retention noted when it removed that event.
	streamVersions = pg.Statement{Name: "manifold_stream_versions", SQL: `
		select s.n, greatest(
			(select e.stream_version from events as e where e.tenant_id = $1::uuid and e.stream_id = s.stream_id
				order by e.stream_version desc limit 1),
			(select f.version from stream_floors as f where f.tenant_id = $1::uuid and f.stream_id = s.stream_id), 0)
		from unnest($2::text[]) with ordinality as s(stream_id, n)`}

	// The limit keeps the planner from joining with all events, which looks cheap to it while there are few.
	lookUpIDs = pg.Statement{Name: "manifold_look_up_ids", SQL: `
		select i.n, e.position, e.stream_version, e.stream_id = i.stream_id and e.event_type = i.event_type
			and (e.gap is not null or e.event_data = i.event_data)
		from unnest($2::uuid[], $3::text[], $4::text[], $5::jsonb[]) with ordinality as i(event_id, stream_id, event_type, event_data, n)
		cross join lateral (
			select e.position, e.stream_version, e.stream_id, e.event_type, e.event_data, e.gap
			from events as e where e.tenant_id = $1::uuid and e.event_id = i.event_id limit 1
		) as e`}
)

// orFail makes the transaction fail if the statement does not move the head.
func orFail(name string, move pg.Statement) pg.Statement {
	return pg.Statement{Name: name, SQL: "with moved as (" + move.SQL + ") select coalesce((select m.last_at from moved as m), manifold.lost_attempt())"}
}

// attempt is one try to write a writer's batch, on one connection and in one transaction. If everything that the plan
// needs is known, it takes one round trip.
//
// While other requests wait, the next batch is sent before the commit of this one is answered. PostgreSQL then
// continues without a pause, and syncs one batch while the service prepares the other. This is safe because a batch
// changes nothing unless the batch before it has moved the head.
type attempt struct {
	w     *writer
	log   *logState
	batch *batch
	next  *batch // empty; for requests sent after the batch

	x         *pg.Pipeline
	since     time.Time // when the connection was acquired
	begun     bool      // the transaction is open
	locked    bool      // and holds the log's row: nobody else can append until it ends
	uncertain bool      // the connection was lost after the commit was sent, so the outcome is unknown

	before func(ctx context.Context) error // to run before the next attempt, without this one's connection; nil: nothing
}

// run fills the batch, plans, writes, and answers. It returns nil if it made progress or should be retried at once. In
// that case, requests without an answer are still in the batch.
func (a *attempt) run(ctx context.Context) (err error) {
	s, b := a.w.store, a.batch
	a.x, err = s.db.App.Pipeline(ctx, a.w.tenant)
	if err != nil {
		return err
	}
	a.since = time.Now()
	defer a.x.Close()
	if !a.log.known || a.log.contended {
		if err := a.lock(ctx); err != nil {
			if errors.Is(err, errReopen) {
				return nil
			}
			return err
		}
	}
	if !b.single {
		a.w.moveQueued(b)
	}
	for {
		streams, lookUps := b.plan(ctx, a.log)
		if ctx.Err() != nil {
			return pg.Unavailable(fmt.Errorf("plan an append: %w", context.Cause(ctx)))
		}
		reads := len(streams) > 0 || len(lookUps) > 0 || len(b.unread) > 0
		if !reads && !b.mustLoad {
			break
		}
		if reads {
			if err := a.readMissing(streams, lookUps); err != nil {
				return err
			}
		}
		if b.mustLoad {
			current, err := a.log.folds.Load(ctx)
			if err != nil {
				return err
			}
			if !current {
				a.log.forgetAll()
				return nil
			}
		}
	}
	if b.rows > 0 {
		return a.write(ctx)
	}
	// Another connection loads documents. So check that this one still holds the log's row, too.
	if b.confirm && (!a.locked || a.log.folds != nil) {
		same, err := a.unmoved()
		if err != nil {
			return err
		}
		if !same {
			a.noteLostHead()
			return nil
		}
		a.begun = false
	}
	if b.found {
		if err := a.awaitCommits(); err != nil {
			for _, s := range b.settled {
				s.request.there = s.request.there || s.err == nil
			}
			return err
		}
	}
	a.remember(b)
	a.answer(b, a.log.head)
	return nil
}

func (a *attempt) begin() {
	if !a.begun {
		a.x.Begin(a.w.tenant)
		a.begun = true
	}
}

// lock locks the log's row. That waits for every transaction that is appending, including one whose connection was
// lost. Then lock updates what is known of the log.
func (a *attempt) lock(ctx context.Context) error {
	tenant := pg.TenantParam(a.w.tenant)
	var (
		there    bool
		head     int64
		last     batchID
		revision int64
		above    []streamVersion
		state    string
	)
	row := func(values [][]byte) error {
		there, head, last, revision = true, pg.Int8Value(values[0]), batchID{pg.UUIDValue(values[1]), values[1] != nil}, pg.Int8Value(values[2])
		return nil
	}
	a.begin()
	a.x.Send(&lockLog, [][]byte{tenant}, row)
	foreign := a.log.known && !a.log.versions.empty()
	if foreign {
		// This is a separate statement, so that its snapshot is taken after the lock.
		a.x.Send(&versionsAbove, [][]byte{tenant, pg.Int8Param(a.log.head), pg.Int8Param(maxForeignEvents + 1)}, func(values [][]byte) error {
			above = append(above, streamVersion{string(values[0]), pg.Int8Value(values[1])})
			return nil
		})
	}
	if !a.log.known {
		a.x.Send(&tenantState, [][]byte{tenant}, func(values [][]byte) error {
			state = string(values[0])
			return nil
		})
	}
	if err := a.x.Run(); err != nil {
		return err
	}
	existed := there
	if !there {
		// This is the tenant's first append, possibly from several processes at once. A tenant that is being erased
		// gets no new log.
		if !a.log.known && (state == string(domain.TenantDeleting) || state == string(domain.TenantDeleted)) {
			return domain.Errorf(domain.CodeTenantSuspended, "", "the tenant is being deleted")
		}
		if a.log.known {
			a.log.forgetAll() // the log was erased
			return a.lock(ctx)
		}
		a.x.Send(&makeLog, [][]byte{tenant}, nil)
		a.x.Send(&lockLog, [][]byte{tenant}, row)
		if a.w.store.inline != nil && !a.log.plain && !a.w.tenant.IsAuditLog() {
			a.x.Send(&beginInline, [][]byte{tenant}, nil)
			a.x.Send(&lockLog, [][]byte{tenant}, row)
		}
		if err := a.x.Run(); err != nil {
			return err
		}
		if !there {
			return errors.New("the log's row cannot be made")
		}
	}
	a.locked = true
	a.log.begun = !existed && revision > 0
	known := a.log.known
	a.catchUp(head, last, above)
	if !known || revision != a.log.revision {
		if err := a.openFolds(ctx, revision, head); err != nil {
			a.log.forgetAll() // nothing must be appended without folding
			return err
		}
	}
	return nil
}

type streamVersion struct {
	stream  string
	version int64
}

// catchUp adopts the head of a locked log. It updates the remembered versions with the events that others have appended
// since.
func (a *attempt) catchUp(head int64, last batchID, above []streamVersion) {
	log := a.log
	if log.folds != nil && (head != log.head || last != log.last) {
		log.folds.Forget()
	}
	if !log.known || head != log.head || last != log.last {
		log.tags.forget(head)
	}
	switch {
	case !log.known:
		log.versions.forget()
	case head == log.head && last == log.last:
		if log.calm++; log.calm >= calmAfter {
			log.contended = false
		}
	case head <= log.head || int64(len(above)) != head-log.head:
		// There are too many events to read, or retention has removed some, so the remembered versions cannot be
		// updated.
		log.calm = 0
		log.versions.forget()
	default:
		log.calm = 0
		for _, v := range above {
			log.versions.update(v.stream, v.version)
		}
	}
	log.known, log.head, log.last = true, head, last
}

// noteLostHead notes that another writer has moved the head. Retrying in the same way would starve one of the two, so
// the next attempt locks the log first.
func (a *attempt) noteLostHead() {
	a.log.contended, a.log.calm = true, 0
}

// readMissing reads what the plan needs, in one round trip. Without the lock, the result is only valid if the
// compare-and-set succeeds.
func (a *attempt) readMissing(streams []string, lookUps []*request) error {
	a.begin()
	tenant := pg.TenantParam(a.w.tenant)
	if len(streams) > 0 {
		a.sendVersions(streams, nil)
	}
	if len(a.batch.unread) > 0 {
		a.sendConditions()
	}
	if len(lookUps) > 0 {
		buffers := buffersPool.Get().(*buffers)
		defer buffersPool.Put(buffers)
		params := buffers.lookUp(tenant, lookUps)
		results := make([]found, buffers.events)
		at := results
		for _, r := range lookUps {
			r.found, at = at[:r.events:r.events], at[r.events:]
		}
		there := false
		a.x.Send(&lookUpIDs, params, func(values [][]byte) error {
			results[pg.Int8Value(values[0])-1] = found{pg.Int8Value(values[1]), pg.Int8Value(values[2]), pg.BoolValue(values[3])}
			there = true
			return nil
		})
		defer func() { a.log.lookFirst = there }()
	}
	return a.x.Run()
}

// sendVersions sends the statement that reads the streams' versions into the batch.
func (a *attempt) sendVersions(streams []string, done func(pgconn.CommandTag)) {
	a.x.SendTagged(&streamVersions, [][]byte{pg.TenantParam(a.w.tenant), pg.TextsParam(streams)}, func(values [][]byte) error {
		a.batch.read[streams[pg.Int8Value(values[0])-1]] = pg.Int8Value(values[1])
		return nil
	}, done)
}

// AwaitCommits returns once the synchronous standbys have everything that the tenant's log shows. Call it before
// acknowledging events that a read has found.
//
// Standbys may not have such events: if a connection breaks while its commit waits for them, PostgreSQL stops waiting,
// and shows what was committed. A commit waits for everything before it, but only if it has written something. See
// decision 0091.
func (s *Log) AwaitCommits(ctx context.Context, tenant domain.TenantID) error {
	ctx, cancel := context.WithTimeout(ctx, s.appendTimeout)
	defer cancel()
	return s.db.ReadInTurn(ctx, tenant, nil, pg.Query{Statement: &awaitStandbys, Params: [][]byte{pg.TenantParam(tenant)}, Row: func([][]byte) error { return nil }})
}

// awaitCommits is AwaitCommits on the attempt's connection.
func (a *attempt) awaitCommits() error {
	a.begin()
	a.x.Send(&awaitStandbys, [][]byte{pg.TenantParam(a.w.tenant)}, func([][]byte) error { return nil })
	a.x.Commit()
	a.begun, a.locked = false, false
	return a.x.Run()
}

// unmoved reports whether the head is where the writer believes it to be.
func (a *attempt) unmoved() (same bool, err error) {
	a.begin()
	a.x.Send(&checkLog, [][]byte{pg.TenantParam(a.w.tenant)}, func(values [][]byte) error {
		same = pg.Int8Value(values[0]) == a.log.head && batchID{pg.UUIDValue(values[1]), values[1] != nil} == a.log.last &&
			pg.Int8Value(values[2]) == a.log.revision
		return nil
	})
	a.x.Commit()
	return same, a.x.Run()
}
