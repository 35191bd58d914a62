package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// TicketPrefix begins every ticket.
const TicketPrefix = "mft_"

// TicketID identifies a ticket.
type TicketID domain.UUID

// NewTicketID returns a new id.
func NewTicketID() TicketID { return TicketID(domain.NewUUID()) }

// String returns the canonical form of 36 characters.
func (id TicketID) String() string { return domain.UUID(id).String() }

// Ticket replaces a key for a short time where a client cannot send a header. Only the SHA-256 of its secret is stored.
type Ticket struct {
	Tenant    domain.TenantID
	ID        TicketID
	Key       KeyID        // that it replaces; zero: it replaces a token
	Token     *TicketToken // that it replaces; nil: it replaces a key
	Hash      [32]byte     // SHA-256 of the 256-bit secret
	ExpiresAt time.Time
}

// TicketToken is what a ticket keeps of an issuer's token.
type TicketToken struct {
	Issuer    string    `json:"issuer"`
	Subject   string    `json:"subject"`
	Name      string    `json:"name"`
	Grants    []string  `json:"grants"`
	ExpiresAt time.Time `json:"expiresAt"`
}

const (
	// TicketLife is how long a ticket can be used. A connection that was opened with it may last longer.
	TicketLife = time.Minute
	// MaxTickets is roughly how many valid tickets a tenant may have at a time.
	MaxTickets = 10_000
)

// NewTicket returns a ticket that replaces a tenant's credential, and the ticket's token. The token is
// stored nowhere, so show it once. The caller that stores the ticket sets its expiry.
func NewTicket(of Credential) (ticket Ticket, token string) {
	ticket = Ticket{Tenant: of.Tenant, ID: NewTicketID(), Key: of.KeyID}
	if of.IsToken() {
		ticket.Token = &TicketToken{of.Issuer, of.Subject, of.Name, of.Grants.Texts(), of.ExpiresAt}
	}
	ticket.Hash, token = makeToken(TicketPrefix, ticket.Tenant, ticket.ID)
	return ticket, token
}

// AuthenticateTicket returns the credential that a ticket replaces. It returns domain.CodeUnauthenticated for an
// unknown or expired ticket and for a revoked key, without saying which. For its key, the other errors are those of
// Authenticate, and for its token, those of Refresh. It reads the store every time, because a ticket is used only once
// or twice.
func (k *Keys) AuthenticateTicket(ctx context.Context, token string) (Credential, error) {
	tenant, id, secret, ok := parseToken(TicketPrefix, token)
	if !ok {
		return Credential{}, refusedTicket()
	}
	// The comparison also runs if there is no ticket, with an impossible hash.
	ticket, err := k.config.Store.Ticket(ctx, tenant, id)
	if e, ok := errors.AsType[*domain.Error](err); err != nil && (!ok || e.Code != domain.CodeNotFound) {
		return Credential{}, fmt.Errorf("look up a ticket: %w", err)
	}
	hash := sha256.Sum256(secret[:])
	if subtle.ConstantTimeCompare(hash[:], ticket.Hash[:]) != 1 {
		return Credential{}, refusedTicket()
	}
	if of := ticket.Token; of != nil {
		return k.Refresh(ctx, Credential{
			Tenant: tenant, Issuer: of.Issuer, Subject: of.Subject, Name: of.Name, Grants: KeptGrants(of.Grants), ExpiresAt: of.ExpiresAt,
		})
	}
	name := keyName{tenant, ticket.Key}
	found, err := k.find(ctx, name)
	if err != nil {
		return Credential{}, err
	}
	return k.admit(ctx, found, name, refusedTicket)
}

func refusedTicket() error {
	return domain.Errorf(domain.CodeUnauthenticated, "query ticket", "the ticket is invalid or has expired; make a new one with POST /v1/tickets, and use it within %d s", int(TicketLife.Seconds()))
}
