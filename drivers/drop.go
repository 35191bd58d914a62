package drivers

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/manifold-es/manifold/domain"
)

// DropTenant is Driver.DropTenant for a driver whose drop removes the tenant's rows from the build. A table that does
// not exist has none.
func DropTenant(build domain.Build, tenant domain.TenantID, drop func() error) error {
	if err := CheckTenant(build, tenant); err != nil {
		return err
	}
	if err := drop(); !errors.Is(err, ErrNoTable) {
		return BuildError("remove a tenant's documents from", build, err)
	}
	return nil
}

// DropRows removes a tenant's rows from a build. It first removes the checkpoint, which makes a save in progress stale.
// Then it removes the documents in slices. Each slice starts after the last one, so that it does not scan rows that
// were just removed. slice removes the first documents after a key, and returns the last removed key, or none. Keys
// ascend as bytes.
func DropRows(checkpoint func() error, slice func(after []byte) (last []byte, err error)) error {
	if err := checkpoint(); err != nil {
		return err
	}
	for after := []byte{}; ; {
		last, err := slice(after)
		if err != nil || len(last) == 0 {
			return err
		}
		if bytes.Compare(last, after) <= 0 {
			return fmt.Errorf("the slice after %q ends at %q", after, last)
		}
		after = last
	}
}
