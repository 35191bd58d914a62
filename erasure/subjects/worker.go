package subjects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/rebuild"
)

const (
	atOnce       = 2                // tenants whose subjects a process erases at the same time
	turnTime     = 10 * time.Second // after which other tenants have their turn
	pageEvents   = 500              // erased events that are looked at together
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
	Stream  string `json:"stream,omitempty"`
	Version int64  `json:"version,omitempty"`
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
			if s.turn(ctx, d) {
				s.wake() // the tenant may have others
			}
		})
	}
	return nil
}

// turn takes an erasure as far as it can go now, and in turnTime. It returns false if it has not taken it.
func (s *Subjects) turn(ctx context.Context, d due) bool {
	worker := domain.NewUUID()
	e, taken, err := s.config.Store.take(ctx, d, worker)
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
	madeAfter  int64                                          // a position before all that eraseMade has erased
}

// isOver says whether other tenants should have their turn.
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

// eraseEvents erases the next of the subject's events.
func (j *job) eraseEvents(ctx context.Context) error {
	positions, err := j.config.Events.TaggedPositions(ctx, j.tenant, TagOf(j.e.subject), j.e.Position, j.e.Until, eventlog.EraseAtOnce)
	if err != nil {
		return err
	}
	if len(positions) == 0 {
		head, err := j.config.Events.Head(ctx, j.tenant)
		if err != nil {
			return err
		}
		j.e.plan.DerivedTo = head.Position
		return j.advance(ctx, StepDerived, 0)
	}
	if err := j.prepare(ctx); err != nil {
		return err
	}
	events, err := j.config.Events.ReadPositions(ctx, j.tenant, positions)
	if err != nil {
		return err
	}
	if done, err := j.eraseChanges(ctx, events); err != nil || !done {
		return err
	}
	erasing := eventlog.Erasing{Erasure: j.e.ID, Tag: TagOf(j.e.subject)}
	if j.e.What == Personal {
		erasing.Personal = j.personal
	}
	return j.erase(ctx, erasing, positions, positions[len(positions)-1])
}

// prepare reads what the steps need of definitions, once in a turn.
func (j *job) prepare(ctx context.Context) (err error) {
	if j.personal != nil {
		return nil
	}
	for _, owner := range []domain.TenantID{j.tenant, domain.Everyone} {
		projections, err := j.config.Registry.Projections(ctx, owner)
		if err != nil {
			return err
		}
		for _, p := range projections {
			live, err := j.config.Registry.LiveProjection(ctx, j.tenant, p.ProjectionID)
			switch {
			case domain.IsCode(err, domain.CodeNotFound):
			case err != nil:
				return err
			case live.Definition.PublishChanges && live.Definition.Mode != domain.ModeLive:
				j.publishers = append(j.publishers, live)
			}
		}
	}
	j.personal, err = j.config.Personal(ctx, j.tenant)
	return err
}

// eraseChanges erases all changes of the documents that events belong to, while the events still say which. A change
// shows its whole document, but has only the last of several events as its cause. done is false if the turn is over.
func (j *job) eraseChanges(ctx context.Context, events []domain.Event) (done bool, err error) {
	for _, p := range j.publishers {
		ids, err := j.config.Catalog.DocumentIDs(ctx, j.tenant, p, events)
		if err != nil {
			return false, err
		}
		for _, id := range ids {
			if done, err := j.eraseStream(ctx, domain.ChangesStream(p.Name, id), math.MaxInt64); err != nil || !done {
				return false, err
			}
		}
	}
	return true, nil
}

// eraseStream erases all events of a stream up to a position, as what the service has made. done is false if the turn is
// over; it has erased some events then.
func (j *job) eraseStream(ctx context.Context, stream string, upTo int64) (done bool, err error) {
	if err := j.readUnfinished(ctx); err != nil {
		return false, err
	}
	after := j.cursors[stream]
	if j.e.plan.Stream == stream {
		after = max(after, j.e.plan.Version)
	}
	for {
		positions, last, err := j.config.Events.UnerasedOf(ctx, j.tenant, j.unfinished, stream, after, upTo, pageEvents)
		if err != nil || last == 0 {
			return err == nil, err
		}
		for part := range slices.Chunk(positions, eventlog.EraseAtOnce) {
			if err := j.eraseMade(ctx, part); err != nil {
				return false, err
			}
			if j.isOver() {
				return false, nil
			}
		}
		if len(j.cursors) >= maxCursors {
			clear(j.cursors)
		}
		after, j.cursors[stream] = last, last
		j.e.plan.Stream, j.e.plan.Version = stream, last // saved with the next progress
	}
}

// readUnfinished reads, once in a turn, which erasures are not finished.
func (j *job) readUnfinished(ctx context.Context) (err error) {
	if j.unfinished.At.IsZero() {
		j.unfinished, err = j.config.Store.unfinished(ctx, j.due)
	}
	return err
}

// eraseMade erases events that the service has made. The step continues before them.
func (j *job) eraseMade(ctx context.Context, positions []int64) error {
	before := positions[0] - 1
	j.madeAfter = min(j.madeAfter, before)
	return j.erase(ctx, eventlog.Erasing{Erasure: j.e.ID, Derived: true}, positions, min(j.e.Position, before))
}

// erase erases events and their salts, and saves how far the step has come.
func (j *job) erase(ctx context.Context, erasing eventlog.Erasing, positions []int64, to int64) error {
	for attempt := 1; ; attempt++ {
		var bytes int64
		var erased eventlog.Erased
		var next Erasure
		erasing.Erased = &erased
		err := j.config.Events.Erase(ctx, j.tenant, erasing, positions, func(tx pgx.Tx) (err error) {
			bytes, err = limits.CountedBytes(ctx, tx, j.tenant, positions)
			return err
		}, func(tx pgx.Tx) error {
			if err := limits.Recount(ctx, tx, j.tenant, positions, bytes); err != nil {
				return err
			}
			next = j.e.with(erased, erasing.Derived)
			next.Position, next.plan.Salts = to, positions
			return saveProgress(ctx, tx, j.due, j.worker, &next)
		})
		if err == nil {
			*j.e = next
			return j.forgetLastSalts(ctx) // at once, since whoever verifies the log sees a change until then
		}
		if !pg.Busy(pg.SQLState(err)) || attempt == eraseTries {
			return pg.Unavailable(err)
		}
		pg.BackOff(ctx, attempt)
	}
}

// save saves how far a step that erases nothing has come.
func (j *job) save(ctx context.Context) error {
	return pg.Under(ctx, j.config.Store.db.App, j.tenant, func(tx pgx.Tx) error { return saveProgress(ctx, tx, j.due, j.worker, j.e) })
}

// forgetLastSalts erases the salts of the events that were erased last, unless the step has ended since. A turn begins
// with it, in case the one before has ended in between.
func (j *job) forgetLastSalts(ctx context.Context) error {
	for attempt := 1; len(j.e.plan.Salts) > 0; attempt++ {
		err := j.forgetSalts(ctx, j.e.plan.Salts)
		if err == nil || attempt == saltTries || ctx.Err() != nil {
			return err
		}
		pg.BackOff(ctx, attempt)
	}
	return nil
}

// forgetSalts leaves receipts about erased events, and erases what their contents could be guessed with.
func (j *job) forgetSalts(ctx context.Context, positions []int64) error {
	return j.config.ForgetSalts(ctx, j.tenant, "erasure "+j.e.ID.String(), positions)
}

// with returns the erasure with the counts and kinds of further erased events.
func (e *Erasure) with(erased eventlog.Erased, derived bool) Erasure {
	next := *e
	next.Counts.Events = maps.Clone(e.Counts.Events)
	if next.Counts.Events == nil {
		next.Counts.Events = make(map[string]int64)
	}
	for name, n := range erased.Types {
		if derived {
			next.Counts.DerivedEvents += n
		} else {
			next.Counts.Events[name] += n
		}
	}
	next.Counts.Streams += int64(len(erased.Streams))
	for _, stream := range erased.Streams {
		if strings.Contains(stream, e.subject) {
			next.Counts.NamedStreams++
		}
	}
	next.plan.Kinds = withKinds(e.plan.Kinds, erased.Kinds)
	return next
}

// withKinds returns kinds with further ones, until they are more than maxKinds.
func withKinds(kinds, further []eventlog.Kind) []eventlog.Kind {
	kinds = slices.Clip(kinds)
	for _, kind := range further {
		if len(kinds) <= maxKinds && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// eraseDerived erases what the service has made of the next erased events: changes of documents, with all other changes
// of these documents, and reports. It looks at the events that it erases, too.
func (j *job) eraseDerived(ctx context.Context) error {
	page, err := j.config.Events.ErasedBy(ctx, j.tenant, j.e.ID, j.e.Position, pageEvents)
	if err != nil {
		return err
	}
	if len(page) == 0 {
		return j.derivedDone(ctx)
	}
	categories, err := j.changesCategories(ctx)
	if err != nil {
		return err
	}
	tags := make([]string, len(page))
	streams := make(map[string]bool) // of changes
	for i, event := range page {
		tags[i] = domain.CauseTag(event.ID)
		if slices.Contains(categories, domain.Category(event.Stream)) {
			streams[event.Stream] = true // there may be later changes
		}
	}
	caused, err := j.config.Events.CausedBy(ctx, j.tenant, tags, categories, domain.ReportPrefixes(), j.e.plan.DerivedTo)
	if err != nil {
		return err
	}
	var reports []int64
	for _, event := range caused {
		if domain.IsReport(event.Stream) {
			reports = append(reports, event.Position)
		} else {
			streams[event.Stream] = true
		}
	}
	if err := j.readUnfinished(ctx); err != nil {
		return err
	}
	if reports, err = j.config.Events.Unerased(ctx, j.tenant, j.unfinished, reports); err != nil {
		return err
	}
	j.madeAfter = page[len(page)-1].Position
	for part := range slices.Chunk(reports, eventlog.EraseAtOnce) {
		if err := j.eraseMade(ctx, part); err != nil || j.isOver() {
			return err
		}
	}
	for _, stream := range slices.Sorted(maps.Keys(streams)) {
		if done, err := j.eraseStream(ctx, stream, j.e.plan.DerivedTo); err != nil || !done {
			return err
		}
	}
	j.e.Position = j.madeAfter // to look for what was made of the events that were erased just now, too
	return j.save(ctx)
}

// changesCategories returns the categories of changes of the tenant's projections and of shared ones.
func (j *job) changesCategories(ctx context.Context) (categories []string, err error) {
	for _, owner := range []domain.TenantID{j.tenant, domain.Everyone} {
		projections, err := j.config.Registry.Projections(ctx, owner)
		if err != nil {
			return nil, err
		}
		for i := range projections {
			categories = append(categories, domain.ChangesCategory(projections[i].Name))
		}
	}
	return categories, nil
}

// derivedDone ends the step after its last event.
func (j *job) derivedDone(ctx context.Context) error {
	if j.e.plan.Pass == 1 && j.e.Counts.DerivedEvents == j.e.plan.DerivedBefore {
		return j.advance(ctx, StepReceipt, 0)
	}
	return j.advance(ctx, StepRows, 0)
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
				if err := j.addRows(owner, changed, err); err != nil {
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
		return true, nil // nothing was made of nothing
	}
	for i := range j.config.Owners {
		if owner := &j.config.Owners[i]; owner.Tenant != nil {
			changed, err := owner.Tenant(ctx, j.tenant)
			if err := j.addRows(owner, changed, err); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// addRows counts the rows that an owner has changed. A repetition finds only new ones.
func (j *job) addRows(owner *Owner, changed int64, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", owner.Name, err)
	}
	if changed > 0 {
		if j.e.Counts.Rows == nil {
			j.e.Counts.Rows = make(map[string]int64)
		}
		j.e.Counts.Rows[owner.Name] += changed
	}
	return nil
}

// settled notes which builds may have erased data, and which projections to rebuild. done is false if the turn is over
// before.
func (j *job) settled(ctx context.Context) (done bool, err error) {
	if done, err := j.forget(ctx); err != nil || !done {
		return false, err
	}
	// Builds that begin from here on read only erased events.
	if j.e.plan.Own, err = j.config.Registry.NextBuild(ctx, j.tenant); err != nil {
		return false, err
	}
	if j.e.plan.Shared, err = j.config.Registry.NextBuild(ctx, domain.Everyone); err != nil {
		return false, err
	}
	j.e.plan.Projections, err = j.affected(ctx, j.tenant, j.e.plan.Kinds)
	j.e.Counts.Projections = namesOf(append(slices.Clone(j.e.plan.Projections), refs(j.e.Counts.Projections)...))
	return err == nil, err
}

func refs(names []string) []projectionRef {
	of := make([]projectionRef, len(names))
	for i, name := range names {
		of[i].Name = name
	}
	return of
}

// affected returns the projections with stored documents that fold events of these kinds, or that are being rebuilt,
// since their next definition may.
func (s *Subjects) affected(ctx context.Context, tenant domain.TenantID, kinds []eventlog.Kind) (affected []projectionRef, err error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	for _, owner := range []domain.TenantID{tenant, domain.Everyone} {
		projections, err := s.config.Registry.Projections(ctx, owner)
		if err != nil {
			return nil, err
		}
		for _, p := range projections {
			folds := false
			if p.Definition.Mode != domain.ModeLive {
				categories, types := s.config.Catalog.Selects(p)
				folds = len(kinds) > maxKinds || slices.ContainsFunc(kinds, func(k eventlog.Kind) bool {
					return (len(categories) == 0 || slices.Contains(categories, k.Category)) && (len(types) == 0 || slices.Contains(types, k.Type))
				})
			}
			if !folds {
				if folds, err = s.isRebuilt(ctx, p.ProjectionID); err != nil {
					return nil, err
				}
			}
			if folds {
				affected = append(affected, projectionRef{p.Name, owner == domain.Everyone})
			}
		}
	}
	return affected, nil
}

func (s *Subjects) isRebuilt(ctx context.Context, id domain.ProjectionID) (bool, error) {
	rebuilds, err := s.config.Registry.Rebuilds(ctx, id)
	return slices.ContainsFunc(rebuilds, func(r domain.Rebuild) bool { return !r.State.Ended() }), err
}

// rebuild replaces the documents that were folded from erased events. It returns a blockedError while rebuilds are
// under way.
func (j *job) rebuild(ctx context.Context) error {
	var waits *blockedError
	for _, ref := range j.e.plan.Projections {
		blocked, err := j.rebuildOne(ctx, ref)
		if err != nil {
			return err
		}
		if blocked != nil && (waits == nil || blocked.problem != "") {
			waits = blocked
		}
	}
	if waits != nil {
		return waits
	}
	return j.dropOld(ctx)
}

func (j *job) rebuildOne(ctx context.Context, ref projectionRef) (*blockedError, error) {
	id := ref.id(j.tenant)
	live, err := j.config.Registry.LiveProjection(ctx, j.tenant, id)
	if domain.IsCode(err, domain.CodeNotFound) {
		return nil, nil // its documents are in a retired build
	}
	if err != nil {
		return nil, err
	}
	rebuilds, err := j.config.Registry.Rebuilds(ctx, id)
	if err != nil {
		return nil, err
	}
	last := j.e.plan.lastBefore(id.Owner)
	by := "erasure " + j.e.ID.String()
	for _, r := range rebuilds {
		if r.State.Ended() {
			continue
		}
		if live.Build > last && r.Build > last {
			break
		}
		if r.By == by {
			return &blockedError{pause: waitPause}, nil
		}
		return &blockedError{fmt.Sprintf("it waits for the end of rebuild %s of projection %q", r.ID, ref.Name), waitPause}, nil
	}
	if live.Definition.Mode == domain.ModeLive || live.Build > last {
		return nil, nil
	}
	failed := func(r domain.Rebuild) bool {
		return r.By == by && r.Build > last && r.State.Ended() && time.Since(r.EndedAt) < rebuildPause
	}
	if i := slices.IndexFunc(rebuilds, failed); i >= 0 {
		return &blockedError{fmt.Sprintf("rebuild %s of projection %q did not replace its documents; correct the definition, and rebuild it, or wait until that is tried again",
			rebuilds[i].ID, ref.Name), waitPause}, nil
	}
	request := rebuild.Request{RebuildOptions: domain.RebuildOptions{Keep: time.Second, AcceptLoss: j.e.AcceptLoss, NoExamples: true}, By: by}
	if ref.Shared {
		request.Tenants = []domain.TenantID{j.tenant}
	}
	_, err = j.config.Rebuilds.Start(ctx, id, request)
	switch {
	case domain.IsCode(err, domain.CodeEventsRemoved):
		remedy := "repeat the request with acceptLoss"
		if j.e.ApprovedBy != nil {
			remedy = "rebuild it with acceptLoss"
		}
		return &blockedError{fmt.Sprintf("projection %q cannot be rebuilt without loss, since retention has removed events that it needs; %s", ref.Name, remedy), retryPause}, nil
	case err != nil && !domain.IsCode(err, domain.CodeRebuildRunning):
		return &blockedError{fmt.Sprintf("projection %q cannot be rebuilt: %s", ref.Name, domain.ClientMessage(err)), retryPause}, nil
	}
	return &blockedError{pause: waitPause}, nil
}

// dropOld removes the tenant's documents from all builds that may have erased data and are not live.
func (j *job) dropOld(ctx context.Context) error {
	for _, owner := range []domain.TenantID{j.tenant, domain.Everyone} {
		builds, err := j.config.Registry.Builds(ctx, owner)
		if err != nil {
			return err
		}
		for _, build := range builds {
			live, err := j.config.Registry.LiveProjection(ctx, j.tenant, build.ProjectionID)
			if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
				return err
			}
			if err == nil && live.Build == build.Number || build.Number > j.e.plan.lastBefore(owner) {
				continue
			}
			driver, ok := j.config.Drivers[build.Database]
			if !ok {
				return &blockedError{fmt.Sprintf("old documents of projection %q are in the database %q, which is not in the configuration", build.Name, build.Database), retryPause}
			}
			if err := driver.DropTenant(ctx, build, j.tenant); err != nil && !errors.Is(err, drivers.ErrNoTable) {
				return fmt.Errorf("projection %s, build %d: %w", build.Name, build.Number, err)
			}
		}
	}
	return nil
}

// documentsDone ends the step. The first time, changes may have been published from old documents meanwhile.
func (j *job) documentsDone(ctx context.Context) error {
	if j.e.plan.Pass == 1 {
		return j.advance(ctx, StepReceipt, 0)
	}
	head, err := j.config.Events.Head(ctx, j.tenant)
	if err != nil {
		return err
	}
	j.e.plan.Pass, j.e.plan.DerivedTo, j.e.plan.DerivedBefore = 1, head.Position, j.e.Counts.DerivedEvents
	return j.advance(ctx, StepDerived, 0)
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
