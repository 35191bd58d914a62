package relational

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Retry runs a transaction. It retries if the database rolled it back in favor of another, or if the connection was
// lost. The caller ensures that a retry is safe. The error is one of the contract.
func (d *Dialect) Retry(ctx context.Context, do func() error) error {
	retryable := func(err error, attempt int) bool { return attempt < drivers.Attempts && d.Transient(err) }
	return d.Error(drivers.Retry(ctx, retryable, do))
}

// Error converts native errors to the errors of the contract, and wraps the native error.
func (d *Dialect) Error(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if _, ok := errors.AsType[*domain.Error](err); ok {
		return err
	}
	switch {
	case d.NoTable(err):
		return fmt.Errorf("%w: %w", drivers.ErrNoTable, err)
	case d.Unavailable(err):
		return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeUnavailable, "", "the documents' database cannot serve now; try again later"), err)
	}
	return err
}

// Patience is how long a statement waits for a lock, and how often it tries. A view or table that somebody is reading
// cannot be replaced or dropped, and a session that waits for that blocks all later ones. So each wait is short, and is
// repeated.
type Patience struct {
	Wait  time.Duration
	Tries int
}

var (
	SwapPatience = Patience{50 * time.Millisecond, 10}
	DropPatience = Patience{2 * time.Second, 3} // at most the database itself uses a table that is to be dropped
)

// RetryLocks runs do, which must wait for locks no longer than p.Wait, until it gets them.
func (d *Dialect) RetryLocks(ctx context.Context, p Patience, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if err == nil || !d.LockTimeout(err) || try == p.Tries {
			return err
		}
		select {
		case <-time.After(p.Wait/2 + rand.N(p.Wait)): // lets the sessions pass that queued after this one
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
