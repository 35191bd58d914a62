package domain

import (
	"fmt"
	"slices"
	"time"
)

// RetentionPolicy says what is removed of one category of a tenant's log. An event goes where any of MaxAge, MaxCount and
// Compact says so, at least one of which must be given, and where nothing holds it. Positions and versions keep their
// numbers.
type RetentionPolicy struct {
	Category string
	MaxAge   time.Duration // whole seconds: what was recorded longer ago goes; 0: no event goes for its age
	MaxCount int64         // so many of the category's newest events stay; 0: no event goes for being one of many
	Compact  bool          // of each stream only the newest event stays
	Force    RetentionForce
}

// Bounds of a RetentionPolicy.
const (
	MinRetentionAge       = time.Second
	MaxRetentionAge       = 100 * 365 * 24 * time.Hour
	MaxRetentionCount     = 1_000_000_000
	MaxRetentionForced    = 100 // names of one kind
	MaxRetentionHoldsKept = 20  // of those that held a run, in its policy's status
)

// RetentionForce names those whose holds do not count: retention goes past what they still have to read.
type RetentionForce struct {
	Groups      []string `json:"groups,omitempty"`      // and what their dead letters name
	Projections []string `json:"projections,omitempty"` // and what their parked documents wait for; not their rebuilds
	Rebuilds    []string `json:"rebuilds,omitempty"`    // by the names of their projections
}

// Check reports what is wrong with a policy.
func (p *RetentionPolicy) Check() error {
	if err := CheckCategory("category", p.Category); err != nil {
		return err
	}
	switch {
	case p.MaxAge == 0 && p.MaxCount == 0 && !p.Compact:
		return Errorf(CodeInvalidRequest, "", "the policy removes nothing: give maxAge, maxCount or compact; DELETE ends retention of the category")
	case p.MaxAge != 0 && (p.MaxAge < MinRetentionAge || p.MaxAge > MaxRetentionAge):
		return Errorf(CodeInvalidRequest, "maxAge", "%s is no age that retention goes by; give 1 to %d seconds", p.MaxAge, int64(MaxRetentionAge/time.Second))
	case p.MaxAge%time.Second != 0:
		return Errorf(CodeInvalidRequest, "maxAge", "%s is not a whole number of seconds", p.MaxAge)
	case p.MaxCount < 0 || p.MaxCount > MaxRetentionCount:
		return Errorf(CodeInvalidRequest, "maxCount", "%d is no number of events that retention goes by; give 1 to %d", p.MaxCount, int64(MaxRetentionCount))
	}
	for where, names := range map[string][]string{"force.groups": p.Force.Groups, "force.projections": p.Force.Projections, "force.rebuilds": p.Force.Rebuilds} {
		if len(names) > MaxRetentionForced {
			return Errorf(CodeInvalidRequest, where, "there are %d names; at most %d are allowed", len(names), MaxRetentionForced)
		}
		for i, name := range names {
			if err := checkAlphabet(fmt.Sprintf("%s[%d]", where, i), "name", name, 2*MaxNameBytes, "-_."); err != nil {
				return err
			}
		}
	}
	return nil
}

// Forces reports whether a hold does not count.
func (f *RetentionForce) Forces(h RetentionHold) bool {
	switch h.Kind {
	case HoldGroup:
		return slices.Contains(f.Groups, h.Name)
	case HoldProjection:
		return slices.Contains(f.Projections, h.Name)
	case HoldRebuild:
		return slices.Contains(f.Rebuilds, h.Name)
	}
	return false
}

// HoldKind says what holds events.
type HoldKind string

// The kinds of what holds events.
const (
	HoldGroup      HoldKind = "group"
	HoldProjection HoldKind = "projection"
	HoldRebuild    HoldKind = "rebuild"
)

// RetentionHold is something of a tenant's, or one of the shared projections for it, that still has to read events of a
// category above a position. Retention goes no further than that.
type RetentionHold struct {
	Kind     HoldKind `json:"kind"`
	Name     string   `json:"name"`              // the group's, or the projection's
	Position int64    `json:"position"`          // what is up to here is not held
	Problem  string   `json:"problem,omitempty"` // why it is not known how far that one has come, for people: all is held then
}

// RetentionFloor says how much of a category retention has removed.
type RetentionFloor struct {
	Category string
	// AnnouncedTo is the highest position that may be gone by now, or may go at any moment: at least RemovedTo. Who registers
	// what still has to read events, and then finds that nothing is announced, loses none.
	AnnouncedTo int64
	RemovedTo   int64 // the highest position that was removed; events below it may be there still
	Removed     int64 // how many events were
}

// RetentionStatus is a policy and what has come of it.
type RetentionStatus struct {
	RetentionPolicy
	Revision  int64 // grows with each change
	CreatedAt time.Time
	UpdatedAt time.Time
	Floor     RetentionFloor
	Spared    int64           // events that should be gone, and are kept since a dead letter or a parked document names them
	HeldBy    []RetentionHold // what held the last run, the lowest position first; some of many
	AskedAt   time.Time       // somebody has asked for a run that has not ended; zero: nobody
	LastRunAt time.Time       // when the last run ended; zero: there was none
	LastError string          // why the last run did not get through; empty: it did
}

// RetentionRunID names one run of a policy: of two at the same time only the one that began last removes anything.
type RetentionRunID uuid

// NewRetentionRunID returns a fresh id.
func NewRetentionRunID() RetentionRunID { return RetentionRunID(newUUID()) }

// RetentionDue is a policy that may have something to do, or what is left of one.
type RetentionDue struct {
	Tenant   TenantID
	Category string
	Revision int64 // the policy's; 0: it is gone, and what it has announced is to be taken back
	Head     int64 // of the tenant's log
	Asked    bool  // somebody has asked for a run
}

// RetentionWork is what a run of a policy begins with.
type RetentionWork struct {
	RetentionPolicy
	Revision    int64
	Head        int64 // of the log
	Ripe        int64 // what is up to here is old enough to be removed at all
	Aged        int64 // what is up to here is older than MaxAge; 0: nothing, or it does not count
	SweptTo     int64 // up to here age and count have nothing to remove any more
	CompactedTo int64 // up to here streams have their newest events only
	Spared      int64 // as RetentionStatus
	AskedAt     time.Time
	Floor       RetentionFloor
}

// RetentionReason says by what a slice of events is looked through.
type RetentionReason string

// The reasons.
const (
	RetentionSweep   RetentionReason = "sweep"   // age and count: all of them go
	RetentionCompact RetentionReason = "compact" // those go that are not the newest of their stream
	RetentionSpared  RetentionReason = "spared"  // those that were spared before, and are named no more
	// Those up to RetentionStep.Below go that an event of the step, which somebody may still have to read, supersedes.
	RetentionSuperseded RetentionReason = "superseded"
)

// RetentionStep asks for the removal of the next slice of a category's events.
type RetentionStep struct {
	RetentionPolicy
	Revision int64          // of the policy, which must be there still
	Run      RetentionRunID // that announced last
	Reason   RetentionReason
	After    int64 // positions above this
	UpTo     int64 // and up to this one
	Limit    int   // events to look at

	SweptTo     int64 // with RetentionSpared: what is up to here should be gone; for FindRetained: it was found before
	CompactedTo int64 // with RetentionSpared: and what is up to here, where a newer event of its stream has superseded it
	Ripe        int64 // with RetentionCompact and RetentionSpared: events up to here supersede older ones of their streams, also above UpTo
	Below       int64 // with RetentionSuperseded: only events up to here are removed
}

// RetentionSlice is what became of a RetentionStep.
type RetentionSlice struct {
	Seen        int64 // what is up to here was looked at
	Done        bool  // there is no more up to UpTo
	Found       int64 // events that are to go
	Removed     int64 // of these: as many, or none
	Unannounced bool  // none was removed since it was not announced that this run would
	HeldAt      int64 // a group holds what is above; nothing above was looked at. Negative: none does
}

// RetentionEnd is how a run of a policy, or a part of one, ended.
type RetentionEnd struct {
	Category    string
	Revision    int64
	Run         RetentionRunID
	SweptTo     int64
	CompactedTo int64
	HeldBy      []RetentionHold
	Error       string    // why it did not get through; empty: it did
	Finished    bool      // it got to the end
	AskedAt     time.Time // RetentionWork's: what was asked for since is not done yet
}

// RetentionPreview is what a run of a policy would do now.
type RetentionPreview struct {
	Events   int64           // how many events would go
	Complete bool            // all were counted; there may be more otherwise
	HeldBy   []RetentionHold // what keeps more from going, the lowest position first; some of many
}
