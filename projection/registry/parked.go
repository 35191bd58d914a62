package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
)

// A transaction that touches events waiting for a parked document locks the document's row: for share to park events,
// for update to remove them. So a document is never released while another transaction parks events for it.

// Exclusions returns what a build, made by a version of the projection's definition, leaves out for a tenant. Version 0
// represents a definition that is no version yet: only lasting skips apply to it. Both parts come from one snapshot.
func (s *Registry) Exclusions(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build, version int64) (domain.Exclusions, error) {
	var exclusions domain.Exclusions
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		exclusions = domain.Exclusions{Parked: make(map[string]int64)}
		var parked *string
		var position int64
		var skippedBy []string
		rows, _ := tx.Query(ctx, `
			select d.document_id, d.position, null::text[] from parked_documents d
			where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4
			union all
			(select null, e.position, e.documents from skipped_events e
			where e.tenant_id = $1 and e.owner = $2 and e.name = $3 and (e.lasting or e.version = $5))`,
			tenant, id.Owner, id.Name, build, version)
		_, err := pgx.ForEachRow(rows, []any{&parked, &position, &skippedBy}, func() error {
			switch {
			case parked != nil:
				exclusions.Parked[*parked] = position
			case skippedBy == nil:
				exclusions.Skipped = append(exclusions.Skipped, position)
			default:
				if exclusions.SkippedBy == nil {
					exclusions.SkippedBy = make(map[int64][]string)
				}
				exclusions.SkippedBy[position] = append(exclusions.SkippedBy[position], skippedBy...)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("read what a build leaves out: %w", err)
		}
		slices.Sort(exclusions.Skipped)
		exclusions.Skipped = slices.Compact(exclusions.Skipped)
		return nil
	})
	return exclusions, err
}

// Park parks documents, and events for these and for already parked documents. It may be repeated. ok is false if
// an event's document is no longer parked and not among documents. Nothing was stored then, and the caller's knowledge
// of the exclusions is outdated.
//
// A document that is already parked from an earlier position keeps that position.
func (s *Registry) Park(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, documents []domain.ParkedDocument, events []domain.ParkedEvent) (ok bool, err error) {
	waiting := make(map[string]struct{})
	ids, positions := make([]string, len(events)), make([]int64, len(events))
	for i, event := range events {
		ids[i], positions[i] = event.DocumentID, event.Position
		waiting[event.DocumentID] = struct{}{}
	}
	all := slices.Sorted(maps.Keys(waiting)) // a fixed order avoids deadlocks
	documents = slices.SortedFunc(slices.Values(documents), func(a, b domain.ParkedDocument) int { return strings.Compare(a.ID, b.ID) })
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		if len(documents) > 0 {
			if err := parkDocuments(ctx, tx, tenant, id, build, documents); err != nil {
				return err
			}
		}
		rows, _ := tx.Query(ctx, `
			select d.document_id from parked_documents d
			where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4 and d.document_id = any($5)
			order by d.document_id for share`, tenant, id.Owner, id.Name, build, all)
		there, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("lock parked documents: %w", err)
		}
		if len(there) < len(all) {
			return errNotParked
		}
		_, err = pg.Exec(ctx, tx, "park events", `
			insert into parked_events (tenant_id, owner, name, build, document_id, position)
			select d.tenant_id, d.owner, d.name, d.build, d.document_id, e.position
			from parked_documents d join unnest($5::text[], $6::bigint[]) as e (document_id, position) on e.document_id = d.document_id
			where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4
			on conflict do nothing`, tenant, id.Owner, id.Name, build, ids, positions)
		return err
	})
	if errors.Is(err, errNotParked) {
		return false, nil
	}
	return err == nil, err
}

// errNotParked aborts a transaction that finds a document no longer parked.
var errNotParked = errors.New("the document is no longer parked")

func parkDocuments(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, id domain.ProjectionID, build int64, documents []domain.ParkedDocument) error {
	var batch pgx.Batch
	for i := range documents {
		d := &documents[i]
		batch.Queue(`
			insert into parked_documents as d (tenant_id, owner, name, build, document_id, position, event_id, stream, event_type, place,
			  expression, message, before)
			values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
			on conflict (tenant_id, owner, name, build, document_id) do update
			  set position = excluded.position, event_id = excluded.event_id, stream = excluded.stream, event_type = excluded.event_type,
			    place = excluded.place, expression = excluded.expression, message = excluded.message, before = excluded.before
			  where excluded.position < d.position`,
			tenant, id.Owner, id.Name, build, d.ID, d.Position, d.EventID, d.Stream, d.EventType, d.Where, d.Expression, d.Message, jsonOrNull(d.Before))
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("park documents: %w", err)
	}
	return nil
}

const parkedColumns = `d.tenant_id, d.owner, d.name, d.build, d.document_id, d.position, d.event_id, d.stream, d.event_type, d.place,
	d.expression, d.message, d.before, d.parked_at, d.retries, d.retry_at, coalesce(d.removed_at, 0),
	(select count(*) from parked_events e where e.tenant_id = d.tenant_id and e.owner = d.owner and e.name = d.name and e.build = d.build
	  and e.document_id = d.document_id)`

func scanParked(row pgx.CollectableRow) (domain.ParkedDocument, error) {
	var d domain.ParkedDocument
	err := row.Scan(&d.Tenant, &d.Owner, &d.Name, &d.Build, &d.ID, &d.Position, &d.EventID, &d.Stream, &d.EventType, &d.Where,
		&d.Expression, &d.Message, (*[]byte)(&d.Before), (*pg.Moment)(&d.ParkedAt), &d.Retries, (*pg.Moment)(&d.RetryAt), &d.RemovedAt, &d.Events)
	if d.ID != "" && d.ID[0] != ' ' {
		d.DocumentID = d.ID
	}
	return d, err
}

// ParkedDocuments returns the first limit documents after the id after (empty: from the first) that a build has parked
// for a tenant, ordered by id.
func (s *Registry) ParkedDocuments(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, after string, limit int) ([]domain.ParkedDocument, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list the parked documents", scanParked, "select "+parkedColumns+` from parked_documents d
		where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4 and d.document_id > $5
		order by d.document_id limit $6`, tenant, id.Owner, id.Name, build, after, limit)
}

// CountParked returns how many documents a build has parked for a tenant.
func (s *Registry) CountParked(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64) (count int64, err error) {
	count, _, err = pg.SelectOneUnder(ctx, s.db.App, tenant, "count the parked documents", pgx.RowTo[int64],
		"select count(*) from parked_documents where tenant_id = $1 and owner = $2 and name = $3 and build = $4", tenant, id.Owner, id.Name, build)
	return count, err
}

// ParkedDocument returns one parked document; ok is false if it is not parked.
func (s *Registry) ParkedDocument(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, document string) (parked domain.ParkedDocument, ok bool, err error) {
	return pg.SelectOneUnder(ctx, s.db.App, tenant, "read a parked document", scanParked, "select "+parkedColumns+` from parked_documents d
		where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4 and d.document_id = $5`, tenant, id.Owner, id.Name, build, document)
}

// RemoveParked records that a waiting event, at a position, is about to remove a parked document. For a document that
// is not parked it records nothing.
func (s *Registry) RemoveParked(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, document string, position int64) error {
	_, err := pg.ExecUnder(ctx, s.db.App, tenant, "record the removal of a parked document", `
		update parked_documents d set removed_at = $6
		where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4 and d.document_id = $5`,
		tenant, id.Owner, id.Name, build, document, position)
	return err
}

// ParkedEvents returns the first limit events after position after that wait for a build's parked document, in order.
func (s *Registry) ParkedEvents(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, document string, after int64, limit int) ([]domain.Event, error) {
	var events []domain.Event
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) (err error) {
		events, err = parkedEvents(ctx, tx, tenant, id, build, document, after, limit)
		return err
	})
	return events, err
}

func parkedEvents(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, id domain.ProjectionID, build int64, document string, after int64, limit int) ([]domain.Event, error) {
	rows, _ := tx.Query(ctx, "select "+eventlog.EventColumns+` from parked_events p
		join events e on e.tenant_id = p.tenant_id and e.position = p.position
		where p.tenant_id = $1 and p.owner = $2 and p.name = $3 and p.build = $4 and p.document_id = $5
		  and p.position > $6
		order by p.position limit $7`, tenant, id.Owner, id.Name, build, document, after, limit)
	events, err := pgx.CollectRows(rows, scanEvent)
	if err != nil {
		return nil, fmt.Errorf("read the events that wait for a parked document: %w", err)
	}
	return events, nil
}

func scanEvent(row pgx.CollectableRow) (domain.Event, error) {
	var e domain.Event
	var gap, tags []byte
	err := row.Scan(&e.ID, &e.Stream, &e.Version, &e.Position, &e.Type, (*[]byte)(&e.Data), (*[]byte)(&e.Metadata), (*pg.Moment)(&e.OccurredAt), (*pg.Moment)(&e.RecordedAt), &gap, &tags)
	eventlog.PutTags(&e, tags)
	if err == nil && gap != nil {
		err = eventlog.PutGap(&e, gap)
	}
	return e, err
}

// Unpark removes waiting events, at the given positions, of a build's parked document, because they have taken effect.
// If no event waits any longer, the document is unparked and unparked is true; events parked meanwhile keep it parked.
// With a failure, which must be that of the first event still waiting, the document stays parked. unparked is also true
// for a document that was not parked.
func (s *Registry) Unpark(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, document string, done []int64, failure *domain.ParkedDocument) (unparked bool, err error) {
	err = s.retry(ctx, tenant, id, func(tx pgx.Tx) error {
		parked, _, err := lockParked(ctx, tx, tenant, id, build, document)
		if unparked = !parked; unparked || err != nil {
			return err
		}
		unparked, err = unpark(ctx, tx, tenant, id, build, document, done, failure)
		return err
	})
	return unparked && err == nil, err
}

// UnparkHeld is Unpark with the result of fold. While fold runs, no event can be parked for the document: an attempt to
// do so waits until UnparkHeld returns, or fails after 4 s. fold receives the position of the event that removed the
// document (0: none, see RemoveParked) and waiting, which is ParkedEvents of the document. If waiting answers, the
// document is still held. If fold returns an error, UnparkHeld returns it and removes nothing. fold is not called if
// the document is not parked.
//
// UnparkHeld holds a connection of the app login for all that time. fold must make no other call to the store, because
// no other connection may be left. So the caller must allow only a few of these at a time in a process.
func (s *Registry) UnparkHeld(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, document string,
	fold func(ctx context.Context, removedAt int64, waiting func(ctx context.Context, after int64, limit int) ([]domain.Event, error)) (done []int64, failure *domain.ParkedDocument, err error),
) (unparked bool, err error) {
	var foldErr error
	err = s.retry(ctx, tenant, id, func(tx pgx.Tx) error {
		parked, removedAt, err := lockParked(ctx, tx, tenant, id, build, document)
		if unparked = !parked; unparked || err != nil {
			return err
		}
		waiting := func(ctx context.Context, after int64, limit int) ([]domain.Event, error) {
			return parkedEvents(ctx, tx, tenant, id, build, document, after, limit)
		}
		var done []int64
		var failure *domain.ParkedDocument
		if done, failure, foldErr = fold(ctx, removedAt, waiting); foldErr != nil {
			return foldErr
		}
		unparked, err = unpark(ctx, tx, tenant, id, build, document, done, failure)
		return err
	})
	if foldErr != nil {
		err = pg.Unavailable(foldErr)
	}
	return unparked && err == nil, err
}

// unpark does the work of Unpark in a transaction that has locked the document's row.
func unpark(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, id domain.ProjectionID, build int64, document string, done []int64, failure *domain.ParkedDocument) (unparked bool, err error) {
	_, err = pg.Exec(ctx, tx, "remove waiting events", `
		delete from parked_events e
		where e.tenant_id = $1 and e.owner = $2 and e.name = $3 and e.build = $4 and e.document_id = $5
		  and (e.position = any($6)
		    or not exists (select from events l where l.tenant_id = e.tenant_id and l.position = e.position))`, // removed from the log
		tenant, id.Owner, id.Name, build, document, done)
	if err != nil {
		return false, err
	}
	if failure != nil {
		_, err := pg.Exec(ctx, tx, "change a parked document", `
			update parked_documents d set position = @position, event_id = @event, stream = @stream, event_type = @type, place = @place,
			  expression = @expression, message = @message, before = @before
			where d.tenant_id = @tenant and d.owner = @owner and d.name = @name and d.build = @build and d.document_id = @document`,
			pgx.NamedArgs{
				"tenant": tenant, "owner": id.Owner, "name": id.Name, "build": build, "document": document, "position": failure.Position,
				"event": failure.EventID, "stream": failure.Stream, "type": failure.EventType, "place": failure.Where,
				"expression": failure.Expression, "message": failure.Message, "before": jsonOrNull(failure.Before),
			})
		return false, err
	}
	deleted, err := pg.Exec(ctx, tx, "unpark a document", `
		delete from parked_documents d
		where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4 and d.document_id = $5
		  and not exists (select from parked_events e where e.tenant_id = d.tenant_id and e.owner = d.owner and e.name = d.name
		    and e.build = d.build and e.document_id = d.document_id)`, tenant, id.Owner, id.Name, build, document)
	return deleted > 0, err
}

// lockParked locks a parked document's row and returns the position of the event that removed the document (0: none).
// parked is false if there is no row.
func lockParked(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, id domain.ProjectionID, build int64, document string) (parked bool, removedAt int64, err error) {
	removedAt, parked, err = pg.SelectOne(ctx, tx, "lock a parked document", pgx.RowTo[int64], `
		select coalesce(d.removed_at, 0) from parked_documents d
		where d.tenant_id = $1 and d.owner = $2 and d.name = $3 and d.build = $4 and d.document_id = $5 for update`,
		tenant, id.Owner, id.Name, build, document)
	return parked, removedAt, err
}

// DiscardParked gives up the events that wait for a build's parked document. Each becomes a skipped event of the
// projection, with skip's Version, Documents, By and Reason, and the document is released. Those at the positions in
// whole are skipped for all of their documents. Events at or before folded are already in the document, through an
// incomplete replay, and are not skipped. It returns domain.CodeNotFound if the document is not parked.
func (s *Registry) DiscardParked(ctx context.Context, skip domain.SkippedEvent, build int64, document string, folded int64, whole []int64) error {
	return s.retry(ctx, skip.Tenant, skip.ProjectionID, func(tx pgx.Tx) error {
		parked, _, err := lockParked(ctx, tx, skip.Tenant, skip.ProjectionID, build, document)
		if err != nil {
			return err
		}
		if !parked {
			return domain.Errorf(domain.CodeNotFound, "documentId", "projection %q has no parked document %q", skip.Name, document)
		}
		_, err = pg.Exec(ctx, tx, "record discarded events", `
			insert into skipped_events as s (tenant_id, owner, name, version, position, event_id, message, reason, by, lasting, documents)
			select p.tenant_id, p.owner, p.name, @version::bigint, p.position, e.event_id, d.message, @reason::text, @by::text, true,
			  case when p.position = any(@whole::bigint[]) then null else @documents::text[] end
			from parked_documents d
			join parked_events p on p.tenant_id = d.tenant_id and p.owner = d.owner and p.name = d.name and p.build = d.build and p.document_id = d.document_id
			join events e on e.tenant_id = p.tenant_id and e.position = p.position
			where d.tenant_id = @tenant and d.owner = @owner and d.name = @name and d.build = @build and d.document_id = @document
			  and p.position > @folded
			on conflict (tenant_id, owner, name, version, position) do update set lasting = true, documents =
			  case when s.documents is null or excluded.documents is null then null else s.documents || excluded.documents end`,
			pgx.NamedArgs{
				"tenant": skip.Tenant, "owner": skip.Owner, "name": skip.Name, "build": build, "document": document, "folded": folded,
				"version": skip.Version, "reason": skip.Reason, "by": skip.By, "documents": skip.Documents, "whole": whole,
			})
		if err != nil {
			return err
		}
		return deleteParked(ctx, tx, skip.Tenant, skip.ProjectionID, build, &document)
	})
}

// deleteParked removes what a build has parked for a tenant: one document with its events; nil: all.
func deleteParked(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, id domain.ProjectionID, build int64, document *string) error {
	for _, table := range []string{"parked_events", "parked_documents"} {
		_, err := pg.Exec(ctx, tx, "delete "+table, "delete from "+table+` t
			where t.tenant_id = $1 and t.owner = $2 and t.name = $3 and t.build = $4 and ($5::text is null or t.document_id = $5)`,
			tenant, id.Owner, id.Name, build, document)
		if err != nil {
			return err
		}
	}
	return nil
}

// ParkedIDs returns the ids of the documents that a build has parked, by tenant.
func (s *Registry) ParkedIDs(ctx context.Context, id domain.ProjectionID, build int64) (map[domain.TenantID][]string, error) {
	parked := make(map[domain.TenantID][]string)
	var tenant domain.TenantID
	var document string
	rows, _ := s.db.System.Query(ctx, `
		select d.tenant_id, d.document_id from parked_documents d
		where d.owner = $1 and d.name = $2 and d.build = $3 and ($4 or d.tenant_id = $1) order by d.tenant_id, d.document_id`,
		id.Owner, id.Name, build, id.Shared())
	_, err := pgx.ForEachRow(rows, []any{&tenant, &document}, func() error {
		parked[tenant] = append(parked[tenant], document)
		return nil
	})
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list what a build has parked: %w", err))
	}
	return parked, nil
}

// DeleteParked removes what a build has parked for all tenants, tenant by tenant.
func (s *Registry) DeleteParked(ctx context.Context, id domain.ProjectionID, build int64) error {
	parked, err := s.ParkedIDs(ctx, id, build)
	if err != nil {
		return err
	}
	for tenant := range parked {
		err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error { return deleteParked(ctx, tx, tenant, id, build, nil) })
		if err != nil {
			return err
		}
	}
	return nil
}
