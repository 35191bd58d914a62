package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// node is a part of a plan, as EXPLAIN gives it.
type node struct {
	Type    string `json:"Node Type"`
	Removed int    `json:"Rows Removed by Filter"`
	Hit     int    `json:"Shared Hit Blocks"`
	Read    int    `json:"Shared Read Blocks"`
	Plans   []node `json:"Plans"`
}

func (n node) walk(do func(node)) {
	do(n)
	for _, part := range n.Plans {
		part.walk(do)
	}
}

// Each hot statement is prepared and used while the table is empty, as a new service does, and must still touch few pages
// when there is a large and skewed log, whether or not the planner's statistics include it.
func TestPlansStayGoodAsTheLogGrows(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	ctx := t.Context()
	// Each statement is its login's own.
	logins := map[migrations.Role]map[string]string{migrations.RoleApp: appSettings, migrations.RoleRetention: plannerSettings}
	conns, txs := make(map[migrations.Role]*pgxpool.Conn), make(map[migrations.Role]pgx.Tx)
	for role, settings := range logins {
		pool, err := openPool(ctx, db.URL(role), 1, settings, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		if conns[role], err = pool.Acquire(ctx); err != nil {
			t.Fatal(err)
		}
		defer conns[role].Release()
	}
	tenant := domain.NewTenantID()
	id := "'" + tenant.String() + "'"

	// The log: 60,000 events of one tenant and some of 50 others; one stream has a third of all, one category 20 events.
	const all, top = "9223372036854775807", "60000"
	type hot struct {
		st    *statement
		args  string
		pages int // that a good plan touches, with some room
	}
	tests := []hot{
		{&logForward, id + ", 30000, " + all + ", 100", 60},
		{&logBackward, id + ", 30000, 1, 100", 60},
		{&logTypesForward, id + ", 30000, " + all + ", 100, '{Common}'", 80},
		{&logTypesBackward, id + ", 30000, 1, 100, '{Common}'", 80},
		{&categoryForward, id + ", 30000, " + all + ", 100, 'order'", 150},
		{&categoryBackward, id + ", 30000, 1, 100, 'order'", 150},
		{&categoryForward, id + ", 1, " + all + ", 100, 'rare'", 150},
		{&categoriesForward, id + ", 30000, " + all + ", 100, '{order,invoice,rare}'", 900},
		{&categoriesBackward, id + ", 30000, 1, 100, '{order,invoice,rare}'", 900},
		{&categoriesTypesForward, id + ", 30000, " + all + ", 20, '{order,rare}', '{Common}'", 200},
		{&categoriesTypesBackward, id + ", 30000, 1, 20, '{order,rare}', '{Common}'", 200},
		{&streamForward, id + ", 'order-0', 1000, " + all + ", 100", 150},
		{&streamBackward, id + ", 'order-0', " + all + ", 1, 100", 150},
		{&latestOf, id + ", '{order-0,order-1,invoice-7,none-1}'", 40},
		{&eventByID, id + ", gen_random_uuid()", 10},
		{&streamVersions, id + ", '{order-0,order-1,invoice-7,none-1}'", 40},
		{&lookUpIDs, id + ", array[gen_random_uuid(), gen_random_uuid()], '{order-1,order-2}', '{Common,Common}', array['{}', '{}']::jsonb[]", 20},
		{&versionsAbove, id + ", 59900, 4001", 60},
		{&streamNames, id + ", '', 'order-', 'order.', 100", 700},
		{&streamInfo, id + ", 'invoice-7'", 60},
		{&readHead, id, 10},
		{&checkLog, id, 10},
		{&positionAt, id + ", now()", 250},
		{&recordedAt, id + ", '{1,30000,59999}'", 30},
		{&versionAt, id + ", now(), 'order-0'", 250},
		{&anyInLog, id + ", 100, " + top, 10},
		{&anyOfTypes, id + ", 100, " + top + ", '{Common}'", 20},
		{&anyInCategories, id + ", 100, " + top + ", '{rare,order}'", 30},
		{&anyInCategoriesOfTypes, id + ", 100, " + top + ", '{rare,order}', '{Common}'", 60},
		{&countInCategories, id + ", 100, " + top + ", '{rare}'", 120},
		{&projectionRow, "'00000000-0000-0000-0000-000000000000', 'shared-7', " + id, 30},

		// A stream with 20,000 events after the place, of which none, or few, are before the group's position.
		{&nextInStreams, id + ", '{order-0,order-1,rare-1,none-1}', '{900,0,1,0}', " + top + ", 16", 150},
		{&nextInStreams, id + ", '{order-0,order-1}', '{900,0}', 100, 16", 100},
		{&atPositions, id + ", '{7,59000,30000,99999}'", 30},
		{&eventPosition, id + ", gen_random_uuid()", 10},
		{&versionBefore, id + ", 100, 'order-0'", 250},

		// Of the group mail: 20,000 retries in partition 0 and 100 in each other, 60,000 dead letters, half of them to be replayed.
		{&oneGroup, id + ", 'mail'", 10},
		{&groupStatus, id + ", 'mail'", 30},
		{&groupStatuses, id + ", 'group-1', 20", 250},
		{&readLedger, id + ", 'mail', 3", 20},
		{&waitingRetries, id + ", 'mail', 3", 150},
		{&readReplays, id + ", 'mail', 3, 1000", 1100},
		{&deadLetters, id + ", 'mail', 30000, 100", 60},
		{&saveLedger, id + ", 'mail', 0, " + id + ", 1, 0, 'ledger', 1, 1, 1, 1, null", 40},
		{&saveLedgerCounting, id + ", 'mail', 0, " + id + ", 1, 0, 'ledger', 1, 1, 1, 1, null, 2, '{7,9,30007}', 2, '{8,30008,60009}'", 80},
		{&removeRetry, id + ", 'mail', 0, " + id + ", 10000", 20},
		{&removeDeadLetter, id + ", 'mail', 0, " + id + ", 30000", 20},
		{&putRetries, id + ", 'mail', 0, " + id + ", '{7}', array[" + id + "]::uuid[], '{s}', '{1}', '{1}', '{0}', '{0}', array[now()], '{why}'", 40},
		{&putDeadLetters, id + ", 'mail', 0, " + id + ", '{7}', array[" + id + "]::uuid[], '{s}', '{1}', '{1}', '{0}', '{0}', '{why}', '{T}', array[now()], array[now()], '{null}'", 60},
		{&groupMembers, id + ", 'mail', 45000000", 60},

		// Of what retention removes 30,000 events are dead letters.
		{&retentionRipe, id + ", 1000000", 250},
		{&retentionNth, id + ", 'order', 60001, 5000", 6000},
		{&retentionNext, id + ", 'rare', 30000", 10},
		{&retentionWindow, id + ", 'order', 30000, " + all + ", 100", 150},
		{&retentionBefore, id + ", '{order-0,order-1,rare-1,none-1}', '{30000,5,9,2}'", 40},
		{&retentionNamed, id + ", '{1,2,30000}', array[" + id + ", " + id + ", " + id + "]::uuid[], '{other}', '{p}'", 40},
		{&retentionSpared, id + ", 'order', 10000, " + all + ", 100, " + top, 1400},
		{&retentionRemove, id + ", 'order', 30000, 30200, '{30001,30099}'", 1200},
		{&retentionRemoveOne, id + ", 30001", 20},
		{&retentionFloors, id + ", 'order', '{order-0,order-1,none-1}', '{1,60000,7}', '{t,f,t}'", 60},
		{&retentionSpare, id + ", 'order', '{1,4,7}'", 40},
		{&retentionUnspare, id + ", 'order', 3000, 4000, '{3003,3006,3009,77777}'", 40},
		{&retentionRemoved, id + ", 'order', 100, 5", 20},
		{&groupHolds, id + ", 'order'", 12000},
		{&firstGroupHold, id + ", 'order', '{mail}'", 12000},
		{&beatGroup, id + ", 'mail', gen_random_uuid(), 45000000", 10},
	}
	begin := func() {
		t.Helper()
		for role, conn := range conns {
			var err error
			if txs[role], err = conn.Begin(ctx); err != nil {
				t.Fatal(err)
			}
			// It is open while others write a large log, however long that takes.
			if _, err := txs[role].Exec(ctx, "set local manifold.tenant = "+id+"; set local idle_in_transaction_session_timeout = 0"); err != nil {
				t.Fatal(err)
			}
		}
	}
	rollback := func() {
		t.Helper()
		for _, tx := range txs {
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin()
	prepared := make(map[*statement]bool)
	run := func(h hot) node {
		t.Helper()
		var raw []byte
		tx := txs[migrations.RoleApp]
		if strings.HasPrefix(h.st.name, "manifold_retention_") {
			tx = txs[migrations.RoleRetention]
		}
		if !prepared[h.st] {
			if _, err := tx.Prepare(ctx, h.st.name, h.st.sql); err != nil {
				t.Fatalf("%s: %v", h.st.name, err)
			}
			prepared[h.st] = true
		}
		again, err := tx.Begin(ctx) // what it writes is not kept
		if err != nil {
			t.Fatal(err)
		}
		err = again.QueryRow(ctx, fmt.Sprintf("explain (analyze, buffers, format json) execute %s(%s)", h.st.name, h.args)).Scan(&raw)
		if err != nil {
			t.Fatalf("%s: %v", h.st.name, err)
		}
		if err := again.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		var plans []struct{ Plan node }
		if err := json.Unmarshal(raw, &plans); err != nil {
			t.Fatal(err)
		}
		return plans[0].Plan
	}
	for range 7 { // from the sixth time on a prepared statement's plan may be kept for good
		for _, h := range tests {
			run(h)
		}
	}
	admin := db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, sql := range []string{
		`insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			select ` + id + `, n, gen_random_uuid(),
				case when n % 3 = 0 then 'order-0' when n % 2000 = 1 then 'rare-1' when n % 3 = 1 then 'order-' || n / 30 else 'invoice-' || n / 30 end,
				n, case when n % 2000 = 1 then 'Rare' else 'Common' end, '{"n": 1}', now() - interval '1 day' + n * interval '1 ms'
			from generate_series(1, 60000) as n`,
		`insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			select md5((n % 50)::text)::uuid, n, gen_random_uuid(), 'order-' || n % 50, n, 'Common', '{"n": 1}', now() from generate_series(1, 10000) as n`,
		`insert into manifold.logs (tenant_id, head, last_at) values (` + id + `, 60000, now())`,
		`insert into manifold.projections (tenant_id, name, definition, build)
			select uuid_nil.id, 'shared-' || n, '{}', n from generate_series(1, 5000) as n, (values ('00000000-0000-0000-0000-000000000000'::uuid)) as uuid_nil(id)`,
		`insert into manifold.tenant_builds (tenant_id, owner, name, build, base)
			select case when n % 2 = 0 then ` + id + ` else md5((n % 50)::text)::uuid end, '00000000-0000-0000-0000-000000000000', 'shared-' || n, n, n
			from generate_series(1, 10000) as n`,
		`insert into manifold.subscriptions (tenant_id, name, definition, revision)
			select ` + id + `, case n when 0 then 'mail' else 'group-' || n end, '{}', 1 from generate_series(0, 500) as n`,
		`insert into manifold.subscription_ledgers (tenant_id, name, partition, revision, last_write, checkpoint, read_to)
			select s.tenant_id, s.name, p, 0, s.tenant_id, 0, 0 from manifold.subscriptions as s cross join generate_series(0, 7) as p`,
		`insert into manifold.subscription_retries
			select l.tenant_id, l.name, l.partition, n, gen_random_uuid(), 'order-1', n, 1, 0, 0, now(), 'why'
			from manifold.subscription_ledgers as l
			cross join lateral generate_series(1, case when l.name <> 'mail' then 1 when l.partition = 0 then 20000 else 100 end) as n`,
		`insert into manifold.dead_letters
			select ` + id + `, 'mail', n, n % 8, gen_random_uuid(), 'order-1', n, 'Common', 5, 0, 0, 'why', now(), now(), case when n % 16 < 8 then now() end
			from generate_series(1, 60000) as n`,
		`insert into manifold.dead_letters
			select ` + id + `, 'group-' || n % 500, n, n % 8, gen_random_uuid(), 'order-1', n, 'Common', 5, 0, 0, 'why', now(), now(), null
			from generate_series(1, 10000) as n`,
		`insert into manifold.retention_policies (tenant_id, category, max_count, revision)
			select case when n % 2 = 0 then ` + id + ` else md5((n % 50)::text)::uuid end, case n when 0 then 'order' else 'category' || n end, 1, 1
			from generate_series(0, 2000) as n`,
		`insert into manifold.retention_floors (tenant_id, category, announced_to, run_id)
			select p.tenant_id, p.category, 0, p.tenant_id from manifold.retention_policies as p`,
		`insert into manifold.retention_spared (tenant_id, category, position) select ` + id + `, 'order', n from generate_series(3, 60000, 3) as n`,
		`insert into manifold.stream_floors (tenant_id, stream_id, version) select ` + id + `, 'gone-' || n, 1 from generate_series(1, 10000) as n`,
		`insert into manifold.parked_events (tenant_id, owner, name, build, document_id, position)
			select ` + id + `, ` + id + `, 'p', 1, 'd' || n % 100, n from generate_series(1, 20000) as n`,
		`insert into manifold.subscription_members (tenant_id, name, member_id, label)
			select s.tenant_id, s.name, gen_random_uuid(), '' from manifold.subscriptions as s cross join generate_series(1, 10)`,
	} {
		if _, err := admin.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	check := func(h hot, when string) {
		t.Helper()
		plan := run(h)
		if pages := plan.Hit + plan.Read; pages > h.pages {
			t.Errorf("%s, %s: it touches %d pages, more than %d", h.st.name, when, pages, h.pages)
		}
		plan.walk(func(n node) {
			if n.Type == "Seq Scan" || n.Type == "Hash Join" || n.Type == "Merge Join" {
				t.Errorf("%s, %s: it has a %s in its plan", h.st.name, when, n.Type)
			}
			if n.Removed > 1000 {
				t.Errorf("%s, %s: it reads %d rows that it does not want", h.st.name, when, n.Removed)
			}
		})
	}
	for _, h := range tests {
		check(h, "before the planner knows of the log")
	}
	// Which it comes to know at a time of its own choosing.
	if _, err := admin.Exec(ctx, `analyze manifold.events, manifold.projections, manifold.tenant_builds, manifold.subscriptions, manifold.subscription_ledgers,
		manifold.subscription_retries, manifold.dead_letters, manifold.subscription_members, manifold.retention_policies, manifold.retention_floors,
		manifold.retention_spared, manifold.stream_floors, manifold.parked_events`); err != nil {
		t.Fatal(err)
	}
	rollback() // a transaction keeps the plans for the tables that it holds
	begin()
	for _, h := range tests {
		check(h, "with statistics")
	}
	rollback()
}
