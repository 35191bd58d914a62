// Package store is every SQL statement on Manifold's own PostgreSQL tables: the log, snapshots, tenants, keys,
// definitions, rebuilds, groups with their ledgers, webhooks and retention policies.
//
// It speaks through three logins (migrations.Role): app, under one tenant at a time; system, across tenants, for heads
// and lists; retention, which removes. Row-level security holds the tenant in the database as well: each transaction
// sets it locally, and a statement names it once more in its own where clause, which is what lets the database be
// sharded by tenant.
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
	MaxConns     int // of the app login; 0: 16. System and retention have a quarter of it, at least two
	Log          *slog.Logger

	// QueueBytes bounds what waits to be appended, or is being appended, for one tenant (0: 32 MiB), and TotalQueueBytes
	// for all of them (0: 256 MiB). A request that is alone is always taken.
	QueueBytes, TotalQueueBytes int64
	// AppendTimeout is how long an append may take, with everything that is tried for it; 0: 10 s.
	AppendTimeout time.Duration
	// Inline folds what is appended into inline builds; nil: nothing does, and they are left behind until somebody does.
	Inline Inline
	// Member is the process. The connections that listen for changes bear it in their names, so that other processes see
	// when it is gone. Zero: they do not.
	Member domain.MemberID
	// Observer is told of what the store does.
	Observer Observer
}

// Observer has functions that are called as things happen, for metrics; each may be nil. They are called by many
// goroutines, and must return at once.
type Observer struct {
	// Appended is called for each batch that was committed. took is the time from sending it to the database's answer.
	Appended func(events, requests int, took time.Duration)
	// ReadEvents is called for each reading of events, with their number.
	ReadEvents func(n int)
	// Connected is called when any login has made a connection.
	Connected func()
}

// Store is Manifold's own database. All methods may be called concurrently. Errors that a client can act on are
// *domain.Error; a database that cannot be reached is one with domain.CodeUnavailable.
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
	inlineChanges               chan struct{}     // has an element for each change of inline builds that is under way
	reading                     *fairshare.Budget // connections that read events
	heads                       *heads
	groups                      *groupNotices
	gaps                        gapSearches
	appending                   context.Context // of the writers' work; ends when they have drained
	stopAppending               context.CancelFunc
	announcing                  sync.WaitGroup // the goroutines that tell other processes of moved heads and of groups
}

// Open connects with each login. The store must be closed. Of an error, Absence says whether waiting may help.
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
		// The other half is for appends and what is as short.
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

// remedy says what to do where a login cannot connect; it is empty where nothing is known.
func remedy(err error) string {
	switch sqlState(err) {
	case "28P01", "28000": // the password is wrong, or there is no such login
		return "; `manifold migrate up` makes the login, and gives it the configuration's password"
	case "3D000":
		return "; create the database, and run `manifold migrate up`"
	}
	return ""
}

// plannerSettings are those of the connections that read and remove events. Their statements are made for an index each; a plan
// that reads the whole table looks better to the planner while the table is small, and a prepared statement keeps it when it is
// not.
var plannerSettings = map[string]string{
	"enable_seqscan":    "off",
	"enable_bitmapscan": "off",
	"plan_cache_mode":   "force_generic_plan",
}

// appSettings are those of the app login's connections.
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

// connectTimeout is how long the making of a connection may take, unless the URL says otherwise (connect_timeout). Whoever works in
// the background waits without a deadline of its own, and a server may take a connection and then answer nothing: one that goes down
// at that moment, say. The pool's own bound is two minutes.
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
	// Statements name tables without the schema; the search path is a property of the connection.
	config.ConnConfig.RuntimeParams["search_path"] = "manifold"
	config.ConnConfig.RuntimeParams["application_name"] = "manifold"
	// A sender that stalls in the middle of a transaction must not hold a log.
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "10000"
	maps.Copy(config.ConnConfig.RuntimeParams, settings)
	// A connection to what has become a standby is of no use any more: the next one may lead to the new primary.
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

// Close refuses new appends, waits for what is under way, and closes all connections.
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

// spare reports whether there is a connection that nobody uses: then nobody waits for one.
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

// under runs do in a read-committed transaction of pool in which the tenant is set, and commits it when do returns nil.
// It is for what is not on a hot path: it takes a round trip for each of begin, do's statements, and commit.
func under(ctx context.Context, pool *pgxpool.Pool, tenant domain.TenantID, do func(pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{
		// SET takes no parameters; the tenant's canonical form is hexadecimal digits and dashes only.
		BeginQuery: "begin; set local manifold.tenant = '" + tenant.String() + "'",
	}, do)
	return unavailable(err)
}
