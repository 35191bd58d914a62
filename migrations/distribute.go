package migrations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Distribute shards a migrated database by tenant over the nodes of its Citus cluster. It does what is missing, in one
// transaction, so it may be repeated. The tables' rows are copied: no service may use the database meanwhile. Later
// migrations keep a distributed database distributed, without another call.
func Distribute(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("the migrator cannot connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var hasCitus bool
	if err := conn.QueryRow(ctx, hasCitusQuery).Scan(&hasCitus); err != nil {
		return fmt.Errorf("distribute the database: %w", err)
	}
	if !hasCitus {
		return fmt.Errorf("distribute the database: it has no extension citus; create the extension on all nodes, and add the workers with citus_add_node")
	}
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return distribute(ctx, tx) }); err != nil {
		return fmt.Errorf("distribute the database: %w", plain(err))
	}
	return nil
}

// IsDistributed reports whether the log is distributed over the nodes of a Citus cluster.
func IsDistributed(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (distributed bool, err error) {
	if err := db.QueryRow(ctx, hasCitusQuery).Scan(&distributed); err != nil || !distributed {
		return false, err
	}
	err = db.QueryRow(ctx, "select exists (select from pg_dist_partition where logicalrelid = to_regclass('manifold.logs'))").Scan(&distributed)
	return distributed, err
}

const hasCitusQuery = "select to_regclass('pg_catalog.pg_dist_partition') is not null"

// LockDistribution waits until no other transaction creates or distributes a table, and keeps others from it until the
// transaction ends. Two that distribute concurrently would deadlock.
func LockDistribution(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('manifold documents'), hashtext('manifold distribution'))")
	return err
}

// DistributeByTenant distributes a table and its rows by the column tenant_id. Each tenant's rows are on the node that
// has its rows of another table, beside, which has the same owner; or, if beside is empty, on any node. The caller has
// called LockDistribution in this transaction.
//
// The owner matters: while a shard moves, Citus replicates the changes of each owner's tables separately, but waits for
// one of them only, and loses changes of the others (seen with Citus 13.2.2 on PostgreSQL 15.20).
func DistributeByTenant(ctx context.Context, tx pgx.Tx, table, beside string) error {
	_, err := tx.Exec(ctx, "select create_distributed_table($1::text::regclass, 'tenant_id', colocate_with => $2)", table, cmp.Or(beside, "none"))
	if err != nil {
		return err
	}
	return truncateLocal(ctx, tx, table)
}

// distribute distributes every table that is not distributed yet, by its kind, and undistributes the local ones.
func distribute(ctx context.Context, tx pgx.Tx) error {
	if err := LockDistribution(ctx, tx); err != nil {
		return err
	}
	if err := propagateSettings(ctx, tx); err != nil {
		return err
	}
	if err := prepareRoles(ctx, tx); err != nil {
		return fmt.Errorf("the logins' defaults: %w", err)
	}
	missing, err := Undistributed(ctx, tx)
	if err != nil {
		return err
	}
	for _, name := range missing {
		if err := distributeTable(ctx, tx, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return executeEach(ctx, tx, `
		select format(statement, p.logicalrelid)
		from pg_dist_partition p, (values (1, 'select undistribute_table(%L)'), (2, 'alter table %s force row level security')) as s (step, statement)
		where p.logicalrelid = any (select to_regclass('manifold.' || name) from unnest($1::text[]) as local (name))
		order by p.logicalrelid, s.step`, TablesOf(Local))
}

// TablesOf returns the names of the tables of some kinds, in no particular order.
func TablesOf(kinds ...Kind) (names []string) {
	for name, kind := range Tables {
		if slices.Contains(kinds, kind) {
			names = append(names, name)
		}
	}
	return names
}

// propagateSettings lets "set local" reach the workers, for every later session. Without that, the tenant in the
// setting manifold.tenant is unknown there, and row-level security hides all rows.
func propagateSettings(ctx context.Context, tx pgx.Tx) error {
	var statement string
	err := tx.QueryRow(ctx, "select format('alter database %I set citus.propagate_set_commands = %L', current_database(), 'local')").Scan(&statement)
	if err != nil {
		return err
	}
	return execute(ctx, tx, []string{statement, "set local citus.propagate_set_commands = 'local'"})
}

// PropagationProblem says why a login's sessions would find no rows in a distributed database: the tenant that they set
// does not reach the workers. It is empty if the tenant does. A login may have a default other than the database's.
func PropagationProblem(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (problem string, err error) {
	var propagate string
	err = db.QueryRow(ctx, "select current_setting('citus.propagate_set_commands')").Scan(&propagate)
	if err != nil || propagate == "local" {
		return "", err
	}
	return fmt.Sprintf("the distributed database's setting citus.propagate_set_commands is %s and not local, so the workers would hide all rows: "+
		"run `manifold migrate up --distribute`, which sets it for the database; if the login has another default, reset that", propagate), nil
}

// NodeSettings are settings that a role's sessions need on every node. What a session sets for itself reaches only the
// coordinator, so in a distributed database they are also the roles' defaults.
//
// Each statement about events is meant to use a certain index. While the table is small, the planner prefers to read
// all of it. A table of documents holds all tenants', so no query reads all of it, and none uses several processes.
var NodeSettings = map[Role]map[string]string{
	RoleApp:       {"enable_seqscan": "off", "enable_bitmapscan": "off", "lock_timeout": "4000"},
	RoleRetention: {"enable_seqscan": "off", "enable_bitmapscan": "off"},
	RoleDocuments: {"enable_seqscan": "off", "jit": "off"},
	RoleViews:     {"enable_seqscan": "off", "jit": "off", "max_parallel_workers_per_gather": "0"},
}

// prepareRoles stores NodeSettings, and lets RoleViews own the tables of documents: the coordinator connects to the
// workers as that role. It gets no password, so a node admits it only by what its pg_hba.conf allows the other nodes.
func prepareRoles(ctx context.Context, tx pgx.Tx) error {
	// Only what differs: a migrator that may not change roles can migrate once somebody else has prepared them.
	return executeEach(ctx, tx, `
		select format('alter role %I login', rolname) from pg_roles where rolname = $1 and not rolcanlogin
		union all
		select format('grant usage on schema manifold to %I', $1::text) where not has_schema_privilege($1, 'manifold', 'usage')
		union all
		select format('alter role %I in database %I set %I = %L', role, current_database(), name, value)
		from unnest($2::text[], $3::text[], $4::text[]) as wanted (role, name, value)
		where not exists (
		  select from pg_db_role_setting s
		  where s.setrole = wanted.role::regrole and s.setdatabase = (select oid from pg_database where datname = current_database())
		    and wanted.name || '=' || wanted.value = any (s.setconfig))`, append([]any{RoleViews}, nodeSettingsAsColumns()...)...)
}

// nodeSettingsAsColumns returns NodeSettings as three arrays: roles, names and values.
func nodeSettingsAsColumns() []any {
	var roles, names, values []string
	for role, settings := range NodeSettings {
		for name, value := range settings {
			roles, names, values = append(roles, string(role)), append(names, name), append(values, value)
		}
	}
	return []any{roles, names, values}
}

// Undistributed returns the names of the tables of Tables that exist and should be distributed but are not, in the
// order in which to distribute them: the log comes first, because other tables are colocated with it.
func Undistributed(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) ([]string, error) {
	rows, _ := db.Query(ctx, `
		select c.relname::text from pg_class c
		where c.relnamespace = to_regnamespace('manifold') and c.relname = any ($1) and c.relkind = 'r'
		  and not exists (select from pg_dist_partition p where p.logicalrelid = c.oid)
		order by c.relname <> 'logs', c.relname`, TablesOf(Distributed, Reference))
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// SeveralOwners returns an error that names tables which move together although they have several owners; nil if there
// are none. Such a move loses writes (see DistributeByTenant).
func SeveralOwners(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	var tables string
	err := db.QueryRow(ctx, `
		select string_agg(c.oid::regclass::text || ' of ' || c.relowner::regrole, ', ' order by c.oid::regclass::text)
		from pg_dist_partition p join pg_class c on c.oid = p.logicalrelid
		where p.partmethod = 'h'
		group by p.colocationid having count(distinct c.relowner) > 1 limit 1`).Scan(&tables)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("these colocated tables have several owners, so a move of their shards would lose writes: %s; move the tables of other owners away with update_distributed_table_colocation", tables)
}

// MovesRefused returns the nodes of a cluster where PostgreSQL refuses to replicate a shard that moves: there, the
// setting output_plugin_libraries does not allow pgoutput. hidden are the nodes where the login may not read the
// setting. Servers without it allow every plugin.
func MovesRefused(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}) (refused, hidden []string, err error) {
	rows, _ := db.Query(ctx, `
		select n.nodename || ':' || n.nodeport, r.success, r.result
		from run_command_on_all_nodes($$ select coalesce(current_setting('output_plugin_libraries', true), 'pgoutput') $$) r
		join pg_dist_node n using (nodeid) order by n.nodeid`)
	var node, answer string
	var success bool
	_, err = pgx.ForEachRow(rows, []any{&node, &success, &answer}, func() error {
		if !success {
			hidden = append(hidden, node)
		} else if !allowsPlugin(answer) {
			refused = append(refused, node)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read output_plugin_libraries of the nodes: %w", err)
	}
	return refused, hidden, nil
}

// allowsPlugin reports whether a value of output_plugin_libraries allows the plugin that Citus moves shards with.
func allowsPlugin(libraries string) bool {
	for library := range strings.SplitSeq(libraries, ",") {
		if strings.Trim(library, ` "`) == "pgoutput" {
			return true
		}
	}
	return false
}

// distributeTable distributes a table with its rows. Row-level security is no longer forced on the owner, who could
// neither copy the rows nor replicate them when a shard moves. It still applies to every login that serves tenants:
// none of them owns a table of the schema manifold, or is a member of the role that does.
func distributeTable(ctx context.Context, tx pgx.Tx, name string) error {
	table := "manifold." + name
	if _, err := tx.Exec(ctx, "alter table "+table+" no force row level security"); err != nil {
		return err
	}
	switch {
	case Tables[name] == Reference:
		if _, err := tx.Exec(ctx, "select create_reference_table($1::text::regclass)", table); err != nil {
			return err
		}
		return truncateLocal(ctx, tx, table)
	case name == "logs":
		return DistributeByTenant(ctx, tx, table, "")
	}
	return DistributeByTenant(ctx, tx, table, "manifold.logs")
}

// truncateLocal removes the rows that distributing a table has copied to the nodes.
func truncateLocal(ctx context.Context, tx pgx.Tx, table string) error {
	_, err := tx.Exec(ctx, "select truncate_local_data_after_distributing_table($1::text::regclass)", table)
	return err
}
