package subscription_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// openStore opens a store on a separate database for the test.
func openStore(t testing.TB) *tables.Tables {
	t.Helper()
	return openOn(t, pgtest.Database(t))
}

// openOn opens a store on a database, as each process does.
func openOn(t testing.TB, db pgtest.DB) *tables.Tables {
	t.Helper()
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL:       db.URL(migrations.RoleApp),
		SystemURL:    db.URL(migrations.RoleSystem),
		RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns:     8,
		Log:          quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// listen calls a function for each log that moves, until the test ends.
func listen(t testing.TB, s *tables.Tables, wake func(domain.Head)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Listen(ctx, wake) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// appendTo appends events of one type with these data to a stream, and returns the position of the last one. It may be
// called by any goroutine.
func appendTo(t testing.TB, s *tables.Tables, tenant domain.TenantID, stream, eventType string, data ...string) int64 {
	t.Helper()
	events := make([]domain.NewEvent, len(data))
	for i := range data {
		events[i] = domain.NewEvent{Type: eventType, Data: json.RawMessage(data[i])}
	}
	appended, err := s.Append(context.Background(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: events}}})
	if err != nil {
		t.Error(err)
	}
	return appended.Position
}
