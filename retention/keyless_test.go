package retention

import (
	"encoding/json"
	"testing"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/domain"
)

// keyless appends a message as it is published without a key.
func keyless(t *testing.T, b *bench, tenant domain.TenantID, id domain.EventID) domain.AppendedStream {
	t.Helper()
	appended, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
		Stream: "beat-" + id.String(), Expected: domain.Any, Events: []domain.NewEvent{{ID: id, Type: "beat", Data: json.RawMessage(`{}`)}},
	}}})
	must(t, err)
	return appended.Streams[0]
}

// Of a message without a key nothing is left, and a repeat of it is the same event in the same place of its stream.
// Where more was in the stream, or is known of it, its version stays.
func TestMessagesWithoutKeysLeaveNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	var ids []domain.EventID
	for range 20 {
		ids = append(ids, domain.NewEventID())
		keyless(t, b, tenant, ids[len(ids)-1])
	}
	stream := func(i int) string { return "beat-" + ids[i].String() }
	b.append(t, tenant, stream(0), 1) // somebody has appended to it
	b.append(t, tenant, "beat-"+domain.NewEventID().String(), 1)
	must(t, b.store.PutSnapshots(t.Context(), tenant, aggregate.Snapshot{Stream: stream(1), Version: 1, Tag: "t", State: json.RawMessage(`{}`)}))
	b.append(t, tenant, "beat-last", 1)
	b.put(t, tenant, everything("beat"))
	runAll(t, b.retention(nil), tenant, "beat")
	wantLeft(t, b, tenant, "beat", 23)
	var floors string
	must(t, b.super.QueryRow(t.Context(), `select string_agg(version::text, ',' order by version) from manifold.stream_floors where tenant_id = $1`, tenant).Scan(&floors))
	if floors != "1,1,2" {
		t.Errorf("the floors are %s; want one of what somebody has appended to, of another event's stream, and of one with a snapshot", floors)
	}
	second := &bench{db: b.db, super: b.super, store: b.open(t, directly)}
	if again := keyless(t, second, tenant, ids[5]); again.Version != 1 || again.Events[0].ID != ids[5] {
		t.Errorf("a repeat is %+v", again)
	}
	if again := keyless(t, second, tenant, ids[1]); again.Version != 2 {
		t.Errorf("a repeat behind a snapshot is %+v", again)
	}
	// This process remembers the stream, and must learn that it is gone.
	if again := b.append(t, tenant, stream(5), 1); again.Streams[0].Version != 2 {
		t.Errorf("behind the repeat it is %+v", again)
	}
	if _, err := second.store.Append(t.Context(), tenant, to(stream(6), domain.None, 1)); err != nil {
		t.Errorf("expecting none: %v", err)
	}
}

// What a removed stream costs, for the documentation: go test -run BytesOfFloors -v
func TestBytesOfFloors(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	const n = 2000
	size := func() (bytes int64) {
		t.Helper()
		must(t, b.super.QueryRow(t.Context(), "select pg_relation_size('manifold.stream_floors') + pg_relation_size('manifold.stream_floors_pkey')").Scan(&bytes))
		return bytes
	}
	for _, with := range []struct {
		what string
		most int64
		name func(id domain.EventID) string
	}{
		{"without a key", 0, func(id domain.EventID) string { return "beat-" + id.String() }},
		{"with a key of its own", 300, func(domain.EventID) string { return "beat-" + domain.NewEventID().String() }},
	} {
		before := size()
		for range n / 500 {
			var a domain.Append
			for range 500 {
				id := domain.NewEventID()
				a.Streams = append(a.Streams, domain.StreamAppend{Stream: with.name(id), Expected: domain.Any, Events: []domain.NewEvent{{ID: id, Type: "beat", Data: json.RawMessage(`{}`)}}})
			}
			_, err := b.store.Append(t.Context(), tenant, a)
			must(t, err)
		}
		b.append(t, tenant, "beat-last", 1)
		b.put(t, tenant, everything("beat"))
		runAll(t, b.retention(nil), tenant, "beat")
		each := (size() - before) / n
		t.Logf("a message %s that was removed leaves %d bytes", with.what, each)
		if each > with.most {
			t.Errorf("a message %s leaves %d bytes; want at most %d", with.what, each, with.most)
		}
	}
}
