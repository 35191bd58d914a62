package auth

import (
	"testing"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables/plantest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	fill := []string{
		`insert into manifold.tenants (tenant_id, name, state) select lpad(to_hex(n), 32, '0')::uuid, 'tenant-' || n, 'active' from generate_series(1, 10000) as n`,
		`insert into manifold.tenants (tenant_id, name, state) values ($TENANT, 'own', 'active')`,
		`insert into manifold.keys (tenant_id, key_id, name, hash, scopes, networks)
			select case when n <= 500 then $TENANT else lpad(to_hex(n % 1000), 32, '0')::uuid end, lpad(to_hex(n), 32, '0')::uuid, '', '', '{}', '{}'
			from generate_series(1, 20000) as n`,
	}
	statement := func(name, sql, args string) plantest.Statement {
		return plantest.Statement{SQL: pg.Statement{Name: name, SQL: sql}, Args: args, Pages: 40}
	}
	const one = "$TENANT, '00000000-0000-0000-0000-000000000064'"
	plantest.Check(t, migrations.RoleSystem, fill, []plantest.Statement{
		statement("read_key", readKey, one),
		statement("list_keys", listKeys, one+", 100"),
		statement("read_state", readState, "$TENANT"),
	})
}

func TestPlansOfTickets(t *testing.T) {
	t.Parallel()
	fill := []string{`insert into manifold.tickets (tenant_id, ticket_id, key_id, hash, expires_at)
		select case when n <= 100 then $TENANT else md5((n % 500)::text)::uuid end, lpad(to_hex(n), 32, '0')::uuid, $TENANT, '', now() + interval '1 hour'
		from generate_series(1, 20000) as n`}
	statement := func(name, sql, args string) plantest.Statement {
		return plantest.Statement{SQL: pg.Statement{Name: name, SQL: sql}, Args: args, Pages: 40}
	}
	plantest.Check(t, migrations.RoleApp, fill, []plantest.Statement{
		statement("remove_expired_tickets", removeExpiredTickets, "$TENANT"),
		statement("count_tickets", countTickets, "$TENANT"),
		statement("read_ticket", readTicket, "$TENANT, '00000000-0000-0000-0000-000000000064'"),
	})
}
