// Package pg connects to Manifold's own PostgreSQL database: sessions by login, transactions under a tenant, pipelined
// statements, notices between processes, and what the errors of PostgreSQL mean. Start with Open and DB. The SQL itself
// is in the packages whose tables it reads and writes.
//
// There are three logins (migrations.Role). The app login works under one tenant at a time. The system login works
// across tenants, for heads and lists. The retention login removes events. Row-level security also enforces the tenant
// in the database: each transaction sets the tenant locally. Each statement names the tenant in its where clause as
// well, so that the database can be sharded by tenant.
package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
	"github.com/manifold-es/manifold/migrations"
)

// Config says how to reach the database. The URLs are pgx connection strings, one for each login.
type Config struct {
	AppURL       string
	SystemURL    string
	RetentionURL string
	MaxConns     int // of the app login; 0: 16. System and retention get a quarter of it, at least two, foreground four, and signs of life one
	Log          *slog.Logger
	// Member identifies this process. Connections that listen for changes carry it in their names, so that other
	// processes notice when this one is gone. Zero: they do not carry it.
	Member domain.MemberID
	// Connected is called when any login has opened a connection. It may be nil; it is called concurrently and must
	// return at once.
	Connected func()
	Replicas  []string // URLs of replicas, for the app login; each names one host
}

// DB is Manifold's own database. All methods may be called concurrently.
type DB struct {
	App, Retention *Pool         // by login
	System         *pgxpool.Pool // likewise
	Foreground     *Pool         // a few connections of the system login for short statements that requests wait for
	Heartbeats     *pgxpool.Pool // one connection of the system login for what must not wait for others: signs of life, and where shards are
	Log            *slog.Logger
	Distributed    bool // the tables are distributed over the nodes of a Citus cluster
	Replicas       []*Replica

	// What has changed in this process. The payload is the tenant; domain.Everyone means any.
	KeysChanged        Subscribers[domain.TenantID]
	ProjectionsChanged Subscribers[struct{}]
	RetentionChanged   Subscribers[domain.TenantID]
	WebhooksChanged    Subscribers[domain.TenantID]
	SchemasChanged     Subscribers[domain.TenantID]
	LimitsChanged      Subscribers[struct{}]

	// Unprintable is called when a read fails on rows that PostgreSQL cannot print. It makes them readable and returns
	// their number; the read is then repeated. It must be set before the first read; nil: such reads fail.
	Unprintable func(ctx context.Context, tenant domain.TenantID, queries []Query) (found int, err error)

	member  domain.MemberID
	reading *fairshare.Budget // limits the connections that run long reads
}

// Open connects with each login. The caller must close the DB. If Open fails, Absence says whether waiting may help.
func Open(ctx context.Context, config Config) (*DB, error) {
	db, err := open(ctx, config)
	if _, all := errors.AsType[*noLogins](err); isLoginRefused(err) && !all {
		// `manifold migrate up` may have set the passwords between two logins.
		return open(ctx, config)
	}
	return db, err
}

func open(ctx context.Context, config Config) (*DB, error) {
	maxConns := cmp.Or(config.MaxConns, defaultConns)
	db := &DB{
		Log:    cmp.Or(config.Log, slog.New(slog.DiscardHandler)),
		member: config.Member,
		// The other half is for appends and other short work.
		reading: fairshare.New("readings", int64(max(1, maxConns/2)), int64(max(1, maxConns/4))),
	}
	var refused error
	connected := false
	distributed := map[string]string{}
	var of *Nodes
	for _, login := range []struct {
		set      func(*pgxpool.Pool)
		name     string
		url      string
		maxConns int
		settings map[string]string
	}{
		{func(pool *pgxpool.Pool) { db.System = pool }, "system", config.SystemURL, max(2, maxConns/4), nil}, // the first, which notices a cluster
		{func(pool *pgxpool.Pool) {
			db.Heartbeats = pool
			if db.Distributed {
				of = NewNodes(pool, "manifold.logs", db.Log)
			}
		}, "system", config.SystemURL, 1, nil},
		{func(pool *pgxpool.Pool) { db.Foreground = ShareOut(pool, of) }, "system", config.SystemURL, foregroundConns, nil},
		{func(pool *pgxpool.Pool) { db.App = ShareOut(pool, of) }, "app", config.AppURL, maxConns, AppSettings},
		{func(pool *pgxpool.Pool) { db.Retention = ShareOut(pool, of) }, "retention", config.RetentionURL, max(2, maxConns/4), RetentionSettings},
	} {
		pool, err := OpenPool(ctx, login.url, login.maxConns, merge(login.settings, distributed), config.Connected)
		if err != nil {
			err = fmt.Errorf("open the database with the %s login: %w%s", login.name, err, remedy(err))
		}
		switch {
		case err == nil:
			login.set(pool)
			connected = true
			if pool == db.System {
				if db.Distributed, err = migrations.IsDistributed(ctx, pool); err != nil {
					db.Close()
					return nil, fmt.Errorf("ask whether the database is distributed: %w", err)
				}
				if db.Distributed {
					distributed = DistributedSettings
				}
			}
		case isLoginRefused(err):
			refused = cmp.Or(refused, err)
		default:
			db.Close()
			return nil, err
		}
	}
	if refused != nil {
		db.Close()
		if !connected {
			refused = &noLogins{refused}
		}
		return nil, refused
	}
	for _, url := range config.Replicas {
		replica, err := openHistoryReplica(ctx, url, maxConns)
		if err != nil {
			db.Close()
			return nil, err
		}
		db.Replicas = append(db.Replicas, replica)
	}
	return db, nil
}

// maxMessageBytes limits the memory for one row of an answer.
const maxMessageBytes = 48 << 20

// foregroundConns is the number of connections of DB.Foreground.
const foregroundConns = 4

// defaultConns is the number of connections of the app login if the configuration sets none.
const defaultConns = 16

// remedy says what to do if a login cannot connect; it is empty if there is no known remedy.
func remedy(err error) string {
	switch SQLState(err) {
	case "28P01", "28000": // the password is wrong, or there is no such login
		return "; `manifold migrate up` creates the login with the configured password"
	case "3D000":
		return "; create the database, and run `manifold migrate up`"
	}
	return ""
}

// forceGenericPlan keeps a prepared statement's plan, which does not depend on its values.
var forceGenericPlan = map[string]string{"plan_cache_mode": "force_generic_plan"}

// DistributedSettings override others in a distributed database. Citus cannot make generic plans.
var DistributedSettings = map[string]string{"plan_cache_mode": "auto"}

// AppSettings and RetentionSettings apply to these logins' connections.
var (
	AppSettings       = merge(migrations.NodeSettings[migrations.RoleApp], merge(forceGenericPlan, map[string]string{"statement_timeout": "30000"}))
	RetentionSettings = merge(migrations.NodeSettings[migrations.RoleRetention], forceGenericPlan)
)

// merge returns settings with more settings added.
func merge(settings, more map[string]string) map[string]string {
	all := make(map[string]string)
	maps.Copy(all, settings)
	maps.Copy(all, more)
	return all
}

// connectTimeout is how long opening a connection may take, unless the URL sets connect_timeout. Background work waits
// without a separate deadline. A server that is just shutting down, for example, may accept a connection and then never
// answer. The pool's default limit is two minutes.
const connectTimeout = 10 * time.Second

// OpenPool opens a pool of at most maxConns connections with these settings. connected is called for each connection
// that was opened; it may be nil. The caller must close the pool.
func OpenPool(ctx context.Context, url string, maxConns int, settings map[string]string, connected func()) (*pgxpool.Pool, error) {
	pool, err := newPool(ctx, url, maxConns, settings, connected)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// newPool is OpenPool, but does not connect yet.
func newPool(ctx context.Context, url string, maxConns int, settings map[string]string, connected func()) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(maxConns)
	if connected != nil {
		config.AfterConnect = func(context.Context, *pgx.Conn) error {
			connected()
			return nil
		}
	}
	config.ConnConfig.MaxProtocolMessageBodyLen = maxMessageBytes
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, connectTimeout)
	// Statements name tables without the schema, because the connection sets the search path.
	config.ConnConfig.RuntimeParams["search_path"] = "manifold"
	config.ConnConfig.RuntimeParams["application_name"] = "manifold"
	// A client that stalls in the middle of a transaction must not keep a log locked.
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "10000"
	maps.Copy(config.ConnConfig.RuntimeParams, settings)
	// A connection to a server that has become a standby is useless: a new one may reach the new primary.
	keepConnection := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != ReadOnly && keepConnection(conn, err)
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// Close closes all connections.
func (db *DB) Close() {
	for _, pool := range []*Pool{db.App, db.Retention, db.Foreground} {
		if pool != nil {
			pool.Close()
		}
	}
	for _, pool := range []*pgxpool.Pool{db.System, db.Heartbeats} {
		if pool != nil {
			pool.Close()
		}
	}
	for _, replica := range db.Replicas {
		replica.Close()
	}
}

// Spare reports whether a connection of the app login is free, so that nobody waits for one.
func (db *DB) Spare() bool {
	stat := db.App.Stat()
	return stat.AcquiredConns() < stat.MaxConns()
}

// Node returns the node of a cluster with a tenant's log. Without a cluster, all are on node 0.
func (db *DB) Node(tenant domain.TenantID) int32 {
	return db.Foreground.nodes.Of(tenant)
}

// Ping reports whether the database answers, on the app and the system login.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.App.Ping(ctx); err != nil {
		return Unavailable(err)
	}
	return Unavailable(db.Foreground.Ping(ctx))
}

// Under runs do in a read-committed transaction of pool with the tenant set, and commits it if do returns nil. It is
// not for hot paths: begin, each statement of do, and commit take a round trip each.
func Under(ctx context.Context, pool *Pool, tenant domain.TenantID, do func(pgx.Tx) error) error {
	return UnderWith(ctx, pool, tenant, TxOptions{}, do)
}

// TxOptions changes a transaction of UnderWith.
type TxOptions struct {
	OneSnapshot bool          // all statements see one snapshot; changing a row that has changed since fails, see Busy
	LockTimeout time.Duration // of each statement, in whole milliseconds; 0: that of the login
}

// UnderWith is Under with options.
func UnderWith(ctx context.Context, pool *Pool, tenant domain.TenantID, options TxOptions, do func(pgx.Tx) error) error {
	l, err := pool.Lease(ctx, tenant)
	if err != nil {
		return Unavailable(err)
	}
	defer func() { l.End(err) }()
	begin := "begin"
	if options.OneSnapshot {
		begin += " isolation level repeatable read"
	}
	// SET takes no parameters. The tenant's canonical form contains only hexadecimal digits and dashes.
	settings := "set local manifold.tenant = '" + tenant.String() + "'"
	if options.LockTimeout > 0 {
		settings += fmt.Sprintf("; set local lock_timeout = %d", options.LockTimeout.Milliseconds())
	}
	if pool.nodes != nil {
		// Citus sends the whole text of a SET to the workers. With the begin, they would log a warning for each
		// transaction.
		err = pgx.BeginTxFunc(ctx, l.Conn, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
			if _, err := tx.Conn().PgConn().Exec(ctx, settings).ReadAll(); err != nil {
				return err
			}
			return do(tx)
		})
		return Unavailable(err)
	}
	err = pgx.BeginTxFunc(ctx, l.Conn, pgx.TxOptions{BeginQuery: begin + "; " + settings}, do)
	return Unavailable(err)
}
