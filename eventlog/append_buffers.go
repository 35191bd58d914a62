package eventlog

import (
	"sync"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/pg"
)

// buffers hold the array parameters of one statement while it is being sent.
type buffers struct {
	events                                                  int
	ids, streams, versions, types, data, metadata, occurred []byte
}

// buffersKept is the largest size of a buffer that is kept for the next statement.
const buffersKept = 1 << 20

var buffersPool = sync.Pool{New: func() any { return new(buffers) }}

func (f *buffers) start(events int) {
	f.events = events
	for _, column := range []struct {
		buffer  *[]byte
		element uint32
	}{
		{&f.ids, pgtype.UUIDOID},
		{&f.streams, pgtype.TextOID},
		{&f.versions, pgtype.Int8OID},
		{&f.types, pgtype.TextOID},
		{&f.data, pgtype.JSONBOID},
		{&f.metadata, pgtype.JSONBOID},
		{&f.occurred, pgtype.TimestamptzOID},
	} {
		kept := (*column.buffer)[:0]
		if cap(kept) > buffersKept {
			kept = nil
		}
		*column.buffer = pg.AppendArrayHeader(kept, column.element, events)
	}
}

// insert returns the parameters of insertEvents.
func (f *buffers) insert(tenant, id []byte, head int64, b *batch) [][]byte {
	f.start(b.rows)
	first := 0
	for _, r := range b.written {
		n := 0
		for i := range r.append.Streams {
			stream := &r.append.Streams[i]
			version := b.firsts[first]
			first++
			for j := range stream.Events {
				e := &stream.Events[j]
				f.ids = pg.AppendUUIDElement(f.ids, r.ids[n])
				f.streams = pg.AppendTextElement(f.streams, stream.Stream)
				f.versions = pg.AppendInt8Element(f.versions, version)
				f.types = pg.AppendTextElement(f.types, e.Type)
				f.data = pg.AppendJSONElement(f.data, e.Data)
				f.metadata = pg.AppendJSONElement(f.metadata, e.Metadata)
				f.occurred = pg.AppendTimeElement(f.occurred, e.OccurredAt)
				version++
				n++
			}
		}
	}
	return [][]byte{tenant, id, pg.Int8Param(head), f.ids, f.streams, f.versions, f.types, f.data, f.metadata, f.occurred}
}

// insertOne returns the parameters of insertEvent.
func (f *buffers) insertOne(tenant, id []byte, head int64, b *batch) [][]byte {
	r := b.written[0]
	stream := &r.append.Streams[0]
	e := &stream.Events[0]
	f.data, f.metadata = pg.AppendJSON(f.data[:0], e.Data), pg.AppendJSON(f.metadata[:0], e.Metadata)
	params := [][]byte{
		tenant, id, pg.Int8Param(head), pg.UUIDParam(r.ids[0]), []byte(stream.Stream), pg.Int8Param(b.firsts[0]), []byte(e.Type), f.data, nil, nil,
	}
	if e.Metadata != nil {
		params[8] = f.metadata
	}
	if !e.OccurredAt.IsZero() {
		params[9] = pg.TimeParam(e.OccurredAt)
	}
	return params
}

// lookUp returns the parameters of lookUpIDs, for the events of all requests in order.
func (f *buffers) lookUp(tenant []byte, requests []*request) [][]byte {
	events := 0
	for _, r := range requests {
		events += r.events
	}
	f.start(events)
	for _, r := range requests {
		n := 0
		for i := range r.append.Streams {
			stream := &r.append.Streams[i]
			for j := range stream.Events {
				e := &stream.Events[j]
				f.ids = pg.AppendUUIDElement(f.ids, r.ids[n])
				f.streams = pg.AppendTextElement(f.streams, stream.Stream)
				f.types = pg.AppendTextElement(f.types, e.Type)
				f.data = pg.AppendJSONElement(f.data, e.Data)
				n++
			}
		}
	}
	return [][]byte{tenant, f.ids, f.streams, f.types, f.data}
}
