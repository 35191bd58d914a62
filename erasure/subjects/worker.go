package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
)

const (
	atOnce       = 2                // tenants whose subjects a process erases at the same time
	turnTime     = 10 * time.Second // after which other tenants have their turn
	pageEvents   = 500              // erased events that are looked at together
	pageSkipped  = 5000             // changes of a document: most are erased already if a turn begins again
	eraseTries   = 10               // of a transaction whose rows others use
	waitPause    = 2 * time.Second  // between two looks at rebuilds
	retryPause   = 30 * time.Second // after a failure
	rebuildPause = 10 * time.Minute // before a failed rebuild is started again
	maxKinds     = 200              // that an erasure notes: with more, it rebuilds all projections
	saltTries    = 5                // of erasing salts, within a turn
	maxCursors   = 10_000           // streams of which a turn notes how far they are erased
)

// plan is what an erasure notes for its later steps.
type plan struct {
	// Own and Shared are the numbers of the last builds of tenants' own projections, and of shared ones, that were
	// begun before everything was forgotten: builds with higher numbers have no erased data.
	Own         int64           `json:"own,omitempty"`
	Shared      int64           `json:"shared,omitempty"`
	Projections []projectionRef `json:"projections,omitempty"` // to rebuild
	// Pass is 1 once documents were rebuilt the first time: changes of documents may have been published from old ones
	// meanwhile, up to DerivedTo.
	Pass          int   `json:"pass,omitempty"`
	DerivedTo     int64 `json:"derivedTo,omitempty"`
	DerivedBefore int64 `json:"derivedBefore,omitempty"` // how many derived events were erased before this pass

	Kinds []eventlog.Kind `json:"kinds,omitempty"` // of the erased events; more than maxKinds: there may be any others
	// Salts are the positions of the events that were erased last. Their salts are left if the process ended then.
	Salts []int64 `json:"salts,omitempty"`
	// Stream is the one whose events were erased last as what the service has made, up to Version.
	Stream  string     `json:"stream,omitempty"`
	Version int64      `json:"version,omitempty"`
	Causes  causesPage `json:"causes,omitzero"`
}

// causesPage is a page of erased events, and how far the step derived has come with what the service has made of them.
type causesPage struct {
	After int64 `json:"after,omitempty"` // the page's positions are after this one
	UpTo  int64 `json:"upTo,omitempty"`  // and up to this one; 0: there is no page
	// MadeAfter is a position before all events that were erased as what the service has made. They are causes, too, so
	// the next page begins after it.
	MadeAfter   int64  `json:"madeAfter,omitempty"`
	Stream      string `json:"stream,omitempty"`      // the page's own streams are erased up to this one
	CausedAfter int64  `json:"causedAfter,omitempty"` // what its events have caused is erased up to this position
}

type projectionRef struct {
	Name   string `json:"name"`
	Shared bool   `json:"shared,omitempty"`
}

func (r projectionRef) id(tenant domain.TenantID) domain.ProjectionID {
	if r.Shared {
		tenant = domain.Everyone
	}
	return domain.ProjectionID{Owner: tenant, Name: r.Name}
}

// lastBefore returns the last build of an owner that may have erased data.
func (p *plan) lastBefore(owner domain.TenantID) int64 {
	if owner == domain.Everyone {
		return p.Shared
	}
	return p.Own
}

func namesOf(refs []projectionRef) []string {
	names := make([]string, len(refs))
	for i, ref := range refs {
		names[i] = ref.Name
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Run erases data subjects of the tenants that this process owns, until ctx ends. It returns nil.
func (s *Subjects) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.config.Every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := s.runOnce(ctx); err != nil && ctx.Err() == nil {
			s.config.Log.Warn("the erasures to continue could not be read; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-s.work:
		}
	}
	return nil
}

// runOnce gives each tenant with an erasure that is due a turn. Run looks again at once if there was one.
func (s *Subjects) runOnce(ctx context.Context) error {
	all, err := s.config.Store.ErasuresDue(ctx)
	if err != nil {
		return err
	}
	places := make(chan struct{}, atOnce)
	var turns sync.WaitGroup
	defer turns.Wait()
	for _, d := range all {
		if !s.config.Owns(d.tenant) {
			continue
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		turns.Go(func() {
			defer func() { <-places }()
			if s.continueErasure(ctx, d) {
				s.wake() // the tenant may have others
			}
		})
	}
	return nil
}

// continueErasure works on an erasure until it is done, has to wait, or turnTime is over. It returns false if it
// could not claim the erasure.
func (s *Subjects) continueErasure(ctx context.Context, d due) bool {
	worker := domain.NewUUID()
	e, taken, err := s.config.Store.claimErasure(ctx, d, worker)
	if err != nil || !taken {
		if err != nil && ctx.Err() == nil {
			s.config.Log.Warn("an erasure could not be continued; trying again", "tenant", d.tenant.String(), "erasure", d.id.String(), "error", err)
		}
		return false
	}
	job := &job{Subjects: s, due: d, worker: worker, e: &e, end: time.Now().Add(s.config.turn), cursors: make(map[string]int64)}
	pause, problem := time.Duration(0), ""
	working, stop := context.WithCancelCause(ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		job.renew(working, stop)
	}()
	err = job.forgetLastSalts(working)
	for more := err == nil; more; {
		more, pause, err = job.step(working)
		more = more && err == nil && !job.isOver()
	}
	if errors.Is(context.Cause(working), errTaken) {
		err = errTaken
	}
	stop(nil)
	<-renewed
	switch blocked, isBlocked := errors.AsType[*blockedError](err); {
	case e.State == Done || errors.Is(err, errTaken):
		return true
	case isBlocked:
		problem, pause = blocked.problem, blocked.pause
	case err != nil:
		problem, pause = "it failed, and is tried again: "+domain.ClientMessage(err), retryPause
		if ctx.Err() == nil {
			s.config.Log.Warn("an erasure failed; trying again", "tenant", d.tenant.String(), "erasure", d.id.String(), "step", string(e.Step), "error", err)
		}
	}
	leaving, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	if ctx.Err() != nil {
		problem, pause = e.Problem, 0
	}
	if err := s.config.Store.release(leaving, d, worker, problem, pause); err != nil {
		s.config.Log.Warn("an erasure could not be released; it continues when its lease expires", "erasure", d.id.String(), "error", err)
	}
	return true
}

// renew extends the lease until ctx ends, however long a step takes. It calls stop when another worker has taken over.
func (j *job) renew(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(lease / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch err := j.config.Store.renew(ctx, j.due, j.worker); {
		case errors.Is(err, errTaken):
			stop(errTaken)
		case err != nil && ctx.Err() == nil:
			j.config.Log.Warn("the lease of an erasure could not be extended; trying again", "erasure", j.id.String(), "error", err)
		}
	}
}

// blockedError is why an erasure waits.
type blockedError struct {
	problem string // empty: for what ends by itself
	pause   time.Duration
}

func (e *blockedError) Error() string { return e.problem }

// job is the work of one turn.
type job struct {
	*Subjects
	due
	worker     domain.UUID
	e          *Erasure
	personal   func(eventType string, version int64) []string // as this turn has read them
	publishers []domain.Projection                            // likewise: those that publish changes of documents
	unfinished eventlog.Unfinished                            // likewise
	end        time.Time                                      // of the turn
	cursors    map[string]int64                               // the versions up to which streams are erased
	making     bool                                           // eraseMade has erased something in this turn
}

// isOver reports whether other tenants should have their turn.
func (j *job) isOver() bool { return !time.Now().Before(j.end) }

// step makes progress in the erasure's step. more is false if the turn ends, and the next one begins after a pause.
func (j *job) step(ctx context.Context) (more bool, pause time.Duration, err error) {
	switch j.e.Step {
	case StepEvents:
		return true, 0, j.eraseEvents(ctx)
	case StepDerived:
		return true, 0, j.eraseDerived(ctx)
	case StepRows:
		if done, err := j.forget(ctx); err != nil || !done {
			return true, 0, err
		}
		return false, j.config.Settle, j.advance(ctx, StepSettle, j.config.Settle)
	case StepSettle:
		if done, err := j.settled(ctx); err != nil || !done {
			return true, 0, err
		}
		return true, 0, j.advance(ctx, StepDocuments, 0)
	case StepDocuments:
		if err := j.rebuild(ctx); err != nil {
			return false, 0, err
		}
		return true, 0, j.documentsDone(ctx)
	case StepReceipt:
		err := j.finish(ctx)
		return j.e.State != Done, 0, err
	}
	return false, 0, fmt.Errorf("this release does not know the step %q", j.e.Step)
}

// advance begins the next step.
func (j *job) advance(ctx context.Context, next Step, pause time.Duration) error {
	to := *j.e
	to.Step, to.Position, to.plan.Salts = next, 0, nil
	if err := j.config.Store.advance(ctx, j.due, j.worker, &to, pause); err != nil {
		return err
	}
	*j.e = to
	return nil
}

// forget removes what other tables have of the erased events, and the salts that a worker has left which ended after
// erase's transaction. It continues after the step's position. done is false if the turn is over before. It may be
// repeated.
func (j *job) forget(ctx context.Context) (done bool, err error) {
	for {
		page, err := j.config.Events.ErasedBy(ctx, j.tenant, j.e.ID, j.e.Position, pageEvents)
		if err != nil {
			return false, err
		}
		if len(page) == 0 {
			break
		}
		positions, streams := make([]int64, len(page)), make([]string, len(page))
		for i, event := range page {
			positions[i], streams[i] = event.Position, event.Stream
		}
		if err := j.forgetSalts(ctx, positions); err != nil {
			return false, err
		}
		slices.Sort(streams)
		streams = slices.Compact(streams)
		for i := range j.config.Owners {
			if owner := &j.config.Owners[i]; owner.Events != nil {
				changed, err := owner.Events(ctx, j.tenant, positions, streams)
				if err := j.addRows(ctx, owner, changed, err); err != nil {
					return false, err
				}
			}
		}
		j.e.Position = positions[len(positions)-1]
		if err := j.save(ctx); err != nil || j.isOver() {
			return false, err
		}
	}
	if j.e.Counts.none() {
		return true, nil // no event was erased, so nothing was made of any
	}
	for i := range j.config.Owners {
		if owner := &j.config.Owners[i]; owner.Tenant != nil {
			changed, err := owner.Tenant(ctx, j.tenant)
			if err := j.addRows(ctx, owner, changed, err); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// addRows counts the rows that an owner has changed, also if it has failed since. A repetition finds only new ones, so
// it saves the counts with an error.
func (j *job) addRows(ctx context.Context, owner *Owner, changed int64, err error) error {
	if changed > 0 {
		if j.e.Counts.Rows == nil {
			j.e.Counts.Rows = make(map[string]int64)
		}
		j.e.Counts.Rows[owner.Name] += changed
	}
	if err == nil {
		return nil
	}
	saving, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer done()
	return errors.Join(fmt.Errorf("%s: %w", owner.Name, err), j.save(saving))
}

// finish removes what was written meanwhile, and ends the erasure with its receipt. If retagging has given the tag to
// further events meanwhile, the erasure begins again with them.
func (j *job) finish(ctx context.Context) error {
	left, err := j.config.Events.TaggedPositions(ctx, j.tenant, TagOf(j.e.subject), 0, j.e.Until, 1)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		j.e.plan = plan{}
		return j.advance(ctx, StepEvents, 0)
	}
	if done, err := j.forget(ctx); err != nil || !done {
		return err
	}
	erased, now, err := j.config.Store.erasedAt(ctx, j.due)
	if err != nil {
		return err
	}
	signed, err := j.config.Keys.SignJSON(ctx, j.e.receipt(j.tenant, erased, now, j.config.Backups))
	if err != nil {
		return err
	}
	if err := j.config.Store.finish(ctx, j.due, j.worker, signed, now); err != nil {
		return err
	}
	j.e.State = Done
	j.config.Log.Info("a data subject was erased", "tenant", j.tenant.String(), "erasure", j.e.ID.String())
	return nil
}
