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

// NewTicket makes a ticket that stands in for the key of a credential, which must be a tenant's, and the token that it is
// used by. The token is nowhere else: it is to be shown once. When it expires is for who keeps it to say.
func NewTicket(of Credential) (ticket domain.Ticket, token string) {
	ticket = domain.Ticket{Tenant: of.Tenant, ID: domain.NewTicketID(), Key: of.KeyID}
	ticket.Hash, token = makeToken(TicketPrefix, ticket.Tenant, ticket.ID)
	return ticket, token
}

// AuthenticateTicket returns the credential of the key that a ticket stands in for. A token of no ticket, of an expired
// one, or of one whose key was revoked, is domain.CodeUnauthenticated, and nothing tells which; a tenant that is not
// active is domain.CodeTenantSuspended. Tickets are looked up each time: each is used once or twice.
func (k *Keys) AuthenticateTicket(ctx context.Context, token string) (Credential, error) {
	tenant, id, secret, ok := parseToken(TicketPrefix, token)
	if !ok {
		return Credential{}, refusedTicket()
	}
	// Also without a ticket there is a comparison, with a hash that nothing has.
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
	return domain.Errorf(domain.CodeUnauthenticated, "query ticket", "this ticket does not work, or not any more; make a new one by POST /v1/tickets, and use it within %d s", int(domain.TicketLife.Seconds()))
}
