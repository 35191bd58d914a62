package domain

import "time"

// TenantID names a tenant. It is the argument right behind ctx wherever a tenant's data is touched.
type TenantID uuid

// Everyone is the owner of what belongs to no tenant and serves all: shared projections. It is the nil UUID, and no
// tenant ever has it.
var Everyone TenantID

// NewTenantID returns a fresh id.
func NewTenantID() TenantID { return TenantID(newUUID()) }

// ParseTenantID reads the canonical form of a UUID.
func ParseTenantID(text string) (TenantID, error) {
	id, err := parseUUID(text)
	return TenantID(id), err
}

// String returns the canonical form of 36 characters.
func (id TenantID) String() string { return uuid(id).String() }

// MarshalText writes the canonical form, in JSON too.
func (id TenantID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseTenantID.
func (id *TenantID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseTenantID(string(text))
	return err
}

// TenantState says what a tenant's keys may do.
type TenantState string

const (
	// TenantActive is the usual state.
	TenantActive TenantState = "active"
	// TenantSuspended refuses every call of the tenant; nothing of it is removed, and it can be active again.
	TenantSuspended TenantState = "suspended"
	// TenantDeleting means that the tenant's data is being removed in the background. There is no way back.
	TenantDeleting TenantState = "deleting"
	// TenantDeleted means that everything but this record is gone.
	TenantDeleted TenantState = "deleted"
)

// Tenant is the unit of isolation: its own log, keys, and documents.
type Tenant struct {
	ID        TenantID
	Name      string // for people; unique among the tenants that are not deleted
	State     TenantState
	CreatedAt time.Time
	DeletedAt time.Time // zero unless State is TenantDeleted
	Share
}

// Share is what a tenant gets of the work on projections, beside other tenants.
type Share struct {
	Weight  int // turns that it gets while every other tenant of weight 1 gets one: 1 to MaxWeight
	Ceiling int // at most so many of its projections are worked on at a time, in each process; 0: as configured
}

// MaxWeight bounds Share.Weight, and MaxCeiling Share.Ceiling.
const (
	MaxWeight  = 100
	MaxCeiling = 1000
)

// KeyID names an API key. It is no secret.
type KeyID uuid

// NewKeyID returns a fresh id.
func NewKeyID() KeyID { return KeyID(newUUID()) }

// ParseKeyID reads the canonical form of a UUID.
func ParseKeyID(text string) (KeyID, error) {
	id, err := parseUUID(text)
	return KeyID(id), err
}

// String returns the canonical form of 36 characters.
func (id KeyID) String() string { return uuid(id).String() }

// APIKey is a key as it is kept: without its secret, of which only the SHA-256 is stored.
type APIKey struct {
	Tenant    TenantID
	ID        KeyID
	Name      string
	Hash      [32]byte // SHA-256 of the 256-bit secret
	Grants    Grants
	CreatedAt time.Time
	RevokedAt time.Time // zero while the key works
}
