// Package store contains every SQL statement on Manifold's own PostgreSQL tables: the log, snapshots, tenants, keys,
// definitions, rebuilds, groups with their ledgers, webhooks and retention policies. Start with Open, Config and Store;
// Store.Append and Store.ReadLog write and read the log.
//
// The store uses three logins (migrations.Role). The app login works under one tenant at a time. The system login works
// across tenants, for heads and lists. The retention login removes events. Row-level security also enforces the tenant
// in the database: each transaction sets the tenant locally. Each statement names the tenant in its where clause as
// well, so that the database can be sharded by tenant.
package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// Config says how to reach the database. The URLs are pgx connection strings, one for each login.
type Config struct {
	AppURL       string
	SystemURL    string
	RetentionURL string
	MaxConns     int // of the app login; 0: 16. System and retention get a quarter of it, at least two
	Log          *slog.Logger

	// QueueBytes limits the appends of one tenant that are waiting or being written (0: 32 MiB), and TotalQueueBytes
	// those of all tenants (0: 256 MiB). A request that is alone is always accepted.
	QueueBytes, TotalQueueBytes int64
	// AppendTimeout is how long an append may take, including all retries; 0: 10 s.
	AppendTimeout time.Duration
	// Inline folds appended events into inline builds. If it is nil, inline builds lag behind until another process
	// catches them up.
	Inline Inline
	// Member identifies this process. Connections that listen for changes carry it in their names, so that other
	// processes notice when this one is gone. Zero: they do not carry it.
	Member domain.MemberID
	// Observer receives metrics about the store's work.
	Observer Observer
}

// Observer has callbacks for metrics; each may be nil. They are called concurrently and must return at once.
type Observer struct {
	// Appended is called for each committed batch. took is the time from sending the batch to the database's answer.
	Appended func(events, requests int, took time.Duration)
	// ReadEvents is called for each read of events, with their number.
	ReadEvents func(n int)
	// Connected is called when any login has opened a connection.
	Connected func()
}

// Store accesses Manifold's own database. All methods may be called concurrently. An error that a client can act on is
// a *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Store struct {
	app, system, retention *pgxpool.Pool
	log                    *slog.Logger

	keysChanged        subscribers[domain.TenantID]
	projectionsChanged subscribers[struct{}]
	retries            subscribers[Retry]
	retentionChanged   subscribers[domain.TenantID]
	webhooksChanged    subscribers[domain.TenantID]

	observer                    Observer
	queueBytes, totalQueueBytes int64
	appendTimeout               time.Duration
	writers                     writers
	inline                      Inline // may be nil
	member                      domain.MemberID
	inlineChanges               chan struct{}     // has an element for each change of inline builds in progress
	reading                     *fairshare.Budget // limits the connections that read events
	heads                       *heads
	groups                      *groupNotices
	gaps                        gapSearches
	appending                   context.Context // of the writers' work; ends after they have drained
	stopAppending               context.CancelFunc
	announcing                  sync.WaitGroup // the goroutines that notify other processes of moved heads and of groups
}

// Open connects with each login. The caller must close the store. If Open fails, Absence says whether waiting may help.
func Open(ctx context.Context, config Config) (*Store, error) {
	most := config.MaxConns
	if most == 0 {
		most = 16
	}
	s := &Store{
		log:             cmp.Or(config.Log, slog.New(slog.DiscardHandler)),
		observer:        config.Observer,
		inline:          config.Inline,
		member:          config.Member,
		queueBytes:      cmp.Or(config.QueueBytes, defaultQueueBytes),
		totalQueueBytes: cmp.Or(config.TotalQueueBytes, defaultTotalQueueBytes),
		appendTimeout:   cmp.Or(config.AppendTimeout, defaultAppendTimeout),
		heads:           newHeads(),
		groups:          newGroupNotices(),
		inlineChanges:   make(chan struct{}, max(1, most/4)),
		// The other half is for appends and other short work.
		reading: fairshare.New("readings", int64(max(1, most/2)), int64(max(1, most/4))),
		gaps:    gapSearches{running: make(map[domain.TenantID]*gapSearch), places: make(chan struct{}, gapSearchesAtOnce)},
	}
	s.appending, s.stopAppending = context.WithCancel(context.Background())
	var refused error
	connected := false
	for _, login := range []struct {
		pool **pgxpool.Pool
		name string
		url  string
		most int
		set  map[string]string
	}{
		{&s.app, "app", config.AppURL, most, appSettings},
		{&s.system, "system", config.SystemURL, max(2, most/4), nil},
		{&s.retention, "retention", config.RetentionURL, max(2, most/4), plannerSettings},
	} {
		pool, err := openPool(ctx, login.url, login.most, login.set, config.Observer.Connected)
		if err != nil {
			err = fmt.Errorf("open the store with the %s login: %w%s", login.name, err, remedy(err))
		}
		switch {
		case err == nil:
			*login.pool, connected = pool, true
		case isLoginRefused(err):
			refused = cmp.Or(refused, err)
		default:
			s.Close()
			return nil, err
		}
	}
	if refused != nil {
		s.Close()
		if !connected {
			refused = &noLogins{refused}
		}
		return nil, refused
	}
	s.announcing.Go(func() { s.heads.run(s.appending, s) })
	s.announcing.Go(func() { s.groups.run(s.appending, s) })
	return s, nil
}

// remedy says what to do if a login cannot connect; it is empty if there is no known remedy.
func remedy(err error) string {
	switch sqlState(err) {
	case "28P01", "28000": // the password is wrong, or there is no such login
		return "; `manifold migrate up` makes the login, and gives it the configuration's password"
	case "3D000":
		return "; create the database, and run `manifold migrate up`"
	}
	return ""
}

// plannerSettings apply to connections that read and remove events. Each of their statements is meant to use a certain
// index. While the table is small, the planner prefers to read all of it, and a prepared statement would keep that plan
// after the table has grown.
var plannerSettings = map[string]string{
	"enable_seqscan":    "off",
	"enable_bitmapscan": "off",
	"plan_cache_mode":   "force_generic_plan",
}

// appSettings apply to the app login's connections.
var appSettings = with(plannerSettings, map[string]string{
	"lock_timeout":      "4000",
	"statement_timeout": "30000",
})

// with returns settings with others added.
func with(settings, others map[string]string) map[string]string {
	all := maps.Clone(settings)
	maps.Copy(all, others)
	return all
}

// connectTimeout is how long opening a connection may take, unless the URL sets connect_timeout. Background work waits
// without a separate deadline. A server that is just shutting down, for example, may accept a connection and then never
// answer. The pool's default limit is two minutes.
const connectTimeout = 10 * time.Second

func openPool(ctx context.Context, url string, most int, settings map[string]string, connected func()) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(most)
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
	keep := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnly && keep(conn, err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// Close refuses new appends, waits for those in progress, and closes all connections.
func (s *Store) Close() {
	s.writers.close()
	s.stopAppending()
	s.announcing.Wait()
	for _, pool := range []*pgxpool.Pool{s.app, s.system, s.retention} {
		if pool != nil {
			pool.Close()
		}
	}
}

// spare reports whether a connection is free. If one is, nobody waits for one.
func (s *Store) spare() bool {
	stat := s.app.Stat()
	return stat.AcquiredConns() < stat.MaxConns()
}

// Ping reports whether the database answers, on the app and the system login.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.app.Ping(ctx); err != nil {
		return unavailable(err)
	}
	return unavailable(s.system.Ping(ctx))
}

// under runs do in a read-committed transaction of pool with the tenant set, and commits it if do returns nil. It is
// not for hot paths: begin, each statement of do, and commit take a round trip each.
func under(ctx context.Context, pool *pgxpool.Pool, tenant domain.TenantID, do func(pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{
		// SET takes no parameters. The tenant's canonical form contains only hexadecimal digits and dashes.
		BeginQuery: "begin; set local manifold.tenant = '" + tenant.String() + "'",
	}, do)
	return unavailable(err)
}
