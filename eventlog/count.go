package eventlog

import (
	"context"
	"math"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// The statements that look for events without reading them. They go through categories one by one, each along its part
// of the index, which contains the types as well.
var (
	anyInLog = pg.Statement{Name: "manifold_any_in_log", SQL: `
		select 1::bigint from events as e
		where e.tenant_id = $1::uuid and e.position > $2::bigint and e.position <= $3::bigint limit 1`}
	anyOfTypes = pg.Statement{Name: "manifold_any_of_types", SQL: `
		select 1::bigint from events as e
		where e.tenant_id = $1::uuid and e.position > $2::bigint and e.position <= $3::bigint and e.event_type = any($4::text[]) limit 1`}

	anyInCategories        = pg.Statement{Name: "manifold_any_in_categories", SQL: anySQL("")}
	anyInCategoriesOfTypes = pg.Statement{Name: "manifold_any_in_categories_of_types", SQL: anySQL("and e.event_type = any($5::text[])")}

	countInCategories        = pg.Statement{Name: "manifold_count_in_categories", SQL: countSQL("unnest($4::text[]) as k(category)", "")}
	countInCategoriesOfTypes = pg.Statement{Name: "manifold_count_in_categories_of_types", SQL: countSQL("unnest($4::text[]) as k(category)", "and e.event_type = any($5::text[])")}
	countOfTypes             = pg.Statement{Name: "manifold_count_of_types", SQL: everyCategory + countSQL("categories as k", "and e.event_type = any($4::text[])")}
)

// everyCategory finds each of the tenant's categories by stepping through the index.
const everyCategory = `with recursive categories(category) as (
		(select e.category from events as e where e.tenant_id = $1::uuid order by e.category limit 1)
		union all
		select (select e.category from events as e where e.tenant_id = $1::uuid and e.category > c.category order by e.category limit 1)
		from categories as c where c.category is not null
	) `

func anySQL(and string) string {
	return `select 1::bigint from unnest($4::text[]) as k(category)
		cross join lateral (
			select e.position from events as e
			where e.tenant_id = $1::uuid and e.category = k.category and e.position > $2::bigint and e.position <= $3::bigint ` + and + `
			order by e.position limit 1
		) as e limit 1`
}

func countSQL(categories, and string) string {
	return `select coalesce(sum(e.events), 0)::bigint from ` + categories + `
		cross join lateral (
			select count(*) as events from events as e
			where e.tenant_id = $1::uuid and e.category = k.category and e.position > $2::bigint and e.position <= $3::bigint ` + and + `
		) as e`
}

// countTagged counts the events of each item along one of its tags, up to a number.
var countTagged = pg.Statement{Name: "manifold_count_tagged", SQL: `
	select coalesce(sum(c.events), 0)::bigint from unnest($4::text[], $5::text[]) as i(tag, types)
	cross join lateral (
		select count(*) as events from (
			select t.event_type from tagged_events as t
			where t.tenant_id = $1::uuid and t.tag = i.tag and t.position > $2::bigint and t.position <= $3::bigint limit $6::bigint
		) as t
		where i.types = '' or t.event_type = any(string_to_array(i.types, ' '))
	) as c`}

// AnyEvent reports whether the source has an event after the position after and up to upTo. If types are given, the
// event must be of one of them. It may report events that the source's query does not match, unless all of its items
// have tags.
func (s *Log) AnyEvent(ctx context.Context, tenant domain.TenantID, source domain.Source, types []string, after, upTo int64) (bool, error) {
	st, params := anyEvent(tenant, source.Categories, types, after, upTo)
	n, err := s.number(ctx, tenant, st, params...)
	if query := source.Query.Items; err == nil && n > 0 && query.Tagged() {
		return s.anyTagged(ctx, tenant, source, types, after, upTo)
	}
	return n > 0, err
}

// anyTaggedPages limits how many pages of matching events anyTagged looks at.
const anyTaggedPages = 10

// anyTagged is AnyEvent for a query whose items have tags. If many events match that are of other categories or types,
// it gives up and reports one.
func (s *Log) anyTagged(ctx context.Context, tenant domain.TenantID, source domain.Source, types []string, after, upTo int64) (bool, error) {
	q := domain.MatchQuery{Query: source.Query.Items, After: after, Before: upTo + 1, Limit: firstPage, MaxBytes: 1 << 20}
	for range anyTaggedPages {
		events, next, err := s.ReadMatching(ctx, tenant, q)
		if err != nil {
			return false, err
		}
		for i := range events {
			if (len(source.Categories) == 0 || slices.Contains(source.Categories, domain.Category(events[i].Stream))) &&
				(len(types) == 0 || slices.Contains(types, events[i].Type)) {
				return true, nil
			}
		}
		if next == 0 {
			return false, nil
		}
		q.After = next
	}
	return true, nil
}

func anyEvent(tenant domain.TenantID, categories, types []string, after, upTo int64) (*pg.Statement, [][]byte) {
	params := [][]byte{pg.TenantParam(tenant), pg.Int8Param(after), pg.Int8Param(upTo)}
	switch {
	case len(categories) == 0 && len(types) == 0:
		return &anyInLog, params
	case len(categories) == 0:
		return &anyOfTypes, append(params, pg.TextsParam(types))
	case len(types) == 0:
		return &anyInCategories, append(params, pg.TextsParam(categories))
	}
	return &anyInCategoriesOfTypes, append(params, pg.TextsParam(categories), pg.TextsParam(types))
}

// HasEvents reports for each query whether its categories and types have an event from its From up to the head. It also
// returns the head. It takes one round trip and reads only indexes.
func (s *Log) HasEvents(ctx context.Context, tenant domain.TenantID, queries []domain.LogQuery) (head int64, came []bool, err error) {
	all := make([]pg.Query, 0, 1+len(queries))
	all = append(all, pg.Query{Statement: &readHead, Params: [][]byte{pg.TenantParam(tenant)}, Row: func(values [][]byte) error {
		head = pg.Int8Value(values[0])
		return nil
	}})
	for i, q := range queries {
		// Each statement has a separate snapshot, taken after the head's. It includes everything up to the head, and
		// possibly a little more.
		st, params := anyEvent(tenant, q.Categories, q.Types, q.From-1, math.MaxInt64)
		all = append(all, pg.Query{Statement: st, Params: params, Row: func([][]byte) error {
			came[i] = true
			return nil
		}})
	}
	err = s.db.Read(ctx, tenant, func() { head, came = 0, make([]bool, len(queries)) }, all...)
	return head, came, err
}

// countPositions counts positions, minus the removed events that certainly lie in the range: those of categories whose
// removed events are all in it.
var countPositions = pg.Statement{Name: "manifold_count_positions", SQL: `
	select greatest(0, least($3::bigint, (select l.head from logs as l where l.tenant_id = $1::uuid)) - greatest($2::bigint, 0)
		- (select coalesce(sum(f.removed), 0)::bigint from retention_floors as f
			where f.tenant_id = $1::uuid and $2::bigint <= 0 and f.removed_to <= $3::bigint))`}

// CountEvents counts the events that AnyEvent looks for. Without categories and types it counts positions. If the range
// does not start at the log's beginning, that may include events that retention has removed. If all items of the
// source's query have tags, it counts each item's events along one tag, whatever their categories, and 100,000 in total
// at most. The number is for showing progress.
func (s *Log) CountEvents(ctx context.Context, tenant domain.TenantID, source domain.Source, types []string, after, upTo int64) (int64, error) {
	params := [][]byte{pg.TenantParam(tenant), pg.Int8Param(after), pg.Int8Param(upTo)}
	if query := source.Query.Items; query.Tagged() {
		return s.countTagged(ctx, tenant, query, params)
	}
	switch {
	case len(source.Categories) == 0 && len(types) == 0:
		return s.number(ctx, tenant, &countPositions, params...)
	case len(source.Categories) == 0:
		return s.number(ctx, tenant, &countOfTypes, append(params, pg.TextsParam(types))...)
	case len(types) == 0:
		return s.number(ctx, tenant, &countInCategories, append(params, categoriesParam(source.Categories))...)
	default:
		return s.number(ctx, tenant, &countInCategoriesOfTypes, append(params, categoriesParam(source.Categories), pg.TextsParam(types))...)
	}
}

func (s *Log) countTagged(ctx context.Context, tenant domain.TenantID, query domain.Query, params [][]byte) (n int64, err error) {
	one := make(domain.Query, len(query))
	for i, item := range query {
		one[i] = domain.QueryItem{Types: item.Types, Tags: item.Tags[:1]}
	}
	tags, types := itemParams(one)
	err = s.db.ReadInTurn(ctx, tenant, func() { n = 0 }, pg.Query{
		Statement: &countTagged, Params: append(params, tags, types, pg.Int8Param(int64(lookUpsAtOnce/len(query)))),
		Row: func(values [][]byte) error {
			n = pg.Int8Value(values[0])
			return nil
		},
	})
	return n, err
}
