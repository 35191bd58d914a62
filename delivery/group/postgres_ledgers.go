package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

var (
	lockLedger = pg.Statement{Name: "manifold_lock_ledger", SQL: `
		select l.revision, l.last_write from subscription_ledgers as l
		where l.tenant_id = $1::uuid and l.name = $2::text and l.partition = $3::int for update`}

	readLedger = pg.Statement{Name: "manifold_ledger", SQL: `
		select ` + groupColumns + `, clock_timestamp(), l.revision, l.ledger, l.read_to
		from subscriptions as s
		join subscription_ledgers as l on l.tenant_id = s.tenant_id and l.name = s.name and l.partition = $3::int
		where s.tenant_id = $1::uuid and s.name = $2::text`}

	waitingRetries = pg.Statement{Name: "manifold_retries", SQL: `
		select r.position, r.event_id, r.stream_id, r.stream_version, r.attempt, r.base, r.replays, r.due_at, r.reason
		from subscription_retries as r
		where r.tenant_id = $1::uuid and r.name = $2::text and r.partition = $3::int order by r.position`}

	readReplays = pg.Statement{Name: "manifold_replays", SQL: `
		select ` + deadLetterColumns + ` from dead_letters as d
		where d.tenant_id = $1::uuid and d.name = $2::text and d.partition = $3::int and d.replay_at is not null
		order by d.replay_at, d.position limit $4::bigint`}
)

var readReplaysOfOtherStreams = pg.Statement{Name: "manifold_replays_beside", SQL: `
	select ` + deadLetterColumns + ` from dead_letters as d
	where d.tenant_id = $1::uuid and d.name = $2::text and d.partition = $3::int and d.replay_at is not null and d.stream_id <> all($4::text[])
	order by d.replay_at, d.position limit $5::bigint`}

// ReplaysOfOtherStreams returns the first limit dead letters of a partition with a requested replay that belong to none
// of these streams, oldest first. It is for an ordered group in which the first replays, as returned by Ledger, all
// belong to streams that must wait.
func (s *Postgres) ReplaysOfOtherStreams(ctx context.Context, tenant domain.TenantID, name string, partition int, streams []string, limit int) ([]domain.DeadLetter, error) {
	var letters []domain.DeadLetter
	params := append(ledgerParams(tenant, name, partition), pg.TextsParam(streams), pg.Int8Param(int64(limit)))
	err := s.db.Read(ctx, tenant, func() { letters = nil }, pg.Query{Statement: &readReplaysOfOtherStreams, Params: params, Row: func(values [][]byte) error {
		letters = append(letters, deadLetterValue(values))
		return nil
	}})
	return letters, err
}

// Ledger returns a partition of a group with everything that belongs to it, in one snapshot, or domain.CodeNotFound if
// there is no such group or partition. Retries are ordered by position. With wait it first waits for a save of the
// ledger in progress. That is for callers that have lost a save to another process and would lose the next one as well.
func (s *Postgres) Ledger(ctx context.Context, tenant domain.TenantID, name string, partition int, wait bool) (LedgerRow, error) {
	var row LedgerRow
	found := false
	reset := func() { row, found = LedgerRow{}, false }
	place := ledgerParams(tenant, name, partition)
	queries := []pg.Query{
		{Statement: &readLedger, Params: place, Row: func(values [][]byte) (err error) {
			found = true
			row.Group, err = groupValue(values)
			row.Now, row.Revision, row.Ledger, row.ReadTo = pg.TimeValue(values[6]), pg.Int8Value(values[7]), pg.BytesValue(values[8]), pg.Int8Value(values[9])
			return err
		}},
		{Statement: &waitingRetries, Params: place, Row: func(values [][]byte) error {
			row.Retries = append(row.Retries, Retry{
				Partition: partition, Position: pg.Int8Value(values[0]), EventID: pg.UUIDValue(values[1]), Stream: string(values[2]), Version: pg.Int8Value(values[3]),
				Attempt: int(pg.Int8Value(values[4])), Base: int(pg.Int8Value(values[5])), Replays: int(pg.Int8Value(values[6])), DueAt: pg.TimeValue(values[7]),
				Reason: string(values[8]),
			})
			return nil
		}},
		{Statement: &readReplays, Params: append(place, pg.Int8Param(domain.MaxReplays)), Row: func(values [][]byte) error {
			row.Replays = append(row.Replays, deadLetterValue(values))
			return nil
		}},
	}
	var err error
	if wait {
		// While it holds the row, nobody changes what it reads next: see SaveLedger, and the changes of dead letters.
		err = s.db.Read(ctx, tenant, reset, append([]pg.Query{{Statement: &lockLedger, Params: place, Row: nil}}, queries...)...)
	} else {
		err = s.db.ReadSnapshot(ctx, tenant, reset, queries...)
	}
	switch {
	case err != nil:
		return LedgerRow{}, err
	case !found && partition != 0:
		return LedgerRow{}, domain.Errorf(domain.CodeNotFound, "name", "there is no group %q, or it has no partition %d", name, partition)
	case !found:
		return LedgerRow{}, noGroup(name)
	}
	return row, nil
}

var readRevisions = pg.Statement{Name: "manifold_ledger_revisions", SQL: `
	select s.name, l.partition::bigint, s.revision, l.revision, clock_timestamp()
	from subscriptions as s
	join subscription_ledgers as l on l.tenant_id = s.tenant_id and l.name = s.name
	where s.tenant_id = $1::uuid and s.name = any($2::text[])`}

// LedgerRevisions returns the revisions of the ledgers of a tenant's groups with these names, and the database's clock.
func (s *Postgres) LedgerRevisions(ctx context.Context, tenant domain.TenantID, names []string) (now time.Time, revisions map[ledgerKey]ledgerRevisions, err error) {
	err = s.db.Read(ctx, tenant, func() { revisions = make(map[ledgerKey]ledgerRevisions) }, pg.Query{
		Statement: &readRevisions, Params: [][]byte{pg.TenantParam(tenant), pg.TextsParam(names)}, Row: func(values [][]byte) error {
			revisions[ledgerKey{string(values[0]), int(pg.Int8Value(values[1]))}] = ledgerRevisions{pg.Int8Value(values[2]), pg.Int8Value(values[3])}
			now = pg.TimeValue(values[4])
			return nil
		},
	})
	return now, revisions, err
}

func ledgerParams(tenant domain.TenantID, name string, partition int) [][]byte {
	return [][]byte{pg.TenantParam(tenant), []byte(name), pg.Int4Param(partition)}
}

// The statements of a save. If the compare-and-set on the revisions fails, no ledger has this write, and nothing is
// inserted or removed. The tenant and the name in the inserted rows come from the ledger's row.
var (
	saveLedger = pg.Statement{Name: "manifold_save_ledger", SQL: saveSQL("")}

	// Like saveLedger, for saves that add or remove retries or dead letters. The revision check ensures that the counts
	// are right, since every other change of them changes the revision.
	saveLedgerCounting = pg.Statement{Name: "manifold_save_ledger_counting", SQL: saveSQL(`,
		retrying = l.retrying + $13::bigint - (select count(*) from unnest($14::bigint[]) as p(position) cross join lateral (
			select from subscription_retries as r
			where r.tenant_id = $1::uuid and r.name = $2::text and r.partition = $3::int and r.position = p.position limit 1) as r),
		parked = l.parked + $15::bigint - (select count(*) from unnest($16::bigint[]) as p(position) cross join lateral (
			select from dead_letters as d
			where d.tenant_id = $1::uuid and d.name = $2::text and d.position = p.position limit 1) as d)`)}

	// Remove them one by one. If a table is small, or one group has few rows and another very many, the planner would
	// scan all of a group's rows rather than search for several positions.
	removeRetry = pg.Statement{Name: "manifold_remove_retry", SQL: `
		delete from subscription_retries as r
		where r.tenant_id = $1::uuid and r.name = $2::text and r.partition = $3::int and r.position = $5::bigint
			and exists (select from subscription_ledgers as l
				where l.tenant_id = $1::uuid and l.name = $2::text and l.partition = $3::int and l.last_write = $4::uuid)`}

	putRetries = pg.Statement{Name: "manifold_put_retries", SQL: `
		insert into subscription_retries as r (tenant_id, name, partition, position, event_id, stream_id, stream_version, attempt, base, replays, due_at, reason)
		select l.tenant_id, l.name, l.partition, e.position, e.event_id, e.stream_id, e.stream_version, e.attempt, e.base, e.replays, coalesce(e.due_at, now()), e.reason
		from subscription_ledgers as l
		cross join unnest($5::bigint[], $6::uuid[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::timestamptz[], $13::text[])
			as e(position, event_id, stream_id, stream_version, attempt, base, replays, due_at, reason)
		where l.tenant_id = $1::uuid and l.name = $2::text and l.partition = $3::int and l.last_write = $4::uuid
		on conflict (tenant_id, name, partition, position) do update
		set event_id = excluded.event_id, stream_id = excluded.stream_id, stream_version = excluded.stream_version, attempt = excluded.attempt,
			base = excluded.base, replays = excluded.replays, due_at = excluded.due_at, reason = excluded.reason`}

	removeDeadLetter = pg.Statement{Name: "manifold_remove_dead_letter", SQL: `
		delete from dead_letters as d
		where d.tenant_id = $1::uuid and d.name = $2::text and d.position = $5::bigint
			and exists (select from subscription_ledgers as l
				where l.tenant_id = $1::uuid and l.name = $2::text and l.partition = $3::int and l.last_write = $4::uuid)`}

	putDeadLetters = pg.Statement{Name: "manifold_put_dead_letters", SQL: `
		insert into dead_letters as d (tenant_id, name, partition, position, event_id, stream_id, stream_version, attempt, base, replays, reason,
			event_type, first_parked_at, parked_at, replay_at)
		select l.tenant_id, l.name, l.partition, e.position, e.event_id, e.stream_id, e.stream_version, e.attempt, e.base, e.replays, e.reason,
			e.event_type, coalesce(e.first_parked_at, now()), coalesce(e.parked_at, now()), e.replay_at
		from subscription_ledgers as l
		cross join unnest($5::bigint[], $6::uuid[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[],
				$13::text[], $14::timestamptz[], $15::timestamptz[], $16::timestamptz[])
			as e(position, event_id, stream_id, stream_version, attempt, base, replays, reason, event_type, first_parked_at, parked_at, replay_at)
		where l.tenant_id = $1::uuid and l.name = $2::text and l.partition = $3::int and l.last_write = $4::uuid
		on conflict (tenant_id, name, position) do update
		set partition = excluded.partition, event_id = excluded.event_id, stream_id = excluded.stream_id, stream_version = excluded.stream_version,
			attempt = excluded.attempt, base = excluded.base, replays = excluded.replays, reason = excluded.reason, event_type = excluded.event_type,
			first_parked_at = least(d.first_parked_at, excluded.first_parked_at), parked_at = excluded.parked_at, replay_at = excluded.replay_at`}
)

func saveSQL(set string) string {
	return `with saved as (
			update subscription_ledgers as l
			set revision = $6::bigint + 1, last_write = $4::uuid, ledger = $7::bytea, checkpoint = $8::bigint, read_to = $9::bigint, oldest = $10::bigint,
				in_flight = $11::bigint, owner = $12::uuid, updated_at = now()` + set + `
			from subscriptions as s
			where s.tenant_id = $1::uuid and s.name = $2::text and s.revision = $5::bigint
				and l.tenant_id = $1::uuid and l.name = $2::text and l.partition = $3::int and l.revision = $6::bigint
			returning l.revision
		)
		select clock_timestamp(), exists (select from saved)`
}

// SaveLedger saves a change of a partition as a whole, in one round trip. If saved is false, nothing was written,
// because the group or the ledger has another revision or does not exist. A position may occur once among the rows to
// write and once among those to remove; writing wins. Zero times mean now. FirstParkedAt of an existing row stays if it
// is earlier. now is the database's clock, from before the commit.
//
// If the connection breaks and the outcome is unknown, SaveLedger finds it out and repeats the change if necessary. It
// retries for at most saveTimeout, even if ctx ends. The error is domain.CodeOutcomeUnknown if it does not
// finish in time, or if other processes have saved several times since.
func (s *Postgres) SaveLedger(ctx context.Context, tenant domain.TenantID, name string, change LedgerChange) (now time.Time, saved bool, err error) {
	save := ledgerSave{tenant: tenant, name: name, change: &change, id: domain.NewEventID()}
	sent, err := save.execute(ctx, s)
	switch {
	case err == nil:
		return save.now, save.saved, nil
	case !sent && ctx.Err() != nil:
		return time.Time{}, false, context.Cause(ctx)
	case !sent || pg.Refused(err):
		return time.Time{}, false, pg.Unavailable(fmt.Errorf("save a group's ledger: %w", err))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	for failures := 1; ; failures++ {
		known, again := save.settle(ctx, s)
		if known {
			return save.now, save.saved, nil
		}
		if again == nil {
			return time.Time{}, false, outcomeUnknownError("another process has saved the group's progress since", err)
		}
		pg.BackOff(ctx, failures)
		if ctx.Err() != nil {
			return time.Time{}, false, outcomeUnknownError("the connection to the database broke", errors.Join(err, again))
		}
	}
}

func outcomeUnknownError(message string, cause error) error {
	return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeOutcomeUnknown, "", "%s: the request may have taken effect; repeating it does no harm", message), cause)
}

// ledgerSave is a change that is being saved.
type ledgerSave struct {
	tenant domain.TenantID
	name   string
	change *LedgerChange
	id     [16]byte // identifies this write

	now   time.Time
	saved bool
}

// execute changes the ledger. sent is false if no statement can have reached the database.
func (l *ledgerSave) execute(ctx context.Context, s *Postgres) (sent bool, err error) {
	x, err := s.db.App.Pipeline(ctx, l.tenant)
	if err != nil {
		return false, err
	}
	defer x.Close()
	x.Begin(l.tenant)
	l.send(x)
	x.Commit()
	return true, x.Run()
}

// settle finds out what became of a change that was sent, and repeats it if it was not saved. It locks the ledger
// first, which waits for the lost transaction; if that transaction runs later, it finds another revision. If settle
// returns neither known nor an error, the outcome can no longer be determined.
func (l *ledgerSave) settle(ctx context.Context, s *Postgres) (known bool, err error) {
	x, err := s.db.App.Pipeline(ctx, l.tenant)
	if err != nil {
		return false, err
	}
	defer x.Close()
	var there bool
	var revision int64
	var last [16]byte
	l.now, l.saved = time.Time{}, false
	x.Begin(l.tenant)
	x.Send(&lockLedger, ledgerParams(l.tenant, l.name, l.change.Partition), func(values [][]byte) error {
		there, revision, last = true, pg.Int8Value(values[0]), pg.UUIDValue(values[1])
		return nil
	})
	x.Send(&readClock, nil, func(values [][]byte) error {
		l.now = pg.TimeValue(values[0])
		return nil
	})
	if err := x.Run(); err != nil {
		return false, err
	}
	switch {
	case there && last == l.id:
		l.saved = true
		return true, nil
	case !there, revision == l.change.Revision+1:
		return true, nil // the group is gone, or another process was first
	case revision != l.change.Revision:
		return false, nil
	}
	l.send(x)
	x.Commit()
	err = x.Run()
	return err == nil, err
}

var readClock = pg.Statement{Name: "manifold_clock", SQL: `select clock_timestamp()`}

// send puts the change into the pipeline.
func (l *ledgerSave) send(x *pg.Pipeline) {
	c := l.change
	place := append(ledgerParams(l.tenant, l.name, c.Partition), pg.UUIDParam(l.id))
	with := func(more ...[]byte) [][]byte { return append(place[:len(place):len(place)], more...) }
	st, params := &saveLedger, with(pg.Int8Param(c.GroupRevision), pg.Int8Param(c.Revision), c.Ledger, pg.Int8Param(c.Status.Checkpoint),
		pg.Int8Param(c.Status.ReadTo), pg.Int8Param(c.Status.Oldest), pg.Int8Param(c.Status.InFlight), ownerParam(c.Status.Owner))
	if len(c.Retry)+len(c.Unretry)+len(c.Park)+len(c.Unpark) > 0 {
		retries, letters := slices.Clone(c.Unretry), slices.Clone(c.Unpark)
		for i := range c.Retry {
			retries = append(retries, c.Retry[i].Position)
		}
		for i := range c.Park {
			letters = append(letters, c.Park[i].Position)
		}
		st, params = &saveLedgerCounting, append(params, pg.Int8Param(int64(len(c.Retry))), pg.Int8sParam(once(retries)), pg.Int8Param(int64(len(c.Park))), pg.Int8sParam(once(letters)))
	}
	x.Send(st, params, func(values [][]byte) error {
		l.now, l.saved = pg.TimeValue(values[0]), pg.BoolValue(values[1])
		return nil
	})
	for _, position := range c.Unretry {
		x.Send(&removeRetry, with(pg.Int8Param(position)), nil)
	}
	if len(c.Retry) > 0 {
		x.Send(&putRetries, with(retryParams(c.Retry)...), nil)
	}
	for _, position := range c.Unpark {
		x.Send(&removeDeadLetter, with(pg.Int8Param(position)), nil)
	}
	if len(c.Park) > 0 {
		x.Send(&putDeadLetters, with(deadLetterParams(c.Park)...), nil)
	}
}

// once sorts positions and removes duplicates.
func once(positions []int64) []int64 {
	slices.Sort(positions)
	return slices.Compact(positions)
}

func ownerParam(owner domain.GroupMemberID) []byte {
	if owner.IsZero() {
		return nil
	}
	return pg.UUIDParam(owner)
}

// retryParams returns the columns of retries, each as an array.
func retryParams(retries []Retry) [][]byte {
	n := len(retries)
	positions, versions := pg.AppendArrayHeader(nil, pgtype.Int8OID, n), pg.AppendArrayHeader(nil, pgtype.Int8OID, n)
	attempts, bases, replays := pg.AppendArrayHeader(nil, pgtype.Int8OID, n), pg.AppendArrayHeader(nil, pgtype.Int8OID, n), pg.AppendArrayHeader(nil, pgtype.Int8OID, n)
	ids, dues := pg.AppendArrayHeader(nil, pgtype.UUIDOID, n), pg.AppendArrayHeader(nil, pgtype.TimestamptzOID, n)
	streams, reasons := pg.AppendArrayHeader(nil, pgtype.TextOID, n), pg.AppendArrayHeader(nil, pgtype.TextOID, n)
	for i := range retries {
		r := &retries[i]
		positions, versions = pg.AppendInt8Element(positions, r.Position), pg.AppendInt8Element(versions, r.Version)
		attempts, bases, replays = pg.AppendInt8Element(attempts, int64(r.Attempt)), pg.AppendInt8Element(bases, int64(r.Base)), pg.AppendInt8Element(replays, int64(r.Replays))
		ids, dues = pg.AppendUUIDElement(ids, r.EventID), pg.AppendTimeElement(dues, r.DueAt)
		streams, reasons = pg.AppendTextElement(streams, r.Stream), pg.AppendTextElement(reasons, pg.CleanText(r.Reason))
	}
	return [][]byte{positions, ids, streams, versions, attempts, bases, replays, dues, reasons}
}

// SeekGroup changes a group's revision and rewrites the ledgers of all its partitions, in one transaction. It calls
// remake for each partition in order, with the current ledger; remake returns the new ledger and its status for lists.
// SeekGroup removes retries. It also removes dead letters with a requested replay after the position where a partition
// continues, because they are delivered anyway. Other dead letters stay. If remake fails, SeekGroup returns its error
// and changes nothing.
func (s *Postgres) SeekGroup(
	ctx context.Context, tenant domain.TenantID, name string,
	remake func(partition int, ledger []byte) (again []byte, status domain.PartitionStatus, err error),
) (domain.Group, error) {
	var group domain.Group
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		if _, err := lockGroup(ctx, tx, tenant, name); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, `
			select l.partition, l.ledger from subscription_ledgers as l
			where l.tenant_id = $1 and l.name = $2 order by l.partition for update`, tenant, name)
		type ledger struct {
			Partition int
			Ledger    []byte
		}
		ledgers, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ledger])
		if err != nil {
			return fmt.Errorf("lock a group's ledgers: %w", err)
		}
		var partitions []int
		var again [][]byte
		var checkpoints, readTos, oldests, inFlight []int64
		for _, l := range ledgers {
			made, status, err := remake(l.Partition, l.Ledger)
			if err != nil {
				return err
			}
			partitions, again = append(partitions, l.Partition), append(again, made)
			checkpoints, readTos = append(checkpoints, status.Checkpoint), append(readTos, status.ReadTo)
			oldests, inFlight = append(oldests, status.Oldest), append(inFlight, status.InFlight)
		}
		_, err = tx.Exec(ctx, `
			update subscription_ledgers as l
			set revision = l.revision + 1, last_write = $3, ledger = e.ledger, checkpoint = e.checkpoint, read_to = e.read_to, oldest = e.oldest,
				in_flight = e.in_flight, retrying = 0, updated_at = now()
			from unnest($4::int[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])
				as e(partition, ledger, checkpoint, read_to, oldest, in_flight)
			where l.tenant_id = $1 and l.name = $2 and l.partition = e.partition`,
			tenant, name, domain.NewEventID(), partitions, again, checkpoints, readTos, oldests, inFlight)
		if err != nil {
			return fmt.Errorf("rewrite a group's ledgers: %w", err)
		}
		if _, err := tx.Exec(ctx, "delete from subscription_retries as r where r.tenant_id = $1 and r.name = $2", tenant, name); err != nil {
			return fmt.Errorf("remove a group's retries: %w", err)
		}
		// A replay would duplicate the delivery. Nobody else can request replays while this transaction holds the
		// ledger's row.
		_, err = tx.Exec(ctx, `
			with gone as (
				delete from dead_letters as d using subscription_ledgers as l
				where l.tenant_id = $1 and l.name = $2
					and d.tenant_id = $1 and d.name = $2 and d.partition = l.partition and d.replay_at is not null and d.position > l.read_to
				returning d.partition
			)
			update subscription_ledgers as l set parked = l.parked - g.letters
			from (select gone.partition, count(*) as letters from gone group by gone.partition) as g
			where l.tenant_id = $1 and l.name = $2 and l.partition = g.partition`, tenant, name)
		if err != nil {
			return fmt.Errorf("remove dead letters after the new position: %w", err)
		}
		rows, _ = tx.Query(ctx, `
			update subscriptions as s set revision = s.revision + 1, updated_at = now()
			where s.tenant_id = $1 and s.name = $2 returning `+groupColumns, tenant, name)
		if group, err = pgx.CollectExactlyOneRow(rows, scanGroup); err != nil {
			return fmt.Errorf("seek a group: %w", err)
		}
		return nil
	})
	if err != nil {
		return domain.Group{}, err
	}
	s.NotifyGroup(tenant, name)
	return group, nil
}
