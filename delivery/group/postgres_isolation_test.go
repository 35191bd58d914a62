package group_test

import (
	"testing"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Two tenants with a group of the same name, and the same events in it, do not see one another anywhere.
func TestGroupsOfTenantsAreSeparate(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx := t.Context()
	one, two, none := domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()
	a := tablestest.WithIDs(tablestest.Counted("order-1", domain.None, 6))
	tablestest.Append(t, s, one, a)
	tablestest.Append(t, s, two, a)
	tablestest.Append(t, s, two, tablestest.Counted("order-2", domain.None, 4))
	first, second := tablestest.PutGroup(t, s, one, "mail", 2), tablestest.PutGroup(t, s, two, "mail", 2)
	change := group.LedgerChange{Partition: 1, Ledger: []byte("one"), Retry: []group.Retry{retryAt(1, 1)}, Park: []domain.DeadLetter{deadLetterAt(1, 2)}}
	mustSave(t, s, one, first, change)
	member := domain.GroupMember{ID: domain.NewGroupMemberID()}
	_, err := s.AnnounceGroupMember(ctx, one, "mail", member, true)
	tablestest.Must(t, err)

	if row := ledgerOf(t, s, two, "mail", 1); row.Ledger != nil || row.Retries != nil {
		t.Errorf("the second tenant's ledger is %+v", row)
	}
	if got := tablestest.StatusOf(t, s, two, "mail", 1); got != (domain.PartitionStatus{Partition: 1}) {
		t.Errorf("the second tenant's group is %+v", got)
	}
	letters, err := s.DeadLetters(ctx, two, "mail", 0, 10)
	if err != nil || letters != nil {
		t.Errorf("the second tenant's dead letters are %+v, %v", letters, err)
	}
	_, err = s.ReplayDeadLetters(ctx, two, "mail", change.Park[0].EventID)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	if n, err := s.DiscardDeadLetters(ctx, two, "mail", domain.EventID{}); err != nil || n != 0 {
		t.Errorf("the second tenant discards %d, %v", n, err)
	}
	_, err = s.AnnounceGroupMember(ctx, two, "mail", member, false)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	tablestest.WantCode(t, s.RemoveGroupMember(ctx, two, "mail", member.ID), domain.CodeNotFound)
	if _, err := s.SeekGroup(ctx, two, "mail", func(int, []byte) ([]byte, domain.PartitionStatus, error) {
		return []byte("two"), domain.PartitionStatus{}, nil
	}); err != nil {
		t.Error(err)
	}
	tablestest.Must(t, s.DeleteGroup(ctx, two, second.Name))
	_, err = s.Group(ctx, none, "mail")
	tablestest.WantCode(t, err, domain.CodeNotFound)
	if groups, err := s.Groups(ctx, two, "", 10); err != nil || groups != nil {
		t.Errorf("the second tenant has %+v, %v", groups, err)
	}

	if row := ledgerOf(t, s, one, "mail", 1); string(row.Ledger) != "one" || len(row.Retries) != 1 || row.Group.Revision != first.Revision {
		t.Errorf("the first tenant's ledger is %+v", row)
	}
	if got := tablestest.StatusOf(t, s, one, "mail", 1); got.Retrying != 1 || got.Parked != 1 {
		t.Errorf("the first tenant's group is %+v", got)
	}
	if members, err := s.GroupMembers(ctx, one, "mail"); err != nil || len(members) != 1 {
		t.Errorf("the first tenant's members are %+v, %v", members, err)
	}

	for tenant, want := range map[domain.TenantID]int{one: 6, two: 10, none: 0} {
		events, err := s.ReadPositions(ctx, tenant, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
		if err != nil || len(events) != want {
			t.Errorf("%d events are read by position, %v; want %d", len(events), err, want)
		}
		events, err = s.NextInStreams(ctx, tenant, []domain.StreamPlace{{Stream: "order-1"}, {Stream: "order-2"}}, 100, 100)
		if err != nil || len(events) != want {
			t.Errorf("%d events are read by stream, %v; want %d", len(events), err, want)
		}
	}
	_, err = s.EventPosition(ctx, none, a.Streams[0].Events[0].ID)
	tablestest.WantCode(t, err, domain.CodeNotFound)
}

// What straight SQL sees of groups with the app login's credentials.
func TestRowLevelSecurityHoldsTheTenantsGroups(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	tables := []string{"subscriptions", "subscription_ledgers", "subscription_retries", "dead_letters", "subscription_members", "tickets"}
	one, two := domain.NewTenantID(), domain.NewTenantID()
	for _, tenant := range []domain.TenantID{one, two} {
		fillPartition(t, s, tenant, tablestest.PutGroup(t, s, tenant, "mail", 0), 0, 1)
		_, err := s.AnnounceGroupMember(ctx, tenant, "mail", domain.GroupMember{ID: domain.NewGroupMemberID()}, true)
		tablestest.Must(t, err)
		_, err = db.Pool(t, "postgres", 1).Exec(ctx, "insert into manifold.tickets (tenant_id, ticket_id, key_id, hash, expires_at) values ($1, $1, $1, 'hash', now())", tenant)
		tablestest.Must(t, err)
	}
	for _, login := range []migrations.Role{migrations.RoleApp, migrations.RoleRetention} {
		conn, err := db.Pool(t, login, 1).Acquire(ctx)
		tablestest.Must(t, err)
		defer conn.Release()
		for _, table := range tables {
			var all, others int
			tablestest.Must(t, conn.QueryRow(ctx, "select count(*) from manifold."+table).Scan(&all))
			if all != 0 {
				t.Errorf("%s: without a tenant %d rows of %s are seen", login, all, table)
			}
			tx, err := conn.Begin(ctx)
			tablestest.Must(t, err)
			_, err = tx.Exec(ctx, "set local manifold.tenant = '"+one.String()+"'")
			tablestest.Must(t, err)
			tablestest.Must(t, tx.QueryRow(ctx, "select count(*), count(*) filter (where tenant_id <> $1) from manifold."+table, one).Scan(&all, &others))
			if all != 1 || others != 0 {
				t.Errorf("%s: %d rows of %s are seen, %d of others", login, all, table, others)
			}
			gone, err := tx.Exec(ctx, "delete from manifold."+table+" where tenant_id = $1", two)
			tablestest.Must(t, err)
			if gone.RowsAffected() != 0 {
				t.Errorf("%s: another's row of %s was removed", login, table)
			}
			tablestest.Must(t, tx.Rollback(ctx))
		}
	}
	// A row for another tenant than the one that is set.
	conn, err := db.Pool(t, migrations.RoleApp, 1).Acquire(ctx)
	tablestest.Must(t, err)
	defer conn.Release()
	for table, columns := range map[string]string{
		"subscriptions":        "(tenant_id, name, definition, revision) values ($1, 'x', '{}', 1)",
		"subscription_ledgers": "(tenant_id, name, partition, revision, checkpoint, read_to) values ($1, 'x', 0, 0, 0, 0)",
		"subscription_retries": "values ($1, 'x', 0, 1, $1, 's', 1, 1, 0, 0, now(), '')",
		"dead_letters":         "values ($1, 'x', 1, 0, $1, 's', 1, 't', 1, 0, 0, '', now(), now(), null)",
		"subscription_members": "values ($1, 'x', $1, '')",
		"tickets":              "values ($1, $1, $1, '', now())",
	} {
		tx, err := conn.Begin(ctx)
		tablestest.Must(t, err)
		_, err = tx.Exec(ctx, "set local manifold.tenant = '"+one.String()+"'")
		tablestest.Must(t, err)
		_, err = tx.Exec(ctx, "insert into manifold."+table+" "+columns, two)
		if got := tablestest.StateOf(err); got != "42501" {
			t.Errorf("%s: a row for another tenant: %v, want it refused by privilege", table, err)
		}
		tablestest.Must(t, tx.Rollback(ctx))
	}
}
