package retention_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/retention"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestRetentionPolicies(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	tenant, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	told := make(chan domain.TenantID, 100)
	listening, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- tablestest.OpenAgain(t, db).ListenRetention(listening, func(tenant domain.TenantID) { told <- tenant })
	}()
	if got := tablestest.Receive(t, told, "the first notice"); got != domain.Everyone {
		t.Errorf("the first notice is of %s", got)
	}
	notice := func() {
		t.Helper()
		if got := tablestest.Receive(t, told, "a notice"); got != tenant {
			t.Errorf("told of %s; want %s", got, tenant)
		}
	}

	_, err := s.RetentionPolicy(ctx, tenant, "order")
	tablestest.WantCode(t, err, domain.CodeNotFound)
	_, err = s.AskRetention(ctx, tenant, "order")
	tablestest.WantCode(t, err, domain.CodeNotFound)
	tablestest.WantCode(t, s.DeleteRetentionPolicy(ctx, tenant, "order"), domain.CodeNotFound)
	policy := retention.Policy{
		Category: "order", MaxAge: 90 * time.Second, MaxCount: 5, Compact: true,
		Force: retention.Force{Groups: []string{"audit"}, Projections: []string{"p", "q"}, Rebuilds: []string{"r"}},
	}
	tablestest.Must(t, policy.Check())
	made, created, err := s.PutRetentionPolicy(ctx, tenant, policy)
	tablestest.Must(t, err)
	notice()
	if !created || !reflect.DeepEqual(made.Policy, policy) || made.CreatedAt.IsZero() || !made.AskedAt.IsZero() || len(made.HeldBy) != 0 || made.Floor != (domain.RetentionFloor{Category: "order"}) {
		t.Errorf("made %+v, %v", made, created)
	}
	// Storing the same policy again is no change, and sends no notice.
	again, created, err := s.PutRetentionPolicy(ctx, tenant, policy)
	if err != nil || created || !reflect.DeepEqual(again, made) {
		t.Errorf("put again %+v, %v, %v", again, created, err)
	}
	policy.Force, policy.MaxCount = retention.Force{Groups: []string{}}, 0
	changed, created, err := s.PutRetentionPolicy(ctx, tenant, policy)
	tablestest.Must(t, err)
	notice()
	if created || changed.Revision <= made.Revision || changed.MaxCount != 0 || changed.Force.Groups != nil || !changed.CreatedAt.Equal(made.CreatedAt) {
		t.Errorf("changed %+v, %v", changed, created)
	}
	asked, err := s.AskRetention(ctx, tenant, "order")
	tablestest.Must(t, err)
	notice()
	if asked.AskedAt.IsZero() {
		t.Errorf("asked %+v", asked)
	}
	_, _, err = s.PutRetentionPolicy(ctx, tenant, retention.Policy{Category: "invoice", Compact: true})
	tablestest.Must(t, err)
	notice()
	list, err := s.RetentionPolicies(ctx, tenant)
	if err != nil || len(list) != 2 || list[0].Category != "invoice" || !reflect.DeepEqual(list[1], asked) {
		t.Errorf("listed %+v, %v", list, err)
	}
	if list, err := s.RetentionPolicies(ctx, other); err != nil || len(list) != 0 {
		t.Errorf("another tenant has %+v, %v", list, err)
	}
	due, err := s.RetentionDue(ctx)
	if err != nil || len(due) != 2 {
		t.Fatalf("due %+v, %v", due, err)
	}
	for _, d := range due {
		if d.Tenant != tenant || d.Head != 0 || d.Asked != (d.Category == "order") {
			t.Errorf("due %+v", d)
		}
	}

	// A run that ends what was asked for before leaves what was asked for since; one by an older policy changes
	// nothing.
	work, err := s.BeginRetention(ctx, tenant, "order", 0)
	tablestest.Must(t, err)
	later, err := s.AskRetention(ctx, tenant, "order")
	tablestest.Must(t, err)
	notice()
	end := retention.End{Category: "order", Revision: work.Revision, Run: retention.NewRunID(), Finished: true, AskedAt: work.AskedAt,
		HeldBy: []domain.RetentionHold{{Kind: domain.HoldGroup, Name: "mail", Position: 7}}}
	_, err = s.EndRetention(ctx, tenant, end)
	tablestest.Must(t, err)
	ended1, err := s.RetentionPolicy(ctx, tenant, "order")
	if err != nil || !ended1.AskedAt.Equal(later.AskedAt) || len(ended1.HeldBy) != 1 || ended1.HeldBy[0] != end.HeldBy[0] || ended1.LastRunAt.IsZero() {
		t.Errorf("behind a run %+v, %v", ended1, err)
	}
	end.AskedAt, end.HeldBy = later.AskedAt, nil
	_, err = s.EndRetention(ctx, tenant, end)
	tablestest.Must(t, err)
	if got, err := s.RetentionPolicy(ctx, tenant, "order"); err != nil || !got.AskedAt.IsZero() || len(got.HeldBy) != 0 {
		t.Errorf("behind the last run %+v, %v", got, err)
	}
	end.Revision, end.Error = work.Revision-1, "old"
	_, err = s.EndRetention(ctx, tenant, end)
	tablestest.Must(t, err)
	if got, err := s.RetentionPolicy(ctx, tenant, "order"); err != nil || got.LastError != "" {
		t.Errorf("behind a run by an older policy %+v, %v", got, err)
	}
	_, err = s.AnnounceRetention(ctx, tenant, "order", work.Revision-1, end.Run, 5)
	tablestest.WantCode(t, err, domain.CodeConflict)

	tablestest.Must(t, s.DeleteRetentionPolicy(ctx, tenant, "order"))
	notice()
	remade, created, err := s.PutRetentionPolicy(ctx, tenant, policy)
	if err != nil || !created || remade.Revision == changed.Revision || !remade.LastRunAt.IsZero() {
		t.Errorf("created again: %+v, %v, %v", remade, created, err)
	}
	cancel()
	tablestest.Must(t, tablestest.Receive(t, ended, "the listener's end"))
}

func TestTooManyRetentionPolicies(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	_, err := db.Pool(t, "postgres", 1).Exec(t.Context(), `insert into manifold.retention_policies (tenant_id, category, compact, revision)
		select $1, 'c' || n, true, 1 from generate_series(1, $2::int) as n`, tenant, retention.MaxPolicies)
	tablestest.Must(t, err)
	_, _, err = s.PutRetentionPolicy(t.Context(), tenant, retention.Policy{Category: "more", Compact: true})
	tablestest.WantCode(t, err, domain.CodeQuotaExceeded)
	if _, created, err := s.PutRetentionPolicy(t.Context(), tenant, retention.Policy{Category: "c7", MaxCount: 1}); err != nil || created {
		t.Errorf("one that is there: %v, %v", created, err)
	}
}

// Under one tenant the retention login sees and removes nothing of another, and without one nothing at all.
func TestRetentionIsHeldToTheTenant(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	one, two := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	for _, tenant := range []domain.TenantID{one, two} {
		tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 3))
		_, _, err := s.PutRetentionPolicy(ctx, tenant, retention.Policy{Category: "order", MaxCount: 1})
		tablestest.Must(t, err)
	}
	conn, err := db.Pool(t, migrations.RoleRetention, 1).Acquire(ctx)
	tablestest.Must(t, err)
	defer conn.Release()
	for _, set := range []string{"", "set local manifold.tenant = '" + one.String() + "'"} {
		tx, err := conn.Begin(ctx)
		tablestest.Must(t, err)
		_, err = tx.Exec(ctx, set)
		tablestest.Must(t, err)
		for _, sql := range []string{
			"delete from manifold.events where tenant_id = $1", "update manifold.retention_policies set swept_to = 9 where tenant_id = $1",
			"delete from manifold.retention_policies where tenant_id = $1",
		} {
			tag, err := tx.Exec(ctx, sql, two)
			tablestest.Must(t, err)
			if tag.RowsAffected() != 0 {
				t.Errorf("%s, with %q: %d rows of another tenant", sql, set, tag.RowsAffected())
			}
		}
		tablestest.Must(t, tx.Rollback(ctx))
	}
	run := retention.NewRunID()
	work, err := s.BeginRetention(ctx, one, "order", 0)
	tablestest.Must(t, err)
	_, err = s.AnnounceRetention(ctx, one, "order", work.Revision, run, 2)
	tablestest.Must(t, err)
	slice, err := s.RemoveRetained(ctx, one, retention.Step{
		Policy: work.Policy, Revision: work.Revision, Run: run, Reason: retention.ReasonSweep, UpTo: 2, Limit: 10,
	})
	if err != nil || slice.Removed != 2 || !slice.Done || slice.Seen != 2 {
		t.Errorf("removed %+v, %v", slice, err)
	}
	for tenant, want := range map[domain.TenantID]int{one: 1, two: 3} {
		events, err := s.ReadLog(ctx, tenant, domain.LogQuery{Limit: 10})
		if err != nil || len(events) != want {
			t.Errorf("%d events, %v; want %d", len(events), err, want)
		}
	}
	// By a run that has not announced, or not so far, nothing goes.
	for _, id := range []retention.RunID{run, retention.NewRunID()} {
		slice, err := s.RemoveRetained(ctx, one, retention.Step{
			Policy: work.Policy, Revision: work.Revision, Run: id, Reason: retention.ReasonSweep, UpTo: 3, Limit: 10,
		})
		if err != nil || slice.Removed != 0 || slice.Found != 1 || !slice.Unannounced || slice.Seen != 0 {
			t.Errorf("not announced: %+v, %v", slice, err)
		}
	}
}
