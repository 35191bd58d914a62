package group

import "time"

// ShareOut calls shareOut.
var ShareOut = shareOut

// RosterFor changes how long a process relies on what it read of a group's members.
func (g *Groups) RosterFor(d time.Duration) { g.rosterFor = d }

// FillFor changes after how long a member's receive that has events asks for no more.
func (g *Groups) FillFor(d time.Duration) { g.fillFor = d }
