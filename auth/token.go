package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// TokenPrefix begins every tenant's token, so that secret scanners find a token that was published by accident.
const TokenPrefix = "mfk_"

// tokenBytes is the length of the tenant's id, the id of the key or ticket, and the secret.
const tokenBytes = 16 + 16 + 32

// encoding is strict, so that every token has exactly one spelling.
var encoding = base64.RawURLEncoding.Strict()

// NewKey creates a key for a tenant and returns it with its token. The token is stored nowhere, so show it once.
func NewKey(tenant domain.TenantID, name string, grants Grants) (key APIKey, token string) {
	key = APIKey{Tenant: tenant, ID: NewKeyID(), Name: name, Grants: grants}
	key.Hash, token = makeToken(TokenPrefix, tenant, key.ID)
	return key, token
}

// makeToken creates a token with a new secret, and returns it with the hash of the secret.
func makeToken(prefix string, tenant domain.TenantID, id [16]byte) (hash [32]byte, token string) {
	var secret [32]byte
	rand.Read(secret[:]) // never fails since Go 1.24
	raw := make([]byte, 0, tokenBytes)
	raw = append(raw, tenant[:]...)
	raw = append(raw, id[:]...)
	raw = append(raw, secret[:]...)
	return sha256.Sum256(secret[:]), prefix + encoding.EncodeToString(raw)
}

// parseToken splits a token that begins with prefix. ok is false for any other text.
func parseToken(prefix, token string) (tenant domain.TenantID, id [16]byte, secret [32]byte, ok bool) {
	text, found := strings.CutPrefix(token, prefix)
	if !found || len(text) != encoding.EncodedLen(tokenBytes) {
		return tenant, id, secret, false
	}
	var raw [tokenBytes]byte
	if _, err := encoding.Decode(raw[:], []byte(text)); err != nil {
		return tenant, id, secret, false
	}
	copy(tenant[:], raw[:16])
	copy(id[:], raw[16:32])
	copy(secret[:], raw[32:])
	return tenant, id, secret, true
}
