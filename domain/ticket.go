package domain

import "time"

// TicketID names a ticket.
type TicketID uuid

// NewTicketID returns a fresh id.
func NewTicketID() TicketID { return TicketID(newUUID()) }

// String returns the canonical form of 36 characters.
func (id TicketID) String() string { return uuid(id).String() }

// Ticket stands in for a key for a short time, where a client cannot send a header. It is kept without its secret, of which
// only the SHA-256 is stored.
type Ticket struct {
	Tenant    TenantID
	ID        TicketID
	Key       KeyID    // that it stands in for
	Hash      [32]byte // SHA-256 of the 256-bit secret
	ExpiresAt time.Time
}

const (
	// TicketLife is how long a ticket can be used. What was begun with it may last longer.
	TicketLife = time.Minute
	// MaxTickets is how many tickets of a tenant may be alive at a time, about.
	MaxTickets = 10_000
)
