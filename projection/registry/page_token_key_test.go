package registry_test

import (
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// All processes share one key of page tokens. A key that is too short is refused.
func TestPageTokenKey(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	key, err := s.PageTokenKey(t.Context())
	tablestest.Must(t, err)
	again, err := s.PageTokenKey(t.Context())
	tablestest.Must(t, err)
	if key != again || key == [32]byte{} {
		t.Errorf("the keys are %x and %x", key, again)
	}
	_, err = db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "update manifold.service_secrets set secret = 'short'")
	tablestest.Must(t, err)
	if _, err := s.PageTokenKey(t.Context()); err == nil {
		t.Error("a short key is taken")
	}
}
