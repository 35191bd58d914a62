package drivers

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/manifold-es/manifold/domain"
)

// AllCheckpoints is Driver.Checkpoints for a driver that reads all of them before it yields the first, at 24 bytes
// each. It calls read for a shared build only: any other has no more than its owner's checkpoint.
func AllCheckpoints(ctx context.Context, driver Driver, build domain.Build, read func() ([]Checkpoint, error)) iter.Seq2[Checkpoint, error] {
	return sequence(func() ([]Checkpoint, error) {
		if build.Shared() {
			all, err := read()
			return all, BuildError("read the checkpoints of", build, err)
		}
		position, err := driver.Checkpoint(ctx, build, build.Owner)
		if err != nil || position == 0 {
			return nil, err
		}
		return []Checkpoint{{Tenant: build.Owner, Position: position}}, nil
	})
}

// AllOwnCheckpoints is Driver.OwnCheckpoints for a driver that reads all of them before it yields the first, at 32
// bytes each. Without a common table there are none.
func AllOwnCheckpoints(read func() ([]OwnCheckpoint, error)) iter.Seq2[OwnCheckpoint, error] {
	return sequence(func() ([]OwnCheckpoint, error) {
		all, err := read()
		if errors.Is(err, ErrNoTable) {
			return nil, nil
		}
		if err != nil {
			err = fmt.Errorf("read the checkpoints of the tenants' own projections: %w", err)
		}
		return all, err
	})
}

// sequence yields what read returns, or its error.
func sequence[T any](read func() ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		all, err := read()
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		for _, one := range all {
			if !yield(one, nil) {
				return
			}
		}
	}
}

// BuildError says what a driver was doing with a build when it failed: "save to build 3 of orders: ...". It returns nil
// for nil.
func BuildError(task string, build domain.Build, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s build %d of %s: %w", task, build.Number, build.Name, err)
}
