package doctor

import (
	"context"
	"fmt"
)

// indexesCheck is the name of a check.
const indexesCheck = "indexes"

// Indexes of events without bloat take 260 to 360 bytes per event. Fewer events than leastEvents say little.
const (
	maxIndexBytes = 600
	leastEvents   = 100_000
)

// indexes looks for indexes of the events that have grown although the log has not.
func (d *doctor) indexes(ctx context.Context) {
	if d.store == nil {
		return // already reported by the schema's check
	}
	var bytes, events int64
	err := within(ctx, func(ctx context.Context) (err error) {
		bytes, events, err = d.store.Log.IndexSize(ctx)
		return err
	})
	if err != nil {
		d.fail(indexesCheck, err.Error(), "check that the server is up")
		return
	}
	d.bloat(bytes, events)
}

// bloat judges the size of the indexes of so many events.
func (d *doctor) bloat(bytes, events int64) {
	const mega = 1 << 20
	each := bytes / max(events, 1)
	switch {
	case events < leastEvents:
		d.ok(indexesCheck, "those of the events take %d MB", bytes/mega)
	case each > maxIndexBytes:
		d.warn(indexesCheck, fmt.Sprintf("those of the events take %d bytes per event, %d MB in all: retention has left much free space in them", each, bytes/mega),
			"as the migrator, run: reindex table concurrently manifold.events; appends continue, and it needs as much free disk space as the indexes take")
	default:
		d.ok(indexesCheck, "those of the events take %d bytes per event, %d MB in all", each, bytes/mega)
	}
}
