package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
)

// MinOperatorKeyBytes is the length that an operator's key must have at least.
const MinOperatorKeyBytes = 32

// hashPrefix begins an operator's key of which the configuration has the SHA-256 only.
const hashPrefix = "sha256:"

// OperatorKey is the SHA-256 of an operator's key.
type OperatorKey [sha256.Size]byte

// ParseOperatorKey reads an operator's key as the configuration has it: the key itself, of at least MinOperatorKeyBytes
// bytes, or "sha256:" and the SHA-256 of the key in hexadecimal. Errors do not repeat the key.
func ParseOperatorKey(text string) (OperatorKey, error) {
	if digits, ok := strings.CutPrefix(text, hashPrefix); ok {
		var key OperatorKey
		raw, err := hex.DecodeString(digits)
		if err != nil || len(raw) != len(key) {
			return OperatorKey{}, fmt.Errorf("an operator's key that begins with %s needs %d hexadecimal digits behind it, the SHA-256 of the key", hashPrefix, 2*len(key))
		}
		copy(key[:], raw)
		return key, nil
	}
	switch {
	case strings.HasPrefix(text, TokenPrefix):
		return OperatorKey{}, fmt.Errorf("an operator's key must not begin with %s: that is how tenants' keys begin", TokenPrefix)
	case len(text) < MinOperatorKeyBytes:
		return OperatorKey{}, fmt.Errorf("an operator's key needs at least %d characters, and this one has %d; make one with: openssl rand -hex 32", MinOperatorKeyBytes, len(text))
	}
	return sha256.Sum256([]byte(text)), nil
}

// isOperator reports whether token is one of the keys. Every key is compared, and each in constant time.
func isOperator(keys []OperatorKey, token string) bool {
	hash := sha256.Sum256([]byte(token))
	found := 0
	for i := range keys {
		found |= subtle.ConstantTimeCompare(hash[:], keys[i][:])
	}
	return found == 1
}
