package group

import (
	"maps"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// hasFreeReplay reports whether a replay in memory is of a stream that is not held.
func (l *ledger) hasFreeReplay() bool {
	return slices.ContainsFunc(l.replays, func(d domain.DeadLetter) bool { return !l.isHeld(d.Stream) })
}

// wantsReplays reports whether there may be unread replays to deliver, so that the ledger must be read again.
func (l *ledger) wantsReplays() bool {
	return l.replaysCut && len(l.replays) == 0 || l.otherReplays && !l.hasFreeReplay()
}

// replayReads limits how often replays of further streams are read at once, which bounds the size of a ledger.
const replayReads = 8

// readOtherReplays reads replays of further streams, so that streams that must wait delay no other stream, however many
// replays they have. read returns the oldest replays, no more than most, of streams other than the given ones.
func (l *ledger) readOtherReplays(most int, read func(streams []string) ([]domain.DeadLetter, error)) error {
	for reads := 0; l.otherReplays && !l.hasFreeReplay(); reads++ {
		if reads == replayReads {
			l.otherReplays = false // until one of them has ended
			break
		}
		streams := make(map[string]struct{})
		for i := range l.replays {
			streams[l.replays[i].Stream] = struct{}{}
		}
		more, err := read(slices.Sorted(maps.Keys(streams)))
		if err != nil {
			return err
		}
		l.replays, l.otherReplays = append(l.replays, more...), len(more) >= most
	}
	return nil
}

// isDeliveredAnyway reports whether a dead letter's event is delivered without a replay, because of a seek to a
// position before it.
func (l *ledger) isDeliveredAnyway(d *domain.DeadLetter) bool {
	if d.Position > l.readTo || l.leaseOf[d.EventID] != nil || l.retryOf[d.EventID] != nil {
		return true
	}
	b := l.behind[d.Stream]
	return b != nil && d.Version > b.version
}

// dropReplay removes a dead letter whose replay was requested. If it was the last one in memory of its stream, there
// may be more in the database.
func (l *ledger) dropReplay(gone *domain.DeadLetter) {
	position, stream := gone.Position, gone.Stream
	l.replays = slices.DeleteFunc(slices.Clone(l.replays), func(d domain.DeadLetter) bool { return d.Position == position })
	l.otherReplays = l.otherReplays || l.replaysCut && !slices.ContainsFunc(l.replays, func(d domain.DeadLetter) bool { return d.Stream == stream })
	l.dropDeadLetter(position)
}

// dropDeadLetter removes a dead letter.
func (l *ledger) dropDeadLetter(position int64) {
	delete(l.park, position)
	l.unpark[position] = struct{}{}
	l.dirty = true
}
