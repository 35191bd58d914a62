// Package plantest checks that statements keep good plans as their tables grow.
package plantest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// All and Top are positions: one beyond every event, and that of the newest one of Events.
const (
	All = "9223372036854775807"
	Top = "60000"
)

// rowsOfPage is how many rows a statement may read on a shard for each page that it may touch.
const rowsOfPage = 50

// Statement is a statement to check. In Args, $TENANT is the tenant's id in quotes.
type Statement struct {
	SQL   pg.Statement
	Args  string
	Pages int // that a good plan touches, with some room
}

// node is a part of a plan, as EXPLAIN gives it.
type node struct {
	Type    string `json:"Node Type"`
	Rows    int    `json:"-"` // per loop, on a cluster only
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

var (
	nodeInText    = regexp.MustCompile(`^[ >-]*(\S.*?)  ?\((?:cost|actual).*rows=(\d+)(?:\.\d+)? loops=`)
	unwantedNode  = regexp.MustCompile(`^(Parallel )?Seq Scan$|^(Hash|Merge) .*Join$`)
	removedInText = regexp.MustCompile(`Rows Removed by Filter: (\d+)`)
)

// parseText reads a plan of a cluster, with all nodes below one. Its shards' plans are texts, and have no pages.
func parseText(lines []string) (plan node) {
	number := func(text string) int {
		n, _ := strconv.Atoi(text) // the expression found digits
		return n
	}
	for _, line := range lines {
		if found := nodeInText.FindStringSubmatch(line); found != nil {
			plan.Plans = append(plan.Plans, node{Type: found[1], Rows: number(found[2])})
		} else if found := removedInText.FindStringSubmatch(line); found != nil && len(plan.Plans) > 0 {
			plan.Plans[len(plan.Plans)-1].Removed += number(found[1])
		}
	}
	return plan
}

// Check prepares and uses the statements while all tables are empty, as a new service does. They must still touch few
// pages after fill has made the tables large, before and after a vacuum, and whether or not the planner's statistics
// include it. The login has the role's settings. In fill, $TENANT is the tenant's id in quotes. On a cluster, it counts
// the rows of each step on the shards instead of pages.
func Check(t *testing.T, role migrations.Role, fill []string, statements []Statement) {
	t.Helper()
	db := pgtest.Database(t)
	ctx := t.Context()
	settings := make(map[string]string)
	maps.Copy(settings, map[migrations.Role]map[string]string{migrations.RoleApp: pg.AppSettings, migrations.RoleRetention: pg.RetentionSettings}[role])
	if db.Distributed() {
		maps.Copy(settings, pg.DistributedSettings)
	}
	pool, err := pg.OpenPool(ctx, db.URL(role), 1, settings, nil)
	must(t, err)
	defer pool.Close()
	conn, err := pool.Acquire(ctx)
	must(t, err)
	defer conn.Release()
	id := "'" + domain.NewTenantID().String() + "'"
	named := func(sql string) string { return strings.ReplaceAll(sql, "$TENANT", id) }

	// explainAll runs every statement in one transaction, and passes the plans to examine.
	prepared := make(map[string]bool)
	explainAll := func(rounds int, examine func(Statement, node)) {
		t.Helper()
		tx, err := conn.Begin(ctx)
		must(t, err)
		defer tx.Rollback(ctx)
		_, err = tx.Exec(ctx, "set local manifold.tenant = "+id)
		must(t, err)
		for range rounds {
			for _, s := range statements {
				if !prepared[s.SQL.Name] {
					_, err := tx.Prepare(ctx, s.SQL.Name, s.SQL.SQL)
					must(t, err)
					prepared[s.SQL.Name] = true
				}
				savepoint, err := tx.Begin(ctx) // its writes are rolled back
				must(t, err)
				options := "analyze, buffers, format json"
				if db.Distributed() {
					options = "analyze" // Citus lets the shards' plans be texts in any case
				}
				rows, _ := savepoint.Query(ctx, fmt.Sprintf("explain (%s) execute %s(%s)", options, s.SQL.Name, named(s.Args)))
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					t.Fatalf("%s: %v", s.SQL.Name, err)
				}
				must(t, savepoint.Rollback(ctx))
				if db.Distributed() {
					plan := parseText(lines)
					if len(plan.Plans) < 2 {
						t.Fatalf("%s: its plan has no step on a shard: %s", s.SQL.Name, strings.Join(lines, "\n"))
					}
					examine(s, plan)
					continue
				}
				var plans []struct{ Plan node }
				must(t, json.Unmarshal([]byte(lines[0]), &plans))
				examine(s, plans[0].Plan)
			}
		}
	}
	check := func(when string) {
		t.Helper()
		explainAll(1, func(s Statement, plan node) {
			if pages := plan.Hit + plan.Read; pages > s.Pages {
				t.Errorf("%s, %s: it touches %d pages, more than %d", s.SQL.Name, when, pages, s.Pages)
			}
			plan.walk(func(n node) {
				if kind, _, _ := strings.Cut(n.Type, " on "); unwantedNode.MatchString(kind) {
					t.Errorf("%s, %s: it has a %s in its plan", s.SQL.Name, when, n.Type)
				}
				if n.Removed > 1000 {
					t.Errorf("%s, %s: it reads %d rows and discards them", s.SQL.Name, when, n.Removed)
				}
				if n.Rows > s.Pages*rowsOfPage {
					t.Errorf("%s, %s: %s gives %d rows", s.SQL.Name, when, n.Type, n.Rows)
				}
			})
		})
	}
	explainAll(7, func(Statement, node) {}) // from the sixth time on a prepared statement's plan may be kept for good
	admin, nodes := db.Pool(t, pgtest.RoleSuperuser, 1), db.Nodes(t)
	maintain := func(command string) {
		t.Helper()
		for _, node := range nodes {
			_, err := node.Exec(ctx, command)
			must(t, err)
		}
	}
	for _, sql := range fill {
		_, err := admin.Exec(ctx, named(sql))
		must(t, err)
	}
	check("before analyze")
	maintain("vacuum")
	check("after vacuum")
	maintain("analyze")
	check("with statistics")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Events are 60,000 events of the tenant and some of 50 others. One stream has a third of all, one category 20 events.
var Events = []string{
	`insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			select $TENANT, n, gen_random_uuid(),
				case when n % 3 = 0 then 'order-0' when n % 2000 = 1 then 'rare-1' when n % 3 = 1 then 'order-' || n / 30 else 'invoice-' || n / 30 end,
				n, case when n % 2000 = 1 then 'Rare' else 'Common' end, '{"n": 1}', now() - interval '1 day' + n * interval '1 ms'
			from generate_series(1, 60000) as n`,
	`insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			select md5((n % 50)::text)::uuid, n, gen_random_uuid(), 'order-' || n % 50, n, 'Common', '{"n": 1}', now() from generate_series(1, 10000) as n`,
	`insert into manifold.logs (tenant_id, head, last_at) values ($TENANT, 60000, now())`,
	`insert into manifold.tagged_events (tenant_id, tag, position, event_type)
			select e.tenant_id, tag, e.position, e.event_type from manifold.events e
			cross join lateral unnest(array['all', 'tag-' || e.position % 100, 'own-' || e.position]) tag where e.position % 2 = 0`,
	`insert into manifold.event_tags (tenant_id, position, tags)
			select e.tenant_id, min(e.position), string_agg(case when e.position % 2 = 0 then 'all own-' || e.position else '' end, e'\n' order by e.position)
			from manifold.events e group by e.tenant_id, (e.position - 1) / 32`,
}

// Projections are 5,000 shared projections, and builds of 50 tenants.
var Projections = []string{
	`insert into manifold.projections (tenant_id, name, definition, build)
			select uuid_nil.id, 'shared-' || n, '{}', n from generate_series(1, 5000) as n, (values ('00000000-0000-0000-0000-000000000000'::uuid)) as uuid_nil(id)`,
	`insert into manifold.tenant_builds (tenant_id, owner, name, build, base)
			select case when n % 2 = 0 then $TENANT else md5((n % 50)::text)::uuid end, '00000000-0000-0000-0000-000000000000', 'shared-' || n, n, n
			from generate_series(1, 10000) as n`,
}

// Groups are 500 groups with 8 partitions each. The group mail has 20,000 retries in partition 0 and 100 in each other
// one, and 60,000 dead letters, half of them to be replayed.
var Groups = []string{
	`insert into manifold.subscriptions (tenant_id, name, definition, revision)
			select $TENANT, case n when 0 then 'mail' else 'group-' || n end, '{}', 1 from generate_series(0, 500) as n`,
	`insert into manifold.subscription_ledgers (tenant_id, name, partition, revision, last_write, checkpoint, read_to)
			select s.tenant_id, s.name, p, 0, s.tenant_id, 0, 0 from manifold.subscriptions as s cross join generate_series(0, 7) as p`,
	`insert into manifold.subscription_retries
			select l.tenant_id, l.name, l.partition, n, gen_random_uuid(), 'order-1', n, 1, 0, 0, now(), 'why'
			from manifold.subscription_ledgers as l
			cross join lateral generate_series(1, case when l.name <> 'mail' then 1 when l.partition = 0 then 20000 else 100 end) as n`,
	`insert into manifold.dead_letters
			select $TENANT, 'mail', n, n % 8, gen_random_uuid(), 'order-1', n, 'Common', 5, 0, 0, 'why', now(), now(), case when n % 16 < 8 then now() end
			from generate_series(1, 60000) as n`,
	`insert into manifold.dead_letters
			select $TENANT, 'group-' || n % 500, n, n % 8, gen_random_uuid(), 'order-1', n, 'Common', 5, 0, 0, 'why', now(), now(), null
			from generate_series(1, 10000) as n`,
	`insert into manifold.subscription_members (tenant_id, name, member_id, label)
			select s.tenant_id, s.name, gen_random_uuid(), '' from manifold.subscriptions as s cross join generate_series(1, 10)`,
}

// Retention is policies of 50 tenants with their floors, 20,000 spared events and as many parked ones.
var Retention = []string{
	`insert into manifold.retention_policies (tenant_id, category, max_count, revision)
			select case when n % 2 = 0 then $TENANT else md5((n % 50)::text)::uuid end, case n when 0 then 'order' else 'category' || n end, 1, 1
			from generate_series(0, 2000) as n`,
	`insert into manifold.retention_floors (tenant_id, category, announced_to, run_id)
			select p.tenant_id, p.category, 0, p.tenant_id from manifold.retention_policies as p`,
	`insert into manifold.retention_spared (tenant_id, category, position) select $TENANT, 'order', n from generate_series(3, 60000, 3) as n`,
	`insert into manifold.stream_floors (tenant_id, stream_id, version) select $TENANT, 'gone-' || n, 1 from generate_series(1, 10000) as n`,
	`insert into manifold.parked_events (tenant_id, owner, name, build, document_id, position)
			select $TENANT, $TENANT, 'p', 1, 'd' || n % 100, n from generate_series(1, 20000) as n`,
}
