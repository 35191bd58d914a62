package eventlog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// The conditions of an append are checked against three parts of the log:
//
//   - Up to the head that the writer knows: from what it remembers of tags, or by reading. What it reads holds if the
//     head is moved from there, so no lock is needed, and other processes cannot interfere.
//   - Requests that come earlier in the same batch: in memory. A request that they may affect waits for the next batch.
//   - A batch whose commit is not answered yet counts as written. Nothing is read then.
//
// docs/decisions/0083-conditions-hold-at-the-heads-compare-and-set.md has the whole argument.

const (
	// mostLookedAt is how many events an item of a condition looks at, at most. All tags of a request's items share
	// mostLookUps, but an item looks at fewestLookedAt events at least.
	mostLookedAt   = 5000
	mostLookUps    = 10_000
	fewestLookedAt = 10
	// attemptLookUps is how many look-ups the conditions that are read in one attempt may take together. Other requests
	// wait for the next attempt. Measured: one takes 2.5 to 5 µs.
	attemptLookUps = 200_000
	// mostComparisons limits the comparisons of conditions with events of the same batch.
	mostComparisons = 100_000
)

// lookedAt returns how many events each item of the conditions looks at, and how many look-ups all may take.
func lookedAt(conditions []domain.Condition) (events, lookUps int) {
	tags := 0
	for _, c := range conditions {
		for _, item := range c.FailIfEventsMatch {
			tags += max(1, len(item.Tags))
		}
	}
	events = min(max(mostLookUps/tags, fewestLookedAt), mostLookedAt)
	return events, events * tags
}

// matchingSQL finds the positions of events that items match. It takes a row i for each item: tags and types joined by
// spaces, how many events to look at, and the positions (low, high]. It goes from the first to the last event in the
// order, along the tag with the fewest events there, and returns at most %[2]s rows: the matches, and the last event
// that it may look at, with last = true. That one need not match.
//
// The previous release removes events by retention without their tags. So it looks whether a match still exists.
//
// "offset 0" makes the planner calculate what is above it once for each item. Single rows are looked up by subqueries
// that it cannot turn into joins.
const matchingSQL = `
		cross join lateral (
			select string_to_array(i.tags, ' ') as tags, string_to_array(i.types, ' ') as types, case
				when position(' ' in i.tags) = 0 then i.tags
				else (
					select o.tag from unnest(string_to_array(i.tags, ' ')) as o(tag)
					cross join lateral (
						select count(*) as events from (
							select from tagged_events as t
							where t.tenant_id = $1::uuid and t.tag = o.tag and t.position > i.low and t.position <= i.high limit least(i.most, 1000)
						) as few
					) as c
					order by c.events limit 1
				) end as tag
			offset 0
		) as d
		cross join lateral (
			select l.position, l.matches, l.place = i.most as last from (
				select c.position, row_number() over (order by c.position %[1]s) as place,
					(i.types = '' or c.event_type = any(d.types)) and not exists (
						select from unnest(d.tags) as o(tag)
						where o.tag <> d.tag and (
							select t.position from tagged_events as t
							where t.tenant_id = $1::uuid and t.tag = o.tag and t.position = c.position) is null
					) and (select e.position from events as e where e.tenant_id = $1::uuid and e.position = c.position) is not null as matches
				from (
					(select t.position, t.event_type from tagged_events as t
						where i.tags <> '' and t.tenant_id = $1::uuid and t.tag = d.tag and t.position > i.low and t.position <= i.high
						order by t.position %[1]s limit i.most)
					union all
					(select e.position, e.event_type from events as e
						where i.tags = '' and e.tenant_id = $1::uuid and e.position > i.low and e.position <= i.high
						order by e.position %[1]s limit i.most)
				) as c
			) as l
			where l.matches or l.place = i.most
			order by l.position %[1]s limit %[2]s
		) as m`

// readConditions reads the newest events that each item matches up to the head, which may have moved further than the
// writer knows. A row that does not match says that there were too many to look at.
var readConditions = pg.Statement{Name: "manifold_read_conditions", SQL: `
	select i.n, m.position, m.matches, i.high, ` + eventAt("event_id") + `, ` + eventAt("stream_id") + `, ` + eventAt("stream_version") + `, ` + eventAt("event_type") + `,
		(` + runOf(lineOf("g.tags", "m.position"), "m.position") + `)
	from (
		select c.*, l.head as high from logs as l
		cross join unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[]) with ordinality as c(low, tags, types, most, n)
		where l.tenant_id = $1::uuid
	) as i` + fmt.Sprintf(matchingSQL, "desc", "10") + `
	order by i.n, m.position desc`}

// eventAt selects a column of a matching event. There are few such rows, and Citus does not plan an outer join.
func eventAt(column string) string {
	return "(select e." + column + " from events as e where e.tenant_id = $1::uuid and e.position = m.position)"
}

// proves reports whether what is remembered of the log shows that no event up to the head matches a condition.
func (l *logState) proves(conditions []domain.Condition) bool {
	for i := range conditions {
		if after := conditions[i].After; l.head > after && !l.matchesNone(conditions[i].FailIfEventsMatch, after) {
			return false
		}
	}
	return true
}

func (l *logState) matchesNone(query domain.Query, after int64) bool {
	for i := range query {
		if !slices.ContainsFunc(query[i].Tags, func(tag string) bool { return l.tags.at(tag) <= after }) {
			return false
		}
	}
	return true
}

// readConditionsOf has the conditions of a request read, in this attempt or the next.
func (b *batch) readConditionsOf(r *request) {
	if _, lookUps := lookedAt(r.append.Conditions); b.lookUps+lookUps <= attemptLookUps {
		b.lookUps += lookUps
		b.unread = append(b.unread, r)
	}
}

// plannedEvent is an event that the plan writes.
type plannedEvent struct {
	event    *domain.NewEvent
	position int64
}

// acceptTags notes the tags of a request's events, which follow a position.
func (b *batch) acceptTags(r *request, position int64) {
	for i := range r.append.Streams {
		events := r.append.Streams[i].Events
		for j := range events {
			position++
			for _, tag := range events[j].Tags {
				if b.tagged == nil {
					b.tagged = make(map[string][]plannedEvent)
				}
				b.tagged[tag] = append(b.tagged[tag], plannedEvent{&events[j], position})
				b.tags++
			}
		}
	}
}

// mayMatch reports whether events that the plan writes match a condition. It says so as well if it would have to
// compare too many, and for items without tags.
func (b *batch) mayMatch(conditions []domain.Condition) bool {
	if b.rows == 0 {
		return false
	}
	for i := range conditions {
		for _, item := range conditions[i].FailIfEventsMatch {
			if len(item.Tags) == 0 {
				return true
			}
			events := b.tagged[item.Tags[0]]
			for _, tag := range item.Tags[1:] {
				if other := b.tagged[tag]; len(other) < len(events) {
					events = other
				}
			}
			if b.comparisons += 1 + len(events); b.comparisons > mostComparisons {
				return true
			}
			for _, planned := range events {
				if planned.position > conditions[i].After && item.Matches(planned.event.Type, planned.event.Tags) {
					return true
				}
			}
		}
	}
	return false
}

// readItem is an item of a request's condition that is being read.
type readItem struct {
	of              *request
	condition, item int
}

// place names the condition in its request.
func (i readItem) place() string {
	if len(i.of.append.Conditions) == 1 {
		return "condition"
	}
	return fmt.Sprintf("condition[%d]", i.condition)
}

// sendConditions sends the statement that reads whether the conditions of the requests in b.unread hold at the head.
func (a *attempt) sendConditions() {
	b := a.batch
	var all []readItem
	for _, r := range b.unread {
		r.checked = true
		for i, c := range r.append.Conditions {
			for j := range c.FailIfEventsMatch {
				all = append(all, readItem{r, i, j})
			}
		}
	}
	low, most := pg.AppendArrayHeader(nil, pgtype.Int8OID, len(all)), pg.AppendArrayHeader(nil, pgtype.Int8OID, len(all))
	tags, types := pg.AppendArrayHeader(nil, pgtype.TextOID, len(all)), pg.AppendArrayHeader(nil, pgtype.TextOID, len(all))
	for _, one := range all {
		c := &one.of.append.Conditions[one.condition]
		item := &c.FailIfEventsMatch[one.item]
		events, _ := lookedAt(one.of.append.Conditions)
		low, most = pg.AppendInt8Element(low, c.After), pg.AppendInt8Element(most, int64(events))
		tags, types = pg.AppendTextElement(tags, strings.Join(item.Tags, " ")), pg.AppendTextElement(types, strings.Join(item.Types, " "))
	}
	a.x.Send(&readConditions, [][]byte{pg.TenantParam(a.w.tenant), low, tags, types, most}, func(values [][]byte) error {
		one := all[pg.Int8Value(values[0])-1]
		switch {
		case !pg.BoolValue(values[2]):
			one.looksTooFar()
		default:
			one.fails(pg.Int8Value(values[3]), domain.Event{
				ID: pg.UUIDValue(values[4]), Stream: string(values[5]), Version: pg.Int8Value(values[6]), Position: pg.Int8Value(values[1]),
				Type: string(values[7]), Tags: tagsOf(values[8]),
			})
		}
		return nil
	})
}

// looksTooFar notes that the item could not be checked. A failed condition is the better answer.
func (i readItem) looksTooFar() {
	if i.of.unmet == nil {
		events, _ := lookedAt(i.of.append.Conditions)
		i.of.unmet = domain.Errorf(domain.CodeTooCostly, fmt.Sprintf("%s.failIfEventsMatch.items[%d]", i.place(), i.item),
			"more than %d events after the position would have to be looked at; decide from a later position, or use a rarer tag", events)
	}
}

// fails notes an event that the item matches.
func (i readItem) fails(head int64, event domain.Event) {
	e, _ := i.of.unmet.(*domain.Error)
	if e == nil || e.FailedCondition == nil {
		e = domain.Errorf(domain.CodeConditionFailed, i.place(), "")
		e.FailedCondition = &domain.FailedCondition{Position: head}
		i.of.unmet = e
	}
	failed := e.FailedCondition
	if !slices.Contains(failed.Conditions, i.condition) {
		failed.Conditions = append(failed.Conditions, i.condition)
	}
	if at, twice := slices.BinarySearchFunc(failed.Events, event.Position, func(e domain.Event, position int64) int { return cmp.Compare(e.Position, position) }); !twice {
		failed.Events = slices.Insert(failed.Events, at, event)
	}
	if more := len(failed.Events) - domain.MaxConflicts; more > 0 {
		failed.Events = failed.Events[more:]
	}
	newest := failed.Events[len(failed.Events)-1]
	e.Message = fmt.Sprintf("the log has events that match, the newest at position %d: %s in %s; read the log up to position %d, and decide again",
		newest.Position, newest.Type, newest.Stream, failed.Position)
}
