package pg_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Errors after which the same request may succeed later are reported as such, also those of a cluster.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state, message string
		want           bool
	}{
		{"08006", "connection to the remote node manifold_app@worker-1:5432 failed", true},
		{"57P01", "terminating connection due to unexpected postmaster exit", true},
		{"XX000", "failure on connection marked as essential: worker-1:5432", true},                  // Citus 13.2.2
		{"XX000", "could not commit transaction for shard 102254 on at least one active node", true}, // likewise
		{"XX000", "unexpected data beyond EOF", false},
		{"23505", "duplicate key value violates unique constraint", false},
	} {
		err := pg.Unavailable(fmt.Errorf("save: %w", &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: c.state, Message: c.message}))
		if got := domain.IsCode(err, domain.CodeUnavailable); got != c.want {
			t.Errorf("%s %s: unavailable is %v, want %v", c.state, c.message, got, c.want)
		}
	}
}

// A transaction whose outcome is unknown must not be treated as rolled back.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state, message string
		want           bool
	}{
		{"23505", "duplicate key value violates unique constraint", true},
		{"XX000", "unexpected data beyond EOF", true},
		{"40003", "the outcome is unknown", false},
		{"XX000", "could not commit transaction for shard 102254 on at least one active node", false}, // Citus 13.2.2
	} {
		if got := pg.Refused(&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: c.state, Message: c.message}); got != c.want {
			t.Errorf("%s %s: refused is %v, want %v", c.state, c.message, got, c.want)
		}
	}
}
