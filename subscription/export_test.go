package subscription

import "time"

// ShareOut is shareOut.
var ShareOut = shareOut

// RosterFor changes how long a process goes by what it has read of a group's members.
func (g *Groups) RosterFor(d time.Duration) { g.rosterFor = d }

// FillFor changes behind which a member's receive that has events asks for no more of them.
func (g *Groups) FillFor(d time.Duration) { g.fillFor = d }

// TellAfter changes how long a follower is not told that events were passed over.
func (t *Tails) TellAfter(d time.Duration) { t.tell = d }

// Held is what the tail of a feed has in memory, in bytes, as it counts, and how many events that are.
func (f *Feed) Held() (bytes, events int) {
	f.tail.ring.mu.RLock()
	defer f.tail.ring.mu.RUnlock()
	return int(f.tail.ring.held.Load()), len(f.tail.ring.entries)
}

// Forgotten is the highest position that the tail of a feed has no longer in memory.
func (f *Feed) Forgotten() int64 {
	floor, _ := f.tail.ring.place()
	return floor
}
