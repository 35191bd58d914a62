package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
)

// unavailable turns an error that says "the database cannot be reached, is shutting down, or does not get to it", or that
// its connection broke on the way, into one with domain.CodeUnavailable and leaves all others, nil included, as they are.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*domain.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return cannotServe("the database cannot be reached; try again later", err)
	}
	if native, ok := errors.AsType[*pgconn.PgError](err); ok {
		if isTransient(native.Code) {
			return cannotServe("the database cannot serve now; try again later", err)
		}
	}
	if disconnected(err) && !errors.Is(err, context.DeadlineExceeded) { // which is a net.Error, too
		return cannotServe("the connection to the database broke; try again later", err)
	}
	return err
}

// isTransient reports whether a SQLSTATE says that the server cannot serve now, and may later.
func isTransient(state string) bool {
	switch state[:min(2, len(state))] {
	case "08", "57", "53": // connection, operator intervention, resources
		return true
	}
	return busy(state) || state == readOnly
}

// cannotServe makes a *domain.Error with domain.CodeUnavailable and keeps the cause within: it is for logs, since it may
// name the database's address and login, which are nothing for clients.
func cannotServe(message string, cause error) error {
	return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeUnavailable, "", "%s", message), cause)
}

// sqlState returns the SQLSTATE of an error that PostgreSQL answered with, and "" for every other error.
func sqlState(err error) string {
	if native, ok := errors.AsType[*pgconn.PgError](err); ok {
		return native.Code
	}
	return ""
}

// SQLSTATEs.
const (
	uniqueViolation = "23505" // a row's key is taken
	readOnly        = "25006" // the database is a standby
	outcomeUnknown  = "40003" // what stands before the database does not know whether it was committed
)

// busy reports whether a SQLSTATE says that a transaction was rolled back for the sake of others, and may be made again.
func busy(state string) bool {
	switch state {
	case "55P03", // a lock was not to be had in time
		"40001", "40P01": // serialisation, deadlock
		return true
	}
	return false
}

// refused reports whether err is PostgreSQL's own word that a statement failed, and its transaction with it. After any
// other error that came behind a commit, nobody knows what became of the transaction.
func refused(err error) bool {
	native, ok := errors.AsType[*pgconn.PgError](err)
	return ok && native.SeverityUnlocalized == "ERROR" && native.Code != outcomeUnknown
}

// disconnected reports whether err says that a connection broke, which a new one may do better.
func disconnected(err error) bool {
	if native, ok := errors.AsType[*pgconn.PgError](err); ok {
		// A FATAL error ends the session; the state says why, such as 57P01 when an administrator ended it.
		return native.SeverityUnlocalized != "ERROR"
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed)
}
