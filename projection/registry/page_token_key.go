package registry

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// PageTokenKey returns the 32-byte key with which all processes of this database encrypt page tokens.
func (s *Registry) PageTokenKey(ctx context.Context) ([32]byte, error) {
	var secret []byte
	err := s.db.System.QueryRow(ctx, "select s.secret from service_secrets s where s.tenant_id = $1 and s.name = 'page-tokens'", domain.Everyone).Scan(&secret)
	if err != nil {
		return [32]byte{}, pg.Unavailable(fmt.Errorf("read the key of page tokens: %w", err))
	}
	var key [32]byte
	if copy(key[:], secret) != len(key) || len(secret) != len(key) {
		return [32]byte{}, fmt.Errorf("the key of page tokens has %d bytes; want %d", len(secret), len(key))
	}
	return key, nil
}
