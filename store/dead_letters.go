package store

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
)

// deadLetterColumns are what deadLetterValue expects, of the table of dead letters as d.
const deadLetterColumns = `d.partition::bigint, d.position, d.event_id, d.stream_id, d.stream_version, d.event_type, d.attempt, d.base, d.replays,
	d.reason, d.first_parked_at, d.parked_at, d.replay_at`

func deadLetterValue(values [][]byte) domain.DeadLetter {
	return domain.DeadLetter{
		Partition: int(int8Value(values[0])), Position: int8Value(values[1]), EventID: uuidValue(values[2]), Stream: string(values[3]),
		Version: int8Value(values[4]), Type: string(values[5]), Attempt: int(int8Value(values[6])), Base: int(int8Value(values[7])),
		Replays: int(int8Value(values[8])), Reason: string(values[9]), FirstParkedAt: timeValue(values[10]), ParkedAt: timeValue(values[11]),
		ReplayAt: timeValue(values[12]),
	}
}

// deadLetterParams are the columns of dead letters, each as an array.
func deadLetterParams(letters []domain.DeadLetter) [][]byte {
	n := len(letters)
	positions, versions := appendArrayHeader(nil, pgtype.Int8OID, n), appendArrayHeader(nil, pgtype.Int8OID, n)
	attempts, bases, replays := appendArrayHeader(nil, pgtype.Int8OID, n), appendArrayHeader(nil, pgtype.Int8OID, n), appendArrayHeader(nil, pgtype.Int8OID, n)
	ids, streams := appendArrayHeader(nil, pgtype.UUIDOID, n), appendArrayHeader(nil, pgtype.TextOID, n)
	reasons, types := appendArrayHeader(nil, pgtype.TextOID, n), appendArrayHeader(nil, pgtype.TextOID, n)
	first, parked, asked := appendArrayHeader(nil, pgtype.TimestamptzOID, n), appendArrayHeader(nil, pgtype.TimestamptzOID, n), appendArrayHeader(nil, pgtype.TimestamptzOID, n)
	for i := range letters {
		d := &letters[i]
		positions, versions = appendInt8Element(positions, d.Position), appendInt8Element(versions, d.Version)
		attempts, bases, replays = appendInt8Element(attempts, int64(d.Attempt)), appendInt8Element(bases, int64(d.Base)), appendInt8Element(replays, int64(d.Replays))
		ids, streams = appendUUIDElement(ids, d.EventID), appendTextElement(streams, d.Stream)
		reasons, types = appendTextElement(reasons, plain(d.Reason)), appendTextElement(types, d.Type)
		first, parked, asked = appendTimeElement(first, d.FirstParkedAt), appendTimeElement(parked, d.ParkedAt), appendTimeElement(asked, d.ReplayAt)
	}
	return [][]byte{positions, ids, streams, versions, attempts, bases, replays, reasons, types, first, parked, asked}
}

var deadLetters = statement{"manifold_dead_letters", `
	select ` + deadLetterColumns + ` from dead_letters as d
	where d.tenant_id = $1::uuid and d.name = $2::text and d.position > $3::bigint order by d.position limit $4::bigint`}

// DeadLetters returns the first limit dead letters of a group behind the position after, in the order of their positions;
// domain.CodeNotFound where there is no such group.
func (s *Store) DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]domain.DeadLetter, error) {
	var group domain.Group
	var letters []domain.DeadLetter
	err := s.read(ctx, tenant, func() { group, letters = domain.Group{}, nil },
		groupQuery(tenant, name, &group),
		query{&deadLetters, [][]byte{tenantParam(tenant), []byte(name), int8Param(after), int8Param(int64(limit))}, func(values [][]byte) error {
			letters = append(letters, deadLetterValue(values))
			return nil
		}})
	if err == nil && group.Name == "" {
		err = noGroup(name)
	}
	return letters, err
}

// deadLetterSlice is how many dead letters one transaction changes: few enough that it holds up no delivery for longer than a
// moment.
const deadLetterSlice = 10_000

// ReplayDeadLetters asks for the replay of one dead letter, or with the zero id of all that there are now, and returns of how
// many: of all, those count for which it was not asked before. domain.CodeNotFound where there is no such group, or it has
// no dead letter of that event. Of all it asks in slices, from the lowest position on: the call may be cut off, and repeated.
func (s *Store) ReplayDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	return s.changeDeadLetters(ctx, tenant, name, id, deadLetterChange{doing: "ask for the replay of dead letters", sql: `
		update dead_letters as d set replay_at = now()
		where d.tenant_id = $1 and d.name = $2 and d.position = any($3) and d.replay_at is null returning d.partition`})
}

// DiscardDeadLetters removes one dead letter, or with the zero id all that there are now, and returns how many these were; as
// ReplayDeadLetters. One whose replay a consumer has is in flight, and stays.
func (s *Store) DiscardDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	return s.changeDeadLetters(ctx, tenant, name, id, deadLetterChange{doing: "discard dead letters", removes: true, sql: `
		delete from dead_letters as d where d.tenant_id = $1 and d.name = $2 and d.position = any($3) returning d.partition`})
}

// deadLetterChange is a change to the dead letters at some positions, which returns the partitions of those that it has changed.
type deadLetterChange struct {
	doing   string // for errors
	sql     string
	removes bool
}

func (s *Store) changeDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID, change deadLetterChange) (int64, error) {
	var changed int64
	// What comes to be a dead letter meanwhile is left alone.
	for slice := (deadLetterPick{one: id, upTo: -1}); ; {
		picked, did := 0, int64(0)
		err := under(ctx, s.app, tenant, func(tx pgx.Tx) (err error) {
			positions, partitions, err := slice.pick(ctx, tx, tenant, name)
			if err != nil || len(positions) == 0 {
				return err
			}
			picked, slice.after = len(positions), positions[len(positions)-1]
			did, err = change.do(ctx, tx, tenant, name, positions, partitions)
			return err
		})
		if err != nil {
			return changed, err
		}
		if changed += did; did > 0 {
			s.NotifyGroup(tenant, name)
		}
		switch {
		case !slice.one.IsZero() && (picked == 0 || did == 0 && change.removes):
			return 0, domain.Errorf(domain.CodeNotFound, "eventId", "group %q has no dead letter of event %s", name, id)
		case !slice.one.IsZero():
			return 1, nil
		case picked < deadLetterSlice:
			return changed, nil
		}
	}
}

// deadLetterPick is which dead letters come next.
type deadLetterPick struct {
	one         domain.EventID // or all:
	after, upTo int64          // upTo -1: not known yet
}

// pick finds the positions of the next slice, ascending, and the partitions that they are in, and sees to it that the group
// stays.
func (p *deadLetterPick) pick(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string) (positions []int64, partitions []int, err error) {
	if err := holdGroup(ctx, tx, tenant, name); err != nil {
		return nil, nil, err
	}
	const from = " from dead_letters as d where d.tenant_id = $1 and d.name = $2"
	if p.upTo < 0 && p.one.IsZero() {
		if err := tx.QueryRow(ctx, "select coalesce(max(d.position), 0)"+from, tenant, name).Scan(&p.upTo); err != nil {
			return nil, nil, fmt.Errorf("look for the last dead letter: %w", err)
		}
	}
	var rows pgx.Rows
	if p.one.IsZero() {
		rows, _ = tx.Query(ctx, "select d.position, d.partition"+from+" and d.position > $3 and d.position <= $4 order by d.position limit $5",
			tenant, name, p.after, p.upTo, deadLetterSlice)
	} else {
		rows, _ = tx.Query(ctx, "select d.position, d.partition"+from+" and d.event_id = $3", tenant, name, p.one)
	}
	in := make(map[int]bool)
	var position int64
	var partition int
	_, err = pgx.ForEachRow(rows, []any{&position, &partition}, func() error {
		positions, in[partition] = append(positions, position), true
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("pick dead letters: %w", err)
	}
	return positions, slices.Sorted(maps.Keys(in)), nil
}

// do changes the dead letters at the positions, and gives the ledgers of their partitions another revision: who has read them
// reads again.
func (c deadLetterChange) do(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string, positions []int64, partitions []int) (changed int64, err error) {
	if err := lockLedgers(ctx, tx, tenant, name, partitions); err != nil {
		return 0, err
	}
	rows, _ := tx.Query(ctx, c.sql, tenant, name, positions)
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
	partitions = partitions[:0]
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
