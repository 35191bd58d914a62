package api

import (
	"context"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
)

func (s operations) CreateTicket(ctx context.Context, caller access.Caller, _ openapi.CreateTicketRequest) (*openapi.Response, error) {
	ticket, token := auth.NewTicket(caller.Credential)
	expires, err := s.config.KeyTables.CreateTicket(ctx, ticket, auth.TicketLife)
	return openapi.Created(openapi.Ticket{Ticket: token, ExpiresAt: openapi.At(expires)}), err
}
