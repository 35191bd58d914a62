package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// Replica is a streaming replica of the database, from which the app login reads. It may be down or behind at any time.
// All methods may be called concurrently.
type Replica struct {
	Name string // host:port

	pool    *pgxpool.Pool
	reading *fairshare.Budget // divides the connections between tenants
}

// A read of a replica waits this long for a connection, and this long in total. Then the primary answers.
const (
	replicaTurn = 100 * time.Millisecond
	replicaTime = 2 * time.Second
)

// ErrReplicaBusy means that a replica has no connection for another read of the tenant.
var ErrReplicaBusy = errors.New("all connections to the replica are in use")

// openReplica prepares the connections to a replica, and opens none yet.
func openReplica(ctx context.Context, url string, maxConns int) (*Replica, error) {
	settings := merge(AppSettings, map[string]string{"statement_timeout": strconv.FormatInt(replicaTime.Milliseconds(), 10)})
	pool, err := newPool(ctx, url, maxConns+1, settings, nil) // one is for Query
	if err != nil {
		return nil, fmt.Errorf("prepare connections to a replica: %w", err)
	}
	to := pool.Config().ConnConfig
	return &Replica{
		Name: net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))), pool: pool,
		reading: fairshare.New("reads of a replica", int64(maxConns), int64(max(1, maxConns/2))),
	}, nil
}

// Read runs queries under the tenant in one snapshot, without retries, for two seconds at most. One tenant has at most
// half of the connections. If none is free soon, it returns ErrReplicaBusy.
func (r *Replica) Read(ctx context.Context, tenant domain.TenantID, queries ...Query) error {
	turn := r.reading.Account(tenant)
	if err := turn.Wait(ctx, 1, replicaTurn); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return ErrReplicaBusy
	}
	defer turn.Close()
	ctx, cancel := context.WithTimeout(ctx, replicaTime)
	defer cancel()
	return runOnce(ctx, r.pool, &snapshotStatement, tenant, queries)
}

// QueryRow reads a row that belongs to no tenant, as pgx does. ctx must limit the time.
func (r *Replica) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return r.pool.QueryRow(ctx, sql, args...)
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
