package eventlog

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// A slice of large events reads little more than it returns, even when it also reports what was removed. The rest of
// the answer, which may be very long, is abandoned with its connection.
func TestSlicesOfLargeEventsAreNotReadToTheEnd(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s, err := openLog(t.Context(), pg.Config{AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 1}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tenant := domain.NewTenantID()
	large := fmt.Appendf(nil, `"%s"`, bytes.Repeat([]byte("x"), 1_000_000))
	const events, size = 25, 1_000_000
	for range events {
		_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "order-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "A", Data: large}}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	db.Remove(t, tenant, "order", 2)
	for name, read := range map[string]func(context.Context) ([]domain.Event, int64, error){
		"the log": func(ctx context.Context) ([]domain.Event, int64, error) {
			slice, err := s.LogSlice(ctx, tenant, domain.LogQuery{From: 1, Limit: 1000, MaxBytes: 2 * size})
			return slice.Events, slice.RemovedTo, err
		},
		"a stream": func(ctx context.Context) ([]domain.Event, int64, error) {
			slice, err := s.StreamSlice(ctx, tenant, "order-1", domain.StreamQuery{From: 1, Limit: 1000, MaxBytes: 2 * size})
			return slice.Events, slice.RemovedTo, err
		},
	} {
		opened := s.db.App.Stat().NewConnsCount()
		found, removedTo, err := read(t.Context())
		if err != nil || len(found) != 2 || found[0].Position != 3 || removedTo != 2 {
			t.Errorf("of %s it reads %d events, and says that those up to %d were removed, %v", name, len(found), removedTo, err)
		}
		if _, err := s.Head(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
		if s.db.App.Stat().NewConnsCount() == opened {
			t.Errorf("%s is read to its end", name)
		}
	}
}
