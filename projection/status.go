package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// State is the condition of a projection for one tenant.
type State string

// The states.
const (
	StateRunning     State = "running"     // there are events that it has not folded yet
	StateCaughtUp    State = "caught-up"   // every event of its source is folded
	StateFaulted     State = "faulted"     // it stopped before an event that cannot be folded
	StateHeld        State = "held"        // a rebuild is about to swap in its build
	StateUnavailable State = "unavailable" // its database does not answer: it resumes by itself
	StateLost        State = "lost"        // the table of its documents is missing: a rebuild restores it
)

// Status is the detailed condition of a projection for one tenant.
type Status struct {
	Projection domain.Projection
	State      State
	Known      bool          // Checkpoint, LagEvents and Lag are known: the projection's database has answered
	Checkpoint int64         // the position up to which nothing is left to fold, as in Position
	Head       int64         // the log's newest position
	LagEvents  int64         // events of its source that are not folded yet, between Checkpoint and Head
	Lag        time.Duration // the age of the first of them; 0: none
	Fault      *domain.Fault // with StateFaulted
	Loss       []domain.Loss // what retention had removed when the documents were made, by category
	Parked     int64         // parked documents, in any state
	Error      string        // with StateUnavailable and StateLost; with StateRunning if it is stuck or not inline yet
	Since      time.Time     // with Error: since when, if this process knows
	NextTry    time.Time     // with Error: the time of the next try, if this process knows
}

// Status returns the projection's status for the tenant.
func (c *Catalog) Status(ctx context.Context, tenant domain.TenantID, name string) (Status, error) {
	s, err := c.status(ctx, tenant, name)
	if err == nil && s.State == StateLost {
		// Another build may have gone live since, and this one been dropped.
		build := s.Projection.Build
		if s, err = c.status(ctx, tenant, name); err == nil && s.State == StateLost && s.Projection.Build != build {
			s, err = c.status(ctx, tenant, name)
		}
	}
	return s, err
}

func (c *Catalog) status(ctx context.Context, tenant domain.TenantID, name string) (Status, error) {
	p, err := c.Live(ctx, tenant, name)
	if err != nil {
		return Status{}, err
	}
	s, err := c.statusOf(ctx, tenant, p)
	if err != nil {
		return Status{}, fmt.Errorf("the status of projection %q: %w", name, err)
	}
	return s, nil
}

func (c *Catalog) statusOf(ctx context.Context, tenant domain.TenantID, p domain.Projection) (Status, error) {
	s := Status{Projection: p, State: StateCaughtUp}
	head, err := c.config.Store.Head(ctx, tenant)
	if err != nil {
		return Status{}, err
	}
	s.Head = head.Position
	if s.Loss, err = c.loss(ctx, tenant, p); err != nil {
		return Status{}, err
	}
	if p.Definition.Mode == domain.ModeLive {
		s.Known, s.Checkpoint = true, s.Head // nothing is stored that could lag
		return s, nil
	}
	trouble, troubled := c.config.Progress.trouble(p.ProjectionID, tenant)
	if s.Checkpoint, err = c.checkpoint(ctx, tenant, p); err != nil {
		if ctx.Err() != nil {
			return Status{}, err
		}
		s.State, s.Error, s.Since, s.NextTry = StateUnavailable, c.unreadable(p, err), trouble.Since, trouble.NextTry
		if outage, out := c.config.Outages.of(p.Definition.Database); out {
			s.Since, s.NextTry = outage.Since, outage.NextTry
		}
		if errors.Is(err, drivers.ErrNoTable) {
			s.State, s.NextTry = StateLost, time.Time{}
		}
		return s, nil
	}
	s.Known = true
	fault, faulted, err := c.config.Store.Fault(ctx, tenant, p.ProjectionID, p.Build)
	if err != nil {
		return Status{}, err
	}
	if s.Parked, err = c.config.Store.CountParked(ctx, tenant, p.ProjectionID, p.Build); err != nil {
		return Status{}, err
	}
	stored := s.Checkpoint
	if err := c.lag(ctx, tenant, &s); err != nil {
		return Status{}, err
	}
	switch {
	// A fault before the checkpoint was overcome by a later attempt.
	case faulted && fault.Position > stored:
		s.State, s.Fault = StateFaulted, &fault
	case p.HeldBy != "":
		s.State = StateHeld
	case s.LagEvents > 0:
		s.State = StateRunning
	case p.Definition.Mode == domain.ModeInline && !p.Inline && s.Head > 0:
		s.State, s.Error = StateRunning, "it has caught up, and appends are about to take over"
	}
	if s.State == StateRunning && troubled {
		s.Error, s.Since, s.NextTry = trouble.Error, trouble.Since, trouble.NextTry
	}
	return s, nil
}

// unreadable says, for people, why a projection's checkpoint could not be read.
func (c *Catalog) unreadable(p domain.Projection, err error) string {
	if errors.Is(err, drivers.ErrNoTable) {
		return domain.ClientMessage(c.noTable(p))
	}
	if _, out := c.config.Outages.of(p.Definition.Database); out {
		return fmt.Sprintf("the database %q does not answer", p.Definition.Database)
	}
	return domain.ClientMessage(err)
}

// noTable returns the error for a projection whose live build's table is missing: domain.CodeUnavailable, since there
// is nothing to read until another build is live. It also reports the loss, which a projection without new events would
// not notice.
func (c *Catalog) noTable(p domain.Projection) error {
	if c.config.Lost != nil {
		c.config.Lost(p.ProjectionID, p.Build)
	}
	return fmt.Errorf("%w (%w)", domain.Errorf(domain.CodeUnavailable, "",
		"the documents of projection %q are missing: the table of its build %d is not in database %q, which was emptied or replaced. A rebuild folds them again from the log. A worker starts one by itself; if the projection has no running rebuild, start one",
		p.Name, p.Build, p.Definition.Database), drivers.ErrNoTable)
}

func (c *Catalog) lag(ctx context.Context, tenant domain.TenantID, s *Status) error {
	definition, stored := s.Projection.Definition, s.Checkpoint
	var next time.Time
	var err error
	if s.Checkpoint, next, err = c.progress(ctx, tenant, s.Projection, stored, s.Head); err != nil || next.IsZero() {
		return err
	}
	s.Lag = max(0, time.Since(next))
	s.LagEvents, err = c.config.Store.CountEvents(ctx, tenant, definition.Source, c.types(definition), stored, s.Head)
	s.LagEvents = max(1, s.LagEvents) // retention may have removed the event meanwhile
	return err
}

// progress returns the position up to which a projection with a stored checkpoint has nothing left to fold. It also
// returns when the next event to fold was recorded; zero if there is none up to head.
func (c *Catalog) progress(ctx context.Context, tenant domain.TenantID, p domain.Projection, checkpoint, head int64) (int64, time.Time, error) {
	if checkpoint >= head {
		return checkpoint, time.Time{}, nil
	}
	next, err := c.config.Store.ReadLog(ctx, tenant, domain.LogQuery{
		From: checkpoint + 1, Limit: 1, Categories: p.Definition.Source.Categories, Types: c.types(p.Definition),
	})
	if err != nil || len(next) == 0 || next[0].Position > head {
		return head, time.Time{}, err
	}
	return next[0].Position - 1, next[0].RecordedAt, nil
}
