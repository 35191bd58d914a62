package eventlog

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

var streamsOf = pg.Statement{Name: "manifold_streams_of", SQL: `
	select e.event_id, e.stream_id from unnest($2::uuid[]) as i(event_id)
	cross join lateral (
		select * from events as e where e.tenant_id = $1::uuid and e.event_id = i.event_id limit 1
	) as e`}

// StreamsOf returns the streams of events by their ids. Unknown ids are left out.
func (s *Log) StreamsOf(ctx context.Context, tenant domain.TenantID, ids []domain.EventID) (map[domain.EventID]string, error) {
	param := pg.AppendArrayHeader(make([]byte, 0, 20+20*len(ids)), pgtype.UUIDOID, len(ids))
	for _, id := range ids {
		param = pg.AppendUUIDElement(param, id)
	}
	var streams map[domain.EventID]string
	err := s.db.Read(ctx, tenant, func() { streams = make(map[domain.EventID]string, len(ids)) },
		pg.Query{Statement: &streamsOf, Params: [][]byte{pg.TenantParam(tenant), param}, Row: func(values [][]byte) error {
			streams[pg.UUIDValue(values[0])] = string(values[1])
			return nil
		}})
	return streams, err
}
