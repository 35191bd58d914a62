package eventlog

import (
	"context"
	"fmt"
	"strings"

	"github.com/manifold-es/manifold/pg"
)

// indexSize is the size of the indexes of a table, or of a shard of it, and PostgreSQL's estimate of its rows, which is
// negative before the first vacuum. %s is the table's name.
const indexSize = `select pg_indexes_size(c.oid) as bytes, greatest(c.reltuples, 0)::bigint as events from pg_class c where c.oid = '%s'::regclass`

// IndexSize returns the bytes of all indexes of the events, of all tenants, and the number of events by the latest
// estimate of autovacuum: 0 if there is none yet.
func (s *Log) IndexSize(ctx context.Context) (bytes, events int64, err error) {
	query := strings.Replace(indexSize, "%s", "manifold.events", 1)
	if s.db.Distributed {
		query = `
			select coalesce(sum(split_part(r.result, '/', 1)::bigint), 0)::bigint, coalesce(sum(split_part(r.result, '/', 2)::bigint), 0)::bigint
			from run_command_on_shards('manifold.events', $$ select concat_ws('/', bytes, events) from (` + indexSize + `) as size $$) as r where r.success`
	}
	if err := s.db.System.QueryRow(ctx, query).Scan(&bytes, &events); err != nil {
		return 0, 0, fmt.Errorf("ask for the size of the events' indexes: %w", pg.Unavailable(err))
	}
	return bytes, events, nil
}
