package eventlog

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

var (
	matchingForward  = pg.Statement{Name: "manifold_matching_forward", SQL: readMatchingSQL("asc")}
	matchingBackward = pg.Statement{Name: "manifold_matching_backward", SQL: readMatchingSQL("desc")}
)

// lookUpsAtOnce is how many look-ups one statement may take, at 2.5 to 5 µs. The tags of all items share them.
const lookUpsAtOnce = 100_000

// readMatchingSQL finds the positions for each item, and then reads the events. A row with last = true, which need not
// have an event, is the last one to use: some item looks no further.
func readMatchingSQL(order string) string {
	return `
	select ` + EventColumns + `, p.position, p.matches, p.last from (
		select m.position, bool_or(m.matches) as matches, bool_or(m.last) as last from (
			select c.*, $2::bigint as low, $3::bigint as high, $7::bigint as most
			from unnest($5::text[], $6::text[]) as c(tags, types)
		) as i` + fmt.Sprintf(matchingSQL, order, "$4::bigint") + `
		group by m.position order by m.position ` + order + ` limit $4::bigint
	) as p
	left join lateral (select * from events as e where e.tenant_id = $1::uuid and e.position = p.position limit 1) as e on p.matches
	order by p.position ` + order
}

// matching takes a row of the statement.
func (r *eventReader) matching(values [][]byte) error {
	position, matches, last := pg.Int8Value(values[11]), pg.BoolValue(values[12]), pg.BoolValue(values[13])
	full := r.full
	if matches || full {
		if err := r.row(values); err != nil {
			return err
		}
	}
	if last && !full {
		r.stopped, r.full = position, true
	}
	return nil
}

// ReadMatching returns events of a tenant's log that the query matches, in the order of q. It looks at a limited number
// of events. If stopped is not 0, it has looked no further than this position: to continue, set q.After to it, or
// q.Before to read backward. So there may be more even if no event is returned.
func (s *Log) ReadMatching(ctx context.Context, tenant domain.TenantID, q domain.MatchQuery) (events []domain.Event, stopped int64, err error) {
	tags, types := make([]string, len(q.Query)), make([]string, len(q.Query))
	count := 0
	for i, item := range q.Query {
		tags[i], types[i] = strings.Join(item.Tags, " "), strings.Join(item.Types, " ")
		count += max(1, len(item.Tags))
	}
	most := int64(lookUpsAtOnce / max(1, count))
	low, high := q.After, int64(math.MaxInt64)
	if q.Before > 0 {
		high = q.Before - 1
	}
	var reader *eventReader
	page := func(from int64, limit int, events *eventReader) pg.Query {
		reader = events
		statement, low, high := &matchingForward, low, high
		switch {
		case q.Direction == domain.Backward:
			statement = &matchingBackward
			if from > 0 {
				high = from
			}
		case from > 0:
			low = from - 1
		}
		return pg.Query{Statement: statement, Row: events.matching, Params: [][]byte{
			pg.TenantParam(tenant), pg.Int8Param(low), pg.Int8Param(high), pg.Int8Param(int64(limit)), pg.TextsParam(tags), pg.TextsParam(types), pg.Int8Param(most),
		}}
	}
	events, err = s.readPages(ctx, tenant, q.Limit, q.MaxBytes, 0, q.Direction, page, func(e *domain.Event) int64 { return e.Position }, nil)
	return events, reader.stopped, err
}
