package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// Replica is a streaming replica of a database, from which one login reads. It may be down or behind at any time. All
// methods may be called concurrently.
type Replica struct {
	Name string // host:port

	pool    *pgxpool.Pool
	reading *fairshare.Budget // divides the connections between tenants
	logged  error             // why it is not read, as last logged; only Replicas.watch uses it

	mu          sync.Mutex
	problem     error     // of the last check; nil: none
	behindSince time.Time // the replica may lack what was committed after this time; zero: it had everything
	failures    int       // reads that failed in a row
	aside       time.Time // not to be read until then
	reads       map[*fairshare.Account]context.CancelCauseFunc
}

// A read of a replica waits this long for a connection. A read of history waits this long in total. Then the primary
// answers.
const (
	replicaTurn = 100 * time.Millisecond
	replicaTime = 2 * time.Second
)

// ErrReplicaBusy means that a replica has no connection for another read of the tenant.
var ErrReplicaBusy = errors.New("all connections to the replica are in use")

// OpenReplica prepares the connections to a replica, and opens none yet. Each has the settings. One tenant has at most
// half of them.
func OpenReplica(ctx context.Context, url string, maxConns int, settings map[string]string) (*Replica, error) {
	pool, err := newPool(ctx, url, maxConns+1, settings, nil) // one is for checks
	if err != nil {
		return nil, fmt.Errorf("prepare connections to a replica: %w", err)
	}
	to := pool.Config().ConnConfig
	return &Replica{
		Name: net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))), pool: pool,
		reading: fairshare.New("reads of a replica", int64(maxConns), int64(max(1, maxConns/2))),
		reads:   make(map[*fairshare.Account]context.CancelCauseFunc),
	}, nil
}

// openHistoryReplica is OpenReplica for reads of the log.
func openHistoryReplica(ctx context.Context, url string, maxConns int) (*Replica, error) {
	return OpenReplica(ctx, url, maxConns, merge(AppSettings, map[string]string{"statement_timeout": strconv.FormatInt(replicaTime.Milliseconds(), 10)}))
}

// Close closes the connections.
func (r *Replica) Close() { r.pool.Close() }

// Read runs queries under the tenant in one snapshot, without retries, for two seconds at most. If no connection is
// free soon, it returns ErrReplicaBusy.
func (r *Replica) Read(ctx context.Context, tenant domain.TenantID, queries ...Query) error {
	return r.Use(ctx, tenant, replicaTime, func(ctx context.Context, pool *pgxpool.Pool) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		return startPipeline(ctx, conn).runOnce(&snapshotStatement, tenant, queries)
	})
}

// Use lets do read with one of the connections, for a limited time. The context of do also ends when the replica is
// found to be down. If no connection is free for the tenant soon, Use returns ErrReplicaBusy.
func (r *Replica) Use(ctx context.Context, tenant domain.TenantID, atMost time.Duration, do func(ctx context.Context, pool *pgxpool.Pool) error) error {
	turn := r.reading.Account(tenant)
	if err := turn.Wait(ctx, 1, replicaTurn); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return ErrReplicaBusy
	}
	defer turn.Close()
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	r.mu.Lock()
	r.reads[turn] = end
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.reads, turn)
		r.mu.Unlock()
		end(nil)
	}()
	return do(ctx, r.pool)
}

// Member returns the id of this process; zero if it has none.
func (db *DB) Member() domain.MemberID { return db.member }

// ReplicaCheck is what CheckReplica finds.
type ReplicaCheck struct {
	User     string
	Replays  bool // it is a replica
	CaughtUp bool // it has replayed what the primary had when the check began
}

// CheckReplica connects with a login's URLs to the primary and to a replica, and waits until the replica has replayed
// what the primary has written. If ctx ends while it waits, the replica has not caught up.
func CheckReplica(ctx context.Context, primaryURL, replicaURL string) (check ReplicaCheck, err error) {
	primary, err := pgx.Connect(ctx, primaryURL)
	if err != nil {
		return check, fmt.Errorf("connect to the primary: %w", err)
	}
	defer closeSoon(ctx, primary)
	var written string
	if err := primary.QueryRow(ctx, "select pg_current_wal_lsn()::text").Scan(&written); err != nil {
		return check, fmt.Errorf("ask the primary how far it has written: %w", err)
	}
	replica, err := pgx.Connect(ctx, replicaURL)
	if err != nil {
		return check, err
	}
	defer closeSoon(ctx, replica)
	for {
		err := replica.QueryRow(ctx, `select current_user, pg_is_in_recovery(), coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)`, written).
			Scan(&check.User, &check.Replays, &check.CaughtUp)
		switch {
		case err != nil && ctx.Err() != nil && check.User != "":
			return check, nil
		case err != nil:
			return check, fmt.Errorf("ask the replica how far it has replayed: %w", err)
		case !check.Replays || check.CaughtUp:
			return check, nil
		}
		select {
		case <-ctx.Done():
			return check, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// closeSoon closes a connection even if ctx has ended.
func closeSoon(ctx context.Context, conn *pgx.Conn) {
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer done()
	_ = conn.Close(closing) // the result does not depend on it
}

// ReplicaProblem describes in a few words, without addresses, why a replica could not be read.
func ReplicaProblem(err error) string {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	switch {
	case connecting:
		return "it cannot be reached"
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	case SQLState(err) != "":
		return "it refused a read (" + SQLState(err) + ")"
	}
	return "its connection broke"
}
