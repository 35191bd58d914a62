package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/migrations"
)

// CheckSchema returns an error if this program cannot use the database's schema: it is missing, too old, or a migration
// has failed or is still running. Absence recognises these errors. A newer schema is accepted, because the previous
// release must run on the next one's schema.
func (db *DB) CheckSchema(ctx context.Context) error {
	var version int64
	var dirty bool
	// The migrator's own search path determines the table's schema, which is public unless somebody changed it.
	err := db.System.QueryRow(ctx, "select version, dirty from public.manifold_schema").Scan(&version, &dirty)
	const (
		undefinedTable        = "42P01"
		insufficientPrivilege = "42501"
	)
	switch state := SQLState(err); {
	case errors.Is(err, pgx.ErrNoRows), state == undefinedTable, state == insufficientPrivilege:
		return &schemaError{"the database has no schema yet: run `manifold migrate up` with the same configuration"}
	case err != nil:
		return fmt.Errorf("check the schema: %w", Unavailable(err))
	case dirty:
		return &schemaError{fmt.Sprintf("a migration of the schema to version %d is running or was interrupted: `manifold migrate up` says what to do", version)}
	case version < int64(migrations.Latest()):
		return &schemaError{fmt.Sprintf("the schema is at version %d, and this program needs %d: run `manifold migrate up`", version, migrations.Latest())}
	}
	return db.checkDistribution(ctx)
}

// checkDistribution returns an error if row-level security would hide all rows on the workers of a distributed
// database, because the setting with the tenant does not reach them, or if a table is not distributed.
func (db *DB) checkDistribution(ctx context.Context) error {
	if !db.Distributed {
		return nil
	}
	for name, login := range map[string]*pgxpool.Pool{"system": db.System, "app": db.App.Pool, "retention": db.Retention.Pool} {
		problem, err := migrations.PropagationProblem(ctx, login)
		if err != nil {
			return fmt.Errorf("check the settings: %w", Unavailable(err))
		}
		if problem != "" {
			return fmt.Errorf("the %s login: %w", name, &schemaError{problem})
		}
	}
	missing, err := migrations.Undistributed(ctx, db.System)
	if err != nil {
		return fmt.Errorf("look for tables that are not distributed: %w", Unavailable(err))
	}
	if len(missing) > 0 {
		return &schemaError{"these tables are not distributed: " + strings.Join(missing, ", ") + ": run `manifold migrate up --distribute`"}
	}
	return nil
}

// Synced reports whether the database writes a commit to disk before it answers. If it does not, a crash of its machine
// can lose acknowledged data.
func (db *DB) Synced(ctx context.Context) (bool, error) {
	var fsync, commit string
	err := db.App.QueryRow(ctx, "select current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit)
	if err != nil {
		return false, fmt.Errorf("ask whether commits are synced: %w", Unavailable(err))
	}
	return fsync == "on" && commit != "off", nil
}

// Node is a node of a distributed database's cluster.
type Node struct {
	Address    string
	Problem    string // why it did not answer; empty if it did
	Citus      string // the extension's version
	PostgreSQL string // the major version
	WALLevel   string
}

// Nodes returns the nodes of a distributed database.
func (db *DB) Nodes(ctx context.Context) ([]Node, error) {
	rows, _ := db.System.Query(ctx, `
		select n.nodename || ':' || n.nodeport, r.success, r.result
		from run_command_on_all_nodes($$
		  select concat_ws('/', extversion, current_setting('server_version_num')::int / 10000, current_setting('wal_level')) from pg_extension where extname = 'citus' $$) r
		join pg_dist_node n using (nodeid) order by n.nodeid`)
	nodes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (node Node, err error) {
		var success bool
		var result string
		if err := row.Scan(&node.Address, &success, &result); err != nil {
			return Node{}, err
		}
		parts := strings.Split(result, "/")
		if !success || len(parts) != 3 {
			node.Problem = result
			return node, nil
		}
		node.Citus, node.PostgreSQL, node.WALLevel = parts[0], parts[1], parts[2]
		return node, nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask the nodes of the cluster: %w", Unavailable(err))
	}
	return nodes, nil
}
