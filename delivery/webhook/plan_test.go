package webhook

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables/plantest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	var claims, positions []string
	for n := range 100 {
		claims, positions = append(claims, fmt.Sprintf(`"\\x%08x"`, n)), append(positions, strconv.Itoa(n))
	}
	claimed := "'{" + strings.Join(claims, ",") + "}', '{" + strings.Join(positions, ",") + "}'"
	fill := []string{
		`insert into manifold.webhook_claims (tenant_id, name, claim, position, recorded_at)
			select $TENANT, 'webhook.mail', int4send(n % 20000), n, timestamptz '2020-01-01' + n * interval '1 second' from generate_series(1, 60000) as n`,
		`insert into manifold.webhook_attempts (tenant_id, name, attempt_id, event_id, event_type, position, attempt, replay, outcome, status, took, error, excerpt, at)
			select $TENANT, 'mail', lpad(to_hex(n), 32, '0')::uuid, $TENANT, 'Placed', n, 1, false, 'ok', 200, 1, '', '', now() from generate_series(1, 60000) as n`,
	}
	plantest.Check(t, migrations.RoleApp, fill, []plantest.Statement{
		{SQL: pg.Statement{Name: "near_claims", SQL: nearClaims}, Args: "$TENANT, 'webhook.mail', " + claimed, Pages: 1000},
		{SQL: pg.Statement{Name: "slice_of_claims", SQL: sliceEnd("webhook_claims", false)}, Args: "$TENANT, 'webhook.mail'", Pages: 2500},
		{SQL: pg.Statement{Name: "slice_of_old_claims", SQL: sliceEnd("webhook_claims", true)}, Args: "$TENANT, 'webhook.mail', '2020-01-02'", Pages: 2500},
		{SQL: pg.Statement{Name: "slice_of_attempts", SQL: sliceEnd("webhook_attempts", false)}, Args: "$TENANT, 'mail'", Pages: 150},
		{SQL: pg.Statement{Name: "newest_claim", SQL: newestClaim}, Args: "$TENANT, 'webhook.mail'", Pages: 10},
		{
			SQL: pg.Statement{
				Name: "attempts",
				SQL:  attemptColumns + " from webhook_attempts as a where a.tenant_id = $1 and a.name = $2 and a.attempt_id < $3 order by a.attempt_id desc limit $4",
			},
			Args: "$TENANT, 'mail', $TENANT, 100", Pages: 60,
		},
	})
}
