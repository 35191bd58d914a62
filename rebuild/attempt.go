package rebuild

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// attempt is one run through the phases of a rebuild. Each phase can be repeated, after an error or by another process
// after a crash, and continues from what is saved:
//
//	phase                   | method        | next phase
//	RebuildBuilding         | buildUp       | RebuildCatchingUp
//	RebuildCatchingUp       | catchUp       | RebuildValidating
//	RebuildValidating       | validate      | none for a dry run; swap if approved; otherwise RebuildAwaitingApproval
//	RebuildAwaitingApproval | awaitApproval | swap
//	(keeps the last one)    | swap          | none
//
// A definition that stores no documents has nothing to build, and begins with RebuildValidating. The rebuild's row
// never returns to an earlier state.
type attempt struct {
	*work
	row    domain.Rebuild // the parts that never change
	build  domain.Build
	driver drivers.Driver
	fold   *folding.Fold
	limits projection.Limits  // of all batches together
	rate   *throttle          // nil: unlimited
	pacing *projection.Pacing // nil: it does not pause for appends
	ahead  int64              // positions of the last pass over the logs; 0: the next is not compared with it
	// version is the version of the definition, whose skipped events apply; 0: it has no version yet.
	version int64
	began   time.Time // replicas that are read have what was committed then

	mu        sync.Mutex
	positions map[domain.TenantID]int64              // how far each tenant's log is folded
	swapped   map[domain.TenantID]bool               // tenants of a partial rebuild for whom the new build is already live
	touched   touchedDocuments                       // documents saved since they were validated
	hasEvents map[domain.TenantID]bool               // tenants with events to fold
	faulted   map[domain.TenantID]domain.TenantFault // tenants that it continues without
}

// Catching up ends after a short pass: the rest takes about as long, and pauses the live build for that time. It also
// ends after a pass that folded fewer than smallPass events, however long it waited for its turn.
const (
	shortPass = 500 * time.Millisecond
	longPass  = 5 * time.Second // no pass that takes longer is short
	smallPass = 500
)

// patience decides which pass is short: at first one of at most shortPass, and a longer one after passes that hardly
// became shorter. While tenants append at full speed, no pass may ever be as short as shortPass, because each takes
// some time however little it folds.
type patience struct {
	more     time.Duration // accepted beyond shortPass
	previous time.Duration // how long the previous pass took
}

// accepts reports whether a pass that took so long is short.
func (p *patience) accepts(took time.Duration) bool {
	if p.previous > 0 && 3*took > 2*p.previous {
		p.more += shortPass
	}
	p.previous = took
	return took <= min(shortPass+p.more, longPass)
}

// newAttempt prepares an attempt. After a failed try batches are smaller: they may have been more than the database can
// handle within its time limit.
func (w *work) newAttempt(ctx context.Context, tries int) (*attempt, error) {
	w.mu.Lock()
	w.row.Faulted = nil // each attempt finds them again
	a := &attempt{
		began: time.Now(),
		work:  w, row: w.row, build: w.row.NewBuild(), positions: make(map[domain.TenantID]int64), swapped: make(map[domain.TenantID]bool),
		hasEvents: make(map[domain.TenantID]bool), faulted: make(map[domain.TenantID]domain.TenantFault),
		pacing: w.r.config.Pacing,
		limits: limitToRate(divide(w.r.config.Limits, 1<<min(tries-1, 8)), w.row.MaxEventsPerSecond),
	}
	w.mu.Unlock()
	var err error
	if a.driver, err = w.r.driver(a.build.Database); err != nil {
		return nil, failuref("%s", err)
	}
	definition := a.row.Definition
	definition.Assert = slices.Concat(definition.Assert, a.row.Assert)
	fold, err := folding.CompileIn(ctx, definition, w.r.config.Handlers)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, failuref("the definition does not compile: %s", err)
	}
	a.fold = fold.WithUpcasters(w.r.config.Upcasters)
	a.rate = newThrottle(a.row.MaxEventsPerSecond)
	if err := a.findVersion(ctx); err != nil {
		return nil, err
	}
	return a, a.findSwapped(ctx)
}

// run goes through the phases.
func (a *attempt) run(ctx context.Context) error {
	if a.stored() {
		if err := a.buildUp(ctx); err != nil {
			return err
		}
		if err := a.catchUp(ctx); err != nil {
			return err
		}
	}
	if err := a.validate(ctx); err != nil || a.row.DryRun {
		return err
	}
	if err := a.awaitApproval(ctx); err != nil {
		return err
	}
	return a.swap(ctx)
}

// stored reports whether the new definition stores documents.
func (a *attempt) stored() bool { return a.row.Definition.Mode != domain.ModeLive }

// giveWay gives live work priority.
func (a *attempt) giveWay(ctx context.Context) error { return a.r.giveWay(ctx, a.build.Database) }

func (r *Rebuilds) giveWay(ctx context.Context, database string) error {
	if r.config.Yield == nil {
		return nil
	}
	return r.config.Yield(ctx, database)
}

// findVersion finds the version of the definition, if it is the projection's current one. Lasting skips apply to any
// version.
func (a *attempt) findVersion(ctx context.Context) error {
	p, err := a.r.config.Store.Projection(ctx, a.row.ProjectionID)
	if err != nil {
		return fmt.Errorf("look up the projection: %w", err)
	}
	if folding.SameDefinition(p.Definition, a.row.Definition) {
		a.version = p.Version
	}
	return nil
}

// findSwapped finds the tenants that an earlier attempt of a rebuild for some tenants has swapped: the live runner
// follows the new build for them.
func (a *attempt) findSwapped(ctx context.Context) error {
	for _, tenant := range a.row.Tenants {
		live, err := a.r.config.Store.LiveProjection(ctx, tenant, a.row.ProjectionID)
		if err != nil {
			return fmt.Errorf("look up the live build of tenant %s: %w", tenant, err)
		}
		if live.Build == a.row.Build {
			a.swapped[tenant] = true
		}
	}
	return nil
}

// buildUp creates the new build's table and folds every tenant's log into it, from the build's own checkpoints on.
func (a *attempt) buildUp(ctx context.Context) error {
	if err := a.enter(ctx, domain.RebuildBuilding); err != nil {
		return err
	}
	if err := a.driver.CreateTemporaryTable(ctx, a.build); err != nil {
		return fmt.Errorf("create the temporary table: %w", err)
	}
	for checkpoint, err := range a.driver.Checkpoints(ctx, a.build) {
		if err != nil {
			return fmt.Errorf("read the temporary table's checkpoints: %w", err)
		}
		if len(a.row.Tenants) == 0 || slices.Contains(a.row.Tenants, checkpoint.Tenant) && !a.swapped[checkpoint.Tenant] {
			a.positions[checkpoint.Tenant] = checkpoint.Position
		}
	}
	heads, err := a.heads(ctx)
	if err != nil {
		return err
	}
	saved := int64(0)
	for tenant, position := range a.positions {
		n, err := a.countEvents(ctx, tenant, 0, position)
		if err != nil {
			return err
		}
		saved += n
		if n > 0 {
			a.hasEvents[tenant] = true
		}
	}
	a.progress.done.Store(saved)
	a.progress.total.Store(saved)
	if err := a.foldPass(ctx, heads); err != nil {
		return err
	}
	a.forgetFills()
	if err := a.driver.IndexTable(ctx, a.build); err != nil {
		return fmt.Errorf("index the temporary table: %w", err)
	}
	return nil
}

// catchUp folds what was appended meanwhile, for all current tenants. It ends when a pass takes so little time, or
// folds so little, that the rest can be folded while the live build is paused.
func (a *attempt) catchUp(ctx context.Context) error {
	if err := a.enter(ctx, domain.RebuildCatchingUp); err != nil {
		return err
	}
	return a.foldPasses(ctx)
}

// foldPasses folds what was appended since the last pass, until a pass is short.
func (a *attempt) foldPasses(ctx context.Context) error {
	for p := new(patience); ; {
		began, before := time.Now(), a.progress.folded.Load()
		if err := a.foldNewEvents(ctx); err != nil {
			return err
		}
		if p.accepts(time.Since(began)) || a.progress.folded.Load()-before < smallPass {
			return nil
		}
	}
}

// foldNewEvents folds the events appended since the last pass.
func (a *attempt) foldNewEvents(ctx context.Context) error {
	heads, err := a.heads(ctx)
	if err != nil {
		return err
	}
	return a.foldPass(ctx, heads)
}

// foldPass folds every log up to its head. It stops pausing for appends if the logs have outgrown the previous pass.
func (a *attempt) foldPass(ctx context.Context, heads []domain.Head) error {
	var ahead int64
	for _, head := range heads {
		if !a.isFaulted(head.Tenant) {
			ahead += max(0, head.Position-a.position(head.Tenant))
		}
	}
	if ahead > 0 {
		if !gainsOn(a.ahead, ahead) {
			a.pacing = nil
		}
		a.ahead = ahead
	}
	return a.foldUpTo(ctx, heads, a.paced())
}

// awaitApproval waits for approval if the rebuild needs it. It gives up its slot to others meanwhile, and folds new
// events now and then, so that the swap is quick when approval comes.
func (a *attempt) awaitApproval(ctx context.Context) error {
	if a.approved() {
		return nil
	}
	if err := a.enter(ctx, domain.RebuildAwaitingApproval); err != nil {
		return err
	}
	a.freeSlot()
	a.r.Wake()
	for !a.approved() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.approval:
		case <-time.After(a.r.config.Poll):
			if a.stored() {
				a.ahead = 0 // the logs have grown while it waited, not during a pass
				if err := a.foldPasses(ctx); err != nil {
					return err
				}
			}
		}
	}
	if err := a.takeSlot(ctx); err != nil {
		return err
	}
	if a.touched.overflowed() {
		return a.validateAll(ctx)
	}
	return nil
}

// heads returns the heads of all logs to fold into the new build.
func (a *attempt) heads(ctx context.Context) ([]domain.Head, error) {
	row := a.row
	if len(row.Tenants) > 0 {
		row.Tenants = slices.DeleteFunc(slices.Clone(row.Tenants), func(tenant domain.TenantID) bool { return a.swapped[tenant] })
		if len(row.Tenants) == 0 {
			return nil, nil
		}
	}
	heads, err := a.r.headsOf(ctx, row)
	if err != nil {
		return nil, fmt.Errorf("read the heads of the logs: %w", err)
	}
	return heads, nil
}

func (a *attempt) countEvents(ctx context.Context, tenant domain.TenantID, after, upTo int64) (int64, error) {
	n, err := a.r.config.Store.CountEvents(ctx, tenant, a.row.Definition.Source, a.fold.Types(), after, upTo)
	if err != nil {
		return 0, fmt.Errorf("count the events of tenant %s: %w", tenant, err)
	}
	return n, nil
}

// gainsOn reports whether a rebuild catches up soon: its next pass over the logs is at most two thirds as long as the
// previous one, in positions. previous is 0 if there is nothing to compare with.
func gainsOn(previous, next int64) bool { return previous == 0 || 3*next <= 2*previous }

// logRange is a stretch of a log to fold.
type logRange struct {
	tenant   domain.TenantID
	from, to int64
}

// foldUpTo folds every log that is ahead of the new build up to its head, several tenants at a time.
func (a *attempt) foldUpTo(ctx context.Context, heads []domain.Head, m manner) error {
	var ahead []logRange
	for _, head := range heads {
		if from := a.position(head.Tenant); from < head.Position && !a.isFaulted(head.Tenant) {
			ahead = append(ahead, logRange{head.Tenant, from, head.Position})
		}
	}
	if len(ahead) == 0 {
		return nil
	}
	from := make(map[domain.TenantID]int64, len(ahead))
	for _, t := range ahead {
		from[t.tenant] = t.from
	}
	if err := a.recordLosses(ctx, from, announcedTo); err != nil {
		return err
	}
	ahead = slices.DeleteFunc(ahead, func(t logRange) bool { return a.isFaulted(t.tenant) })
	if err := a.foldAll(ctx, ahead, m); err != nil {
		return err
	}
	// Events removed during the fold were removed by force.
	if err := a.recordLosses(ctx, from, removedTo); err != nil {
		return err
	}
	return a.requireUnfaulted()
}

// foldAll folds stretches of several logs.
func (a *attempt) foldAll(ctx context.Context, ahead []logRange, m manner) error {
	var counted int64
	var folded atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for _, t := range ahead {
			n, err := a.countEvents(ctx, t.tenant, t.from, t.to)
			if err != nil {
				return err
			}
			counted += n
			a.progress.total.Add(n)
			if n > 0 {
				a.mu.Lock()
				a.hasEvents[t.tenant] = true
				a.mu.Unlock()
			}
		}
		return nil
	})
	limits := divide(a.limits, max(1, min(a.r.config.Tenants, len(ahead))))
	group.Go(func() error {
		folds, ctx := errgroup.WithContext(ctx)
		folds.SetLimit(a.r.config.Tenants)
		for _, l := range ahead {
			folds.Go(func() error {
				if ctx.Err() != nil {
					return context.Cause(ctx) // another tenant's fold failed, or the work ends
				}
				return a.leaveBehind(a.foldTenant(ctx, l.tenant, l.to, limits, m, &folded))
			})
		}
		return folds.Wait()
	})
	if err := group.Wait(); err != nil {
		return err
	}
	// All of it is folded, though perhaps not by this process alone: a worker taken for dead may have saved some.
	a.progress.done.Add(counted - folded.Load())
	return nil
}

// divide divides limits among replays that run at the same time, but keeps each at a useful batch size.
func divide(limits projection.Limits, among int) projection.Limits {
	part := func(whole, least int) int { return min(whole, max(least, whole/among)) }
	return projection.Limits{
		Events:        part(limits.Events, 1000),
		Bytes:         part(limits.Bytes, 1<<20),
		DocumentBytes: part(limits.DocumentBytes, 1<<20),
	}
}

// foldTenant folds one tenant's log up to a position, and adds the events to folded.
func (a *attempt) foldTenant(ctx context.Context, tenant domain.TenantID, to int64, limits projection.Limits, m manner, folded *atomic.Int64) error {
	replay := &projection.Replay{
		Driver: a.driver, Build: a.build, Tenant: tenant, Fold: a.fold, Limits: limits, Unread: true,
		Registry: a.r.config.Store.Registry, Version: a.version,
		Turn: m.turn, Pacing: m.pacing, Seeds: m.seeds,
		Fill: a.row.Fills[tenant], Filled: func(ctx context.Context, fill domain.Fill) error { return a.setFill(ctx, tenant, fill) },
		Counted: func(events int) {
			folded.Add(int64(events))
			a.progress.done.Add(int64(events))
			a.progress.folded.Add(int64(events))
		},
	}
	if a.fold.Asserts() {
		replay.Saved = func(documents []domain.Document) { a.touched.add(tenant, documents) }
	}
	if err := replay.Run(ctx, m.log, to); err != nil {
		return unfoldable(a.build, tenant, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.positions[tenant] = replay.Position()
	return nil
}

// setFill records how far a tenant's fill is. Its beginning and its being abandoned are stored at once, the rest with
// the rebuild's progress.
func (a *attempt) setFill(ctx context.Context, tenant domain.TenantID, fill domain.Fill) error {
	a.work.mu.Lock()
	defer a.work.mu.Unlock()
	fills := maps.Clone(a.work.row.Fills) // a copy of the row may have the map
	if fills == nil {
		fills = make(map[domain.TenantID]domain.Fill)
	}
	a.work.row.Seeded += fill.Seeded - fills[tenant].Seeded
	fills[tenant] = fill
	a.work.row.Fills = fills
	if fill.Document != "" {
		return nil
	}
	return a.saveRow(ctx)
}

// forgetFills forgets the fills when all tenants have checkpoints.
func (a *attempt) forgetFills() {
	a.work.mu.Lock()
	defer a.work.mu.Unlock()
	a.work.row.Fills = nil
}

// position returns how far a tenant's log is folded.
func (a *attempt) position(tenant domain.TenantID) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.positions[tenant]
}

// tenants returns the tenants whose logs are folded into the new build.
func (a *attempt) tenants() []domain.TenantID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.positions))
}
