package eventlog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Erasing says what Erase removes from events.
type Erasing struct {
	Erasure domain.UUID
	Tag     string // is removed from the events, too; empty: none
	// Personal returns JSON Pointers to the personal data in an event of the type that names the schema version (0:
	// none). None: all data and metadata are removed. Nil: of all events.
	Personal func(eventType string, version int64) []string
	Derived  bool // the service has made the events from those of a subject
}

// EraseAtOnce is the largest number of events that callers should pass to Erase: appends wait meanwhile.
const EraseAtOnce = 20

// Erase removes the data of a person from events, in one transaction with before and after; the events keep their
// positions, ids, streams, versions, types, times and other tags. An event that has been removed stays removed.
// Afterwards writers of all processes have forgotten what they remembered of tags. It may be repeated. If pg.Busy
// reports true for the SQLSTATE of the error, a concurrent transaction held the same rows: retry. The error is
// domain.CodeNotFound if the log no longer exists.
func (s *Log) Erase(ctx context.Context, tenant domain.TenantID, e Erasing, positions []int64, before, after func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.db.Retention, pgx.TxOptions{
		// See Retag.
		BeginQuery: fmt.Sprintf("begin; set local manifold.tenant = '%s'; set local lock_timeout = %d", tenant, retagLockTimeout.Milliseconds()),
	}, func(tx pgx.Tx) error {
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
		select e.position, e.event_type, coalesce(e.metadata ->> 'schemaVersion', ''), e.gap is not null,
		  case when e.gap is null and not `+unreadableSQL+` then e.event_data end
		from events as e where e.tenant_id = $1 and e.position = any ($2::bigint[]) order by e.position for update`, tenant, positions)
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (event erasable, err error) {
		return event, row.Scan(&event.position, &event.eventType, &event.version, &event.gap, &event.data)
	})
	if err != nil {
		return fmt.Errorf("read the events to erase: %w", err)
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
			insert into erased_events (tenant_id, position, erasure_id, derived) values ($1, $2, $3, $4)
			on conflict (tenant_id, position, erasure_id) do nothing`, tenant, event.position, [16]byte(e.Erasure), e.Derived)
	}
	runs.queue(&batch, tenant)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("erase events: %w", err)
	}
	return nil
}

// without returns the tags without one of them.
func (t storedTags) without(tag string) storedTags {
	is := func(one string) bool { return one == tag }
	return storedTags{slices.DeleteFunc(slices.Clone(t.tags), is), slices.DeleteFunc(slices.Clone(t.derived), is)}
}

// withoutPersonal returns an event's data with null for its personal fields. ok is false if all of its data is
// personal.
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
	for _, pointer := range pointers {
		setNull(value, strings.Split(pointer, "/")[1:])
	}
	if data, err = json.Marshal(value); err != nil {
		return nil, false
	}
	return data, true
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// setNull sets what the tokens of a JSON Pointer lead to, if it is there, to null.
func setNull(value any, tokens []string) {
	token := unescapePointer.Replace(tokens[0])
	switch value := value.(type) {
	case map[string]any:
		member, there := value[token]
		switch {
		case there && len(tokens) == 1:
			value[token] = nil
		case there:
			setNull(member, tokens[1:])
		}
	case []any:
		index, err := strconv.Atoi(token)
		switch {
		case err != nil || index < 0 || index >= len(value):
		case len(tokens) == 1:
			value[index] = nil
		default:
			setNull(value[index], tokens[1:])
		}
	}
}

// TaggedPositions returns the positions in (after, upTo] of the first events with a tag, at most limit, in order.
func (s *Log) TaggedPositions(ctx context.Context, tenant domain.TenantID, tag string, after, upTo int64, limit int) ([]int64, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "look for events with a tag", pgx.RowTo[int64], `
		select t.position from tagged_events t
		where t.tenant_id = $1 and t.tag = $2 and t.position > $3 and t.position <= $4 order by t.position limit $5`, tenant, tag, after, upTo, limit)
}

// TaggedType counts the events of a type with a tag.
type TaggedType struct {
	Type   string
	Events int64
}

// CountTagged counts the events with a tag up to a position, by type, and the streams that they are in.
func (s *Log) CountTagged(ctx context.Context, tenant domain.TenantID, tag string, upTo int64) (types []TaggedType, streams int64, err error) {
	types, err = pg.SelectUnder(ctx, s.db.App, tenant, "count events with a tag", pgx.RowToStructByPos[TaggedType], `
		select t.event_type, count(*) from tagged_events t
		where t.tenant_id = $1 and t.tag = $2 and t.position <= $3 group by t.event_type order by t.event_type`, tenant, tag, upTo)
	if err != nil {
		return nil, 0, err
	}
	streams, _, err = pg.SelectOneUnder(ctx, s.db.App, tenant, "count the streams of events with a tag", pgx.RowTo[int64], `
		select count(distinct e.stream_id) from tagged_events t
		join events e on e.tenant_id = t.tenant_id and e.position = t.position
		where t.tenant_id = $1 and e.tenant_id = $1 and t.tag = $2 and t.position <= $3`, tenant, tag, upTo)
	return types, streams, err
}

// ErasedEvent is an event that an erasure has changed.
type ErasedEvent struct {
	Position int64
	Erasure  domain.UUID
	ID       domain.EventID
	Stream   string
	Type     string
}

// ErasedBy returns the first events after a position that an erasure has changed and that still exist, at most limit,
// in order.
func (s *Log) ErasedBy(ctx context.Context, tenant domain.TenantID, erasure domain.UUID, after int64, limit int) ([]ErasedEvent, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list the events of an erasure", func(row pgx.CollectableRow) (ErasedEvent, error) {
		e := ErasedEvent{Erasure: erasure}
		return e, row.Scan(&e.Position, (*[16]byte)(&e.ID), &e.Stream, &e.Type)
	}, `
		select x.position, e.event_id, e.stream_id, e.event_type from erased_events x
		join events e on e.tenant_id = x.tenant_id and e.position = x.position
		where x.tenant_id = $1 and e.tenant_id = $1 and x.erasure_id = $2 and x.position > $3 order by x.position limit $4`, tenant, [16]byte(erasure), after, limit)
}

// ErasedStreams counts the streams of the events that an erasure has changed, and how many of these have a text in
// their name.
func (s *Log) ErasedStreams(ctx context.Context, tenant domain.TenantID, erasure domain.UUID, text string) (streams, named int64, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `
			select count(distinct e.stream_id), count(distinct e.stream_id) filter (where strpos(e.stream_id, $3) > 0) from erased_events x
			join events e on e.tenant_id = x.tenant_id and e.position = x.position
			where x.tenant_id = $1 and e.tenant_id = $1 and x.erasure_id = $2`, tenant, [16]byte(erasure), text).Scan(&streams, &named)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("count the streams of an erasure: %w", err)
	}
	return streams, named, nil
}

// ErasedPositions returns which events in the positions from first up to last erasures have changed, and the last
// erasure of each, ordered by position. It includes events that retention has removed since.
func (s *Log) ErasedPositions(ctx context.Context, tenant domain.TenantID, first, last int64) (map[int64]domain.UUID, error) {
	erased := make(map[int64]domain.UUID)
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			select x.position, x.erasure_id from erased_events x
			where x.tenant_id = $1 and x.position between $2 and $3 order by x.position, x.erased_at`, tenant, first, last)
		var position int64
		var erasure [16]byte
		_, err := pgx.ForEachRow(rows, []any{&position, &erasure}, func() error {
			erased[position] = erasure
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list erased events: %w", err)
	}
	return erased, nil
}

// Caused is an event that has one of the tags that were looked for.
type Caused struct {
	Position int64
	Stream   string
}

// CausedBy returns the events with any of the tags, in one of the categories or in one that begins with a prefix, up to
// a position.
func (s *Log) CausedBy(ctx context.Context, tenant domain.TenantID, tags, categories, prefixes []string, upTo int64) ([]Caused, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "look for events with causes", pgx.RowToStructByPos[Caused], `
		select e.position, e.stream_id from tagged_events t
		join events e on e.tenant_id = t.tenant_id and e.position = t.position
		where t.tenant_id = $1 and e.tenant_id = $1 and t.tag = any ($2::text[]) and t.position <= $5
		  and (e.category = any ($3::text[]) or exists (select from unnest($4::text[]) as p(prefix) where starts_with(e.category, p.prefix)))
		order by e.position`, tenant, tags, categories, prefixes, upTo)
}

// UnerasedOf returns the positions up to upTo of a stream's first events that an erasure has not changed yet, at most
// limit.
func (s *Log) UnerasedOf(ctx context.Context, tenant domain.TenantID, stream string, erasure domain.UUID, upTo int64, limit int) ([]int64, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "look for the events of a stream to erase", pgx.RowTo[int64], `
		select e.position from events e
		where e.tenant_id = $1 and e.stream_id = $2 and e.position <= $4 and not exists (
		  select from erased_events x where x.tenant_id = $1 and x.position = e.position and x.erasure_id = $3)
		order by e.stream_version limit $5`, tenant, stream, [16]byte(erasure), upTo, limit)
}

// Kind is a category and a type of events.
type Kind struct{ Category, Type string }

// TaggedKinds returns the categories and types of the events with a tag up to a position.
func (s *Log) TaggedKinds(ctx context.Context, tenant domain.TenantID, tag string, upTo int64) ([]Kind, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list the kinds of events with a tag", pgx.RowToStructByPos[Kind], `
		select distinct e.category, e.event_type from tagged_events t
		join events e on e.tenant_id = t.tenant_id and e.position = t.position
		where t.tenant_id = $1 and e.tenant_id = $1 and t.tag = $2 and t.position <= $3`, tenant, tag, upTo)
}

// ErasedKinds returns the categories and types of the events that an erasure has changed.
func (s *Log) ErasedKinds(ctx context.Context, tenant domain.TenantID, erasure domain.UUID) ([]Kind, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list the kinds of erased events", pgx.RowToStructByPos[Kind], `
		select distinct e.category, e.event_type from erased_events x
		join events e on e.tenant_id = x.tenant_id and e.position = x.position
		where x.tenant_id = $1 and e.tenant_id = $1 and x.erasure_id = $2`, tenant, [16]byte(erasure))
}
