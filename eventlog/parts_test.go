package eventlog

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// What is encoded here must be what pgx encodes.
func TestArraysAgainstPgx(t *testing.T) {
	t.Parallel()
	at := time.Date(1987, 6, 5, 4, 3, 2, 987654000, time.UTC)
	a := domain.Append{Streams: []domain.StreamAppend{{Stream: "order-1", Events: []domain.NewEvent{
		{Type: "A", Data: []byte(`{"a": 1}`), Metadata: []byte(`2`), OccurredAt: at},
		{Type: "Bb", Data: []byte(`null`)},
	}}, {Stream: "ü-2", Events: []domain.NewEvent{{Type: "A", Data: []byte(`[]`)}}}}}
	ids := []domain.EventID{domain.NewEventID(), domain.NewEventID(), domain.NewEventID()}
	r := &request{append: a, ids: ids, events: 3}
	got := new(buffers).insert(nil, nil, 0, &batch{written: []*request{r}, firsts: []int64{5, 1}, rows: 3})[3:]
	types := pgtype.NewMap()
	two := "2"
	for i, want := range []struct {
		oid   uint32
		value any
	}{
		{pgtype.UUIDArrayOID, [][16]byte{ids[0], ids[1], ids[2]}},
		{pgtype.TextArrayOID, []string{"order-1", "order-1", "ü-2"}},
		{pgtype.Int8ArrayOID, []int64{5, 6, 1}},
		{pgtype.TextArrayOID, []string{"A", "Bb", "A"}},
		{pgtype.JSONBArrayOID, []string{`{"a": 1}`, `null`, `[]`}},
		{pgtype.JSONBArrayOID, []*string{&two, nil, nil}},
		{pgtype.TimestamptzArrayOID, []*time.Time{&at, nil, nil}},
	} {
		expected, err := types.Encode(want.oid, pgtype.BinaryFormatCode, want.value, nil)
		if err != nil {
			t.Fatal(err)
		}
		// The second word says whether there are nulls: here that is always "there may be".
		copy(expected[4:8], []byte{0, 0, 0, 1})
		if string(got[i]) != string(expected) {
			t.Errorf("parameter %d is\n%x, pgx makes\n%x", i, got[i], expected)
		}
	}
}

func TestVersionsAreBounded(t *testing.T) {
	t.Parallel()
	var v versions
	for n := range 5 * versionsKept {
		v.put(fmt.Sprintf("order-%d", n), int64(n))
		if version, ok := v.get("order-0"); !ok || version != 0 {
			t.Fatalf("what is always used is forgotten after %d others", n)
		}
	}
	if kept := len(v.young) + len(v.old); kept > 2*versionsKept {
		t.Errorf("%d streams are remembered", kept)
	}
	last := fmt.Sprintf("order-%d", 5*versionsKept-1)
	v.update(last, 7)
	v.update("other-1", 7)
	if version, _ := v.get(last); version != 7 {
		t.Errorf("after the repair, the version is %d", version)
	}
	if _, ok := v.get("other-1"); ok {
		t.Error("the repair adds streams that were not there")
	}
	if v.forget(); !v.empty() {
		t.Error("something is remembered still")
	}
}

// A repeated name is part of another request's body, which must not stay in memory for it.
func TestVersionsKeepNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	var v versions
	body := []string{strings.Repeat("x", 1<<10) + "order-1", strings.Repeat("y", 1<<10) + "order-1"}
	for i, text := range body {
		name := text[1<<10:]
		v.put(name, int64(i))
		v.update(name, int64(i))
		for kept := range v.young {
			if unsafe.StringData(kept) == unsafe.StringData(name) {
				t.Errorf("put %d: the name is the body's own", i+1)
			}
		}
	}
}

func TestIdleWritersGo(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s, err := openLog(t.Context(), pg.Config{AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 2}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tenant := domain.NewTenantID()
	appendOne := func(version domain.Expected) {
		t.Helper()
		_, err := s.Append(context.Background(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "order-1", Expected: version, Events: []domain.NewEvent{{Type: "A", Data: []byte(`1`)}}}}})
		if err != nil {
			t.Fatal(err)
		}
		s.writers.running.Wait() // the goroutine goes when there is nothing to do
	}
	appendOne(0)
	s.writers.sweep(time.Now().Add(-time.Minute))
	if len(s.writers.of) != 1 {
		t.Error("a writer that was just used is gone")
	}
	s.writers.sweep(time.Now().Add(time.Minute))
	if len(s.writers.of) != 0 {
		t.Error("an idle writer stays")
	}
	appendOne(1)
	if bytes := s.writers.bytes.Load(); bytes != 0 || s.writers.of[tenant].bytes != 0 {
		t.Errorf("nothing waits, and %d bytes are counted", bytes)
	}
}

func TestNoticesOfHeads(t *testing.T) {
	t.Parallel()
	for _, tenants := range []int{1, 2, headsListed, headsListed + 1} {
		heads := make(map[domain.TenantID]int64)
		for range tenants {
			heads[domain.NewTenantID()] = 1<<63 - 1
		}
		payload := headsPayload(heads)
		if len(payload) >= 8000 {
			t.Errorf("the notice of %d tenants has %d bytes", tenants, len(payload))
		}
		parsed, ok := parseHeads(payload)
		if ok != (tenants <= headsListed) {
			t.Errorf("the notice of %d tenants is read: %v", tenants, ok)
		}
		for _, head := range parsed {
			if heads[head.Tenant] != head.Position {
				t.Errorf("tenant %s is at %d", head.Tenant, head.Position)
			}
		}
		if ok && len(parsed) != tenants {
			t.Errorf("the notice of %d tenants names %d", tenants, len(parsed))
		}
	}
	for _, payload := range []string{"", "poll", ",", "x:1", strings.Repeat("0", 36) + ":1", domain.NewTenantID().String() + ":x"} {
		if _, ok := parseHeads(payload); ok {
			t.Errorf("%q is read", payload)
		}
	}
}
