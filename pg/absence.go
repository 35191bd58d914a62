package pg

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
)

// Absence says why Manifold's database cannot be used yet, if waiting can help: the server is starting or cannot be
// reached, or `manifold migrate up` has not been run. For every other error, such as a wrong password, it returns "".
// The text is safe for clients: only the error contains addresses and logins.
func Absence(err error) string {
	if schema, ok := errors.AsType[*schemaError](err); ok {
		return schema.message
	}
	if _, ok := errors.AsType[*noLogins](err); ok {
		return "the database refuses the logins: `manifold migrate up` creates them with the configured passwords"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return ""
	}
	switch state := SQLState(err); {
	case state == "57P03":
		return "the database is starting, or shutting down"
	case state == "3D000":
		return "the database does not exist yet: create it, and run `manifold migrate up`"
	case state == "53300":
		return "the database accepts no more connections"
	case isTransient(state):
		return "the database cannot serve now"
	case state != "":
		return ""
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "the name of the database's host cannot be resolved"
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "nothing listens at the database's address"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "the database does not answer"
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || domain.IsCode(Unavailable(err), domain.CodeUnavailable) {
		return "the database cannot be reached"
	}
	return ""
}

// noLogins means that the database refuses every login. If it accepts one of them, the others have a wrong password.
type noLogins struct{ first error }

func (n *noLogins) Error() string { return n.first.Error() }
func (n *noLogins) Unwrap() error { return n.first }

// isLoginRefused reports whether the database refuses a login because it does not exist or its password is wrong.
func isLoginRefused(err error) bool {
	state := SQLState(err)
	return state == "28P01" || state == "28000"
}

// schemaError says why this program cannot use the schema.
type schemaError struct{ message string }

func (s *schemaError) Error() string { return s.message }
