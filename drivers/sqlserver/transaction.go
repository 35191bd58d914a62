package sqlserver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
)

// statement is a batch of T-SQL and its parameters. A statement with parameters is sent as sp_executesql, in one round
// trip, and its settings (xact_abort, lock_timeout) apply until it ends.
type statement struct {
	sql  string
	args []any // sql.NamedArg
}

// cancelGrace is how long a cancelled call may still take to report its result before it is left to end by itself. The
// client waits up to ten seconds for a server to confirm a cancellation, and a hanging server never does.
const cancelGrace = time.Second

// try runs do on a separate connection, and may retry: see relational.Dialect. It returns when ctx ends, but do may
// continue for some seconds. So do must not write to anything that the caller reads, nor read anything that the caller
// may then reuse.
func try[T any](ctx context.Context, d *Driver, do func(ctx context.Context, conn *sql.Conn) (T, error)) (value T, err error) {
	type outcome struct {
		value T
		err   error
	}
	err = dialect.Retry(ctx, func() error {
		done := make(chan outcome, 1)
		d.calls.Go(func() {
			value, err := onConnection(ctx, d.db, do)
			done <- outcome{value, err}
		})
		var end outcome
		select {
		case end = <-done:
		case <-ctx.Done():
			select {
			case end = <-done:
			case <-time.After(cancelGrace):
				end.err = ctx.Err()
			}
		}
		value = end.value
		if end.err != nil && ctx.Err() != nil && !errors.Is(end.err, ctx.Err()) {
			return fmt.Errorf("%w: %w", ctx.Err(), end.err)
		}
		return end.err
	})
	return value, err
}

// onConnection keeps a useless connection from going back to the pool: a new one may lead to the new primary. The same
// applies to a connection that holds locks. xact_abort does not promise to end a transaction in which a statement could
// not be compiled, and a connection is reset only at its next use.
func onConnection[T any](ctx context.Context, db *sql.DB, do func(ctx context.Context, conn *sql.Conn) (T, error)) (value T, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return value, err
	}
	value, err = do(ctx, conn)
	unusable := err != nil && unavailable(err)
	if !unusable && numberOf(err) != 0 {
		_, failed := conn.ExecContext(ctx, "if @@trancount > 0 rollback transaction;\n")
		unusable = failed != nil
	}
	if unusable {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // this error discards the connection
	}
	if closing := conn.Close(); err == nil && closing != nil && !errors.Is(closing, sql.ErrConnDone) {
		err = closing
	}
	return value, err
}

// read runs a statement and collects its rows.
func read[T any](ctx context.Context, d *Driver, statement statement, scan func(rows *sql.Rows) (T, error)) ([]T, error) {
	return try(ctx, d, func(ctx context.Context, conn *sql.Conn) ([]T, error) {
		return collect(ctx, conn, statement, scan, nil)
	})
}

// queryer is a connection or a transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// collect returns the rows of a statement up to the first for which full is true; full may be nil.
func collect[T any](ctx context.Context, on queryer, statement statement, scan func(rows *sql.Rows) (T, error), full func(value T) bool) (all []T, err error) {
	rows, err := on.QueryContext(ctx, statement.sql, statement.args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		value, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, value)
		if full != nil && full(value) {
			return all, nil // closing the rows cancels the statement
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	// What follows the rows may fail too, and the error appears only when it is read.
	for rows.NextResultSet() {
	}
	return all, rows.Err()
}

// number runs a statement that returns one number.
func number(ctx context.Context, on queryer, statement statement) (int64, error) {
	numbers, err := collect(ctx, on, statement, func(rows *sql.Rows) (n int64, err error) {
		err = rows.Scan(&n)
		return n, err
	}, nil)
	if err != nil {
		return 0, err
	}
	if len(numbers) != 1 {
		return 0, fmt.Errorf("the database answered with %d rows instead of one", len(numbers))
	}
	return numbers[0], nil
}

// The numbers of SQL Server's errors that this package handles (sys.messages).
const (
	errorNoObject      = 208   // no such table
	errorNoColumn      = 207   // no such column
	errorNull          = 515   // a column that must have a value has none
	errorCheck         = 547   // a check constraint
	errorDuplicateKey  = 2627  // a primary key
	errorDuplicateRow  = 2601  // a unique index
	errorLockTimeout   = 1222  // lock_timeout has expired
	errorDeadlock      = 1205  // chosen as the deadlock victim
	errorConflict      = 3960  // snapshot isolation: another session wrote the row
	errorNestedTooDeep = 13609 // the server does not accept the text as JSON
)

// numberOf returns the number of the server's error, or 0 if it is not one. Of several errors it returns the first that
// gives the reason. The client reports the last one: that a login failed (18456) if the database could not be opened
// (4060), or that a batch left a transaction open (266) if a table did not exist.
func numberOf(err error) int32 {
	native, ok := errors.AsType[mssql.Error](err)
	if !ok {
		return 0
	}
	if len(native.All) > 0 {
		native = native.All[0]
	}
	return native.Number
}

// cannotServe reports whether the error says that the server cannot serve for now.
func cannotServe(number int32) bool {
	switch number {
	case 40197, 40501, 40613, 40143, 49918, 49919, 49920, 4221, // Azure SQL: reconfigured, busy, moving
		10928, 10929, 10936, // Azure SQL: at its limit of workers, sessions or requests
		4060, 921, 922, 924, 927, 945, 952, // the database cannot be opened: recovering, restoring, in single-user mode
		976, 978, 979, 983, // a replica that may not be read, or not yet
		3906,                                 // the database has become read-only: this is the secondary now
		6005, 17142, 17187, 18401, 596, 6104, // shutting down, paused, starting, being upgraded; the session was ended
		701, 802, 1204, 8645, 8651, 8657, 9002, // no memory, no locks, the log is full
		errorLockTimeout:
		return true
	}
	return false
}

// tooComplex reports whether the error says that the server cannot plan so large a statement.
func tooComplex(number int32) bool {
	switch number {
	case 191, 8621, 8623, 8631, 8632: // too deeply nested, no internal resources for a plan
		return true
	}
	return false
}

// connectionLost reports whether the connection was lost or never established.
func connectionLost(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[mssql.StreamError](err); ok {
		return true
	}
	if _, ok := errors.AsType[mssql.ServerError](err); ok {
		return true
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// unavailable reports whether the database cannot be reached or cannot serve.
func unavailable(err error) bool { return cannotServe(numberOf(err)) || connectionLost(err) }

// transient reports whether the same may well succeed when it is retried at once.
func transient(err error) bool {
	switch numberOf(err) {
	case errorDeadlock, errorConflict, 3961, // rolled back in favor of another transaction
		41301, 41302, 41305, 41325, 41839, // the same, for in-memory tables
		233, 64, 10053, 10054, 10060, // the client's codes for a lost connection
		40540: // Azure SQL: the service has aborted the transaction
		return true
	case errorLockTimeout: // the wait was long enough
		return false
	}
	return unavailable(err)
}
