package store

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// As TestPlansStayGoodAsTheLogGrows: the statements of webhooks are prepared while there is nothing, and must still touch few pages
// when there are many rows, whether or not the planner's statistics include them.
func TestPlansOfWebhooks(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	ctx := t.Context()
	pool, err := openPool(ctx, db.URL(migrations.RoleApp), 1, appSettings, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	tenant := domain.NewTenantID()
	id := "'" + tenant.String() + "'"
	// It is open while others write, however long that takes.
	if _, err := tx.Exec(ctx, "set local manifold.tenant = "+id+"; set local idle_in_transaction_session_timeout = 0"); err != nil {
		t.Fatal(err)
	}
	var claims, positions []string
	for n := range 100 {
		claims, positions = append(claims, fmt.Sprintf(`"\\x%08x"`, n)), append(positions, strconv.Itoa(n))
	}
	claimed := "'{" + strings.Join(claims, ",") + "}', '{" + strings.Join(positions, ",") + "}'"
	statements := []struct {
		name, sql, args string
		pages           int // that a good plan touches, with some room
	}{
		{"near_claims", nearClaims, id + ", 'webhook.mail', " + claimed, 1000},
		{"slice_of_claims", sliceEnd("webhook_claims", false), id + ", 'webhook.mail'", 2500},
		{"slice_of_old_claims", sliceEnd("webhook_claims", true), id + ", 'webhook.mail', '2020-01-02'", 2500},
		{"slice_of_attempts", sliceEnd("webhook_attempts", false), id + ", 'mail'", 150},
		{"newest_claim", newestClaim, id + ", 'webhook.mail'", 10},
		{"attempts", attemptColumns + " from webhook_attempts as a where a.tenant_id = $1 and a.name = $2 and a.attempt_id < $3 order by a.attempt_id desc limit $4",
			id + ", 'mail', " + id + ", 100", 60},
	}
	for _, s := range statements {
		if _, err := tx.Prepare(ctx, s.name, s.sql); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	plan := func(name, args string) node {
		t.Helper()
		var raw []byte
		if err := tx.QueryRow(ctx, fmt.Sprintf("explain (analyze, buffers, format json) execute %s(%s)", name, args)).Scan(&raw); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var plans []struct{ Plan node }
		if err := json.Unmarshal(raw, &plans); err != nil {
			t.Fatal(err)
		}
		return plans[0].Plan
	}
	for range 7 { // from the sixth time on a prepared statement's plan may be kept for good
		for _, s := range statements {
			plan(s.name, s.args)
		}
	}
	admin := db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, sql := range []string{
		`insert into manifold.webhook_claims (tenant_id, name, claim, position, recorded_at)
			select ` + id + `, 'webhook.mail', int4send(n % 20000), n, timestamptz '2020-01-01' + n * interval '1 second' from generate_series(1, 60000) as n`,
		`insert into manifold.webhook_attempts (tenant_id, name, attempt_id, event_id, event_type, position, attempt, replay, outcome, status, took, error, excerpt, at)
			select ` + id + `, 'mail', lpad(to_hex(n), 32, '0')::uuid, ` + id + `, 'Placed', n, 1, false, 'ok', 200, 1, '', '', now() from generate_series(1, 60000) as n`,
	} {
		if _, err := admin.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		for _, s := range statements {
			p := plan(s.name, s.args)
			if pages := p.Hit + p.Read; pages > s.pages {
				t.Errorf("%s, %s: it touches %d pages, more than %d", s.name, when, pages, s.pages)
			}
			p.walk(func(n node) {
				if n.Type == "Seq Scan" || n.Type == "Hash Join" || n.Removed > 1000 {
					t.Errorf("%s, %s: it has a %s in its plan that leaves out %d rows", s.name, when, n.Type, n.Removed)
				}
			})
		}
	}
	check("before the planner knows of them")
	if _, err := admin.Exec(ctx, "analyze manifold.webhook_claims, manifold.webhook_attempts"); err != nil {
		t.Fatal(err)
	}
	check("when it does")
}
