package subjects

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/pg"
)

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

// eraseStream erases all events of a stream up to a position, as what the service has made. done is false if the turn
// is over; it has erased some events then.
func (j *job) eraseStream(ctx context.Context, stream string, upTo int64) (done bool, err error) {
	if err := j.readUnfinished(ctx); err != nil {
		return false, err
	}
	after := j.cursors[stream]
	if j.e.plan.Stream == stream {
		after = max(after, j.e.plan.Version)
	}
	for {
		positions, last, err := j.config.Events.UnerasedOf(ctx, j.tenant, j.unfinished, stream, after, upTo, pageSkipped)
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

// eraseMade erases events that the service has made. It saves a position before them, at which a process of a release
// without causesPage continues.
func (j *job) eraseMade(ctx context.Context, positions []int64) error {
	if !j.making { // what was skipped before is skipped again in the next turn, so it must not use up this one
		j.making, j.end = true, time.Now().Add(j.config.turn)
	}
	before := positions[0] - 1
	j.e.plan.Causes.MadeAfter = min(j.e.plan.Causes.MadeAfter, before)
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
	causes, after := &j.e.plan.Causes, j.e.Position
	if causes.UpTo > 0 {
		after = causes.After
	}
	page, err := j.config.Events.ErasedBy(ctx, j.tenant, j.e.ID, after, pageEvents)
	if err != nil {
		return err
	}
	if causes.UpTo == 0 {
		if len(page) == 0 {
			return j.derivedDone(ctx)
		}
		causes.After, causes.UpTo = after, page[len(page)-1].Position
		causes.MadeAfter = causes.UpTo
	}
	if done, err := j.eraseCausedBy(ctx, page); err != nil || !done {
		return err
	}
	j.e.Position, j.e.plan.Causes = causes.MadeAfter, causesPage{}
	return j.save(ctx)
}

// eraseCausedBy erases what the service has made of a page of erased events. done is false if the turn is over.
func (j *job) eraseCausedBy(ctx context.Context, page []eventlog.ErasedEvent) (done bool, err error) {
	categories, err := j.changesCategories(ctx)
	if err != nil {
		return false, err
	}
	causes := &j.e.plan.Causes
	var tags []string
	streams := make(map[string]bool) // of changes
	for _, event := range page {
		if event.Position > causes.UpTo {
			break // it was erased after the page was read, and is in a later page
		}
		tags = append(tags, domain.CauseTag(event.ID))
		if slices.Contains(categories, domain.Category(event.Stream)) {
			streams[event.Stream] = true // there may be later changes
		}
	}
	if err := j.readUnfinished(ctx); err != nil {
		return false, err
	}
	for _, stream := range slices.Sorted(maps.Keys(streams)) {
		if stream <= causes.Stream {
			continue
		}
		if done, err := j.eraseStream(ctx, stream, j.e.plan.DerivedTo); err != nil || !done {
			return false, err
		}
		causes.Stream = stream // saved with the next progress
	}
	for {
		caused, last, err := j.config.Events.CausedBy(ctx, j.tenant, tags, categories, domain.ReportPrefixes(),
			causes.CausedAfter, j.e.plan.DerivedTo, pageEvents)
		if err != nil || last == 0 {
			return err == nil, err
		}
		if done, err := j.eraseCaused(ctx, caused); err != nil || !done {
			return false, err
		}
		causes.CausedAfter = last
		if err := j.save(ctx); err != nil || j.isOver() {
			return false, err
		}
	}
}

// eraseCaused erases reports, and all changes of the documents that some of them show. done is false if the turn is
// over.
func (j *job) eraseCaused(ctx context.Context, caused []eventlog.Caused) (done bool, err error) {
	var reports []int64
	for _, event := range caused {
		if domain.IsReport(event.Stream) {
			reports = append(reports, event.Position)
		}
	}
	if reports, err = j.config.Events.Unerased(ctx, j.tenant, j.unfinished, reports); err != nil {
		return false, err
	}
	for part := range slices.Chunk(reports, eventlog.EraseAtOnce) {
		if err := j.eraseMade(ctx, part); err != nil || j.isOver() {
			return false, err
		}
	}
	erased := make(map[string]bool)
	for _, event := range caused {
		if domain.IsReport(event.Stream) || erased[event.Stream] {
			continue
		}
		if done, err := j.eraseStream(ctx, event.Stream, j.e.plan.DerivedTo); err != nil || !done {
			return false, err
		}
		erased[event.Stream] = true
		j.e.plan.Causes.CausedAfter = event.Position // saved with the next progress
	}
	return true, nil
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
