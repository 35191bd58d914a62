package auth

import (
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
	Tenant    domain.TenantID
	ID        KeyID
	Name      string
	Hash      [32]byte // SHA-256 of the 256-bit secret
	Grants    Grants
	CreatedAt time.Time
	RevokedAt time.Time // zero while the key is valid
}

// Quotas of a tenant's keys. Concurrent creation may exceed them slightly.
const (
	MaxKeys        = 1000 // not revoked; beyond it the error is domain.CodeQuotaExceeded
	MaxRevokedKeys = 1000 // beyond it, the keys revoked first are deleted
)
