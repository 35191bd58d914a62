package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// These limits bound what the doctor checks of the logs. Large logs take longer than a checkup may. Without --events
// the doctor stops in time, and reports how far it has come.
const (
	eventsSlice  = 5000 // positions that one statement reads
	eventsListed = 10   // unreadable events of a tenant that are listed by position
)

// events searches the logs for events that cannot be read.
func (d *doctor) events(ctx context.Context) {
	const check = "events"
	if d.store == nil {
		return // already reported by the schema's check
	}
	looking := ctx
	if !d.allEvents {
		var cancel context.CancelFunc
		looking, cancel = context.WithTimeout(ctx, checkupTimeout)
		defer cancel()
	}
	heads, err := d.store.Heads(looking, time.Time{})
	if err != nil {
		d.fail(check, err.Error(), "check that the server is up")
		return
	}
	seen, total, unreadable := int64(0), int64(0), 0
	for _, head := range heads {
		total += head.Position
	}
	for _, head := range heads {
		var found []domain.UnreadableEvent
		for from := int64(0); from < head.Position && err == nil; from += eventsSlice {
			to := min(from+eventsSlice, head.Position)
			var more []domain.UnreadableEvent
			if more, err = d.store.FindUnreadable(looking, head.Tenant, from, to); err == nil {
				seen, found = seen+to-from, append(found, more...)
			}
		}
		if unreadable += len(found); len(found) > 0 {
			d.warn(check, fmt.Sprintf("%d events of tenant %s cannot be read, since their numbers are too long to be printed; readers skip them: %s",
				len(found), head.Tenant, eventList(found)),
				fmt.Sprintf("to remove an event's data for good, run `manifold redact %s POSITION --reason ...`; until then pg_dump of the events may fail", head.Tenant))
		}
		if err != nil {
			break
		}
	}
	switch {
	case err != nil && looking.Err() != nil && ctx.Err() == nil:
		d.warn(check, fmt.Sprintf("%d of %d events were checked within %s", seen, total, checkupTimeout), "run `manifold doctor --events` to check all of them")
	case err != nil:
		d.fail(check, err.Error(), "check that the server is up")
	case unreadable == 0:
		d.ok(check, "all %d can be read", total)
	}
}

// eventList names the events, or only the first ones if there are many.
func eventList(events []domain.UnreadableEvent) string {
	var names []string
	for _, e := range events[:min(len(events), eventsListed)] {
		names = append(names, fmt.Sprintf("position %d (%s, version %d of %s)", e.Position, e.Type, e.Version, e.Stream))
	}
	if more := len(events) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
