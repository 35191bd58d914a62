package access

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/auth"
)

// WhileAllowed is for long-lived requests. It checks the caller's key periodically, and ends the returned context when
// the key has expired or been revoked, or its tenant was suspended. The cause of the context is the error for the client.
// A ticket is checked by its key, so a request may continue after the ticket expires. The caller must call stop when the
// request is over.
func WhileAllowed(ctx context.Context, keys *auth.Keys, recheck time.Duration, caller Caller) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if !caller.Known() {
		return ctx, func() { cancel(nil) }
	}
	var checking sync.WaitGroup
	checking.Go(func() {
		tick := time.NewTicker(recheck)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// A failure to check the key is not a refusal. A key's grants never change.
			if _, err := keys.Refresh(ctx, caller.Credential); problem.IsRefusal(err) {
				cancel(err)
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		checking.Wait()
	}
}
