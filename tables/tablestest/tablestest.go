// Package tablestest has what tests of Manifold's tables share: opening a separate database, tenants, and appends.
package tablestest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

// Open opens a store on a database of the test's own.
func Open(t testing.TB) (*tables.Tables, pgtest.DB) {
	t.Helper()
	db := pgtest.Database(t)
	return OpenAgain(t, db), db
}

// OpenAgain opens the tables of a database once more, as another process does.
func OpenAgain(t testing.TB, db pgtest.DB) *tables.Tables {
	t.Helper()
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL:       db.URL(migrations.RoleApp),
		SystemURL:    db.URL(migrations.RoleSystem),
		RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns:     8,
		Log:          slog.New(slog.DiscardHandler),
	})
	Must(t, err)
	t.Cleanup(s.Close)
	return s
}

// NewTenant creates an active tenant with a unique name.
func NewTenant(t testing.TB, s *tables.Tables) domain.TenantID {
	t.Helper()
	id := domain.NewTenantID()
	Must(t, s.CreateTenant(t.Context(), domain.Tenant{ID: id, Name: id.String()}))
	return id
}

// WantCode fails the test unless err is a *domain.Error with the code.
func WantCode(t *testing.T, err error, code domain.Code) {
	t.Helper()
	if got := CodeOf(err); got != code {
		t.Fatalf("got the error %v with code %q; want code %q", err, got, code)
	}
}

// Must fails the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Patience is how long a test waits for a signal that must come.
const Patience = time.Minute

// Receive waits for a signal.
func Receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	select {
	case got := <-from:
		return got
	case <-ctx.Done():
		t.Fatalf("waited %s for %s", Patience, what)
		panic("not reached")
	}
}

// Counted is a request with n events for one stream.
func Counted(stream string, expected domain.Expected, n int) domain.Append {
	events := make([]domain.NewEvent, n)
	for i := range events {
		events[i] = domain.NewEvent{Type: "Counted", Data: json.RawMessage(fmt.Sprintf(`{"n": %d}`, i+1))}
	}
	return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: expected, Events: events}}}
}

// WithIDs gives each event of a request a new id.
func WithIDs(a domain.Append) domain.Append {
	for _, stream := range a.Streams {
		for i := range stream.Events {
			stream.Events[i].ID = domain.NewEventID()
		}
	}
	return a
}

// Append appends to a tenant's log, and fails the test if that fails.
func Append(t testing.TB, s *tables.Tables, tenant domain.TenantID, a domain.Append) domain.Appended {
	t.Helper()
	appended, err := s.Append(t.Context(), tenant, a)
	Must(t, err)
	return appended
}

// Problem fails the test unless err has the code, and returns it.
func Problem(t testing.TB, err error, code domain.Code) *domain.Error {
	t.Helper()
	e, ok := errors.AsType[*domain.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got %v, want code %s", err, code)
	}
	return e
}

// WholeLog reads a log from its start, and checks that neither positions nor versions have gaps.
func WholeLog(t testing.TB, s *tables.Tables, tenant domain.TenantID) []domain.Event {
	t.Helper()
	events, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{Limit: 1 << 20})
	Must(t, err)
	head, err := s.Head(t.Context(), tenant)
	Must(t, err)
	if int(head.Position) != len(events) {
		t.Errorf("the head is at %d, and there are %d events", head.Position, len(events))
	}
	ids := make(map[domain.EventID]bool)
	versions := make(map[string]int64)
	for i, e := range events {
		if e.Position != int64(i+1) {
			t.Fatalf("event %d is at position %d", i+1, e.Position)
		}
		if versions[e.Stream]++; e.Version != versions[e.Stream] {
			t.Fatalf("position %d: %s has version %d, want %d", e.Position, e.Stream, e.Version, versions[e.Stream])
		}
		if ids[e.ID] {
			t.Fatalf("position %d: id %s occurs twice", e.Position, e.ID)
		}
		ids[e.ID] = true
		if i > 0 && e.RecordedAt.Before(events[i-1].RecordedAt) {
			t.Fatalf("recorded time decreases at position %d", e.Position)
		}
	}
	return events
}

// CodeOf returns the code of a *domain.Error; empty for any other error.
func CodeOf(err error) domain.Code {
	if problem, ok := errors.AsType[*domain.Error](err); ok {
		return problem.Code
	}
	return ""
}

// StateOf returns the SQLSTATE of an error; empty for any other error.
func StateOf(err error) string {
	if native, ok := errors.AsType[*pgconn.PgError](err); ok {
		return native.Code
	}
	return ""
}

// GroupDefinition returns a definition with something in each of its fields.
func GroupDefinition(partitions int) domain.GroupDefinition {
	return domain.GroupDefinition{
		Selection: domain.Selection{Categories: []string{"order", "invoice"}, Types: []string{"Placed"}, Query: domain.Query{{Types: []string{"Placed"}, Tags: []string{"shop:s1"}}}, Filter: "event.data.n > 1"},
		From:      "start", BatchSize: 10, MaxInFlight: 50, AckTimeout: 1500 * time.Millisecond, MaxAttempts: 3,
		BackoffMin: 250 * time.Millisecond, BackoffMax: time.Minute, Ordering: domain.OrderingStream, Partitions: partitions,
	}
}

// PutGroup creates a group that reads from the start.
func PutGroup(t *testing.T, s *tables.Tables, tenant domain.TenantID, name string, partitions int) domain.Group {
	t.Helper()
	group, created, err := s.PutGroup(t.Context(), tenant, name, GroupDefinition(partitions), 1)
	Must(t, err)
	if !created {
		t.Fatalf("group %q already exists", name)
	}
	return group
}

// StatusOf returns the status of a partition of a group.
func StatusOf(t *testing.T, s *tables.Tables, tenant domain.TenantID, name string, partition int) domain.PartitionStatus {
	t.Helper()
	status, err := s.GroupStatus(t.Context(), tenant, name)
	Must(t, err)
	return status.Partitions[partition]
}

// HoldLog locks the tenant's log as another process would, until release is called, or the test ends.
func HoldLog(t *testing.T, db pgtest.DB, tenant domain.TenantID) (release func()) {
	t.Helper()
	tx, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	Must(t, err)
	// The pool cannot be closed before, also where the test fails while it holds the log.
	release = sync.OnceFunc(func() {
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("release the log: %v", err)
		}
	})
	t.Cleanup(release)
	_, err = tx.Exec(t.Context(), "select from manifold.logs where tenant_id = $1 for update", [16]byte(tenant))
	Must(t, err)
	return release
}

// NewKey returns a key with two scopes.
func NewKey(tenant domain.TenantID, name string) auth.APIKey {
	return auth.APIKey{
		Tenant: tenant, ID: auth.NewKeyID(), Name: name, Hash: sha256.Sum256([]byte(name)),
		Grants: auth.GrantsOf(auth.ScopeEventsRead, auth.ScopeTenantAdmin),
	}
}

// PutFault stores a fault that is tried again after a minute.
func PutFault(t *testing.T, s *tables.Tables, fault domain.Fault) {
	t.Helper()
	_, _, err := s.PutFault(t.Context(), fault, domain.RetrySchedule{First: time.Minute, Longest: time.Hour})
	Must(t, err)
}

// Projection makes a projection with a queued rebuild, and returns both.
func Projection(t *testing.T, s *tables.Tables, id domain.ProjectionID) (domain.Projection, domain.Rebuild) {
	t.Helper()
	definition := domain.Definition{
		Name: id.Name, Database: "default", Source: domain.Source{Categories: []string{"order"}},
		Initial: json.RawMessage(`{"n": 0}`), On: map[string]string{"*": "doc"}, Mode: domain.ModeAsync, OnError: domain.OnErrorStop,
	}
	build, err := s.NextBuild(t.Context(), id.Owner)
	Must(t, err)
	Must(t, s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: definition, Build: build}, "test"))
	projection, err := s.Projection(t.Context(), id)
	Must(t, err)
	return projection, Queue(t, s, projection)
}

// Queue queues a rebuild of a projection with its own definition.
func Queue(t *testing.T, s *tables.Tables, projection domain.Projection) domain.Rebuild {
	t.Helper()
	build, err := s.NextBuild(t.Context(), projection.Owner)
	Must(t, err)
	definition := projection.Definition
	definition.On = map[string]string{"*": fmt.Sprintf("doc + %d", build)}
	rebuild := domain.Rebuild{ProjectionID: projection.ProjectionID, ID: domain.NewRebuildID(), Build: build, Definition: definition}
	Must(t, s.CreateRebuild(t.Context(), rebuild))
	rebuild, err = s.Rebuild(t.Context(), projection.ProjectionID, rebuild.ID)
	Must(t, err)
	return rebuild
}

// Claim makes a new worker the rebuild's and brings it to validating.
func Claim(t *testing.T, s *tables.Tables, rebuild domain.Rebuild) domain.Rebuild {
	t.Helper()
	claimed, ok, err := s.ClaimRebuild(t.Context(), rebuild.ProjectionID, rebuild.ID, domain.NewRebuildID().String(), time.Hour)
	Must(t, err)
	if !ok {
		t.Fatal("the rebuild cannot be claimed")
	}
	claimed.State = domain.RebuildValidating
	_, err = s.SaveRebuild(t.Context(), claimed)
	Must(t, err)
	return claimed
}

// OpenWith opens the tables with a changed configuration.
func OpenWith(t testing.TB, db pgtest.DB, change func(*tables.Config)) *tables.Tables {
	t.Helper()
	config := tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns: 4,
	}
	change(&config)
	s, err := tables.Open(t.Context(), config)
	Must(t, err)
	t.Cleanup(s.Close)
	return s
}

// Listen calls a function for each log that moves, until the test ends.
func Listen(t testing.TB, s *tables.Tables, wake func(domain.Head)) {
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

// AppendTo appends events of one type with these data to a stream, and returns the position of the last one. It may be
// called by any goroutine.
func AppendTo(t testing.TB, s *tables.Tables, tenant domain.TenantID, stream, eventType string, data ...string) int64 {
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
