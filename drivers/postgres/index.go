package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// statisticsTarget is the number of histogram parts that the planner keeps for the values of an indexed path.
const statisticsTarget = 1000

// IndexTable creates two indexes for each of build.Indexes, paths such as "customer.name", and updates the table's
// statistics. The first holds sort keys and ids: it finds values, ranges and text prefixes, and has the order that
// Query promises. The second finds what lists and objects contain; if there are none at the path, it is empty. With
// build.PartitionBy, both begin with the sort key at that path, and a third index holds only that sort key.
//
// The indexes contain no checkpoints. Because of that condition, only statements that ask for documents alone can use
// them, and a look-up by key never does.
func (d *Driver) IndexTable(ctx context.Context, build domain.Build) error {
	if !build.Shared() {
		return nil
	}
	table := dialect.Table(build)
	err := d.define(ctx, table, func(tx pgx.Tx) error {
		for _, path := range indexedPaths(build) {
			value := pathExpression(literals(path), false)
			// The planner can use statistics on an index's expression only if the index has all rows.
			statistics := dialect.InSchema(drivers.TableName(build) + "/" + path + " values")
			if _, err := tx.Exec(ctx, "create statistics if not exists "+statistics+" on ("+keyExpression(value)+") from "+table); err != nil {
				return err
			}
			// A page of a narrow range is read either by the index or in the order of ids, whichever reads less. A
			// histogram with the usual hundred parts is too coarse to decide that.
			if _, err := tx.Exec(ctx, fmt.Sprintf("alter statistics %s set statistics %d", statistics, statisticsTarget)); err != nil {
				return err
			}
			for suffix, definition := range indexDefinitions(build, path, value) {
				// Earlier releases used a blank in place of "/", and their indexes still have those names.
				name := dialect.Quote(drivers.TableName(build) + "/" + path + suffix)
				// "if not exists" would wait for every save in progress before it checks.
				if exists, err := relationExists(ctx, tx.QueryRow, schema+"."+name); err != nil {
					return err
				} else if exists {
					continue
				}
				if _, err := tx.Exec(ctx, "create index "+name+" on "+table+" "+definition); err != nil {
					return err
				}
			}
		}
		_, err := tx.Exec(ctx, "analyze "+table)
		return err
	})
	return drivers.BuildError("index the table of", build, dialect.Error(err))
}

// indexedPaths returns the declared paths, and the partition's path if it is not one of them.
func indexedPaths(build domain.Build) []string {
	paths := slices.Clone(build.Indexes)
	if build.PartitionBy != "" && !slices.Contains(paths, build.PartitionBy) {
		paths = append(paths, build.PartitionBy)
	}
	return paths
}

// indexDefinitions returns the indexes for the value at one of indexedPaths, by the suffixes of their names. A row with
// the largest sort keys of partition and value and the largest id fits into a B-tree.
func indexDefinitions(build domain.Build, path, value string) map[string]string {
	key, partition, before := "("+keyExpression(value)+")", "", ""
	if build.PartitionBy != "" && build.PartitionBy != path {
		partition = keyExpression(pathExpression(literals(build.PartitionBy), false))
		before = "(" + partition + "), "
	}
	definitions := map[string]string{" values": "(tenant_id, build, " + before + key + ", id) where id <> ''"}
	if slices.Contains(build.Indexes, path) {
		if build.PartitionBy == path {
			partition = keyExpression(value)
		}
		definitions[" parts"] = "using gin ((" + membersExpression(value, partition) + ") jsonb_path_ops) where id <> '' and " + membersCondition(value)
	}
	return definitions
}

// literals returns a declared path's names as constants, because an index takes no parameters.
func literals(path string) []string {
	names := drivers.DeclaredPath(path)
	for i, name := range names {
		names[i] = literal(name)
	}
	return names
}

// commonIndex is an index of the common table. It is created with the table, or concurrently while the table is in use.
type commonIndex struct{ name, definition string }

// commonIndexes returns two indexes. One finds the checkpoints of all tenants without reading the documents. The other
// finds a value at any path of a tenant's build. It collects new entries in a list and merges them in bulk; each query
// reads the list, so it is kept short. Neither index contains the version, which every save changes.
func commonIndexes() []commonIndex {
	return []commonIndex{
		{`"documents/checkpoints"`, `(tenant_id, build) where id = ''`},
		{`"documents/general"`, `using gin ((jsonb_set('{}'::jsonb, array[tenant_id::text || '/' || build::text], document)) jsonb_path_ops) with (gin_pending_list_limit = 512) where id <> ''`},
	}
}

// createSQL returns the statement that creates the index with the table, whose name is %[1]s there.
func (i commonIndex) createSQL() string {
	return "create index " + i.name + " on %[1]s " + i.definition
}

// createConcurrentlySQL returns the statement that creates the index of a table that is in use.
func (i commonIndex) createConcurrentlySQL() string {
	return "create index concurrently " + i.name + " on " + commonTable + " " + i.definition
}

// indexPause is how long a process waits before it checks again for a missing index.
const indexPause = 10 * time.Second

// indexInBackground creates a missing index of an existing common table, however large, while saves continue. Until
// then, queries that need the index are correct but slower. If several processes call it, one of them creates the
// index.
func (d *Driver) indexInBackground(ctx, background context.Context) error {
	complete := true
	for _, index := range commonIndexes() {
		valid, err := index.isValid(ctx, d.pool.QueryRow)
		if err != nil {
			return err
		}
		complete = complete && valid
	}
	if complete {
		return nil
	}
	d.background.Go(func() {
		for {
			if d.views {
				// This precedes the indexes: while it is being created, nobody can change the table's policy.
				if err := d.ensureTenantView(background, commonBuild()); err != nil && background.Err() == nil {
					d.log.WarnContext(background, "the views that queries read could not be repaired", "err", err)
				}
			}
			complete := true
			for _, index := range commonIndexes() {
				done, err := d.createConcurrently(background, index)
				if background.Err() != nil {
					return
				}
				if err != nil {
					d.log.WarnContext(background, "an index of the tenants' documents could not be created; it is retried", "index", index.name, "err", err)
				}
				complete = complete && done
			}
			if complete {
				return
			}
			select {
			case <-time.After(indexPause/2 + rand.N(indexPause)):
			case <-background.Done():
				return
			}
		}
	})
	return nil
}

// isValid reports whether the index exists and is valid.
func (i commonIndex) isValid(ctx context.Context, query queryRow) (valid bool, err error) {
	err = query(ctx, "select exists (select from pg_index where indexrelid = to_regclass($1) and indisvalid)", schema+"."+i.name).Scan(&valid)
	return valid, err
}

// createConcurrently creates the index concurrently with saves. If another process is already creating it, done is
// false. It first drops an invalid index that a process left when it ended.
//
// It must not wait for the other process's lock: a waiting statement holds a snapshot, and creating an index
// concurrently waits for all older snapshots.
func (d *Driver) createConcurrently(ctx context.Context, index commonIndex) (done bool, err error) {
	if done, err := index.isValid(ctx, d.pool.QueryRow); err != nil || done {
		return done, err
	}
	// A separate connection: the session holds the lock, so the lock ends with it in every case.
	conn, err := pgx.ConnectConfig(ctx, d.pool.Config().ConnConfig)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var locked bool
	if err := conn.QueryRow(ctx, "select pg_try_advisory_lock(hashtext('manifold documents'), hashtext($1))", schema+"."+index.name).Scan(&locked); err != nil || !locked {
		return false, err
	}
	if done, err := index.isValid(ctx, conn.QueryRow); err != nil || done {
		return done, err
	}
	statements := []string{"drop index concurrently if exists " + schema + "." + index.name, index.createConcurrentlySQL()}
	if d.becomeViews {
		statements = slices.Insert(statements, 0, "set role "+viewsRole) // the table's owner
	}
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return false, err
		}
	}
	d.log.InfoContext(ctx, "a missing index of the tenants' documents was created", "index", index.name)
	return true, nil
}
