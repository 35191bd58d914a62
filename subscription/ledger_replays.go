package subscription

import (
	"maps"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// replayable reports whether one of the replays that were read is of a stream that is not held.
func (l *ledger) replayable() bool {
	return slices.ContainsFunc(l.replays, func(d domain.DeadLetter) bool { return !l.held(d.Stream) })
}

// wantsReplays reports whether there may be replays to be delivered that were not read: the ledger is to be read anew.
func (l *ledger) wantsReplays() bool {
	return l.cut && len(l.replays) == 0 || l.others && !l.replayable()
}

// replayReads is how often replays of further streams are read at once, at most: what a ledger has of them is bounded.
const replayReads = 8

// readBeside sees to it that streams which must wait, with however many replays, hold up no replay of others. read gives the oldest ones that
// are of none of some streams; most is how many it gives at most.
func (l *ledger) readBeside(most int, read func(streams []string) ([]domain.DeadLetter, error)) error {
	for reads := 0; l.others && !l.replayable(); reads++ {
		if reads == replayReads {
			l.others = false // until something of them has come to an end
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
		l.replays, l.others = append(l.replays, more...), len(more) >= most
	}
	return nil
}

// coming reports whether a dead letter's event is delivered without a replay: after a seek to a place before it.
func (l *ledger) coming(d *domain.DeadLetter) bool {
	if d.Position > l.readTo || l.leaseOf[d.EventID] != nil || l.retryOf[d.EventID] != nil {
		return true
	}
	b := l.behind[d.Stream]
	return b != nil && d.Version > b.version
}

// dropReplay removes a dead letter whose replay was asked for. Where it was the last one of its stream that was read, there may be more.
func (l *ledger) dropReplay(gone *domain.DeadLetter) {
	position, stream := gone.Position, gone.Stream
	l.replays = slices.DeleteFunc(slices.Clone(l.replays), func(d domain.DeadLetter) bool { return d.Position == position })
	l.others = l.others || l.cut && !slices.ContainsFunc(l.replays, func(d domain.DeadLetter) bool { return d.Stream == stream })
	l.forget(position)
}

// forget removes a dead letter.
func (l *ledger) forget(position int64) {
	delete(l.park, position)
	l.unpark[position] = struct{}{}
	l.dirty = true
}
