package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/relational"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// dialect is PostgreSQL. It cuts names at 63 bytes, which could make two equal.
var dialect = relational.Dialect{
	Quotes: `""`, MaxName: 63, NameLength: func(name string) int { return len(name) },
	View: relational.ViewParts{
		Rows:    "select tenant_id, id, version, document from %s where id <> ''",
		Of:      " and tenant_id = any ('{%s}'::uuid[])",
		Without: " and tenant_id <> all ('{%s}'::uuid[])",
		Comma:   ",",
		Union:   " union all ",
	},
	NoTable:     func(err error) bool { return pg.SQLState(err) == undefinedTable },
	LockTimeout: func(err error) bool { return slices.Contains([]string{lockUnavailable, pg.Deadlock}, pg.SQLState(err)) },
	Transient:   transient,
	Unavailable: unavailable,
}

const (
	schema      = relational.Schema
	commonTable = schema + "." + drivers.CommonTable // needs no quotes
	viewsRole   = string(migrations.RoleViews)       // owns the views, which read every tenant's documents with its rights
	keyFunction = schema + ".sort_key"
)

// readFrom returns what queries that filter or order read: the build's table as visible to the tenant in the setting
// manifold.tenant.
//
// Under a row-level policy, an index can serve only conditions whose functions PostgreSQL calls leakproof. Other
// functions might be evaluated on a row that the policy hides, and no function of jsonb or numeric is leakproof. So
// queries read a view that separates tenants as the policy does: its owner may see all rows, and its condition is the
// setting's tenant. The view is not a security barrier, because all conditions come from this package.
//
// In a distributed database, workers would read such a view's table with the login's rights. There the transaction
// becomes the views' owner, which also owns the tables, and reads what the view would contain.
//
// If there is no such role, queries read the table itself, and each scans all of the tenant's documents in the build.
func (d *Driver) readFrom(build domain.Build) string {
	switch {
	case d.becomeViews:
		return "(" + tenantViewQuery(dialect.Table(build)) + ") documents"
	case d.views:
		return tenantViewName(build)
	}
	return dialect.Table(build)
}

// tenantViewQuery selects a table's documents of the tenant in the setting.
func tenantViewQuery(table string) string {
	return "select tenant_id, build, id, version, document from " + table +
		" where tenant_id = nullif(current_setting('manifold.tenant', true), '')::uuid and id <> ''"
}

func tenantViewName(build domain.Build) string {
	return dialect.InSchema(drivers.TableName(build) + ".tenant")
}

// tableOf returns the build's table for one tenant's rows. It refuses a tenant that cannot have any there.
func tableOf(build domain.Build, tenant domain.TenantID) (string, error) {
	return dialect.Table(build), drivers.CheckTenant(build, tenant)
}

// literal quotes a text constant for statements that take no parameters.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// prepareDatabase does what Open promises.
func (d *Driver) prepareDatabase(ctx, background context.Context) error {
	var exists, usable, viewsLogin bool
	err := d.pool.QueryRow(ctx, `select n is not null, coalesce(has_schema_privilege(n, 'create') and has_schema_privilege(n, 'usage'), false)
		from to_regnamespace($1) n`, schema).Scan(&exists, &usable)
	if err != nil {
		return err
	}
	if !exists {
		if err := d.makeSchema(ctx); err != nil {
			return fmt.Errorf("make the schema %s: %w", schema, err)
		}
	} else if !usable {
		return fmt.Errorf("the login may not make tables in the schema %s: grant all on schema %s to it", schema, schema)
	}
	var bypassesPolicies bool
	err = d.pool.QueryRow(ctx, `select
			coalesce((select pg_has_role(oid, 'member') and has_schema_privilege(oid, $2, 'create') from pg_roles where rolname = $1), false),
			coalesce((select rolcanlogin from pg_roles where rolname = $1), false),
			coalesce((select pg_has_role(oid, 'usage') from pg_roles where rolname = $1), false)
				or (select rolsuper or rolbypassrls from pg_roles where rolname = current_user)`, viewsRole, schema).Scan(&d.views, &viewsLogin, &bypassesPolicies)
	if err != nil {
		return err
	}
	if d.distributed {
		d.views, d.becomeViews = false, d.views && viewsLogin
	}
	if bypassesPolicies {
		d.log.WarnContext(ctx, "the documents' login is above row-level security, as a superuser or because it inherits "+viewsRole+": tenants are kept apart by Manifold's statements alone")
	}
	switch {
	case d.distributed && !d.becomeViews:
		d.log.WarnContext(ctx, "queries that filter or order use no index, because the role "+viewsRole+" cannot log in or the documents' login is not its member; run `manifold migrate up --distribute`, and restart")
	case !d.distributed && !d.views:
		d.log.WarnContext(ctx, "queries that filter or order use no index, and public views show the documents of the tenant in the setting manifold.tenant only: the documents' login cannot hand views to the role "+viewsRole+
			"; make that role, grant it to the login, grant it usage and create on the schema "+schema+", and restart")
	}
	if err := d.detectLog(ctx); err != nil {
		return err
	}
	if err := d.makeCommonTable(ctx); err != nil {
		return err
	}
	if err := d.adoptTables(ctx); err != nil {
		return err
	}
	if err := d.makeKeysTable(ctx); err != nil {
		return err
	}
	if err := d.grantTables(ctx); err != nil {
		return err
	}
	return d.indexInBackground(ctx, background)
}

// commonBuild returns a build in the common table.
func commonBuild() (build domain.Build) {
	build.Owner = domain.NewTenantID() // any tenant
	return build
}

// makeCommonTable creates what every build needs in the schema: the common table, and the function of the sort keys.
func (d *Driver) makeCommonTable(ctx context.Context) error {
	if err := d.makeKeyFunction(ctx); err != nil {
		return err
	}
	var indexes []string
	for _, index := range commonIndexes() {
		indexes = append(indexes, index.createSQL())
	}
	return d.makeTable(ctx, commonBuild(), indexes...)
}

// restore recreates whatever is missing of what Open created: the database may have come back empty.
func (d *Driver) restore(ctx context.Context) error {
	var exists, complete bool
	err := d.pool.QueryRow(ctx, `select to_regnamespace($1) is not null,
			exists (select from pg_class where oid = to_regclass($2)) and exists (select from pg_proc where oid = to_regprocedure($3))
				and exists (select from pg_class where oid = to_regclass($4) and relkind in ('r', 'p'))
				and (not $5 or exists (select from pg_class where oid = to_regclass($6) and relkind in ('r', 'p')))`,
		schema, commonTable, keyFunction+"(jsonb)", keysTable, d.replicas != nil, beaconsTable).Scan(&exists, &complete)
	if err != nil || complete {
		return err
	}
	if !exists {
		if err := d.makeSchema(ctx); err != nil {
			return fmt.Errorf("make the schema %s: %w", schema, err)
		}
	}
	if err := d.makeCommonTable(ctx); err != nil {
		return err
	}
	if err := d.makeKeysTable(ctx); err != nil || d.replicas == nil {
		return err
	}
	return d.makeBeaconsTable(ctx)
}

// makeSchema prepares a database of documents alone, where no migrations run. It creates the views' role if the login
// may. Otherwise Open logs that, and the views do without the role.
func (d *Driver) makeSchema(ctx context.Context) error {
	return d.define(ctx, schema, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "create schema if not exists "+schema); err != nil {
			return err
		}
		// In a savepoint: a missing permission is no reason to give up.
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `do $$ begin
				if not exists (select from pg_roles where rolname = '`+viewsRole+`') then
					create role `+viewsRole+` nologin;
				end if;
				-- A login that has the role from somebody else may not grant it, and need not.
				if current_setting('server_version_num')::int >= 160000 then
					if not pg_has_role('`+viewsRole+`', 'set') then
						execute 'grant `+viewsRole+` to current_user with inherit false';
					end if;
				elsif not pg_has_role('`+viewsRole+`', 'member') and not (select rolinherit from pg_roles where rolname = current_user) then
					grant `+viewsRole+` to current_user;
				end if;
			end $$`)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "grant usage, create on schema "+schema+" to "+viewsRole)
			return err
		})
		if state := pg.SQLState(err); state == insufficientPrivilege || state == "42704" { // no such role
			return nil
		}
		return err
	})
}

// rolesChanged reports whether another database of the same nodes has changed a login or role at the same time. Citus
// passes them on to the nodes together with the first table that they may use.
func rolesChanged(err error) bool {
	native, ok := errors.AsType[*pgconn.PgError](err)
	return ok && native.Code == "XX000" && native.Message == "tuple concurrently updated"
}

// define runs do in a transaction that excludes every other define for the same name, in any process. "if not exists"
// alone fails if two sessions use it at once. No tenant is set in the transaction. In a distributed database it acts as
// the owner of the tables. It repeats a transaction that was rolled back because of another.
func (d *Driver) define(ctx context.Context, name string, do func(tx pgx.Tx) error) error {
	retryable := func(err error, attempt int) bool {
		return attempt < drivers.Attempts && (pg.SQLState(err) == pg.Deadlock || d.distributed && rolesChanged(err))
	}
	return drivers.Retry(ctx, retryable, func() error {
		return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
			if d.distributed {
				if err := migrations.LockDistribution(ctx, tx); err != nil {
					return err
				}
				// Several connections to a node would wait for each other when they create indexes with long names.
				if _, err := tx.Exec(ctx, "set local citus.multi_shard_modify_mode = 'sequential'"); err != nil {
					return err
				}
				if d.becomeViews {
					return d.defineAsOwner(ctx, tx, do)
				}
			} else if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('manifold documents'), hashtext($1))", name); err != nil {
				return err
			}
			return do(tx)
		})
	})
}

// defineAsOwner runs do as the owner of the tables in a distributed database. Citus connects to the workers as that
// role. It must not pass the role on itself: it creates objects that others depend on as a superuser.
func (d *Driver) defineAsOwner(ctx context.Context, tx pgx.Tx, do func(tx pgx.Tx) error) error {
	for _, statement := range []string{"set local citus.propagate_set_commands = 'none'", "set local role " + viewsRole} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return do(tx)
}

// makeKeyFunction creates the function that declared indexes and orders use.
func (d *Driver) makeKeyFunction(ctx context.Context) error {
	missing := func(query queryRow) (missing bool, err error) {
		err = query(ctx, "select not exists (select from pg_proc where oid = to_regprocedure($1))", keyFunction+"(jsonb)").Scan(&missing)
		return missing, err
	}
	if missing, err := missing(d.pool.QueryRow); err != nil || !missing {
		return err
	}
	return d.define(ctx, keyFunction, func(tx pgx.Tx) error {
		if missing, err := missing(tx.QueryRow); err != nil || !missing {
			return err
		}
		_, err := tx.Exec(ctx, keyFunctionDefinition)
		return err
	})
}

// makeTable creates a table of documents, completely or not at all; an existing one stays as it is. more are statements
// in which %[1]s is the table.
//
// Pages keep free space for the next row version of a checkpoint, which every save creates. With it, and because no
// index contains the version, the update touches no index (heap-only).
func (d *Driver) makeTable(ctx context.Context, build domain.Build, more ...string) error {
	table := dialect.Table(build)
	if exists, err := tableExists(ctx, d.pool.QueryRow, table); err != nil || exists {
		return err
	}
	statements := slices.Concat([]string{`create table %[1]s (
			tenant_id uuid not null,
			build     bigint not null,
			id        text collate "C" not null,
			version   bigint not null,
			document  jsonb,
			primary key (tenant_id, build, id)
		) with (fillfactor = 90)`,
		`alter table %[1]s enable row level security`,
	}, d.policies(), more)
	if d.becomeViews {
		statements = append(statements, grantToLogin)
	} else {
		statements = append(statements, `alter table %[1]s force row level security`)
	}
	if d.views {
		statements = append(statements, viewsPolicy)
	}
	if d.withLog {
		statements = append(statements, grantToAppRole)
	}
	return d.define(ctx, table, func(tx pgx.Tx) error {
		if exists, err := tableExists(ctx, tx.QueryRow, table); err != nil || exists {
			return err
		}
		if err := executeOn(ctx, tx, table, statements); err != nil {
			return err
		}
		if d.distributed {
			return migrations.DistributeByTenant(ctx, tx, table, besideInCluster(table))
		}
		if !d.views {
			return nil
		}
		return d.createTenantView(ctx, tx, build)
	})
}

// policies returns the statements that make a table's policies. A login sees the documents of the tenant in the
// setting; the documents' login also sees all checkpoints, without a tenant.
func (d *Driver) policies() []string {
	tenant := `nullif(current_setting('manifold.tenant', true), '')::uuid`
	if !d.distributed { // Citus refuses policies with a subselect
		// As a subselect it is evaluated once per statement, not once per row. That saves a tenth of an insert's time
		// and a fifth of a look-up's.
		tenant = "(select " + tenant + ")"
	}
	return []string{
		`create policy tenant on %[1]s using (tenant_id = ` + tenant + `)`,
		`create policy checkpoints on %[1]s for select to session_user using (id = '' and ` + tenant + ` is null)`,
	}
}

// grantToLogin grants the documents' login access to a table that it does not own. Row-level security applies to it.
const grantToLogin = "grant select, insert, update, delete on %[1]s to session_user"

// ownedTables selects the tables of tenants' rows that the login owns. The table of beacons has no tenant and stays on
// the coordinator.
const ownedTables = `select '` + schema + `."' || c.relname || '"' from pg_class c
	where c.relnamespace = to_regnamespace('` + schema + `') and c.relkind = 'r' and c.relowner = (select oid from pg_roles where rolname = session_user)
		and exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped)`

// adoptTables gives the login's tables in a distributed database to the role that owns the views, and distributes those
// that are on the coordinator, as after a dump was restored there. A login that serves tenants must not own a table
// whose row-level security is not forced; and with it forced, Citus could neither copy the rows nor move a shard while
// they change.
func (d *Driver) adoptTables(ctx context.Context) error {
	if !d.distributed {
		return d.undistribute(ctx)
	}
	if !d.becomeViews {
		return nil
	}
	rows, _ := d.pool.Query(ctx, ownedTables+" order by c.oid <> to_regclass($1), c.relname", commonTable)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, table := range tables {
		if err := d.adoptTable(ctx, table); err != nil {
			return fmt.Errorf("distribute %s: %w", table, err)
		}
	}
	return nil
}

// besideInCluster returns the table with which a table of documents is colocated in a distributed database. All of them
// are together, but not with the log, whose tables have another owner (see migrations.DistributeByTenant).
func besideInCluster(table string) string {
	if table == dialect.Table(commonBuild()) {
		return ""
	}
	return commonTable
}

// adoptTable does adoptTables for one table, unless another process has done it.
func (d *Driver) adoptTable(ctx context.Context, table string) error {
	return d.define(ctx, table, func(tx pgx.Tx) error {
		var ownedStill, distributed bool
		err := tx.QueryRow(ctx, "select $1 in ("+ownedTables+"), exists (select from pg_dist_partition where logicalrelid = to_regclass($1))", table).Scan(&ownedStill, &distributed)
		if err != nil || !ownedStill {
			return err
		}
		err = executeOn(ctx, tx, table, slices.Concat([]string{
			"set local role none", "alter table %[1]s owner to " + viewsRole, "set local role " + viewsRole,
			"alter table %[1]s no force row level security", grantToLogin,
		}, dropPolicies, d.policies()))
		if err != nil {
			return err
		}
		if distributed { // by a login that owned it, beside the log
			_, err := tx.Exec(ctx, "select update_distributed_table_colocation($1::text::regclass, colocate_with => $2)", table, cmp.Or(besideInCluster(table), "none"))
			return err
		}
		d.log.InfoContext(ctx, "distributing the documents of "+table+" over the nodes")
		return migrations.DistributeByTenant(ctx, tx, table, besideInCluster(table))
	})
}

// undistribute gives the login's tables the row-level security of one PostgreSQL, if they come from the dump of a
// distributed database. The migrations have changed their owner. Queries create the views that are missing.
func (d *Driver) undistribute(ctx context.Context) error {
	var foreign string
	err := d.pool.QueryRow(ctx, `select coalesce(min(oid::regclass::text), '') from pg_class
		where relnamespace = to_regnamespace($1) and relkind = 'r' and relowner = (select oid from pg_roles where rolname = $2)`, schema, viewsRole).Scan(&foreign)
	if err != nil {
		return err
	}
	if foreign != "" {
		return fmt.Errorf("the table %s belongs to %s, as in a distributed database: run `manifold migrate up`", foreign, viewsRole)
	}
	const unforced = ownedTables + " and c.relrowsecurity and not c.relforcerowsecurity"
	rows, _ := d.pool.Query(ctx, unforced)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, table := range tables {
		statements := slices.Concat(dropPolicies, d.policies(), []string{"alter table %[1]s force row level security"})
		if d.views && table != dialect.InSchema(drivers.KeysTable) {
			statements = append(statements, viewsPolicy, "grant select on %[1]s to "+viewsRole)
		}
		err := d.define(ctx, table, func(tx pgx.Tx) error {
			var unforcedStill bool
			if err := tx.QueryRow(ctx, "select $1 in ("+unforced+")", table).Scan(&unforcedStill); err != nil || !unforcedStill {
				return err
			}
			return executeOn(ctx, tx, table, statements)
		})
		if err != nil {
			return fmt.Errorf("force row-level security on %s: %w", table, err)
		}
	}
	return nil
}

// dropPolicies are the statements that drop a table's policies.
var dropPolicies = []string{"drop policy if exists tenant on %[1]s", "drop policy if exists checkpoints on %[1]s", "drop policy if exists views on %[1]s"}

// executeOn executes statements in which %[1]s is the table.
func executeOn(ctx context.Context, tx pgx.Tx, table string, statements []string) error {
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, strings.ReplaceAll(statement, "%[1]s", table)); err != nil {
			return err
		}
	}
	return nil
}

// createTenantView creates the view that queries read, if it does not exist. It does not wait for users of the table.
func (d *Driver) createTenantView(ctx context.Context, tx pgx.Tx, build domain.Build) error {
	table, view := dialect.Table(build), tenantViewName(build)
	if exists, err := relationExists(ctx, tx.QueryRow, view); err != nil || exists {
		return err
	}
	var login string
	if err := tx.QueryRow(ctx, "select quote_ident(current_user)").Scan(&login); err != nil {
		return err
	}
	for _, statement := range []string{
		"grant select on " + table + " to " + viewsRole,
		"set local role " + viewsRole,
		"create view " + view + " as " + tenantViewQuery(table),
		"comment on view " + view + " is 'documents of the tenant in the setting manifold.tenant, for queries'",
		"grant select on " + view + " to " + login,
		"set local role " + login,
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// viewsPolicy lets the views' role see all of a table that the login owns. The views filter instead, with no policy's
// condition before theirs.
const viewsPolicy = `create policy views on %[1]s for select to ` + viewsRole + ` using (true)`

// ensureTenantView creates the view that queries read, for a table that an older release created. While others use the
// table, its policy cannot be changed. Queries are correct all the same, but use no index.
func (d *Driver) ensureTenantView(ctx context.Context, build domain.Build) error {
	table := dialect.Table(build)
	err := d.define(ctx, table, func(tx pgx.Tx) error {
		if exists, err := tableExists(ctx, tx.QueryRow, table); err != nil {
			return err
		} else if !exists {
			return drivers.ErrNoTable
		}
		return d.createTenantView(ctx, tx, build)
	})
	if err != nil {
		return dialect.Error(err)
	}
	err = d.defineShortly(ctx, relational.SwapPatience, table, func(tx pgx.Tx) error {
		var done bool
		err := tx.QueryRow(ctx, "select exists (select from pg_policy where polrelid = to_regclass($1) and polname = 'views' and pg_get_expr(polqual, polrelid) = 'true')", table).Scan(&done)
		if err != nil || done {
			return err
		}
		if _, err := tx.Exec(ctx, "drop policy if exists views on "+table); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, fmt.Sprintf(viewsPolicy, table))
		return err
	})
	if pg.SQLState(err) == lockUnavailable {
		d.log.WarnContext(ctx, "queries of "+table+" use no index yet: its policy for the role "+viewsRole+" is in use")
		return nil
	}
	return dialect.Error(err)
}

// queryRow is QueryRow of a pool, a connection or a transaction.
type queryRow = func(ctx context.Context, sql string, args ...any) pgx.Row

// relationExists queries pg_class, not only to_regclass. The latter answers from the session's cache, which may lack
// what another session created while this one waited for the advisory lock. Reading a table refreshes the cache.
func relationExists(ctx context.Context, query queryRow, relation string) (exists bool, err error) {
	err = query(ctx, "select exists (select from pg_class where oid = to_regclass($1))", relation).Scan(&exists)
	return exists, err
}

// tableExists is relationExists for a table. A public view of an earlier release may have the name, which is an error.
func tableExists(ctx context.Context, query queryRow, table string) (exists bool, err error) {
	var other bool
	err = query(ctx, `select coalesce(bool_or(relkind in ('r', 'p')), false), coalesce(bool_or(relkind not in ('r', 'p')), false)
		from pg_class where oid = to_regclass($1)`, table).Scan(&exists, &other)
	if err == nil && other {
		err = fmt.Errorf("%s is not a table: drop it, and restart; if it was the public view of a shared projection, that is now named with the suffix .public", table)
	}
	return exists, err
}

// CreateTemporaryTable creates the table of a shared projection's build, and restores whatever Open created that is
// missing.
func (d *Driver) CreateTemporaryTable(ctx context.Context, build domain.Build) error {
	err := d.restore(ctx)
	if err == nil && build.Shared() {
		// With this index, the checkpoints of all tenants are found without reading the documents.
		err = d.makeTable(ctx, build, `create index on %[1]s (tenant_id, build) where id = ''`)
	}
	return drivers.BuildError("make the table of", build, dialect.Error(err))
}

// DropTable drops a shared build's table with the view that may still show it. For a tenant's own build it removes the
// rows.
func (d *Driver) DropTable(ctx context.Context, build domain.Build) error {
	var err error
	if build.Shared() {
		table := dialect.Table(build)
		err = d.defineShortly(ctx, relational.DropPatience, table, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "drop table if exists "+table+" cascade")
			return err
		})
	} else {
		err = d.dropRows(ctx, build, build.Owner)
	}
	return drivers.BuildError("drop", build, dialect.Error(err))
}

// defineShortly is define with a short lock timeout. It retries a few times.
func (d *Driver) defineShortly(ctx context.Context, patience relational.Patience, name string, do func(tx pgx.Tx) error) error {
	return dialect.RetryLocks(ctx, patience, func() error {
		return d.define(ctx, name, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf("set local lock_timeout = %d", patience.Wait.Milliseconds())); err != nil {
				return err
			}
			return do(tx)
		})
	})
}
