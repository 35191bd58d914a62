package eventlog_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// Each traced append has one commit that succeeds, which it shares with others: as its parent, or by links in both
// directions. Appends that are not traced leave no spans.
func TestSpansOfSharedCommits(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 8,
		Tracer: tracing.New(provider),
	})
	tablestest.Must(t, err)
	defer s.Close()
	const tenants, requests = 3, 20 // some tenants share a transaction, and requests of one tenant share a commit
	var appending sync.WaitGroup
	for range tenants {
		tenant := domain.NewTenantID()
		for n := range requests {
			appending.Go(func() {
				ctx := context.Background()
				if n%2 == 0 {
					begun, span := provider.Tracer("test").Start(ctx, "request")
					defer span.End()
					ctx = begun
				}
				_, err := s.Append(ctx, tenant, tablestest.Counted(fmt.Sprint("order-", n), domain.None, 1))
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	appending.Wait()
	_, err = s.Append(context.Background(), domain.NewTenantID(), tablestest.Counted("order-1", domain.Any, 1))
	tablestest.Must(t, err)

	commits, appends := make(map[trace.SpanID]sdktrace.ReadOnlySpan), make(map[trace.SpanID]sdktrace.ReadOnlySpan)
	for _, span := range spans.Ended() {
		switch span.Name() {
		case "commit":
			commits[span.SpanContext().SpanID()] = span
		case "append":
			appends[span.SpanContext().SpanID()] = span
		}
	}
	if len(appends) != tenants*requests/2 {
		t.Errorf("%d appends have spans", len(appends))
	}
	of := make(map[trace.SpanID]int)
	for id, commit := range commits {
		if commit.Status().Description != "" {
			continue // another attempt followed
		}
		of[commit.Parent().SpanID()]++
		for _, link := range commit.Links() {
			linked := link.SpanContext.SpanID()
			of[linked]++
			back := false
			for _, link := range appends[linked].Links() {
				back = back || link.SpanContext.SpanID() == id
			}
			if !back {
				t.Errorf("the append %s does not link to its commit", linked)
			}
		}
	}
	for id := range appends {
		if of[id] != 1 {
			t.Errorf("the append %s has %d commits", id, of[id])
		}
	}
}
