// Package postgres is the driver that stores documents in PostgreSQL, version 14 or later, in the log's own database or
// in another. Start with Config, Open and Driver.
//
// All tables are in the schema "manifold_documents" and have the same columns:
//
//	(tenant_id uuid, build bigint, id text collate "C", version bigint, document jsonb, primary key (tenant_id, build, id))
//
// Each build of a shared projection has a table named after it, such as "order-summary.12". The builds of tenants' own
// projections share the table "documents", and the table "document_keys" is their index. A tenant's checkpoint in a
// build is the row with the empty id: its version is the position, and its document is null.
//
// Row-level security binds the login everywhere: it is forced on the login's tables, and in a distributed database the
// role manifold_views owns them. Each statement's tenant is set locally in the transaction that sends the statement.
// Without a tenant, no document can be read or written; only checkpoints can be read. The only way to see every
// tenant's documents is a public view ("order-summary"), which the role manifold_views owns. A distributed database has
// none.
package postgres

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/relational"
	"github.com/manifold-es/manifold/pg"
)

// Config says how to reach the database.
type Config struct {
	URL      string // a pgx connection string; its login owns the tables: manifold_documents after migrations
	MaxConns int    // 0: 8
	Log      *slog.Logger

	// Queries that filter or order have separate connections, so that a long one delays no save.
	QueryConns   int           // 0: 4
	QueryTimeout time.Duration // time limit of a query; 0: 10 s

	// Replicas are the URLs of streaming replicas that may answer queries, each with one host and the same login. Each
	// has MaxConns connections.
	Replicas   []string
	ReplicaLag time.Duration // how far a replica may be behind to be read; 0: 5 s
}

// Driver stores documents in one PostgreSQL database. It is a drivers.Driver.
type Driver struct {
	pool         *pg.Pool
	queries      *pg.Pool      // for queries that filter or order
	nodes        *pg.Nodes     // with the documents of tenants; nil: it is not distributed
	queryTimeout time.Duration // of a statement of those queries
	log          *slog.Logger
	views        bool // the role manifold_views exists, and the login may make it the owner of views
	withLog      bool // it is the log's own database
	distributed  bool // it is the log's own database, distributed over the nodes of a Citus cluster
	becomeViews  bool // it is distributed, and transactions can become the role manifold_views, which owns the tables

	replicas *pg.Replicas // nil: none
	closing  []func()     // close the connections to them

	stop       context.CancelFunc // ends the background work
	background sync.WaitGroup
}

var _ drivers.Driver = (*Driver)(nil)

// settings are those of all connections but the ones for queries. Statements are prepared while their tables may still
// be empty and without statistics, and then run while the tables grow by orders of magnitude. So these settings tell
// the planner what is known here: every statement finds its rows by the primary key. Plans are made once per
// connection, not per call.
var settings = map[string]string{
	"application_name":                    "manifold-documents",
	"plan_cache_mode":                     "force_generic_plan",
	"enable_seqscan":                      "off",
	"enable_hashjoin":                     "off",
	"enable_mergejoin":                    "off",
	"enable_sort":                         "off", // a page is read in the key's order, never sorted
	"jit":                                 "off",
	"idle_in_transaction_session_timeout": "10000", // a stalled sender must not lock a checkpoint
}

// querySettings are those of the connections for queries. It is not known how many documents match, so the planner
// decides for each query by its values. But it never scans a whole table, which also holds other tenants' documents. No
// query uses several processes, because other tenants' queries need them.
var querySettings = map[string]string{
	"application_name":                    "manifold-documents-queries",
	"plan_cache_mode":                     "force_custom_plan",
	"enable_seqscan":                      "off",
	"max_parallel_workers_per_gather":     "0",
	"jit":                                 "off",
	"idle_in_transaction_session_timeout": "10000",
}

// Open connects and ensures that the schema and the common table exist. In the log's database the migrations have
// created the schema; in any other, Open creates it if the login may. The caller must close the driver.
func Open(ctx context.Context, config Config) (*Driver, error) {
	d := &Driver{queryTimeout: cmp.Or(config.QueryTimeout, 10*time.Second), log: config.Log}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	config.MaxConns = cmp.Or(config.MaxConns, 8)
	pool, err := connect(ctx, config.URL, config.MaxConns, settings)
	if err != nil {
		return nil, err
	}
	if pool, err = d.detectCluster(ctx, config, pool); err != nil {
		pool.Close()
		return nil, fmt.Errorf("the documents' database: %w", dialect.Error(err))
	}
	d.pool = pg.ShareOut(pool, d.nodes)
	limited := maps.Clone(querySettings)
	limited["statement_timeout"] = strconv.FormatInt(max(d.queryTimeout.Milliseconds(), 1), 10)
	queries, err := connect(ctx, config.URL, cmp.Or(config.QueryConns, 4), limited)
	if err != nil {
		d.pool.Close()
		return nil, err
	}
	d.queries = pg.ShareOut(queries, d.nodes)
	var background context.Context
	background, d.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := d.prepareDatabase(ctx, background); err != nil {
		d.Close()
		return nil, fmt.Errorf("prepare the documents' database: %w", dialect.Error(err))
	}
	if err := d.openReplicas(ctx, background, config); err != nil {
		d.Close()
		return nil, fmt.Errorf("the replicas of the documents' database: %w", dialect.Error(err))
	}
	return d, nil
}

// connectTimeout is how long establishing a connection may take, unless the URL says otherwise (connect_timeout). A
// server may accept a connection and then answer nothing, and the pool's own limit is two minutes.
const connectTimeout = 10 * time.Second

// connect creates a pool, which opens connections when they are needed.
func connect(ctx context.Context, url string, conns int, settings map[string]string) (*pgxpool.Pool, error) {
	// pgx parses any other database's URL as key=value pairs, and then connects to wherever the environment points.
	if scheme, _, ok := strings.Cut(url, "://"); ok && scheme != "postgres" && scheme != "postgresql" {
		return nil, fmt.Errorf("the documents' database URL: its scheme is %q; it begins with postgres://", scheme)
	}
	parsed, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("the documents' database URL: %w", err)
	}
	parsed.MaxConns = int32(conns)
	parsed.ConnConfig.ConnectTimeout = cmp.Or(parsed.ConnConfig.ConnectTimeout, connectTimeout)
	maps.Copy(parsed.ConnConfig.RuntimeParams, settings)
	// A connection to a server that has become a standby is useless: a new one may lead to the new primary.
	keepConnection := parsed.ConnConfig.OnPgError
	parsed.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != pg.ReadOnly && keepConnection(conn, err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, parsed)
	if err != nil {
		return nil, fmt.Errorf("the documents' database: %w", err)
	}
	return pool, nil
}

// Close waits for calls in progress and closes all connections.
func (d *Driver) Close() {
	d.stop()
	d.background.Wait()
	for _, replica := range d.closing {
		replica()
	}
	d.queries.Close()
	d.pool.Close()
}

// Ping reports whether the database answers.
func (d *Driver) Ping(ctx context.Context) error {
	if err := d.pool.Ping(ctx); err != nil {
		return fmt.Errorf("ping the documents' database: %w", dialect.Error(err))
	}
	return nil
}

// Save stores a batch in one transaction, which is one round trip.
//
// The compare-and-set first moves the checkpoint to -To, a value that only its own transaction can see, because the
// last statement changes it to To. The statements between join the checkpoint's row and ask for -To, so they do nothing
// unless this very transaction has moved it. Their tenant comes from a row of the same tenant, as a database that is
// sharded by tenant requires.
//
// Save retries a transaction a few times if it was rolled back, or if a lost connection hides its outcome. The
// compare-and-set makes that safe: if the transaction had been committed after all, the result is ErrStale.
func (d *Driver) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	table, err := tableOf(build, tenant)
	if err != nil {
		return err
	}
	if err := batch.Check(); err != nil {
		return err
	}
	saved, err := d.save(ctx, table, build, tenant, batch)
	if pg.SQLState(err) == pg.UniqueViolation && batch.New > 0 {
		// A document that was called new exists, and nothing was saved.
		batch.New = 0
		saved, err = d.save(ctx, table, build, tenant, batch)
	}
	if err == nil && !saved {
		return drivers.ErrStale
	}
	return drivers.BuildError("save to", build, blameDocument(err, batch.Upserts))
}

// save stores a checked batch if the checkpoint is where it starts.
func (d *Driver) save(ctx context.Context, table string, build domain.Build, tenant domain.TenantID, batch drivers.Batch) (saved bool, err error) {
	key := [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number)}
	var steps []statement
	if !batch.IsRepair() {
		steps = append(steps, statement{sql: "set local synchronous_commit = off", unprepared: true}) // see drivers.Driver.Save
	}
	cas := len(steps)
	if len(batch.Upserts) == 0 && len(batch.Deletes) == 0 && batch.To > 0 {
		steps = append(steps, moveCheckpoint(table, key, batch.From, batch.To))
		if d.keepsKeys(build) && !batch.IsRepair() {
			steps = append(steps, moveKeys(key, pg.Int8Param(batch.To), batch.From, batch.To))
		}
	} else {
		steps = append(steps, moveCheckpoint(table, key, batch.From, -batch.To))
		mark := pg.Int8Param(-batch.To)
		keyed := d.keepsKeys(build)
		insert := func(documents []domain.Document, isNew bool, sql string) {
			for len(documents) > 0 {
				n, _ := relational.Part(documents)
				part := documents[:n]
				documents = documents[n:]
				steps = append(steps, statement{sql: sql,
					encodeArgs: func() [][]byte { return append(key[:2:2], append([][]byte{mark}, encodeDocuments(part)...)...) }})
				if keyed {
					steps = append(steps, saveKeys(build, key, mark, part, isNew))
				}
			}
		}
		// The select list unnests the arrays. As tables in FROM, all their rows would be materialized in a tuple store
		// before the first is inserted, which takes a tenth of the total time.
		plain := "insert into " + table + ` as t (tenant_id, build, id, version, document)
			select c.tenant_id, c.build, unnest($4::text[]), unnest($5::bigint[]), unnest($6::jsonb[])
			from ` + table + ` c
			where c.tenant_id = $1 and c.build = $2 and c.id = '' and c.version = $3`
		// For new rows, "on conflict" takes twice the database's time: it looks each row up, inserts it speculatively,
		// and confirms it.
		insert(batch.Upserts[:batch.New], true, plain)
		insert(batch.Upserts[batch.New:], false, plain+`
			on conflict (tenant_id, build, id) do update set version = excluded.version, document = excluded.document
			where t.version < excluded.version`)
		for _, deletion := range batch.Deletes {
			// One by one: a join could also be planned from the table's side, through all of a tenant's documents, and
			// is if the tenant seemed small when the plan was made. Removals are rare, and these statements are also
			// sent together.
			steps = append(steps, statement{sql: "delete from " + table + ` t
				where t.tenant_id = $1 and t.build = $2 and t.id = $4 and t.version < $5
				and exists (select from ` + table + ` c where c.tenant_id = $1 and c.build = $2 and c.id = '' and c.version = $3)`,
				args: append(key[:2:2], mark, []byte(deletion.ID), pg.Int8Param(deletion.Version))})
			if keyed {
				steps = append(steps, removeKeys(key, mark, deletion.ID))
			}
		}
		if keyed && !batch.IsRepair() {
			steps = append(steps, moveKeys(key, mark, batch.From, batch.To))
		}
		if batch.To == 0 {
			// The row has served as the transaction's mark.
			steps = append(steps, statement{sql: "delete from " + table + ` where tenant_id = $1 and build = $2 and id = '' and version = $3`, args: append(key[:2:2], mark)})
		} else {
			steps = append(steps, moveCheckpoint(table, key, -batch.To, batch.To))
		}
	}
	affected, err := d.transact(ctx, "begin", tenant, steps)
	return err == nil && affected[cas] > 0, err
}

// moveCheckpoint is the compare-and-set. Of two workers that both find no checkpoint, one inserts the row, and the
// other waits for it and does nothing.
func moveCheckpoint(table string, key [][]byte, from, to int64) statement {
	args := append(key[:2:2], pg.Int8Param(to))
	if from == 0 {
		return statement{sql: "insert into " + table + ` (tenant_id, build, id, version) values ($1, $2, '', $3) on conflict do nothing`, args: args}
	}
	return statement{sql: "update " + table + ` set version = $3 where tenant_id = $1 and build = $2 and id = '' and version = $4`,
		args: append(args, pg.Int8Param(from))}
}

// Checkpoint returns the stored checkpoint, or 0 if there is none.
func (d *Driver) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return 0, err
	}
	var position int64
	err = d.read(ctx, tenant, statement{
		sql:  "select version from " + table + ` where tenant_id = $1 and build = $2 and id = ''`,
		args: [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number)},
		row:  func(values [][]byte) { position = pg.Int8Value(values[0]) },
	})
	return position, drivers.BuildError("read the checkpoint of", build, err)
}

// Checkpoints yields every tenant's stored checkpoint, all of one moment.
func (d *Driver) Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[drivers.Checkpoint, error] {
	return drivers.AllCheckpoints(ctx, d, build, func() (all []drivers.Checkpoint, err error) {
		// No tenant is set: row-level security then shows the checkpoints of all tenants, but no documents.
		err = d.read(ctx, domain.Everyone, statement{
			sql:   "select tenant_id, version from " + dialect.Table(build) + ` where build = $1 and id = ''`,
			args:  [][]byte{pg.Int8Param(build.Number)},
			reset: func() { all = nil },
			row: func(values [][]byte) {
				all = append(all, drivers.Checkpoint{Tenant: pg.UUIDValue(values[0]), Position: pg.Int8Value(values[1])})
			},
		})
		return all, err
	})
}

// OwnCheckpoints yields the stored checkpoint of every build of tenants' own projections, all of one moment.
func (d *Driver) OwnCheckpoints(ctx context.Context) iter.Seq2[drivers.OwnCheckpoint, error] {
	return drivers.AllOwnCheckpoints(func() (all []drivers.OwnCheckpoint, err error) {
		// As for Checkpoints, no tenant is set. The first of commonIndexes holds exactly these rows.
		err = d.read(ctx, domain.Everyone, statement{
			sql:   "select tenant_id, build, version from " + commonTable + ` where id = ''`,
			reset: func() { all = nil },
			row: func(values [][]byte) {
				all = append(all, drivers.OwnCheckpoint{Tenant: pg.UUIDValue(values[0]), Build: pg.Int8Value(values[1]), Position: pg.Int8Value(values[2])})
			},
		})
		return all, err
	})
}

// dropSlice is how many rows one transaction of a drop removes, which takes some tens of milliseconds.
const dropSlice = 5000

// DropTenant removes one tenant's documents and checkpoint from the build.
func (d *Driver) DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	return drivers.DropTenant(build, tenant, func() error { return d.dropRows(ctx, build, tenant) })
}

func (d *Driver) dropRows(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	table, key := dialect.Table(build), [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number)}
	remove := func(condition string, args ...[]byte) error {
		_, err := d.transact(ctx, "begin", tenant, []statement{{
			sql:  "delete from " + table + " t where t.tenant_id = $1 and t.build = $2 and " + condition,
			args: append(key[:2:2], args...),
		}})
		return err
	}
	err := drivers.DropRows(func() error { return remove("t.id = ''") }, func(after []byte) (last []byte, err error) {
		err = d.read(ctx, tenant, statement{
			sql: `select max(s.id) from (select t.id from ` + table + ` t
				where t.tenant_id = $1 and t.build = $2 and t.id > $3 order by t.id limit $4) s`,
			args: append(key[:2:2], after, pg.Int8Param(dropSlice)),
			row:  func(values [][]byte) { last = slices.Clone(values[0]) },
		})
		if err != nil || last == nil {
			return nil, err
		}
		return last, remove("t.id > $3 and t.id <= $4", after, last)
	})
	if err != nil {
		return err
	}
	return d.dropKeys(ctx, build, tenant)
}
