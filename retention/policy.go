package retention

import (
	"fmt"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Policy says what retention removes of one category of a tenant's log. At least one of MaxAge, MaxCount and
// Compact must be set. An event is removed if any of them applies to it and nothing holds it. Remaining events keep
// their positions and versions.
type Policy struct {
	Category string
	MaxAge   time.Duration // whole seconds: older events are removed; 0: no limit
	MaxCount int64         // this many of the category's newest events stay; 0: no limit
	Compact  bool          // only the newest event of each stream stays
	Force    Force
}

// Limits of policies.
const (
	MaxPolicies = 1000 // of a tenant; concurrent creation may exceed it slightly; beyond it the error is domain.CodeQuotaExceeded

	MinAge       = time.Second
	MaxAge       = 100 * 365 * 24 * time.Hour
	MaxCount     = 1_000_000_000
	MaxForced    = 100 // names of one kind
	MaxHoldsKept = 20  // holds of the last run, in its policy's status
)

// Force names readers whose holds are ignored: retention removes events that they still have to read.
type Force struct {
	Groups      []string `json:"groups,omitempty"`      // and the events of their dead letters
	Projections []string `json:"projections,omitempty"` // and the events of their parked documents; not their rebuilds
	Rebuilds    []string `json:"rebuilds,omitempty"`    // by the names of their projections
}

// Check returns an error if the policy is invalid.
func (p *Policy) Check() error {
	if err := domain.CheckCategory("category", p.Category); err != nil {
		return err
	}
	switch {
	case p.MaxAge == 0 && p.MaxCount == 0 && !p.Compact:
		return domain.Errorf(domain.CodeInvalidRequest, "", "the policy removes nothing: give maxAge, maxCount or compact; DELETE ends retention of the category")
	case p.MaxAge != 0 && (p.MaxAge < MinAge || p.MaxAge > MaxAge):
		return domain.Errorf(domain.CodeInvalidRequest, "maxAge", "invalid age %s; give 1 to %d seconds", p.MaxAge, int64(MaxAge/time.Second))
	case p.MaxAge%time.Second != 0:
		return domain.Errorf(domain.CodeInvalidRequest, "maxAge", "%s is not a whole number of seconds", p.MaxAge)
	case p.MaxCount < 0 || p.MaxCount > MaxCount:
		return domain.Errorf(domain.CodeInvalidRequest, "maxCount", "invalid number of events %d; give 1 to %d", p.MaxCount, int64(MaxCount))
	}
	for where, names := range map[string][]string{"force.groups": p.Force.Groups, "force.projections": p.Force.Projections, "force.rebuilds": p.Force.Rebuilds} {
		if len(names) > MaxForced {
			return domain.Errorf(domain.CodeInvalidRequest, where, "there are %d names; at most %d are allowed", len(names), MaxForced)
		}
		for i, name := range names {
			if err := domain.CheckAlphabet(fmt.Sprintf("%s[%d]", where, i), "name", name, 2*domain.MaxNameBytes, "-_."); err != nil {
				return err
			}
		}
	}
	return nil
}

// Forces reports whether the policy ignores a hold.
func (f *Force) Forces(h domain.RetentionHold) bool {
	switch h.Kind {
	case domain.HoldGroup:
		return slices.Contains(f.Groups, h.Name)
	case domain.HoldProjection:
		return slices.Contains(f.Projections, h.Name)
	case domain.HoldRebuild:
		return slices.Contains(f.Rebuilds, h.Name)
	}
	return false
}

// Status is a policy with its results so far.
type Status struct {
	Policy
	Revision  int64 // increases with each change
	CreatedAt time.Time
	UpdatedAt time.Time
	Floor     domain.RetentionFloor
	Spared    int64                  // events that are due for removal but kept, because a dead letter or a parked document names them
	HeldBy    []domain.RetentionHold // holds of the last run, lowest position first; possibly not all
	AskedAt   time.Time              // when a run was requested that has not ended; zero: none was
	LastRunAt time.Time              // when the last run ended; zero: there was none
	LastError string                 // why the last run failed; empty: it succeeded
}

// RunID identifies one run of a policy. Of two concurrent runs, only the one that began last removes events.
type RunID domain.UUID

// NewRunID returns a new id.
func NewRunID() RunID { return RunID(domain.NewUUID()) }

// Preview says what a run of a policy would do now.
type Preview struct {
	Events   int64                  // the number of events it would remove
	Complete bool                   // all events were counted; otherwise there may be more
	HeldBy   []domain.RetentionHold // what keeps more events from removal, lowest position first; possibly not all
}
