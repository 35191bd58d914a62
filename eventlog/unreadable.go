package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Earlier releases accepted numbers such as 1e131071, of which JSONB prints every digit. An event full of them cannot
// be printed: PostgreSQL gives up beyond 1 GB, or sends more than this process should hold. Reads do not look for such
// events in advance. A read that fails on them searches for them in its range, marks them in the column gap, and reads
// again. From then on every read skips them at no cost (docs/decisions/0049-gaps-in-place.md).

// UnreadableBytes is the printed length of data and metadata together from which on an event is marked as unreadable.
const UnreadableBytes = 16 << 20 // maxMessageBytes must be more than twice this

// PrintedSQL estimates the printed length of a jsonb without printing it; the estimate is never too high. For each
// number it adds the digits after the decimal point, and the digits before it rounded down to a power of two, from 16
// on. A value that is stored uncompressed in less than 2,000 bytes cannot be long. So for most events only the stored
// size is examined.
func PrintedSQL(column string) string {
	return `case when pg_column_size(` + column + `) < 2000 and pg_column_compression(` + column + `) is null then 0 else (
		select coalesce(sum(scale(n.number) + (array[0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536])[1 + width_bucket(abs(n.number),
			array[1e16, 1e32, 1e64, 1e128, 1e256, 1e512, 1e1024, 1e2048, 1e4096, 1e8192, 1e16384, 1e32768, 1e65536]::numeric[])]), 0)
		from (
			select q.item::numeric as number
			from jsonb_path_query(` + column + `, 'strict $.** ? (@.type() == "number")') as q(item)
		) as n) end`
}

// unreadableSQL is true for an event, of the events table as e, that cannot be printed and is not marked yet.
var unreadableSQL = fmt.Sprintf(`(e.gap is null and %s + %s > %d)`,
	PrintedSQL("e.event_data"), PrintedSQL("coalesce(e.metadata, 'null')"), UnreadableBytes)

// gapSQL returns why an event, of the events table as e, has no data, or which erasure has changed it, in the form that
// PutGap expects. $1 is the tenant.
const gapSQL = `case
			when e.gap is not null then jsonb_build_object('reason', case when e.gap <> 'r' then 'unreadable' when e.erased then 'erased' else 'redacted' end,
				'message', case e.gap when 'r' then e.metadata -> 'redacted' end, 'at', e.gap_at)
			when e.erased then (
				select jsonb_build_object('erasure', x.erasure_id, 'at', x.erased_at) from erased_events as x
				where x.tenant_id = $1::uuid and x.position = e.position order by x.erased_at desc limit 1
			) end`

const unreadableMessage = "its data is too long to read: it has numbers such as 1e131071, which are stored with all their digits"

// PutTags sets an event's tags from the last of EventColumns.
func PutTags(event *domain.Event, text []byte) { event.Tags = tagsOf(text) }

// PutGap removes an event's data and sets its gap, or sets the erasure that has changed its data.
func PutGap(event *domain.Event, text []byte) error {
	var found struct {
		domain.EventGap
		Erasure string `json:"erasure"`
	}
	found.Message = unreadableMessage // a redacted event has the operator's message
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("read why the event at position %d has no data: %w", event.Position, err)
	}
	found.At = found.At.UTC()
	if found.Erasure != "" {
		erasure, err := domain.ParseUUID(found.Erasure)
		event.Erased = &domain.EventErasure{Erasure: erasure, At: found.At}
		return err
	}
	event.Data, event.Gap = json.RawMessage("null"), &found.EventGap
	return nil
}

// gapSearches are the running searches for unreadable events: at most one per tenant and only a few in total. A search
// takes processor time in PostgreSQL, up to the statement_timeout of appSettings.
type gapSearches struct {
	mu      sync.Mutex
	running map[domain.TenantID]*gapSearch
	places  chan struct{}
}

type gapSearch struct {
	done  chan struct{}
	found int
	err   error
}

const (
	gapSearchesAtOnce = 2
	gapSearchTimeout  = time.Minute
)

// markGaps searches the events that queries read for unreadable ones, marks them, and returns their number. Concurrent
// calls for the same tenant share the result. The search continues after its client has gone, for the benefit of the
// next.
func (s *Log) markGaps(ctx context.Context, tenant domain.TenantID, queries []pg.Query) (int, error) {
	s.gaps.mu.Lock()
	search, running := s.gaps.running[tenant]
	if !running && s.appending.Err() == nil {
		search = &gapSearch{done: make(chan struct{})}
		s.gaps.running[tenant] = search
		s.announcing.Go(func() {
			defer close(search.done)
			search.found, search.err = s.searchGaps(tenant, queries)
			s.gaps.mu.Lock()
			delete(s.gaps.running, tenant)
			s.gaps.mu.Unlock()
		})
	}
	s.gaps.mu.Unlock()
	if search == nil {
		return 0, nil
	}
	select {
	case <-search.done:
		return search.found, search.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (s *Log) searchGaps(tenant domain.TenantID, queries []pg.Query) (int, error) {
	ctx, cancel := context.WithTimeout(s.appending, gapSearchTimeout)
	defer cancel()
	select {
	case s.gaps.places <- struct{}{}:
		defer func() { <-s.gaps.places }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	var found []int64
	var failed error
	for _, q := range queries {
		if !strings.Contains(q.Statement.SQL, EventColumns) {
			continue
		}
		// The query finds the same rows in the same order. Events found before an error, such as a timeout, count.
		st := pg.Statement{Name: q.Statement.Name + "_gaps", SQL: strings.Replace(q.Statement.SQL, EventColumns, "e.position, "+unreadableSQL, 1)}
		err := s.db.Once(ctx, &pg.BeginStatement, tenant, []pg.Query{{Statement: &st, Params: q.Params, Row: func(values [][]byte) error {
			if pg.BoolValue(values[1]) {
				found = append(found, pg.Int8Value(values[0]))
			}
			return nil
		}}})
		failed = errors.Join(failed, err)
	}
	if len(found) == 0 {
		return 0, failed
	}
	if err := s.putGaps(ctx, tenant, found); err != nil {
		return 0, err
	}
	s.db.Log.Warn("events cannot be read, since their numbers are too long to be printed: they are marked, and readers step over them; `manifold doctor` lists them, and `manifold redact` removes their data",
		"tenant", tenant.String(), "events", len(found), "first", found[0], "last", found[len(found)-1])
	return len(found), nil
}

// putGaps marks events as unreadable.
func (s *Log) putGaps(ctx context.Context, tenant domain.TenantID, positions []int64) error {
	err := pg.Under(ctx, s.db.Retention, tenant, func(tx pgx.Tx) error {
		var batch pgx.Batch
		for _, position := range positions {
			batch.Queue("update events as e set gap = 'u', gap_at = now() where e.tenant_id = $1 and e.position = $2 and e.gap is null", tenant, position)
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return fmt.Errorf("mark unreadable events: %w", err)
	}
	return nil
}

// FindUnreadable searches the positions (after, upTo] of a tenant's log and returns the unreadable events, ordered by
// position. It leaves out events that an operator has redacted. It prints no event and changes nothing.
func (s *Log) FindUnreadable(ctx context.Context, tenant domain.TenantID, after, upTo int64) ([]domain.UnreadableEvent, error) {
	var found []domain.UnreadableEvent
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			select e.position, e.event_id, e.stream_id, e.stream_version, e.event_type from events as e
			where e.tenant_id = $1 and e.position > $2 and e.position <= $3
			  and (e.gap = 'u' or `+unreadableSQL+`)
			order by e.position`, tenant, after, upTo)
		var err error
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e domain.UnreadableEvent, err error) {
			return e, row.Scan(&e.Position, (*[16]byte)(&e.ID), &e.Stream, &e.Version, &e.Type)
		})
		if err != nil {
			return fmt.Errorf("look for unreadable events: %w", err)
		}
		return nil
	})
	return found, err
}

// RedactEvent removes the data and metadata of an unreadable event and stores the reason in their place. Id, stream,
// version, position, type and times stay. An event that was redacted before stays unchanged. It returns
// domain.CodeNotFound if there is no such event, and domain.CodeConflict if the event can be read.
func (s *Log) RedactEvent(ctx context.Context, tenant domain.TenantID, position int64, reason string) (domain.Event, error) {
	err := pg.Under(ctx, s.db.Retention, tenant, func(tx pgx.Tx) error {
		var before string
		var unreadable bool
		err := tx.QueryRow(ctx, `
			select coalesce(e.gap::text, ''), `+unreadableSQL+` from events as e
			where e.tenant_id = $1 and e.position = $2 for update`, tenant, position).Scan(&before, &unreadable)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return domain.Errorf(domain.CodeNotFound, "path position", "the tenant's log has no event at position %d", position)
		case err != nil:
			return fmt.Errorf("look at an event that is to be redacted: %w", err)
		case before == "r":
			return nil
		case before == "" && !unreadable:
			return domain.Errorf(domain.CodeConflict, "path position",
				"the event at position %d is readable: events are immutable, and only unreadable ones can be redacted. `manifold doctor` lists those", position)
		}
		_, err = tx.Exec(ctx, `
			update events as e set event_data = 'null', metadata = jsonb_build_object('redacted', $3::text), gap = 'r', gap_at = now()
			where e.tenant_id = $1 and e.position = $2`, tenant, position, reason)
		if err != nil {
			return fmt.Errorf("redact an event: %w", err)
		}
		return nil
	})
	if err != nil {
		return domain.Event{}, err
	}
	events, err := s.ReadPositions(ctx, tenant, []int64{position})
	if err == nil && len(events) == 0 {
		err = domain.Errorf(domain.CodeNotFound, "path position", "the event at position %d has just been removed", position)
	}
	if err != nil {
		return domain.Event{}, err
	}
	return events[0], nil
}
