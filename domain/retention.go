package domain

import (
	"fmt"
	"slices"
	"time"
)

// RetentionPolicy says what retention removes of one category of a tenant's log. At least one of MaxAge, MaxCount and
// Compact must be set. An event is removed if any of them applies to it and nothing holds it. Remaining events keep
// their positions and versions.
type RetentionPolicy struct {
	Category string
	MaxAge   time.Duration // whole seconds: older events are removed; 0: no limit
	MaxCount int64         // this many of the category's newest events stay; 0: no limit
	Compact  bool          // only the newest event of each stream stays
	Force    RetentionForce
}

// Limits of a RetentionPolicy.
const (
	MinRetentionAge       = time.Second
	MaxRetentionAge       = 100 * 365 * 24 * time.Hour
	MaxRetentionCount     = 1_000_000_000
	MaxRetentionForced    = 100 // names of one kind
	MaxRetentionHoldsKept = 20  // holds of the last run, in its policy's status
)

// RetentionForce names readers whose holds are ignored: retention removes events that they still have to read.
type RetentionForce struct {
	Groups      []string `json:"groups,omitempty"`      // and the events of their dead letters
	Projections []string `json:"projections,omitempty"` // and the events of their parked documents; not their rebuilds
	Rebuilds    []string `json:"rebuilds,omitempty"`    // by the names of their projections
}

// Check returns an error if the policy is invalid.
func (p *RetentionPolicy) Check() error {
	if err := CheckCategory("category", p.Category); err != nil {
		return err
	}
	switch {
	case p.MaxAge == 0 && p.MaxCount == 0 && !p.Compact:
		return Errorf(CodeInvalidRequest, "", "the policy removes nothing: give maxAge, maxCount or compact; DELETE ends retention of the category")
	case p.MaxAge != 0 && (p.MaxAge < MinRetentionAge || p.MaxAge > MaxRetentionAge):
		return Errorf(CodeInvalidRequest, "maxAge", "invalid age %s; give 1 to %d seconds", p.MaxAge, int64(MaxRetentionAge/time.Second))
	case p.MaxAge%time.Second != 0:
		return Errorf(CodeInvalidRequest, "maxAge", "%s is not a whole number of seconds", p.MaxAge)
	case p.MaxCount < 0 || p.MaxCount > MaxRetentionCount:
		return Errorf(CodeInvalidRequest, "maxCount", "invalid number of events %d; give 1 to %d", p.MaxCount, int64(MaxRetentionCount))
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

// Forces reports whether the policy ignores a hold.
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

// HoldKind is the kind of reader that holds events.
type HoldKind string

// The kinds of holds.
const (
	HoldGroup      HoldKind = "group"
	HoldProjection HoldKind = "projection"
	HoldRebuild    HoldKind = "rebuild"
)

// RetentionHold is a reader that still has to read events of a category after a position. The reader belongs to the
// tenant, or is a shared projection on the tenant's behalf. Retention removes nothing after that position.
type RetentionHold struct {
	Kind     HoldKind `json:"kind"`
	Name     string   `json:"name"`              // of the group or the projection
	Position int64    `json:"position"`          // events up to here are not held
	Problem  string   `json:"problem,omitempty"` // for people: why the reader's progress is unknown; everything is held then
}

// RetentionFloor says how much of a category retention has removed.
type RetentionFloor struct {
	Category string
	// AnnouncedTo is the highest position that may be removed already or at any moment; it is at least RemovedTo. A
	// reader that registers its holds and then finds nothing announced loses no event.
	AnnouncedTo int64
	RemovedTo   int64 // the highest removed position; events before it may still exist
	Removed     int64 // the number of removed events
}

// RetentionStatus is a policy with its results so far.
type RetentionStatus struct {
	RetentionPolicy
	Revision  int64 // increases with each change
	CreatedAt time.Time
	UpdatedAt time.Time
	Floor     RetentionFloor
	Spared    int64           // events that are due for removal but kept, because a dead letter or a parked document names them
	HeldBy    []RetentionHold // holds of the last run, lowest position first; possibly not all
	AskedAt   time.Time       // when a run was requested that has not ended; zero: none was
	LastRunAt time.Time       // when the last run ended; zero: there was none
	LastError string          // why the last run failed; empty: it succeeded
}

// RetentionRunID identifies one run of a policy. Of two concurrent runs, only the one that began last removes events.
type RetentionRunID uuid

// NewRetentionRunID returns a new id.
func NewRetentionRunID() RetentionRunID { return RetentionRunID(newUUID()) }

// RetentionPreview says what a run of a policy would do now.
type RetentionPreview struct {
	Events   int64           // the number of events it would remove
	Complete bool            // all events were counted; otherwise there may be more
	HeldBy   []RetentionHold // what keeps more events from removal, lowest position first; possibly not all
}
