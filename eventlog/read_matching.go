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

// readMatchingSQL finds the positions for each item, and then reads the events. An item may look at all of the log.
func readMatchingSQL(order string) string {
	return `
	select ` + EventColumns + ` from (
		select distinct m.position from (
			select c.*, $2::bigint as low, $3::bigint as high, 9223372036854775807 as most
			from unnest($5::text[], $6::text[]) as c(tags, types)
		) as i` + fmt.Sprintf(matchingSQL, order, "$4::bigint") + `
		order by m.position ` + order + ` limit $4::bigint
	) as p
	cross join lateral (select * from events as e where e.tenant_id = $1::uuid and e.position = p.position limit 1) as e
	order by p.position ` + order
}

// ReadMatching returns the events of a tenant's log that the query matches, in the order of q.
func (s *Log) ReadMatching(ctx context.Context, tenant domain.TenantID, q domain.MatchQuery) ([]domain.Event, error) {
	tags, types := make([]string, len(q.Query)), make([]string, len(q.Query))
	for i, item := range q.Query {
		tags[i], types[i] = strings.Join(item.Tags, " "), strings.Join(item.Types, " ")
	}
	low, high := q.After, int64(math.MaxInt64)
	if q.Before > 0 {
		high = q.Before - 1
	}
	page := func(from int64, limit int, events *eventReader) pg.Query {
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
		return pg.Query{Statement: statement, Row: events.row, Params: [][]byte{
			pg.TenantParam(tenant), pg.Int8Param(low), pg.Int8Param(high), pg.Int8Param(int64(limit)), pg.TextsParam(tags), pg.TextsParam(types),
		}}
	}
	return s.readPages(ctx, tenant, q.Limit, q.MaxBytes, 0, q.Direction, page, func(e *domain.Event) int64 { return e.Position }, nil)
}
