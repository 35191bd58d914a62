package domain

import "time"

// TenantID identifies a tenant. Functions that touch a tenant's data take it as the first argument after ctx.
type TenantID UUID

// Everyone is the owner of what belongs to no single tenant and serves all: shared projections. It is the nil UUID,
// which no tenant ever has.
var Everyone TenantID

// NewTenantID returns a new id.
func NewTenantID() TenantID { return TenantID(NewUUID()) }

// ParseTenantID parses the canonical form of a UUID.
func ParseTenantID(text string) (TenantID, error) {
	id, err := ParseUUID(text)
	return TenantID(id), err
}

// String returns the canonical form of 36 characters.
func (id TenantID) String() string { return UUID(id).String() }

// MarshalText returns the canonical form, in JSON too.
func (id TenantID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses the text as ParseTenantID does.
func (id *TenantID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseTenantID(string(text))
	return err
}

// TenantState says what a tenant's keys may do.
type TenantState string

const (
	// TenantActive is the normal state.
	TenantActive TenantState = "active"
	// TenantSuspended refuses every call of the tenant. Nothing is removed, and the tenant can become active again.
	TenantSuspended TenantState = "suspended"
	// TenantDeleting means that the tenant's data is being removed in the background. This cannot be undone.
	TenantDeleting TenantState = "deleting"
	// TenantDeleted means that everything but this record is removed.
	TenantDeleted TenantState = "deleted"
)

// Tenant is the unit of isolation: its own log, keys, and documents.
type Tenant struct {
	ID        TenantID
	Name      string // for people; unique among tenants that are not deleted
	State     TenantState
	CreatedAt time.Time
	DeletedAt time.Time // zero unless State is TenantDeleted
	Receipt   string    // of the deletion: a signed erasure.Receipt; empty: not deleted, or by an earlier release
	Share
}

// Share is a tenant's share of the work on projections, relative to other tenants.
type Share struct {
	Weight  int // turns for each turn of a tenant of weight 1: 1 to MaxWeight
	Ceiling int // how many of its projections each process works on at a time; 0: as configured
}

// MaxWeight limits Share.Weight, and MaxCeiling limits Share.Ceiling.
const (
	MaxWeight  = 100
	MaxCeiling = 1000
)
