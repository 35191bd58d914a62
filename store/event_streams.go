package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
)

var streamsOf = statement{"manifold_streams_of", `
	select e.event_id, e.stream_id from unnest($2::uuid[]) as i(event_id)
	cross join lateral (
		select * from events as e where e.tenant_id = $1::uuid and e.event_id = i.event_id limit 1
	) as e`}

// StreamsOf returns the streams of events by their ids. Unknown ids are left out.
func (s *Store) StreamsOf(ctx context.Context, tenant domain.TenantID, ids []domain.EventID) (map[domain.EventID]string, error) {
	param := appendArrayHeader(make([]byte, 0, 20+20*len(ids)), pgtype.UUIDOID, len(ids))
	for _, id := range ids {
		param = appendUUIDElement(param, id)
	}
	var streams map[domain.EventID]string
	err := s.read(ctx, tenant, func() { streams = make(map[domain.EventID]string, len(ids)) },
		query{&streamsOf, [][]byte{tenantParam(tenant), param}, func(values [][]byte) error {
			streams[uuidValue(values[0])] = string(values[1])
			return nil
		}})
	return streams, err
}
