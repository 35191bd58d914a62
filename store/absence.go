package store

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
)

// Absence says why Manifold's database cannot be used yet, where waiting can help: the server is starting or cannot be
// reached, or what `manifold migrate up` makes is not there. It is empty for every other error, such as a wrong password.
// Anybody may read it: addresses and logins are in the error alone.
func Absence(err error) string {
	if schema, ok := errors.AsType[*schemaError](err); ok {
		return schema.message
	}
	if _, ok := errors.AsType[*noLogins](err); ok {
		return "the database takes none of the logins: `manifold migrate up` makes them, and gives them the configuration's passwords"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return ""
	}
	switch state := sqlState(err); {
	case state == "57P03":
		return "the database is starting, or shutting down"
	case state == "3D000":
		return "the database does not exist yet: create it, and run `manifold migrate up`"
	case state == "53300":
		return "the database takes no more connections"
	case isTransient(state):
		return "the database cannot serve now"
	case state != "":
		return ""
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "the name of the database's host is not known"
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "nothing listens at the database's address"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "the database does not answer"
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || domain.IsCode(unavailable(err), domain.CodeUnavailable) {
		return "the database cannot be reached"
	}
	return ""
}

// noLogins is that the database refuses each of the logins. Where it takes one, what is wrong is another one's password.
type noLogins struct{ first error }

func (n *noLogins) Error() string { return n.first.Error() }
func (n *noLogins) Unwrap() error { return n.first }

// isLoginRefused reports whether the database refuses a login: it does not exist, or its password is another one.
func isLoginRefused(err error) bool {
	state := sqlState(err)
	return state == "28P01" || state == "28000"
}

// schemaError says what keeps this program from working on the schema.
type schemaError struct{ message string }

func (s *schemaError) Error() string { return s.message }
