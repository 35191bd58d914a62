package drivers_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/manifold-es/manifold/drivers"
)

func TestDropRowsGoesForward(t *testing.T) {
	t.Parallel()
	ends := []string{"b", "d", ""}
	var from []string
	err := drivers.DropRows(func() error { return nil }, func(after []byte) ([]byte, error) {
		from = append(from, string(after))
		return []byte(ends[len(from)-1]), nil
	})
	if err != nil || !slices.Equal(from, []string{"", "b", "d"}) {
		t.Errorf("slices begin after %q: %v", from, err)
	}
	if err := drivers.DropRows(func() error { return nil }, func([]byte) ([]byte, error) { return []byte("a"), nil }); err == nil {
		t.Error("a slice that ends where it begins is repeated without end")
	}
	failed := errors.New("x")
	if err := drivers.DropRows(func() error { return failed }, nil); !errors.Is(err, failed) {
		t.Errorf("DropRows continues after %v", err)
	}
}
