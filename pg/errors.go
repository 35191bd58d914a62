package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/manifold-es/manifold/domain"
)

// Unavailable converts an error into one with domain.CodeUnavailable if the database cannot be reached, is shutting
// down or overloaded, or if the connection broke. It returns every other error, including nil, unchanged.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*domain.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return CannotServe("the database cannot be reached; try again later", err)
	}
	if native, ok := errors.AsType[*pgconn.PgError](err); ok {
		if isTransient(native.Code) || lostWorker(native) || lostCommit(native) {
			return CannotServe("the database cannot serve now; try again later", err)
		}
	}
	if Disconnected(err) && !errors.Is(err, context.DeadlineExceeded) { // which is also a net.Error
		return CannotServe("the connection to the database broke; try again later", err)
	}
	return err
}

// lostWorker reports whether a cluster's coordinator has lost a connection to a worker in the middle of a transaction,
// which it has rolled back. Citus reports that as an internal error.
func lostWorker(err *pgconn.PgError) bool {
	return err.Code == "XX000" && strings.HasPrefix(err.Message, "failure on connection marked as essential")
}

// lostCommit reports whether a cluster's coordinator has got no answer from a worker to a commit, and so does not know
// whether the worker has committed. Citus reports that as an internal error, too.
func lostCommit(err *pgconn.PgError) bool {
	return err.Code == "XX000" && strings.HasPrefix(err.Message, "could not commit transaction for shard")
}

// isTransient reports whether a SQLSTATE says that the server cannot serve now, but may later.
func isTransient(state string) bool {
	switch state[:min(2, len(state))] {
	case "08", "57", "53": // connection, operator intervention, resources
		return true
	}
	return Busy(state) || state == ReadOnly
}

// CannotServe returns a *domain.Error with domain.CodeUnavailable that wraps the cause. The cause is for logs only: it
// may contain the database's address and login, which clients must not see.
func CannotServe(message string, cause error) error {
	return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeUnavailable, "", "%s", message), cause)
}

// SQLState returns the SQLSTATE of an error from PostgreSQL, and "" for every other error.
func SQLState(err error) string {
	if native, ok := errors.AsType[*pgconn.PgError](err); ok {
		return native.Code
	}
	return ""
}

// SQLSTATEs.
const (
	UniqueViolation = "23505" // a row's key is taken
	Deadlock        = "40P01" // transactions waited for each other, and this one was rolled back
	ReadOnly        = "25006" // the database is a standby
	canceled        = "57014" // the statement took too long, or somebody has canceled it
	outcomeUnknown  = "40003" // a proxy before the database does not know whether it was committed
)

// Busy reports whether a SQLSTATE says that a transaction was rolled back because of others and may be retried.
func Busy(state string) bool {
	switch state {
	case "55P03", // a lock could not be acquired in time
		"40001", // serialisation
		Deadlock:
		return true
	}
	return false
}

// Refused reports whether PostgreSQL itself has answered that a statement, and its transaction with it, failed. After
// any other error that follows a commit, the outcome of the transaction is unknown.
func Refused(err error) bool {
	native, ok := errors.AsType[*pgconn.PgError](err)
	return ok && native.SeverityUnlocalized == "ERROR" && native.Code != outcomeUnknown && !lostCommit(native)
}

// Disconnected reports whether err says that a connection broke, so that a new one may succeed.
func Disconnected(err error) bool {
	if native, ok := errors.AsType[*pgconn.PgError](err); ok {
		// A FATAL error ends the session; the state says why, such as 57P01 if an administrator ended it.
		return native.SeverityUnlocalized != "ERROR"
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed)
}

// Unprintable reports whether an error may come from a row that cannot be printed.
func Unprintable(err error) bool {
	if _, ok := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err); ok {
		return true
	}
	switch SQLState(err) {
	case "54000", "53200": // a string became too long; out of memory
		return true
	}
	return false
}
