package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// Whoever changes a tenant's inline builds holds a connection while it reads the log by another one. Many at once leave
// some for that, and for appends.
func TestManyInlineBuildsBeginAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t) // with 8 connections
	id := domain.ProjectionID{Owner: domain.Everyone, Name: "inline"}
	number, err := s.NextBuild(t.Context(), id.Owner)
	must(t, err)
	definition := domain.Definition{Name: id.Name, Mode: domain.ModeInline}
	var tenants []domain.TenantID
	for range 16 {
		tenant := newTenant(t, s)
		mustAppend(t, s, tenant, to("order-1", domain.None, 1))
		tenants = append(tenants, tenant)
	}
	must(t, s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: definition, Build: number}, "test"))
	var all sync.WaitGroup
	for _, tenant := range tenants {
		all.Go(func() {
			begun, err := s.BeginInline(t.Context(), tenant, domain.Projection{ProjectionID: id, Build: number}, func(ctx context.Context, head int64) (bool, error) {
				events, err := s.ReadLog(ctx, tenant, domain.LogQuery{From: 1, Limit: 10})
				if err == nil && len(events) != int(head) {
					err = fmt.Errorf("%d events of %d", len(events), head)
				}
				return true, err
			})
			if !begun || err != nil {
				t.Errorf("begun: %v, %v", begun, err)
			}
		})
		all.Go(func() {
			if _, err := s.Append(t.Context(), tenant, to("order-2", domain.None, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
