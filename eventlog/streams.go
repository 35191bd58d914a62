package eventlog

import (
	"context"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

var (
	// Each step finds the next name in the index, after all events of the previous one.
	streamNames = pg.Statement{Name: "manifold_streams", SQL: `
		with recursive names(stream_id) as (
			(select e.stream_id from events as e
				where e.tenant_id = $1::uuid and e.stream_id > $2::text and e.stream_id >= $3::text and e.stream_id < $4::text
				order by e.stream_id limit 1)
			union all
			select (select e.stream_id from events as e
				where e.tenant_id = $1::uuid and e.stream_id > n.stream_id and e.stream_id < $4::text
				order by e.stream_id limit 1)
			from names as n where n.stream_id is not null
		)
		select n.stream_id from names as n where n.stream_id is not null limit $5::bigint`}

	streamInfo = pg.Statement{Name: "manifold_stream_info", SQL: `
		select (select f.version from stream_floors as f where f.tenant_id = $1::uuid and f.stream_id = $2::text),
			count(*), max(e.stream_version), min(e.created_at), max(e.created_at),
			sum(case when e.gap is not null or ` + unreadableSQL + ` then 0
				else octet_length(e.event_data::text) + coalesce(octet_length(e.metadata::text), 0) end)::bigint,
			min(e.stream_version)
		from events as e where e.tenant_id = $1::uuid and e.stream_id = $2::text`}
)

// Streams returns the names of streams with events, in byte order, after the name after and at most limit. It returns
// only streams of the category, if one is given, and names that begin with prefix.
func (s *Log) Streams(ctx context.Context, tenant domain.TenantID, category, prefix, after string, limit int) ([]string, error) {
	if category != "" {
		category += "-"
		switch {
		case strings.HasPrefix(prefix, category):
		case strings.HasPrefix(category, prefix):
			prefix = category
		default:
			return nil, nil
		}
	}
	// Names are printable ASCII, and so is any prefix of one.
	for i := range len(prefix) {
		if prefix[i] <= ' ' || prefix[i] > '~' {
			return nil, nil
		}
	}
	end := "\x7f"
	if prefix != "" {
		end = prefix[:len(prefix)-1] + string(rune(prefix[len(prefix)-1]+1))
	}
	after = strings.ToValidUTF8(strings.ReplaceAll(after, "\x00", "\x01"), "\x7f")
	var names []string
	err := s.db.ReadInTurn(ctx, tenant, func() { names = nil }, pg.Query{Statement: &streamNames,
		Params: [][]byte{pg.TenantParam(tenant), []byte(after), []byte(prefix), []byte(end), pg.Int8Param(int64(limit))},
		Row: func(values [][]byte) error {
			names = append(names, string(values[0]))
			return nil
		}})
	return names, err
}

// StreamInfo describes a stream. To compute the size, the database reads all of its events. A stream keeps its version
// even if retention has removed all its events. It returns CodeNotFound if there never was an event, or if retention
// has removed the only event, which was published without a key.
func (s *Log) StreamInfo(ctx context.Context, tenant domain.TenantID, stream string) (domain.StreamInfo, error) {
	info := domain.StreamInfo{Stream: stream}
	err := s.db.ReadInTurn(ctx, tenant, nil, pg.Query{Statement: &streamInfo, Params: [][]byte{pg.TenantParam(tenant), []byte(stream)}, Row: func(values [][]byte) error {
		info.Events = pg.Int8Value(values[1])
		info.Version = max(pg.Int8Value(values[0]), pg.Int8Value(values[2]))
		info.FirstAt, info.LastAt = pg.TimeValue(values[3]), pg.TimeValue(values[4])
		info.Bytes, info.FirstVersion = pg.Int8Value(values[5]), pg.Int8Value(values[6])
		return nil
	}})
	if err == nil && info.Version == 0 {
		err = domain.Errorf(domain.CodeNotFound, "", "there is no stream %q", stream)
	}
	return info, err
}
