package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

const (
	removeExpiredTickets = "delete from tickets t where t.tenant_id = $1 and t.expires_at <= now()"
	countTickets         = "select count(*) from tickets t where t.tenant_id = $1"
	readTicket           = "select t.key_id, t.token, t.hash, t.expires_at from tickets t where t.tenant_id = $1 and t.ticket_id = $2 and t.expires_at > now()"
)

// CreateTicket stores a ticket that lives for life, by the database's clock, and returns when it expires. It removes
// the tenant's expired tickets. Beyond MaxTickets the error is domain.CodeTooManyRequests.
func (s *Postgres) CreateTicket(ctx context.Context, ticket Ticket, life time.Duration) (expiresAt time.Time, err error) {
	err = pg.Under(ctx, s.db.App, ticket.Tenant, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, removeExpiredTickets, ticket.Tenant); err != nil {
			return fmt.Errorf("remove expired tickets: %w", err)
		}
		var alive int
		if err := tx.QueryRow(ctx, countTickets, ticket.Tenant).Scan(&alive); err != nil {
			return fmt.Errorf("count the tickets: %w", err)
		}
		if alive >= MaxTickets {
			return domain.Errorf(domain.CodeTooManyRequests, "", "this tenant has %d unused tickets; make one only when a page is about to use it, and try again when some have expired", alive)
		}
		err := tx.QueryRow(ctx, `
			insert into tickets as t (tenant_id, ticket_id, key_id, token, hash, expires_at) values ($1, $2, $3, $4, $5, now() + $6::interval)
			returning t.expires_at`,
			ticket.Tenant, ticket.ID, ticket.Key, ticket.Token, ticket.Hash[:], life).Scan((*pg.Moment)(&expiresAt))
		if err != nil {
			return fmt.Errorf("create a ticket: %w", err)
		}
		return nil
	})
	return expiresAt, err
}

// Ticket returns a ticket that has not expired, or domain.CodeNotFound if there is none.
func (s *Postgres) Ticket(ctx context.Context, tenant domain.TenantID, id TicketID) (Ticket, error) {
	scan := func(row pgx.CollectableRow) (Ticket, error) {
		ticket := Ticket{Tenant: tenant, ID: id}
		var hash []byte
		err := row.Scan(&ticket.Key, &ticket.Token, &hash, (*pg.Moment)(&ticket.ExpiresAt))
		if err == nil && copy(ticket.Hash[:], hash) != len(ticket.Hash) {
			err = fmt.Errorf("its hash has %d bytes", len(hash))
		}
		return ticket, err
	}
	ticket, err := pg.LookUp(ctx, s.db.Foreground, tenant, scan, readTicket, tenant, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Ticket{}, domain.Errorf(domain.CodeNotFound, "", "there is no such ticket")
	}
	if err != nil {
		return Ticket{}, pg.Unavailable(fmt.Errorf("read a ticket: %w", err))
	}
	return ticket, nil
}
