package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
)

// MinOperatorKeyBytes is the minimum length of an operator key in bytes.
const MinOperatorKeyBytes = 32

// hashPrefix starts an operator key that the configuration contains only as its SHA-256.
const hashPrefix = "sha256:"

// OperatorKey is the SHA-256 of an operator key.
type OperatorKey [sha256.Size]byte

// ParseOperatorKey parses an operator key from the configuration. This is either the key itself, of at least
// MinOperatorKeyBytes bytes, or "sha256:" and the hexadecimal SHA-256 of the key. Errors do not contain the key.
func ParseOperatorKey(text string) (OperatorKey, error) {
	if digits, ok := strings.CutPrefix(text, hashPrefix); ok {
		var key OperatorKey
		raw, err := hex.DecodeString(digits)
		if err != nil || len(raw) != len(key) {
			return OperatorKey{}, fmt.Errorf("an operator's key that begins with %s must continue with %d hexadecimal digits, the SHA-256 of the key", hashPrefix, 2*len(key))
		}
		copy(key[:], raw)
		return key, nil
	}
	switch {
	case strings.HasPrefix(text, TokenPrefix):
		return OperatorKey{}, fmt.Errorf("an operator's key must not begin with %s: tenants' keys begin so", TokenPrefix)
	case len(text) < MinOperatorKeyBytes:
		return OperatorKey{}, fmt.Errorf("an operator's key needs at least %d characters, and this one has %d; make one with: openssl rand -hex 32", MinOperatorKeyBytes, len(text))
	}
	return sha256.Sum256([]byte(text)), nil
}

// isOperator reports whether token is one of the keys. It compares every key, each in constant time.
func isOperator(keys []OperatorKey, token string) bool {
	hash := sha256.Sum256([]byte(token))
	found := 0
	for i := range keys {
		found |= subtle.ConstantTimeCompare(hash[:], keys[i][:])
	}
	return found == 1
}
