package aggregate

import (
	"bytes"
	"context"
	"errors"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Limits of a page of seeds. Those of bytes and events may be exceeded by one seed.
const (
	maxSeeds      = 200
	maxSeedBytes  = 8 << 20 // of states
	maxSeedEvents = 200_000 // before the seeds
	// maxSeedVersion keeps looking at the events before one seed well below the time limit of a statement.
	maxSeedVersion = 1_000_000
)

// selectSeeds selects streams of a category, the newest suitable snapshot of each, and what the log has of the events
// up to it.
var selectSeeds = pg.Statement{Name: "manifold_aggregate_seeds", SQL: `
	with following as (
		select distinct o.stream_id from snapshots as o
		where o.tenant_id = $1::uuid and o.stream_id > $2::text and o.stream_id < $3::text and o.tag = $4::text
		order by o.stream_id limit $5::bigint
	), newest as (
		select n.stream_id, s.version, count(*) over () as streams,
			coalesce(sum(s.version) over (order by n.stream_id), 0) - coalesce(s.version, 0) as before
		from following as n
		left join lateral (
			select v.version from snapshots as v
			where v.tenant_id = $1::uuid and v.stream_id = n.stream_id and v.tag = $4::text and v.version <= $6::bigint and v.removed_to = 0
				and (select e.position from events as e
					where e.tenant_id = $1::uuid and e.stream_id = v.stream_id and e.stream_version = v.version) <= $7::bigint
			order by v.version desc limit 1
		) as s on true
	)
	select n.stream_id, n.version, n.streams, s.state, p.events, p.gaps, p.folded, p.position
	from newest as n
	left join lateral (
		select v.state from snapshots as v
		where v.tenant_id = $1::uuid and v.stream_id = n.stream_id and v.tag = $4::text and v.version = n.version limit 1
	) as s on true
	left join lateral (
		select count(*) as events, count(e.gap) as gaps, count(f.yes) as folded, max(e.position) filter (where f.yes) as position
		from events as e
		cross join lateral (select nullif(cardinality($8::text[]) = 0 or e.event_type = any($8::text[]), false) as yes) as f
		where e.tenant_id = $1::uuid and e.stream_id = n.stream_id and e.stream_version <= n.version
	) as p on true
	where n.before < $9::bigint
	order by n.stream_id`}

// errPageFull ends a page of seeds whose remaining rows are not needed.
var errPageFull = errors.New("the page is full")

// seeds returns a page for States.Seeds, of snapshots with the tag. types are the event types that the rules fold;
// empty: all.
func (s *Postgres) seeds(ctx context.Context, tenant domain.TenantID, q domain.SeedQuery, tag string, types []string) (domain.SeedPage, error) {
	var page domain.SeedPage
	var read, streams int64
	var size int
	var last string
	reset := func() { page, read, streams, size, last = domain.SeedPage{}, 0, 0, 0, "" }
	// A category ends before the first dash, and "." is the byte after the dash.
	after := max(q.AfterStream, q.Category+"-")
	params := [][]byte{
		pg.TenantParam(tenant), []byte(after), []byte(q.Category + "."), []byte(tag), pg.Int8Param(maxSeeds), pg.Int8Param(maxSeedVersion),
		pg.Int8Param(q.To), pg.TextsParam(types), pg.Int8Param(maxSeedEvents),
	}
	err := s.db.ReadInTurn(ctx, tenant, reset, pg.Query{Statement: &selectSeeds, Params: params, Row: func(values [][]byte) error {
		state := pg.JSONValue(values[3])
		if size > 0 && size+len(state) > maxSeedBytes {
			return errPageFull
		}
		read, last, streams = read+1, string(values[0]), pg.Int8Value(values[2])
		seed := domain.Seed{Stream: last, Version: pg.Int8Value(values[1]), Events: pg.Int8Value(values[6]), Position: pg.Int8Value(values[7])}
		events, gaps := pg.Int8Value(values[4]), pg.Int8Value(values[5])
		if seed.Version == 0 || events != seed.Version || gaps > 0 || seed.Events == 0 {
			return nil
		}
		if size += len(state); !bytes.Equal(state, []byte("null")) {
			seed.State = bytes.Clone(state)
		}
		page.Seeds = append(page.Seeds, seed)
		return nil
	}})
	switch {
	case pg.Unprintable(err): // an earlier release stored a snapshot that cannot be read: the events say the same
		return domain.SeedPage{}, nil
	case err != nil && !errors.Is(err, errPageFull):
		return domain.SeedPage{}, err
	}
	if streams == maxSeeds || read < streams {
		page.UpTo = last
	}
	return page, nil
}
