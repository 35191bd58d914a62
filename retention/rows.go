package retention

import (
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Due is a policy that may have work to do, or the remains of a deleted policy.
type Due struct {
	Tenant   domain.TenantID
	Category string
	Revision int64 // the policy's; 0: it was deleted, and its announcement must be withdrawn
	Head     int64 // of the tenant's log
	Asked    bool  // a run was requested
}

// Work is the input of a policy's run.
type Work struct {
	Policy
	Revision    int64
	Head        int64 // of the log
	Ripe        int64 // events up to here are old enough to be removed
	Aged        int64 // events up to here are older than MaxAge; 0: none, or there is no MaxAge
	SweptTo     int64 // up to here, age and count have nothing left to remove
	CompactedTo int64 // up to here, streams have only their newest events
	Spared      int64 // as in RetentionStatus
	AskedAt     time.Time
	Floor       domain.RetentionFloor
}

// Reason is the rule by which a slice of events is examined.
type Reason string

// The reasons.
const (
	ReasonSweep   Reason = "sweep"   // age and count: all events are removed
	ReasonCompact Reason = "compact" // all events but the newest of each stream are removed
	ReasonSpared  Reason = "spared"  // events that were spared before, and are no longer named, are removed
	// Events up to Step.Below are removed if an event of the step, which may still be unread, supersedes them.
	ReasonSuperseded Reason = "superseded"
)

// Step requests the removal of the next slice of a category's events.
type Step struct {
	Policy
	Revision int64 // of the policy, which must still exist
	Run      RunID // the run that announced last
	Reason   Reason
	After    int64 // examine positions above this
	UpTo     int64 // and up to this one
	Limit    int   // the number of events to examine

	SweptTo     int64 // with ReasonSpared: events up to here are due for removal; for FindRetained: they were found before
	CompactedTo int64 // with ReasonSpared: so are events up to here that a newer event of their stream supersedes
	Ripe        int64 // with ReasonCompact and ReasonSpared: events up to here supersede older ones of their streams, even above UpTo
	Below       int64 // with ReasonSuperseded: only events up to here are removed
}

// Slice is the result of a Step.
type Slice struct {
	Seen        int64 // events up to here were examined
	Done        bool  // nothing is left up to UpTo
	Found       int64 // the number of events to remove
	Removed     int64 // the number of removed events: Found or 0
	Unannounced bool  // nothing was removed because this run has not announced it
	HeldAt      int64 // a group holds events after this position, and none of them was examined; negative: none does
}

// End is the result of a policy's run, or of a part of a run.
type End struct {
	Category    string
	Revision    int64
	Run         RunID
	SweptTo     int64
	CompactedTo int64
	HeldBy      []domain.RetentionHold
	Error       string    // why it failed; empty: it succeeded
	Finished    bool      // it is complete
	AskedAt     time.Time // as in Work; later requests are still open
}
