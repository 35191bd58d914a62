package eventlog

import (
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/pg"
)

// tagsKept is the smallest number of tags whose newest positions a writer can remember; the largest is twice that.
const tagsKept = 8192

// newestTagged remembers the newest position of each of the tags that were appended last. It holds two generations, as
// versions does. No tag that it does not remember has an event after floor.
type newestTagged struct {
	young, old     map[string]int64
	youngTo, oldTo int64 // the newest position in each
	floor          int64
}

// at returns a position up to which all events with the tag are: exactly its newest, if it is remembered.
func (n *newestTagged) at(tag string) int64 {
	if position, ok := n.young[tag]; ok {
		return position
	}
	if position, ok := n.old[tag]; ok {
		return position
	}
	return n.floor
}

// put remembers that the event at a position has the tag. Positions rise.
func (n *newestTagged) put(tag string, position int64) {
	if _, ok := n.young[tag]; ok {
		n.young[tag] = position
	} else {
		if n.young == nil {
			n.young = make(map[string]int64)
		}
		if len(n.young) >= tagsKept {
			n.floor = max(n.floor, n.oldTo)
			n.old, n.oldTo = n.young, n.youngTo
			n.young = make(map[string]int64)
		}
		n.young[strings.Clone(tag)] = position
	}
	n.youngTo = max(n.youngTo, position)
}

// forget forgets the tags. Nothing is known of those up to the position.
func (n *newestTagged) forget(head int64) { *n = newestTagged{floor: head} }

// The statements that insert a batch with tagged events; otherwise like insertEvents.
var (
	insertTaggedEvents = pg.Statement{Name: "manifold_insert_tagged_events", SQL: `
		insert into events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, metadata, occurred_at, created_at, tagged)
		select l.tenant_id, $3::bigint + e.n, e.event_id, e.stream_id, e.stream_version, e.event_type, e.event_data, e.metadata, e.occurred_at, l.last_at, e.tagged
		from logs as l
		cross join unnest($4::uuid[], $5::text[], $6::bigint[], $7::text[], $8::jsonb[], $9::jsonb[], $10::timestamptz[], $11::boolean[])
			with ordinality as e(event_id, stream_id, stream_version, event_type, event_data, metadata, occurred_at, tagged, n)
		where l.tenant_id = $1::uuid and l.last_batch = $2::uuid`}

	insertRuns = pg.Statement{Name: "manifold_insert_runs", SQL: `
		insert into event_tags (tenant_id, position, tags, derived)
		select l.tenant_id, $3::bigint + t.n, t.tags, nullif(t.derived, '')
		from logs as l
		cross join unnest($4::text[], $5::text[], $6::bigint[]) as t(tags, derived, n)
		where l.tenant_id = $1::uuid and l.last_batch = $2::uuid`}

	insertByTag = pg.Statement{Name: "manifold_insert_by_tag", SQL: `
		insert into tagged_events (tenant_id, tag, position, event_type)
		select l.tenant_id, t.tag, $3::bigint + t.n, t.event_type
		from logs as l
		cross join unnest($4::text[], $5::bigint[], $6::text[]) as t(tag, n, event_type)
		where l.tenant_id = $1::uuid and l.last_batch = $2::uuid`}
)

// taggedParams are array parameters of a batch with tagged events.
type taggedParams struct {
	tagged                []byte // for each event, whether it has tags
	runs, derived, firsts []byte // for each run, its lines of tags and of derived ones, and its first event's place in the batch, from 1
	tags, places, types   []byte // for each tag of each event, with the event's place and type
}

func (b *batch) taggedParams() (p taggedParams) {
	p.tagged = pg.AppendArrayHeader(nil, pgtype.BoolOID, b.rows)
	p.tags, p.types = pg.AppendArrayHeader(nil, pgtype.TextOID, b.tags), pg.AppendArrayHeader(nil, pgtype.TextOID, b.tags)
	p.places = pg.AppendArrayHeader(nil, pgtype.Int8OID, b.tags)
	var runs []newRun
	place := int64(0)
	for _, r := range b.written {
		for i := range r.append.Streams {
			for j := range r.append.Streams[i].Events {
				e := &r.append.Streams[i].Events[j]
				place++
				p.tagged = pg.AppendTrueElement(p.tagged, len(e.Tags) > 0)
				if len(e.Tags) == 0 {
					continue
				}
				runs = appendToRuns(runs, place, e)
				for _, tag := range e.Tags {
					p.tags, p.types = pg.AppendTextElement(p.tags, tag), pg.AppendTextElement(p.types, e.Type)
					p.places = pg.AppendInt8Element(p.places, place)
				}
			}
		}
	}
	p.runs, p.derived = pg.AppendArrayHeader(nil, pgtype.TextOID, len(runs)), pg.AppendArrayHeader(nil, pgtype.TextOID, len(runs))
	p.firsts = pg.AppendArrayHeader(nil, pgtype.Int8OID, len(runs))
	for i := range runs {
		p.runs = pg.AppendTextElement(p.runs, string(runs[i].tags.text))
		p.derived = pg.AppendTextElement(p.derived, string(runs[i].derived.text))
		p.firsts = pg.AppendInt8Element(p.firsts, runs[i].first)
	}
	return p
}
