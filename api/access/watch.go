package access

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/limits"
)

// WhileAllowed is for long-lived requests. It checks the caller's key periodically, and ends the returned context when
// the key has expired or been revoked, or its tenant was suspended. The cause of the context is the error for the
// client. A ticket is checked by its key, so a request may continue after the ticket expires. The pass in the context,
// if any, gets the limits that the key has by then. The caller must call stop when the request is over.
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
			credential, err := keys.Refresh(ctx, caller.Credential)
			if problem.IsRefusal(err) {
				cancel(err)
				return
			}
			if err == nil {
				limits.From(ctx).SetKeyLimits(domain.UUID(credential.KeyID), credential.Limits)
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		checking.Wait()
	}
}
