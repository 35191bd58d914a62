package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/seal"
)

// sealedWithin is how soon events are sealed, unless there is a backlog.
const sealedWithin = 5 * time.Minute

// seals looks for events that are not sealed yet, although they should be.
func (d *doctor) seals(ctx context.Context) {
	const check = "seals"
	if d.store == nil {
		return // already reported by the schema's check
	}
	var lagging []seal.Lag
	err := within(ctx, func(ctx context.Context) (err error) {
		lagging, err = d.store.Lagging(ctx, time.Now().Add(-sealedWithin))
		return err
	})
	if err != nil {
		d.fail(check, err.Error(), "check that the server is up")
		return
	}
	if len(lagging) == 0 {
		d.ok(check, "all events that are older than %s are sealed", sealedWithin)
		return
	}
	example := lagging[0]
	detail := "which ends before that position"
	if !example.Since.IsZero() {
		detail = "and the next event is of " + example.Since.UTC().Format(time.RFC3339)
	}
	d.warn(check, fmt.Sprintf("%d logs or more are not sealed as they should be, such as %s: it is sealed up to position %d, %s",
		len(lagging), example.Log, example.Sealed, detail),
		"after an upgrade or an import, wait until the backlog is sealed; otherwise, look for \"sealed\" in the logs of the workers")
}
