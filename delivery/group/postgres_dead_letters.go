package group

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// deadLetterColumns are the columns that deadLetterValue expects, of the table of dead letters as d.
const deadLetterColumns = `d.partition::bigint, d.position, d.event_id, d.stream_id, d.stream_version, d.event_type, d.attempt, d.base, d.replays,
	d.reason, d.first_parked_at, d.parked_at, d.replay_at`

func deadLetterValue(values [][]byte) domain.DeadLetter {
	return domain.DeadLetter{
		Partition: int(pg.Int8Value(values[0])), Position: pg.Int8Value(values[1]), EventID: pg.UUIDValue(values[2]), Stream: string(values[3]),
		Version: pg.Int8Value(values[4]), Type: string(values[5]), Attempt: int(pg.Int8Value(values[6])), Base: int(pg.Int8Value(values[7])),
		Replays: int(pg.Int8Value(values[8])), Reason: string(values[9]), FirstParkedAt: pg.TimeValue(values[10]), ParkedAt: pg.TimeValue(values[11]),
		ReplayAt: pg.TimeValue(values[12]),
	}
}

// deadLetterParams returns the columns of dead letters, each as an array.
func deadLetterParams(letters []domain.DeadLetter) [][]byte {
	n := len(letters)
	positions, versions := pg.AppendArrayHeader(nil, pgtype.Int8OID, n), pg.AppendArrayHeader(nil, pgtype.Int8OID, n)
	attempts, bases, replays := pg.AppendArrayHeader(nil, pgtype.Int8OID, n), pg.AppendArrayHeader(nil, pgtype.Int8OID, n), pg.AppendArrayHeader(nil, pgtype.Int8OID, n)
	ids, streams := pg.AppendArrayHeader(nil, pgtype.UUIDOID, n), pg.AppendArrayHeader(nil, pgtype.TextOID, n)
	reasons, types := pg.AppendArrayHeader(nil, pgtype.TextOID, n), pg.AppendArrayHeader(nil, pgtype.TextOID, n)
	first, parked, asked := pg.AppendArrayHeader(nil, pgtype.TimestamptzOID, n), pg.AppendArrayHeader(nil, pgtype.TimestamptzOID, n), pg.AppendArrayHeader(nil, pgtype.TimestamptzOID, n)
	for i := range letters {
		d := &letters[i]
		positions, versions = pg.AppendInt8Element(positions, d.Position), pg.AppendInt8Element(versions, d.Version)
		attempts, bases, replays = pg.AppendInt8Element(attempts, int64(d.Attempt)), pg.AppendInt8Element(bases, int64(d.Base)), pg.AppendInt8Element(replays, int64(d.Replays))
		ids, streams = pg.AppendUUIDElement(ids, d.EventID), pg.AppendTextElement(streams, d.Stream)
		reasons, types = pg.AppendTextElement(reasons, pg.CleanText(d.Reason)), pg.AppendTextElement(types, d.Type)
		first, parked, asked = pg.AppendTimeElement(first, d.FirstParkedAt), pg.AppendTimeElement(parked, d.ParkedAt), pg.AppendTimeElement(asked, d.ReplayAt)
	}
	return [][]byte{positions, ids, streams, versions, attempts, bases, replays, reasons, types, first, parked, asked}
}

var deadLetters = pg.Statement{Name: "manifold_dead_letters", SQL: `
	select ` + deadLetterColumns + ` from dead_letters as d
	where d.tenant_id = $1::uuid and d.name = $2::text and d.position > $3::bigint order by d.position limit $4::bigint`}

// DeadLetters returns the first limit dead letters of a group after the position after, ordered by position. It returns
// domain.CodeNotFound if there is no such group.
func (s *Postgres) DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]domain.DeadLetter, error) {
	var group domain.Group
	var letters []domain.DeadLetter
	err := s.db.ReadInTurn(ctx, tenant, func() { group, letters = domain.Group{}, nil },
		groupQuery(tenant, name, &group),
		pg.Query{Statement: &deadLetters, Params: [][]byte{pg.TenantParam(tenant), []byte(name), pg.Int8Param(after), pg.Int8Param(int64(limit))}, Row: func(values [][]byte) error {
			letters = append(letters, deadLetterValue(values))
			return nil
		}})
	if err == nil && group.Name == "" {
		err = noGroup(name)
	}
	return letters, err
}

// deadLettersAtOnce is how many dead letters one transaction changes. It is small enough that deliveries wait only
// briefly.
const deadLettersAtOnce = 10_000

// ReplayDeadLetters requests the replay of one dead letter, or of all current ones if id is zero. It returns their
// number; of all, it counts only those without an earlier request. It returns domain.CodeNotFound if there is no such
// group, or no dead letter of that event. It works through all of them in slices, from the lowest position on, so the
// call may be interrupted and repeated.
func (s *Postgres) ReplayDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	return s.changeDeadLetters(ctx, tenant, name, id, deadLetterChange{doing: "ask for the replay of dead letters", sql: `
		update dead_letters as d set replay_at = now()
		where ` + deadLettersBetween + ` and d.replay_at is null returning d.partition`})
}

// DiscardDeadLetters removes one dead letter, or all current ones if id is zero, and returns their number. It works
// like ReplayDeadLetters. A dead letter whose replay has been delivered is in flight, and stays.
func (s *Postgres) DiscardDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	return s.changeDeadLetters(ctx, tenant, name, id, discarding)
}

// DiscardDeadLettersIf discards all dead letters of a group. Each transaction begins with may; an error of may ends the
// operation.
func (s *Postgres) DiscardDeadLettersIf(ctx context.Context, tenant domain.TenantID, name string, may func(pgx.Tx) error) (int64, error) {
	change := discarding
	change.may = may
	return s.changeDeadLetters(ctx, tenant, name, domain.EventID{}, change)
}

// discarding removes dead letters.
var discarding = deadLetterChange{doing: "discard dead letters", removes: true, sql: `
	delete from dead_letters as d where ` + deadLettersBetween + ` returning d.partition`}

// deadLettersBetween selects a group's dead letters after a position, up to another, in some partitions. It uses an
// interval instead of a list: a planner that expects few rows would scan all of a group's rows rather than search for
// several.
const deadLettersBetween = `d.tenant_id = $1 and d.name = $2 and d.position > $3 and d.position <= $4 and d.partition = any($5::int[])`

// deadLetterChange is a change of some dead letters. Its SQL returns the partitions of the changed ones.
type deadLetterChange struct {
	doing   string // for errors
	sql     string // with the parameters of deadLettersBetween
	removes bool
	may     func(pgx.Tx) error // nil: always allowed
}

func (s *Postgres) changeDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID, change deadLetterChange) (int64, error) {
	var changed int64
	var upTo int64 // later dead letters are left alone, unless they have a lower position
	for after, first := int64(0), true; ; first = false {
		var slice deadLetterSlice
		did := int64(0)
		err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) (err error) {
			if change.may != nil {
				if err := change.may(tx); err != nil {
					return err
				}
			}
			if err := holdGroup(ctx, tx, tenant, name); err != nil {
				return err
			}
			if first && id.IsZero() {
				err := tx.QueryRow(ctx, `
					select coalesce((select d.position from dead_letters as d where d.tenant_id = $1 and d.name = $2 order by d.position desc limit 1), 0)`,
					tenant, name).Scan(&upTo)
				if err != nil {
					return fmt.Errorf("look for the last dead letter: %w", err)
				}
			}
			if slice, err = pickDeadLetters(ctx, tx, tenant, name, id, after, upTo); err != nil || slice.letters == 0 {
				return err
			}
			did, err = change.apply(ctx, tx, tenant, name, slice)
			return err
		})
		if err != nil {
			return changed, err
		}
		if changed, after = changed+did, slice.last; did > 0 {
			s.NotifyGroup(tenant, name)
		}
		switch {
		case !id.IsZero() && (slice.letters == 0 || did == 0 && change.removes):
			return 0, domain.Errorf(domain.CodeNotFound, "eventId", "group %q has no dead letter of event %s", name, id)
		case !id.IsZero():
			return 1, nil
		case slice.letters < deadLettersAtOnce:
			return changed, nil
		}
	}
}

// deadLetterSlice is a range of a group's dead letters: those after after, up to last, in some partitions.
type deadLetterSlice struct {
	after, last int64
	letters     int
	partitions  []int // ascending
}

// pickDeadLetters finds the next slice, or the dead letter of an event.
func pickDeadLetters(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string, id domain.EventID, after, upTo int64) (deadLetterSlice, error) {
	var rows pgx.Rows
	if id.IsZero() {
		rows, _ = tx.Query(ctx, `
			select d.position, d.partition from dead_letters as d
			where d.tenant_id = $1 and d.name = $2 and d.position > $3 and d.position <= $4 order by d.position limit $5`,
			tenant, name, after, upTo, deadLettersAtOnce)
	} else {
		rows, _ = tx.Query(ctx, `
			select d.position, d.partition from dead_letters as d where d.tenant_id = $1 and d.name = $2 and d.event_id = $3`, tenant, name, id)
	}
	slice := deadLetterSlice{after: after}
	in := make(map[int]bool)
	var partition int
	_, err := pgx.ForEachRow(rows, []any{&slice.last, &partition}, func() error {
		slice.letters++
		in[partition] = true
		return nil
	})
	if err != nil {
		return deadLetterSlice{}, fmt.Errorf("look for dead letters: %w", err)
	}
	if slice.partitions = slices.Sorted(maps.Keys(in)); !id.IsZero() {
		slice.after = slice.last - 1
	}
	return slice, nil
}

// apply changes the dead letters of a slice and increments the revision of their partitions' ledgers, so that their
// readers read them again.
func (c deadLetterChange) apply(
	ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string, slice deadLetterSlice,
) (changed int64, err error) {
	if err := lockLedgers(ctx, tx, tenant, name, slice.partitions); err != nil {
		return 0, err
	}
	rows, _ := tx.Query(ctx, c.sql, tenant, name, slice.after, slice.last, slice.partitions)
	numbers := make(map[int]int64)
	var partition int
	if _, err := pgx.ForEachRow(rows, []any{&partition}, func() error {
		numbers[partition]++
		changed++
		return nil
	}); err != nil {
		return 0, fmt.Errorf("%s: %w", c.doing, err)
	}
	if changed == 0 {
		return 0, nil
	}
	var partitions []int
	var gone []int64
	for partition, n := range numbers {
		if !c.removes {
			n = 0
		}
		partitions, gone = append(partitions, partition), append(gone, n)
	}
	_, err = tx.Exec(ctx, `
		update subscription_ledgers as l set revision = l.revision + 1, parked = l.parked - e.gone
		from unnest($3::int[], $4::bigint[]) as e(partition, gone)
		where l.tenant_id = $1 and l.name = $2 and l.partition = e.partition`, tenant, name, partitions, gone)
	if err != nil {
		return 0, fmt.Errorf("%s: give the ledgers another revision: %w", c.doing, err)
	}
	return changed, nil
}

// ForgetReasons removes the reasons of the dead letters and retries of the events at positions, because they may quote
// the events. It returns how many rows it has changed.
func (s *Postgres) ForgetReasons(ctx context.Context, tenant domain.TenantID, positions []int64) (changed int64, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		letters, err := pg.Exec(ctx, tx, "remove the reasons of dead letters",
			"update dead_letters d set reason = '' where d.tenant_id = $1 and d.position = any ($2::bigint[]) and d.reason <> ''", tenant, positions)
		if err != nil {
			return err
		}
		retries, err := pg.Exec(ctx, tx, "remove the reasons of retries",
			"update subscription_retries r set reason = '' where r.tenant_id = $1 and r.position = any ($2::bigint[]) and r.reason <> ''", tenant, positions)
		if err == nil {
			changed = letters + retries
		}
		return err
	})
	return changed, err
}
