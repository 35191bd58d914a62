package store

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
)

// unavailable turns an error that says "the database cannot be reached, is shutting down, or does not get to it", or that
// its connection broke on the way, into a *domain.Error and leaves all others, nil included, as they are.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*domain.Error](err); ok {
		return err
	}
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return domain.Errorf(domain.CodeUnavailable, "", "the database cannot be reached: %s", connect.Unwrap())
	}
	if native, ok := errors.AsType[*pgconn.PgError](err); ok {
		class := native.Code[:min(2, len(native.Code))]
		switch {
		case class == "08", class == "57", class == "53", // connection, operator intervention, resources
			busy(native.Code), native.Code == readOnly:
			return domain.Errorf(domain.CodeUnavailable, "", "the database cannot serve now: %s", native.Message)
		}
	}
	if disconnected(err) && !errors.Is(err, context.DeadlineExceeded) { // which is a net.Error, too
		return domain.Errorf(domain.CodeUnavailable, "", "the connection to the database broke: %s", err)
	}
	return err
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
