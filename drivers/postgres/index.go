package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// spreadParts is in how many parts the planner knows the spread of an indexed path's values.
const spreadParts = 1000

// IndexTable makes two indexes for each of build.Indexes, paths such as "customer.name", and brings the table's statistics
// up to date. The one has sort keys and ids: it finds values, ranges of them, and beginnings of texts, and has the order
// that Query promises. The other finds what lists and objects contain; where there are none at the path, it is empty. With
// build.PartitionBy both begin with the sort key at that path, and there is one of that alone.
//
// The indexes have no checkpoints in them: by that condition a look-up by key can never be planned through them, only what
// asks for documents alone.
func (d *Driver) IndexTable(ctx context.Context, build domain.Build) error {
	if !build.Shared() {
		return nil
	}
	table := tableName(build)
	err := d.define(ctx, table, func(tx pgx.Tx) error {
		for _, path := range indexedPaths(build) {
			value := pathExpression(literals(path), false)
			// What is known of an index's values serves the planner only if the index has all rows.
			spread := schema + "." + identifier(buildName(build)+"/"+path+" values")
			if _, err := tx.Exec(ctx, "create statistics if not exists "+spread+" on ("+keyExpression(value)+") from "+table); err != nil {
				return err
			}
			// A page of a narrow range is read by the index or by walking over ids, whichever reads less: a histogram of
			// the usual hundred parts cannot tell.
			if _, err := tx.Exec(ctx, fmt.Sprintf("alter statistics %s set statistics %d", spread, spreadParts)); err != nil {
				return err
			}
			for suffix, definition := range indexDefinitions(build, path, value) {
				// In an older release, and so in what it has left, a blank stood where "/" does.
				name := identifier(buildName(build) + "/" + path + suffix)
				// "if not exists" would wait for every save under way before it looks.
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
	if err != nil {
		return fmt.Errorf("index the table of build %d of %s: %w", build.Number, build.Name, mend(err))
	}
	return nil
}

// indexedPaths are the declared paths, and the partition's if it is none of them.
func indexedPaths(build domain.Build) []string {
	paths := slices.Clone(build.Indexes)
	if build.PartitionBy != "" && !slices.Contains(paths, build.PartitionBy) {
		paths = append(paths, build.PartitionBy)
	}
	return paths
}

// indexDefinitions are the indexes for the value at one of indexedPaths, by the ends of their names. A row of the largest
// sort keys of partition and value and the largest id is within what a B-tree takes.
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

// literals are a declared path's names as constants: an index takes no parameters.
func literals(path string) []string {
	names := strings.Split(path, ".")
	for i, name := range names {
		names[i] = literal(name)
	}
	return names
}

// commonIndex is an index that the common table has. It is made with the table, or beside those who use it.
type commonIndex struct{ name, definition string }

// commonIndexes are the checkpoints of all tenants, found without reading the documents, and what finds a value at any path
// of a tenant's build. New entries of that one wait in a list until there are enough of them to be put into the index
// together; each query reads the list, so it is kept short. Neither has the version in it, which every save changes.
func commonIndexes() []commonIndex {
	return []commonIndex{
		{`"documents/checkpoints"`, `(tenant_id, build) where id = ''`},
		{`"documents/general"`, `using gin ((jsonb_set('{}'::jsonb, array[tenant_id::text || '/' || build::text], document)) jsonb_path_ops) with (gin_pending_list_limit = 512) where id <> ''`},
	}
}

// with is the statement that makes the index with the table, which is %[1]s there.
func (i commonIndex) with() string { return "create index " + i.name + " on %[1]s " + i.definition }

// beside is the statement that makes the index of a table that is in use.
func (i commonIndex) beside() string {
	return "create index concurrently " + i.name + " on " + schema + "." + commonTable + " " + i.definition
}

// indexPause is how long a process waits before it looks again at an index that is not there yet.
const indexPause = 10 * time.Second

// indexInBackground sees to it that a common table which was there before one of its indexes gets it, however large it is,
// while saves go on; until then what asks for it is right, and slower. Several processes may do so, one of them makes it.
func (d *Driver) indexInBackground(ctx, background context.Context) error {
	missing := false
	for _, index := range commonIndexes() {
		made, err := index.made(ctx, d.pool.QueryRow)
		if err != nil {
			return err
		}
		missing = missing || !made
	}
	if !missing {
		return nil
	}
	var common domain.Build
	common.Owner = domain.NewTenantID() // any
	d.background.Go(func() {
		for {
			if d.views {
				// Before an index is begun: then nobody can change the table's policy until it is made.
				if err := d.mendSource(background, common); err != nil && background.Err() == nil {
					d.log.WarnContext(background, "what queries read of the tenants' documents is not mended", "err", err)
				}
			}
			all := true
			for _, index := range commonIndexes() {
				done, err := d.makeBeside(background, index)
				if background.Err() != nil {
					return
				}
				if err != nil {
					d.log.WarnContext(background, "an index of the tenants' documents is not made yet; it is tried again", "index", index.name, "err", err)
				}
				all = all && done
			}
			if all {
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

// made reports whether the index is there, and whole.
func (i commonIndex) made(ctx context.Context, query func(ctx context.Context, sql string, args ...any) pgx.Row) (valid bool, err error) {
	err = query(ctx, "select exists (select from pg_index where indexrelid = to_regclass($1) and indisvalid)", schema+"."+i.name).Scan(&valid)
	return valid, err
}

// makeBeside makes the index beside saves, unless another process is at it: done is false then. One that was begun and
// given up, by a process that ended, is dropped first.
//
// It must not wait for the other's lock: a statement that waits holds a snapshot, and making an index concurrently waits
// for all older snapshots.
func (d *Driver) makeBeside(ctx context.Context, index commonIndex) (done bool, err error) {
	if done, err := index.made(ctx, d.pool.QueryRow); err != nil || done {
		return done, err
	}
	// A connection of its own: the session holds the lock, and ends with it however this ends.
	conn, err := pgx.ConnectConfig(ctx, d.pool.Config().ConnConfig)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var alone bool
	if err := conn.QueryRow(ctx, "select pg_try_advisory_lock(hashtext('manifold documents'), hashtext($1))", schema+"."+index.name).Scan(&alone); err != nil || !alone {
		return false, err
	}
	if done, err := index.made(ctx, conn.QueryRow); err != nil || done {
		return done, err
	}
	for _, statement := range []string{"drop index concurrently if exists " + schema + "." + index.name, index.beside()} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return false, err
		}
	}
	d.log.InfoContext(ctx, "the tenants' documents have an index that they lacked", "index", index.name)
	return true, nil
}
