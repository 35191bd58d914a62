package group

import "time"

// AssignPartitions calls assignPartitions.
var AssignPartitions = assignPartitions

// AssignmentFor changes how long a process relies on what it read of a group's members.
func (g *Groups) AssignmentFor(d time.Duration) { g.assignmentFor = d }

// TopUpFor changes after how long a member's receive that has events asks for no more.
func (g *Groups) TopUpFor(d time.Duration) { g.topUpFor = d }
