package auth_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestTicketsExpireAndBelongToTheirTenant(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	mine, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	ticket := auth.Ticket{Tenant: mine, ID: auth.NewTicketID(), Key: auth.NewKeyID(), Hash: sha256.Sum256([]byte("secret"))}
	expires, err := s.CreateTicket(t.Context(), ticket, time.Minute)
	tablestest.Must(t, err)
	if left := time.Until(expires); left > 61*time.Second || left < 30*time.Second {
		t.Errorf("it expires in %s", left)
	}
	got, err := s.Ticket(t.Context(), mine, ticket.ID)
	tablestest.Must(t, err)
	ticket.ExpiresAt = expires
	if !got.ExpiresAt.Equal(expires) || got.Hash != ticket.Hash || got.Key != ticket.Key || got.Tenant != mine {
		t.Errorf("got %+v, want %+v", got, ticket)
	}
	_, err = s.Ticket(t.Context(), other, ticket.ID)
	tablestest.WantCode(t, err, domain.CodeNotFound)

	// One that has expired is no more, and goes with the next one that is made.
	expired := auth.Ticket{Tenant: mine, ID: auth.NewTicketID(), Key: ticket.Key}
	_, err = s.CreateTicket(t.Context(), expired, 0)
	tablestest.Must(t, err)
	_, err = s.Ticket(t.Context(), mine, expired.ID)
	tablestest.WantCode(t, err, domain.CodeNotFound)
	_, err = s.CreateTicket(t.Context(), auth.Ticket{Tenant: mine, ID: auth.NewTicketID(), Key: ticket.Key}, time.Minute)
	tablestest.Must(t, err)
	var rows int
	tx, err := db.Pool(t, migrations.RoleApp, 1).Begin(t.Context())
	tablestest.Must(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "set local manifold.tenant = '"+mine.String()+"'")
	tablestest.Must(t, err)
	tablestest.Must(t, tx.QueryRow(t.Context(), "select count(*) from manifold.tickets").Scan(&rows))
	if rows != 2 {
		t.Errorf("%d tickets are kept, want the two that can be used", rows)
	}
}
