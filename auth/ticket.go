package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/manifold-es/manifold/domain"
)

// TicketPrefix begins every ticket.
const TicketPrefix = "mft_"

// NewTicket returns a ticket that replaces the key of a tenant's credential, and the ticket's token. The token is
// stored nowhere, so show it once. The caller that stores the ticket sets its expiry.
func NewTicket(of Credential) (ticket domain.Ticket, token string) {
	ticket = domain.Ticket{Tenant: of.Tenant, ID: domain.NewTicketID(), Key: of.KeyID}
	ticket.Hash, token = makeToken(TicketPrefix, ticket.Tenant, ticket.ID)
	return ticket, token
}

// AuthenticateTicket returns the credential of the key that a ticket replaces. It returns domain.CodeUnauthenticated
// for an unknown or expired ticket and for a revoked key, without saying which, and domain.CodeTenantSuspended if the
// tenant is not active. It reads the store every time, because a ticket is used only once or twice.
func (k *Keys) AuthenticateTicket(ctx context.Context, token string) (Credential, error) {
	tenant, id, secret, ok := parseToken(TicketPrefix, token)
	if !ok {
		return Credential{}, refusedTicket()
	}
	// The comparison also runs if there is no ticket, with an impossible hash.
	ticket, err := k.lookUpTicket(ctx, tenant, id)
	if e, ok := errors.AsType[*domain.Error](err); err != nil && (!ok || e.Code != domain.CodeNotFound) {
		return Credential{}, fmt.Errorf("look up a ticket: %w", err)
	}
	hash := sha256.Sum256(secret[:])
	if subtle.ConstantTimeCompare(hash[:], ticket.Hash[:]) != 1 {
		return Credential{}, refusedTicket()
	}
	name := keyName{tenant, ticket.Key}
	found, err := k.find(ctx, name)
	if err != nil {
		return Credential{}, err
	}
	return found.credential(name, refusedTicket)
}

func (k *Keys) lookUpTicket(ctx context.Context, tenant domain.TenantID, id domain.TicketID) (domain.Ticket, error) {
	done, err := k.beginLookUp(ctx)
	if err != nil {
		return domain.Ticket{}, err
	}
	defer done()
	return k.config.Store.Ticket(ctx, tenant, id)
}

func refusedTicket() error {
	return domain.Errorf(domain.CodeUnauthenticated, "query ticket", "the ticket is invalid or has expired; make a new one with POST /v1/tickets, and use it within %d s", int(domain.TicketLife.Seconds()))
}
