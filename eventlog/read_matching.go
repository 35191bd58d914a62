package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Positions are found first, and then their events are read. Citus plans no outer join of both, and a position where
// the search stops need not have an event.
var (
	matchingForward  = pg.Statement{Name: "manifold_matching_forward", SQL: readMatchingSQL("asc")}
	matchingBackward = pg.Statement{Name: "manifold_matching_backward", SQL: readMatchingSQL("desc")}
)

// lookUpsAtOnce is how many look-ups one statement may take, at 2.5 to 5 µs. The tags of all items share them.
const lookUpsAtOnce = 100_000

// readMatchingSQL finds the positions of the events that items match. A row with last = true is the last one to use:
// some item looks no further.
func readMatchingSQL(order string) string {
	return `
	select m.position, bool_or(m.matches) as matches, bool_or(m.last) as last from (
		select c.*, $2::bigint as low, $3::bigint as high, $7::bigint as most
		from unnest($5::text[], $6::text[]) as c(tags, types)
	) as i` + fmt.Sprintf(matchingSQL, order, "$4::bigint") + `
	group by m.position order by m.position ` + order + ` limit $4::bigint`
}

// ReadMatching returns events of a tenant's log that the query matches, in the order of q. It looks at a limited number
// of events. If next is not 0, there may be more, even if no event is returned: to continue, set q.After to it, or
// q.Before to read backward.
func (s *Log) ReadMatching(ctx context.Context, tenant domain.TenantID, q domain.MatchQuery) (events []domain.Event, next int64, err error) {
	positions, next, err := s.matching(ctx, tenant, q)
	if err != nil {
		return nil, 0, err
	}
	reader := eventReader{maxBytes: q.MaxBytes}
	for size := firstPage; len(positions) > 0; size *= 2 {
		part := positions[:min(size, len(positions))]
		before := reader.mark()
		err := s.db.ReadInTurn(ctx, tenant, func() { reader.back(before) }, pg.Query{
			Statement: &atPositions, Params: [][]byte{pg.TenantParam(tenant), pg.Int8sParam(part)}, Row: reader.row,
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, 0, err
		}
		positions = positions[len(part):]
		if reader.full {
			next = reader.events[len(reader.events)-1].Position
			break
		}
	}
	s.observeRead(len(reader.events))
	return reader.events, next, nil
}

// matching returns the positions of the events, and where to continue, as ReadMatching does.
func (s *Log) matching(ctx context.Context, tenant domain.TenantID, q domain.MatchQuery) (positions []int64, next int64, err error) {
	tags, types := itemParams(q.Query)
	count := 0
	for _, item := range q.Query {
		count += max(1, len(item.Tags))
	}
	statement, high := &matchingForward, int64(math.MaxInt64)
	if q.Direction == domain.Backward {
		statement = &matchingBackward
	}
	if q.Before > 0 {
		high = q.Before - 1
	}
	reset := func() { positions, next = nil, 0 }
	err = s.db.ReadInTurn(ctx, tenant, reset, pg.Query{Statement: statement, Row: func(values [][]byte) error {
		if next > 0 {
			return nil
		}
		position := pg.Int8Value(values[0])
		if pg.BoolValue(values[1]) {
			positions = append(positions, position)
		}
		if pg.BoolValue(values[2]) || len(positions) == q.Limit {
			next = position
		}
		return nil
	}, Params: [][]byte{
		pg.TenantParam(tenant), pg.Int8Param(q.After), pg.Int8Param(high), pg.Int8Param(int64(q.Limit)), tags, types,
		pg.Int8Param(int64(lookUpsAtOnce / max(1, count))),
	}})
	return positions, next, err
}

// itemParams returns arrays with the tags and the types of each item, joined by spaces.
func itemParams(query domain.Query) (tags, types []byte) {
	tags, types = pg.AppendArrayHeader(nil, pgtype.TextOID, len(query)), pg.AppendArrayHeader(nil, pgtype.TextOID, len(query))
	for _, item := range query {
		tags, types = pg.AppendTextElement(tags, strings.Join(item.Tags, " ")), pg.AppendTextElement(types, strings.Join(item.Types, " "))
	}
	return tags, types
}
