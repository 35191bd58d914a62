package api

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// Tickets stores tickets.
type Tickets interface {
	// CreateTicket stores a ticket for the duration life, and returns when it expires.
	CreateTicket(ctx context.Context, ticket domain.Ticket, life time.Duration) (expiresAt time.Time, err error)
}

func (s generated) CreateTicket(ctx context.Context, _ openapi.CreateTicketRequestObject) (openapi.CreateTicketResponseObject, error) {
	ticket, token := auth.NewTicket(callerOf(ctx).credential)
	expires, err := s.config.Tickets.CreateTicket(ctx, ticket, domain.TicketLife)
	if err != nil {
		return nil, err
	}
	return openapi.CreateTicket201JSONResponse{Ticket: token, ExpiresAt: openapi.At(expires)}, nil
}
