package subscription

import "time"

// ShareOut calls shareOut.
var ShareOut = shareOut

// RosterFor changes how long a process relies on what it read of a group's members.
func (g *Groups) RosterFor(d time.Duration) { g.rosterFor = d }

// FillFor changes after how long a member's receive that has events asks for no more.
func (g *Groups) FillFor(d time.Duration) { g.fillFor = d }

// TellAfter changes how long a follower is not told that events were passed over.
func (t *Tails) TellAfter(d time.Duration) { t.tell = d }

// Held returns the bytes that the tail of a feed has in memory, as the tail counts them, and the number of events.
func (f *Feed) Held() (bytes, events int) {
	f.tail.ring.mu.RLock()
	defer f.tail.ring.mu.RUnlock()
	return int(f.tail.ring.held.Load()), len(f.tail.ring.entries)
}

// Forgotten returns the highest position that the tail of a feed no longer has in memory.
func (f *Feed) Forgotten() int64 {
	floor, _ := f.tail.ring.place()
	return floor
}
