package eventlog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// A row of event_tags is a run: a line of tags for each of some consecutive events, from the row's position on. Its
// last lines may be missing, and an event has the tags of its line in the last run that begins at or before it. So a
// run has no tags after the beginning of the next one. See docs/decisions/0099-runs-of-tags.md.
const (
	// runEvents is the largest number of events in a run. Readers look no further back, so it must not be lowered
	// later.
	runEvents = 32
	// runBytes is the length of a run's tags from which on no line is added. PostgreSQL would store about 2,000 bytes
	// elsewhere, and reading any of the events would fetch them.
	runBytes = 1500
)

// runOf selects from the last run, g, that begins at or before a position of the tenant $1.
func runOf(columns, position string) string {
	return `select ` + columns + ` from event_tags as g
				where g.tenant_id = $1::uuid and g.position <= ` + position + ` order by g.position desc limit 1`
}

// lineOf selects an event's line from a run, g. No run has lines beyond the largest one's.
func lineOf(column, position string) string {
	return `split_part(` + column + `, e'\n', least(` + position + ` - g.position, ` + strconv.Itoa(runEvents) + `)::integer + 1)`
}

// tagsSQL returns the tags of an event of the tenant $1, of the events table as e, joined by spaces; null if it has
// none.
var tagsSQL = `case when e.tagged then (` + runOf(lineOf("g.tags", "e.position"), "e.position") + `) end`

// tagsOf splits a line of tags.
func tagsOf(line []byte) []string { return split(string(line)) }

func split(line string) []string {
	if line == "" {
		return nil
	}
	return strings.Split(line, " ")
}

// tagLines are the lines of a run that is being made.
type tagLines struct {
	text []byte
	line int64 // the last one, from 0
}

// put gives an event its tags. Lines rise.
func (l *tagLines) put(line int64, tags []string) {
	for i, tag := range tags {
		for ; l.line < line; l.line++ {
			l.text = append(l.text, '\n')
		}
		if i > 0 {
			l.text = append(l.text, ' ')
		}
		l.text = append(l.text, tag...)
	}
}

// newRun is a run of events that are appended.
type newRun struct {
	first         int64 // its first event's place in the batch, from 1
	tags, derived tagLines
}

// appendToRuns adds the next tagged event of a batch to its runs.
func appendToRuns(runs []newRun, place int64, event *domain.NewEvent) []newRun {
	if last := len(runs) - 1; last < 0 || place-runs[last].first >= runEvents || len(runs[last].tags.text) >= runBytes {
		runs = append(runs, newRun{first: place})
	}
	run := &runs[len(runs)-1]
	run.tags.put(place-run.first, event.Tags)
	run.derived.put(place-run.first, event.Derived)
	return runs
}

// storedTags are the tags of a stored event.
type storedTags struct{ tags, derived []string }

func (t storedTags) equal(other storedTags) bool {
	return slices.Equal(t.tags, other.tags) && slices.Equal(t.derived, other.derived)
}

// The statements that change stored tags. Each row is named by its whole key, since without statistics the planner
// would rather read a tenant's part of the index.
var (
	lockRuns = pg.Statement{Name: "manifold_lock_runs", SQL: `
		select g.position, g.tags, coalesce(g.derived, '') from unnest($2::bigint[]) as p(position)
		cross join lateral (` + runOf("*", "p.position") + ` for update) as g`}
	insertRun = pg.Statement{Name: "manifold_insert_run", SQL: `
		insert into event_tags (tenant_id, position, tags, derived) values ($1::uuid, $2::bigint, $3::text, $4::text)`}
	updateRun = pg.Statement{Name: "manifold_update_run", SQL: `
		update event_tags as g set tags = $3::text, derived = $4::text where g.tenant_id = $1::uuid and g.position = $2::bigint`}
	deleteRun = pg.Statement{Name: "manifold_delete_run", SQL: `
		delete from event_tags as g where g.tenant_id = $1::uuid and g.position = $2::bigint`}
	insertTag = pg.Statement{Name: "manifold_insert_tag", SQL: `
		insert into tagged_events (tenant_id, tag, position, event_type) values ($1::uuid, $2::text, $3::bigint, $4::text)`}
	deleteTag = pg.Statement{Name: "manifold_delete_tag", SQL: `
		delete from tagged_events as t where t.tenant_id = $1::uuid and t.tag = $2::text and t.position = $3::bigint`}
)

// run is a stored run, or one to be inserted.
type run struct {
	tags, derived   []string // lines
	stored, changed bool
}

// runs are the locked runs of some events, by position.
type runs map[int64]*run

// lockRunsOf reads the runs of the events at positions, and keeps others from changing them. It locks them in the order
// of positions.
func lockRunsOf(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, positions []int64) (runs, error) {
	all := make(runs)
	var position int64
	var tags, derived string
	rows, _ := tx.Query(ctx, lockRuns.SQL, tenant, slices.Sorted(slices.Values(positions)))
	_, err := pgx.ForEachRow(rows, []any{&position, &tags, &derived}, func() error {
		if all[position] == nil {
			all[position] = &run{tags: strings.Split(tags, "\n"), derived: strings.Split(derived, "\n"), stored: true}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the tags of events: %w", err)
	}
	return all, nil
}

// find returns the run of the event at a position, if there is one, and the event's line.
func (r runs) find(position int64) (found *run, line int) {
	for line := range runEvents {
		if found = r[position-int64(line)]; found != nil {
			return found, line
		}
	}
	return nil, 0
}

// get returns the tags of the event at a position.
func (r runs) get(position int64) storedTags {
	run, line := r.find(position)
	if run == nil {
		return storedTags{}
	}
	return storedTags{split(lineAt(run.tags, line)), split(lineAt(run.derived, line))}
}

func lineAt(lines []string, line int) string {
	if line >= len(lines) {
		return ""
	}
	return lines[line]
}

// set gives the event at a position other tags.
func (r runs) set(position int64, next storedTags) {
	at, line := r.find(position)
	if at == nil || line >= len(at.tags) && len(strings.Join(at.tags, "\n")) >= runBytes {
		at, line = &run{}, 0
		r[position] = at
	}
	at.tags, at.derived, at.changed = setLine(at.tags, line, next.tags), setLine(at.derived, line, next.derived), true
}

// setLine changes a line, and removes empty ones at the end.
func setLine(lines []string, line int, tags []string) []string {
	for len(lines) <= line {
		lines = append(lines, "")
	}
	lines[line] = strings.Join(tags, " ")
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// queue queues the statements that store what was changed.
func (r runs) queue(batch *pgx.Batch, tenant domain.TenantID) {
	for _, position := range slices.Sorted(maps.Keys(r)) {
		run := r[position]
		tags, derived := strings.Join(run.tags, "\n"), pg.TextOrNull(strings.Join(run.derived, "\n"))
		switch {
		case !run.changed || !run.stored && tags == "":
		case tags == "":
			batch.Queue(deleteRun.SQL, tenant, position)
		case run.stored:
			batch.Queue(updateRun.SQL, tenant, position, tags, derived)
		default:
			batch.Queue(insertRun.SQL, tenant, position, tags, derived)
		}
	}
}

// QueueTagRemoval queues the statements that remove the tags of the events at positions. The transaction must belong to
// the retention login, see one snapshot, and remove the events as well. If another transaction has changed the tags of
// neighbouring events, it fails, and pg.Busy reports true for the SQLSTATE.
func QueueTagRemoval(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, positions []int64, batch *pgx.Batch) error {
	runs, err := lockRunsOf(ctx, tx, tenant, positions)
	if err != nil {
		return err
	}
	for _, position := range positions {
		before := runs.get(position)
		if len(before.tags) == 0 {
			continue
		}
		for _, tag := range before.tags {
			batch.Queue(deleteTag.SQL, tenant, tag, position)
		}
		runs.set(position, storedTags{})
	}
	runs.queue(batch, tenant)
	return nil
}
