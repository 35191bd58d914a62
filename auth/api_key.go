package auth

import (
	"net/netip"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// KeyID identifies an API key. It is not secret.
type KeyID domain.UUID

// NewKeyID returns a new id.
func NewKeyID() KeyID { return KeyID(domain.NewUUID()) }

// ParseKeyID parses the canonical form of a domain.UUID.
func ParseKeyID(text string) (KeyID, error) {
	id, err := domain.ParseUUID(text)
	return KeyID(id), err
}

// String returns the canonical form of 36 characters.
func (id KeyID) String() string { return domain.UUID(id).String() }

// APIKey is a stored key. Only the SHA-256 of its secret is stored.
type APIKey struct {
	Tenant     domain.TenantID
	ID         KeyID
	Name       string
	Hash       [32]byte // SHA-256 of the 256-bit secret
	Grants     Grants
	Networks   []netip.Prefix // the client addresses from which it works; empty: all
	CreatedAt  time.Time
	ExpiresAt  time.Time      // zero: never
	RevokedAt  time.Time      // zero while the key is not revoked
	LastUsedAt time.Time      // accurate to about usePrecision; zero: not used
	RotatedTo  KeyID          // the key that replaces it; zero: none
	Limits     *domain.Limits // within those of the tenant; nil: none
}

// Quotas of a tenant's keys. The quota of its plan may be lower.
const (
	MaxKeys        = 1000 // neither revoked nor expired; beyond it the error is domain.CodeQuotaExceeded
	MaxRevokedKeys = 1000 // revoked or expired; beyond it, those that ended first are deleted
)

const (
	// MaxLifetime is the longest time from a key's creation to its expiry.
	MaxLifetime = 10 * 365 * 24 * time.Hour
	// MaxOverlap is the longest time for which a rotated key still works.
	MaxOverlap = 90 * 24 * time.Hour
)

// CheckExpiry returns nil for a time in the future, at most MaxLifetime after now, and otherwise a *domain.Error with
// domain.CodeInvalidRequest about the field where.
func CheckExpiry(where string, at, now time.Time) error {
	switch {
	case !at.After(now):
		return domain.Errorf(domain.CodeInvalidRequest, where, "%s is not in the future; the service's time is %s", at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case at.Sub(now) > MaxLifetime:
		return domain.Errorf(domain.CodeInvalidRequest, where, "a key may expire at most 10 years from now; leave it out for a key that does not expire")
	}
	return nil
}
