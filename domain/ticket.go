package domain

import "time"

// TicketID identifies a ticket.
type TicketID uuid

// NewTicketID returns a new id.
func NewTicketID() TicketID { return TicketID(newUUID()) }

// String returns the canonical form of 36 characters.
func (id TicketID) String() string { return uuid(id).String() }

// Ticket replaces a key for a short time where a client cannot send a header. Only the SHA-256 of its secret is stored.
type Ticket struct {
	Tenant    TenantID
	ID        TicketID
	Key       KeyID    // that it replaces
	Hash      [32]byte // SHA-256 of the 256-bit secret
	ExpiresAt time.Time
}

const (
	// TicketLife is how long a ticket can be used. A connection that was opened with it may last longer.
	TicketLife = time.Minute
	// MaxTickets is roughly how many valid tickets a tenant may have at a time.
	MaxTickets = 10_000
)
