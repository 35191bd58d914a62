package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// OwnCheckpoints yields the stored checkpoint of every build of tenants' own projections, all of one moment. All are
// read before the first is yielded, at 32 bytes each.
func (d *Driver) OwnCheckpoints(ctx context.Context) iter.Seq2[drivers.OwnCheckpoint, error] {
	return func(yield func(drivers.OwnCheckpoint, error) bool) {
		var all []drivers.OwnCheckpoint
		// As for Checkpoints, no tenant is set. The first of commonIndexes holds exactly these rows.
		err := d.read(ctx, domain.Everyone, statement{
			sql:   "select tenant_id, build, version from " + schema + "." + commonTable + ` where id = ''`,
			reset: func() { all = nil },
			row: func(values [][]byte) error {
				tenant, err := decodeTenant(values[0])
				if err != nil {
					return err
				}
				build, err := decodeInt(values[1])
				if err != nil {
					return err
				}
				position, err := decodeInt(values[2])
				all = append(all, drivers.OwnCheckpoint{Tenant: tenant, Build: build, Position: position})
				return err
			},
		})
		if err != nil && !errors.Is(err, drivers.ErrNoTable) {
			yield(drivers.OwnCheckpoint{}, fmt.Errorf("read the checkpoints of the tenants' own projections: %w", err))
			return
		}
		for _, checkpoint := range all {
			if !yield(checkpoint, nil) {
				return
			}
		}
	}
}
