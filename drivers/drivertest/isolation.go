package drivertest

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

func (s *suite) isolation(t *testing.T) {
	t.Parallel()
	one, two := domain.NewTenantID(), domain.NewTenantID()
	shared := s.shared(t)
	ownOne := s.own(one)
	ownTwo := ownOne
	ownTwo.Owner = two
	for name, builds := range map[string][2]domain.Build{
		"a shared build": {shared, shared},
		"two tenants' own builds with one number": {ownOne, ownTwo},
	} {
		parallel(t, name, func(t *testing.T) {
			ofOne, ofTwo := document("a", 1, `{"of": "one"}`), document("a", 2, `{"of": "two"}`)
			s.save(t, builds[0], one, drivers.Batch{To: 1, Upserts: []domain.Document{ofOne}})
			s.wantDocuments(t, builds[1], two)
			s.wantCheckpoint(t, builds[1], two, 0)
			s.save(t, builds[1], two, drivers.Batch{To: 2, Upserts: []domain.Document{ofTwo}})
			s.wantDocuments(t, builds[0], one, ofOne)
			s.wantDocuments(t, builds[1], two, ofTwo)
			s.save(t, builds[0], one, drivers.Batch{From: 1, To: 5, Deletes: []drivers.Deletion{{ID: "a", Version: 5}}})
			s.wantDocuments(t, builds[0], one)
			s.wantDocuments(t, builds[1], two, ofTwo)
			s.wantCheckpoint(t, builds[0], one, 5)
			s.wantCheckpoint(t, builds[1], two, 2)
			if err := s.driver.DropTenant(t.Context(), builds[0], one); err != nil {
				t.Fatalf("DropTenant: %v", err)
			}
			s.wantDocuments(t, builds[1], two, ofTwo)
			s.wantCheckpoint(t, builds[1], two, 2)
			if !builds[0].Shared() {
				if err := s.driver.DropTable(t.Context(), builds[0]); err != nil {
					t.Fatalf("DropTable: %v", err)
				}
				s.wantDocuments(t, builds[1], two, ofTwo)
				s.wantCheckpoint(t, builds[1], two, 2)
			}
		})
	}

	parallel(t, "a tenant that has no place in the build", func(t *testing.T) {
		owner, stranger := domain.NewTenantID(), domain.NewTenantID()
		own := s.own(owner)
		strangers := own
		strangers.Owner = stranger
		kept := document("a", 1, `{"kept": true}`)
		s.save(t, own, owner, drivers.Batch{To: 1, Upserts: []domain.Document{kept}})
		s.save(t, strangers, stranger, drivers.Batch{To: 1, Upserts: []domain.Document{kept}})
		for _, wrong := range []struct {
			name   string
			build  domain.Build
			tenant domain.TenantID
		}{
			{"another's own build", own, stranger},
			{"no tenant in an own build", own, domain.Everyone},
			{"no tenant in a shared build", s.shared(t), domain.Everyone},
		} {
			t.Run(wrong.name, func(t *testing.T) {
				ctx := t.Context()
				var errs [9]error
				errs[0] = s.driver.Save(ctx, wrong.build, wrong.tenant, drivers.Batch{To: 2, Upserts: []domain.Document{document("b", 2, `{}`)}})
				errs[1] = s.driver.Save(ctx, wrong.build, wrong.tenant, drivers.Batch{From: 1, To: 2, Upserts: []domain.Document{document("b", 2, `{}`)}})
				errs[2] = s.driver.DropTenant(ctx, wrong.build, wrong.tenant)
				_, errs[3] = s.driver.Load(ctx, wrong.build, wrong.tenant, []string{"a"})
				_, errs[4] = s.driver.Checkpoint(ctx, wrong.build, wrong.tenant)
				_, _, errs[5] = s.driver.Get(ctx, wrong.build, wrong.tenant, "a")
				_, errs[6] = s.driver.Query(ctx, wrong.build, wrong.tenant, domain.DocumentQuery{Limit: 1})
				_, errs[7] = s.driver.Count(ctx, wrong.build, wrong.tenant, nil)
				_, errs[8] = s.driver.Explain(ctx, wrong.build, wrong.tenant, domain.DocumentQuery{Limit: 1})
				for i, err := range errs {
					if err == nil {
						t.Errorf("call %d was not refused", i)
					}
				}
			})
		}
		for tenant, build := range map[domain.TenantID]domain.Build{owner: own, stranger: strangers} {
			s.wantDocuments(t, build, tenant, kept)
			s.wantCheckpoint(t, build, tenant, 1)
		}
	})
}
