package eventlog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Erasing says what Erase removes from events.
type Erasing struct {
	Erasure domain.UUID
	Tag     string // is removed from the events, too; empty: none
	// Personal returns JSON Pointers to the personal data in an event of the type that names the schema version (0:
	// none). None, or none that leads anywhere in the event: all data and metadata are removed. Nil: of all events.
	Personal func(eventType string, version int64) []string
	Derived  bool // the service has made the events from those of a subject
	// Erased is set to what the transaction has changed, before it calls after; nil: the caller does not ask.
	Erased *Erased
}

// Erased is what one call of Erase has changed.
type Erased struct {
	Kinds []Kind // of all events, each once
	// Types says how many events of each type the erasure had not changed before, and Streams are the streams of which
	// it had not changed any event.
	Types   map[string]int64
	Streams []string
}

// Kind is a category and a type of events.
type Kind struct {
	Category string `json:"category"`
	Type     string `json:"type"`
}

// EraseAtOnce is the largest number of events that callers should pass to Erase: appends wait meanwhile.
const EraseAtOnce = 20

// Erase removes the data of a person from events, in one transaction with before and after; the events keep their
// positions, ids, streams, versions, types, times and other tags. An event that has been removed stays removed.
// Afterwards writers of all processes have forgotten what they remembered of tags. It may be repeated. If pg.Busy
// reports true for the SQLSTATE of the error, a concurrent transaction held the same rows: retry. The error is
// domain.CodeNotFound if the log no longer exists.
func (s *Log) Erase(ctx context.Context, tenant domain.TenantID, e Erasing, positions []int64, before, after func(tx pgx.Tx) error) error {
	return pg.UnderWith(ctx, s.db.Retention, tenant, pg.TxOptions{LockTimeout: retagLockTimeout}, func(tx pgx.Tx) error {
		if err := before(tx); err != nil {
			return err
		}
		moved, err := pg.Exec(ctx, tx, "lock the log", "update logs as l set last_batch = $2 where l.tenant_id = $1", tenant, [16]byte(domain.NewEventID()))
		if err != nil {
			return err
		}
		if moved == 0 {
			return domain.Errorf(domain.CodeNotFound, "", "the tenant has no log")
		}
		if err := erase(ctx, tx, tenant, e, positions); err != nil {
			return err
		}
		return after(tx)
	})
}

// erasable is a stored event.
type erasable struct {
	position  int64
	id        domain.EventID
	stream    string
	category  string
	eventType string
	version   string // of the schema; empty: none
	gap       bool
	data      []byte // nil: it cannot be printed
}

func erase(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, e Erasing, positions []int64) error {
	runs, err := lockRunsOf(ctx, tx, tenant, positions)
	if err != nil {
		return err
	}
	rows, _ := tx.Query(ctx, `
		select e.position, e.event_id, e.stream_id, e.category, e.event_type, coalesce(e.metadata ->> 'schemaVersion', ''), e.gap is not null,
		  case when e.gap is null and not `+unreadableSQL+` then e.event_data end
		from events as e where e.tenant_id = $1 and e.position = any ($2::bigint[]) order by e.position for update`, tenant, positions)
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (event erasable, err error) {
		return event, row.Scan(&event.position, (*[16]byte)(&event.id), &event.stream, &event.category, &event.eventType, &event.version, &event.gap, &event.data)
	})
	if err != nil {
		return fmt.Errorf("read the events to erase: %w", err)
	}
	done, err := untouched(ctx, tx, tenant, e.Erasure, events)
	if err != nil {
		return err
	}
	var batch pgx.Batch
	for _, event := range events {
		had := runs.get(event.position)
		has := had.without(e.Tag)
		var tagged *bool
		if len(has.tags) > 0 {
			tagged = new(bool)
			*tagged = true
		}
		if !has.equal(had) {
			queueTags(&batch, tenant, Retagging{Position: event.position, Type: event.eventType}, had, has)
			runs.set(event.position, has)
		}
		if data, partly := event.withoutPersonal(e.Personal); partly {
			batch.Queue("update events as e set event_data = $3, erased = true, tagged = $4 where e.tenant_id = $1 and e.position = $2",
				tenant, event.position, data, tagged)
		} else {
			batch.Queue(`
				update events as e set event_data = 'null', metadata = jsonb_build_object('redacted', $3::text), gap = 'r', gap_at = now(), erased = true, tagged = $4
				where e.tenant_id = $1 and e.position = $2`, tenant, event.position, "erased with the data of a person, erasure "+e.Erasure.String(), tagged)
		}
		batch.Queue(`
			insert into erased_events (tenant_id, position, erasure_id, derived, event_id, stream_id) values ($1, $2, $3, $4, $5, $6)
			on conflict (tenant_id, position, erasure_id) do nothing`,
			tenant, event.position, [16]byte(e.Erasure), e.Derived, [16]byte(event.id), event.stream).Exec(func(inserted pgconn.CommandTag) error {
			if inserted.RowsAffected() > 0 {
				done.Types[event.eventType]++
			}
			return nil
		})
	}
	runs.queue(&batch, tenant)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("erase events: %w", err)
	}
	if e.Erased != nil {
		*e.Erased = done
	}
	return nil
}

// untouched returns the kinds of events, and those of their streams of which an erasure has changed no event yet.
func untouched(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, erasure domain.UUID, events []erasable) (Erased, error) {
	done := Erased{Types: make(map[string]int64)}
	for _, event := range events {
		if kind := (Kind{event.category, event.eventType}); !slices.Contains(done.Kinds, kind) {
			done.Kinds = append(done.Kinds, kind)
		}
		if !slices.Contains(done.Streams, event.stream) {
			done.Streams = append(done.Streams, event.stream)
		}
	}
	rows, _ := tx.Query(ctx, `
		select s.stream_id from unnest($3::text[]) as s(stream_id)
		cross join lateral (
			select x.position from erased_events as x where x.tenant_id = $1::uuid and x.erasure_id = $2 and x.stream_id = s.stream_id limit 1
		) as x`, tenant, [16]byte(erasure), done.Streams)
	touched, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return Erased{}, fmt.Errorf("look for streams that an erasure has touched: %w", err)
	}
	done.Streams = slices.DeleteFunc(done.Streams, func(stream string) bool { return slices.Contains(touched, stream) })
	return done, nil
}

// without returns the tags without one of them.
func (t storedTags) without(tag string) storedTags {
	is := func(one string) bool { return one == tag }
	return storedTags{slices.DeleteFunc(slices.Clone(t.tags), is), slices.DeleteFunc(slices.Clone(t.derived), is)}
}

// withoutPersonal returns an event's data with null for its personal fields. ok is false if all of its data is
// personal, or if it has none of the fields.
func (e *erasable) withoutPersonal(personal func(string, int64) []string) (data []byte, ok bool) {
	if personal == nil || e.gap || e.data == nil {
		return nil, false
	}
	version, err := strconv.ParseInt(e.version, 10, 64)
	if e.version != "" && err != nil {
		return nil, false
	}
	pointers := personal(e.eventType, version)
	decoder := json.NewDecoder(bytes.NewReader(e.data))
	decoder.UseNumber()
	var value any
	if len(pointers) == 0 || slices.Contains(pointers, "") || decoder.Decode(&value) != nil {
		return nil, false
	}
	found := false
	for _, pointer := range pointers {
		found = setNull(value, strings.Split(pointer, "/")[1:]) || found
	}
	if !found { // its fields may be elsewhere
		return nil, false
	}
	if data, err = json.Marshal(value); err != nil {
		return nil, false
	}
	return data, true
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// setNull sets what the tokens of a JSON Pointer lead to, if it is there, to null.
func setNull(value any, tokens []string) (found bool) {
	token := unescapePointer.Replace(tokens[0])
	switch value := value.(type) {
	case map[string]any:
		member, there := value[token]
		switch {
		case !there:
			return false
		case len(tokens) > 1:
			return setNull(member, tokens[1:])
		}
		value[token] = nil
	case []any:
		index, err := strconv.Atoi(token)
		switch {
		case err != nil || index < 0 || index >= len(value):
			return false
		case len(tokens) > 1:
			return setNull(value[index], tokens[1:])
		}
		value[index] = nil
	default:
		return false
	}
	return true
}

// TaggedPositions returns the positions in (after, upTo] of the first events with a tag, at most limit, in order.
func (s *Log) TaggedPositions(ctx context.Context, tenant domain.TenantID, tag string, after, upTo int64, limit int) ([]int64, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "look for events with a tag", pgx.RowTo[int64], `
		select t.position from tagged_events t
		where t.tenant_id = $1 and t.tag = $2 and t.position > $3 and t.position <= $4 order by t.position limit $5`, tenant, tag, after, upTo, limit)
}

// EventPlace is where an event is stored.
type EventPlace struct {
	Kind
	Stream string
}

// Places returns the places of the events at positions that still exist.
func (s *Log) Places(ctx context.Context, tenant domain.TenantID, positions []int64) ([]EventPlace, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "look for the places of events", func(row pgx.CollectableRow) (p EventPlace, err error) {
		return p, row.Scan(&p.Category, &p.Type, &p.Stream)
	}, "select e.category, e.event_type, e.stream_id from events e where e.tenant_id = $1 and e.position = any ($2::bigint[])", tenant, positions)
}

// ErasedEvent is an event that an erasure has changed.
type ErasedEvent struct {
	Position int64
	ID       domain.EventID
	Stream   string
}

// ErasedBy returns the first events after a position that an erasure has changed, at most limit, in order. It includes
// events that retention has removed since.
func (s *Log) ErasedBy(ctx context.Context, tenant domain.TenantID, erasure domain.UUID, after int64, limit int) ([]ErasedEvent, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list the events of an erasure", func(row pgx.CollectableRow) (e ErasedEvent, err error) {
		return e, row.Scan(&e.Position, (*[16]byte)(&e.ID), &e.Stream)
	}, `
		select x.position, x.event_id, x.stream_id from erased_events x
		where x.tenant_id = $1 and x.erasure_id = $2 and x.position > $3 order by x.position limit $4`, tenant, [16]byte(erasure), after, limit)
}

// Caused is an event that has one of the tags that were looked for.
type Caused struct {
	Position int64
	Stream   string
}

// CausedBy looks at the next events with any of the tags after a position and up to another, at most limit. It returns
// those in one of the categories, or in one that begins with a prefix, and the position of the last event that it has
// looked at. 0: there are no more.
func (s *Log) CausedBy(
	ctx context.Context, tenant domain.TenantID, tags, categories, prefixes []string, after, upTo int64, limit int,
) (caused []Caused, last int64, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		// Each tag adds no more than limit rows, however many events have it.
		rows, _ := tx.Query(ctx, `
			select distinct t.position from unnest($2::text[]) as w(tag)
			cross join lateral (
			  select t.position from tagged_events as t
			  where t.tenant_id = $1::uuid and t.tag = w.tag and t.position > $3 and t.position <= $4 order by t.position limit $5
			) as t order by t.position limit $5`, tenant, tags, after, upTo, limit)
		positions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(positions) == 0 {
			return err
		}
		last = positions[len(positions)-1]
		rows, _ = tx.Query(ctx, `
			select e.position, e.stream_id from events as e
			where e.tenant_id = $1 and e.position = any ($2::bigint[])
			  and (e.category = any ($3::text[]) or exists (select from unnest($4::text[]) as p(prefix) where starts_with(e.category, p.prefix)))
			order by e.position`, tenant, positions, categories, prefixes)
		caused, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Caused])
		return err
	})
	if err != nil {
		return nil, 0, pg.Unavailable(fmt.Errorf("look for events with causes: %w", err))
	}
	return caused, last, nil
}

// Unfinished says which erasures of a tenant were not finished at a time: one, and others. What the others have erased
// may still have left something elsewhere.
type Unfinished struct {
	Erasure domain.UUID
	Others  [][16]byte
	At      time.Time // the database's
}

// unerasedSQL is true for an event, of the events table as e, unless all its data was removed by the erasure $2, or by
// one that was finished at $4: any but $3.
const unerasedSQL = `(e.erased is null or e.gap is distinct from 'r' or not exists (
	select from erased_events as x
	where x.tenant_id = $1::uuid and x.position = e.position and (x.erasure_id = $2 or x.erased_at < $4 and x.erasure_id <> all (coalesce($3::uuid[], '{}')))))`

// UnerasedOf looks at a stream's next events after a version and up to a position, at most limit. It returns the
// positions of the events that have data or that another unfinished erasure has erased, and the version of the last
// event that it has looked at. 0: there are no more.
func (s *Log) UnerasedOf(ctx context.Context, tenant domain.TenantID, of Unfinished, stream string, after, upTo int64, limit int) (positions []int64, last int64, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			select e.stream_version, e.position, `+unerasedSQL+` from (
			  select * from events as e where e.tenant_id = $1::uuid and e.stream_id = $5 and e.stream_version > $6 order by e.stream_version limit $8
			) as e
			where e.position <= $7 order by e.stream_version`, tenant, [16]byte(of.Erasure), of.Others, of.At, stream, after, upTo, limit)
		var position int64
		var unerased bool
		_, err := pgx.ForEachRow(rows, []any{&last, &position, &unerased}, func() error {
			if unerased {
				positions = append(positions, position)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("look for the events of a stream to erase: %w", err)
	}
	return positions, last, nil
}

// Unerased returns, in order, those of the positions whose events UnerasedOf would return.
func (s *Log) Unerased(ctx context.Context, tenant domain.TenantID, of Unfinished, positions []int64) ([]int64, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "look for events to erase", pgx.RowTo[int64],
		"select e.position from events as e where e.tenant_id = $1::uuid and e.position = any ($5::bigint[]) and "+unerasedSQL+" order by e.position",
		tenant, [16]byte(of.Erasure), of.Others, of.At, positions)
}
