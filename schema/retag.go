package schema

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/upcasting"
)

// Retagging is how far the stored events of a type have the tags that its schema derives. Conditions and queries see
// the derived tags of events that were stored before the last change only when it is done.
type Retagging struct {
	State     RetagState
	Position  int64          // events up to here are done
	Until     int64          // the last position to look at; 0 while it is waiting. Later events had the tags from the start
	Events    int64          // of the type, up to Position
	Changed   int64          // of them, got other tags
	Failed    int64          // of them, have no derived tags because they could not be derived
	Failures  []RetagFailure // the first of these
	UpdatedAt time.Time
}

// RetagState says what a Retagging is doing.
type RetagState string

// The states of a Retagging.
const (
	RetagWaiting RetagState = "waiting" // until no append derives by the expression before
	RetagRunning RetagState = "running"
	RetagDone    RetagState = "done"
)

// RetagFailure says why an event's tags could not be derived.
type RetagFailure struct {
	Position int64  `json:"position"`
	Message  string `json:"message"`
}

// DefaultSettle is the default of Config.Settle. A process knows the new expression after indexTTL at the latest, and
// looks it up when a request begins. A request then waits and computes for at most four times budget.DefaultTime: twice
// each for the check and for the tags. The append then commits or fails within 15 s, one and a half times the log's
// timeout.
const DefaultSettle = indexTTL + time.Minute

const (
	retagsAtOnce   = 4                // tenants whose events a process retags at the same time
	retagTurn      = 10 * time.Second // how long one type's events are retagged while others wait
	retagLook      = 5 * time.Second  // the longest pause between two looks for work
	retagRetry     = 30 * time.Second // the pause after a failure
	upcastersCheck = time.Minute      // how often finished retaggings are compared with the upcasters in force
	// retagEvents, retagBytes and retagWindow limit a slice: events of the type, their bytes, and positions.
	retagEvents = 1000
	retagBytes  = 4 << 20
	retagWindow = 10_000
	// retagTime ends a slice early. Others wait for its place.
	retagTime = time.Second
	// retagChanges and retagRows limit how many events, and rows of tags, one transaction changes. Appends wait for it.
	retagChanges = 100
	retagRows    = 400
	// retagPause is how much longer than a slice the pause after it is.
	retagPause  = 3
	maxFailures = 10
)

// retags is what Run knows of its work.
type retags struct {
	work chan struct{} // has an element when Run should look

	mu      sync.Mutex
	running map[domain.TenantID]bool
	failed  map[domain.TenantID]time.Time               // when it last did
	checked map[domain.TenantID]domain.UpcasterRevision // with which finished retaggings were compared
}

func newRetags() retags {
	return retags{
		work: make(chan struct{}, 1), running: make(map[domain.TenantID]bool), failed: make(map[domain.TenantID]time.Time),
		checked: make(map[domain.TenantID]domain.UpcasterRevision),
	}
}

func (r *retags) wake() {
	select {
	case r.work <- struct{}{}:
	default:
	}
}

// Rebalance reports that the answers of Owns may have changed.
func (s *Schemas) Rebalance() { s.retags.wake() }

// Run retags the stored events of types whose derived tags have changed, for the tenants that this process owns, until
// ctx ends. It returns nil.
func (s *Schemas) Run(ctx context.Context) error {
	var turns sync.WaitGroup
	defer turns.Wait()
	places := make(chan struct{}, retagsAtOnce)
	check := time.Now()
	for ctx.Err() == nil {
		if !time.Now().Before(check) {
			check = time.Now().Add(upcastersCheck)
			if err := s.checkUpcasters(ctx); err != nil && ctx.Err() == nil {
				s.config.Log.Warn("could not compare upcasters with finished retaggings; trying again", "error", err)
			}
		}
		next := retagLook
		due, err := s.config.Store.RetagsDue(ctx)
		if err != nil && ctx.Err() == nil {
			s.config.Log.Warn("the retaggings to continue could not be read; trying again", "error", err)
		}
		for _, d := range due {
			switch {
			case !s.config.Owns(d.tenant):
			case d.in > 0:
				next = min(next, d.in)
			case s.retags.begin(d.tenant):
				select {
				case places <- struct{}{}:
				case <-ctx.Done():
					return nil
				}
				turns.Go(func() {
					defer func() { <-places }()
					s.retagTurn(ctx, d, places)
				})
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-s.retags.work:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// begin reports whether a tenant may have a turn. It has one at a time.
func (r *retags) begin(tenant domain.TenantID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[tenant] || time.Since(r.failed[tenant]) < retagRetry {
		return false
	}
	delete(r.failed, tenant)
	r.running[tenant] = true
	return true
}

// retagTurn continues a retagging for one turn. It has one of the places, except during pauses.
func (s *Schemas) retagTurn(ctx context.Context, d dueRetag, places chan struct{}) {
	err := s.retag(budget.OfTenant(ctx, d.tenant), d.tenant, d.eventType, places)
	failed := err != nil && ctx.Err() == nil && !errors.Is(err, errTaken)
	if failed && !domain.IsCode(err, domain.CodeNotFound) { // the tenant is being erased
		s.config.Log.Warn("stored events could not be retagged; trying again", "tenant", d.tenant.String(), "type", d.eventType, "error", err)
	}
	s.retags.mu.Lock()
	if delete(s.retags.running, d.tenant); failed {
		s.retags.failed[d.tenant] = time.Now()
	}
	s.retags.mu.Unlock()
	s.retags.wake()
}

// retag continues a retagging until it is finished, or its turn ends.
func (s *Schemas) retag(ctx context.Context, tenant domain.TenantID, eventType string, places chan struct{}) (err error) {
	job := &retagJob{Schemas: s, tenant: tenant, worker: domain.NewUUID()}
	if job.retag, err = s.config.Store.takeRetag(ctx, tenant, eventType, job.worker); err != nil || job.retag == nil {
		return err
	}
	finished := false
	defer func() {
		if !finished {
			err = errors.Join(err, s.config.Store.releaseRetag(context.WithoutCancel(ctx), tenant, eventType, job.worker))
		}
	}()
	job.derives = newDerivation(job.expression)
	for until := time.Now().Add(retagTurn); ; {
		began := time.Now()
		if current, err := job.begin(ctx); err != nil || !current {
			return err
		}
		if job.Position >= job.Until {
			finished = true
			return s.config.Store.finishRetag(ctx, tenant, job.retag, job.worker)
		}
		if !time.Now().Before(until) || !s.config.Owns(tenant) {
			return nil
		}
		if err := job.slice(ctx); err != nil {
			return err
		}
		if job.Position >= job.Until {
			continue
		}
		pause := time.NewTimer(retagPause * time.Since(began))
		<-places
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
		places <- struct{}{}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// retagJob is a retagging under way.
type retagJob struct {
	*Schemas
	*retag
	tenant    domain.TenantID
	worker    domain.UUID
	derives   *derivation
	upcasting *upcasting.Set
}

// begin reads the upcasters in force, and at first the log's head: later events have their tags already. If the
// upcasters have changed, it restarts the retagging and returns false.
func (j *retagJob) begin(ctx context.Context) (current bool, err error) {
	if j.upcasting, err = j.config.Upcasters.Now(ctx, j.tenant); err != nil {
		return false, err
	}
	digest := digestOf(j.upcasting, j.eventType)
	switch {
	case j.begun && digest != j.upcasters:
		return false, j.config.Store.restartRetag(ctx, j.tenant, j.retag)
	case j.begun:
		return true, nil
	}
	head, err := j.config.Events.Head(ctx, j.tenant)
	if err != nil {
		return false, err
	}
	j.begun, j.Until, j.upcasters = true, head.Position, digest
	return true, j.config.Store.beginRetag(ctx, j.tenant, j.retag, j.worker)
}

// digestOf identifies the upcasters in force for a type.
func digestOf(upcasters *upcasting.Set, eventType string) string {
	hash := sha256.New()
	for _, upcaster := range upcasters.Upcasters(func(name string) bool { return name == eventType }) {
		fmt.Fprintf(hash, "%d %d %s", upcaster.Version, len(upcaster.Expression), upcaster.Expression)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:16])
}

// slice retags the next events.
func (j *retagJob) slice(ctx context.Context) error {
	query := domain.LogQuery{
		From: j.Position + 1, To: min(j.Position+retagWindow, j.Until), Types: []string{j.eventType}, Limit: retagEvents, MaxBytes: retagBytes,
	}
	events, err := j.config.Events.ReadLog(ctx, j.tenant, query)
	if err != nil {
		return err
	}
	to, bytes := query.To, 0
	for i := range events {
		bytes += events[i].Bytes()
	}
	if n := len(events); n == retagEvents || bytes >= retagBytes {
		to = events[n-1].Position
	}
	derived, failures, seen, err := j.derive(ctx, events)
	if err != nil {
		return err
	}
	if seen < len(events) {
		events = events[:seen]
		to = events[seen-1].Position
	}
	outdated, err := j.config.Events.Outdated(ctx, j.tenant, derived)
	if err != nil {
		return err
	}
	for {
		n, rows := 0, 0
		for n < min(len(outdated), retagChanges) && (n == 0 || rows < retagRows) {
			rows += 1 + 2*len(outdated[n].Derived)
			n++
		}
		if n == len(outdated) {
			break
		}
		part := outdated[:n]
		outdated = outdated[n:]
		if err := j.save(ctx, part[len(part)-1].Position, part, events, failures); err != nil {
			return err
		}
	}
	return j.save(ctx, to, outdated, events, failures)
}

// derive derives the tags of events, as many as there is time for. seen is how many; at least one, if there is one.
// Unreadable and erased events keep their tags, unless the type derives none.
func (j *retagJob) derive(ctx context.Context, events []domain.Event) (derived []eventlog.Retagging, failures []RetagFailure, seen int, err error) {
	meter := expr.MeterOf(ctx)
	began := time.Now()
	for i, event := range events {
		if i > 0 && time.Since(began) > retagTime {
			return derived, failures, i, nil
		}
		one := eventlog.Retagging{Position: event.Position, Type: event.Type}
		if j.expression != "" {
			if event.Gap != nil || event.Erased != nil {
				continue
			}
			meter.SpendBytes(len(event.Data) + len(event.Metadata))
			tags, problem := j.derives.derive(meter, j.upcasting, event)
			if ctx.Err() != nil {
				return nil, nil, 0, context.Cause(ctx)
			}
			if one.Derived = tags; problem != nil {
				one.Derived = nil
				failures = append(failures, RetagFailure{event.Position, domain.Clip(problem.Error(), 300)})
			}
		}
		derived = append(derived, one)
	}
	return derived, failures, len(events), nil
}

// save changes the tags of outdated events, and saves the progress up to a position in the same transaction. events and
// failures are those of the slice.
func (j *retagJob) save(ctx context.Context, to int64, outdated []eventlog.Retagging, events []domain.Event, failures []RetagFailure) error {
	next := *j.retag
	next.Position = to
	for i := range events {
		if at := events[i].Position; at > j.Position && at <= to {
			next.Events++
		}
	}
	fail := func(failure RetagFailure) {
		if next.Failed++; len(next.Failures) < maxFailures {
			next.Failures = append(next.Failures[:len(next.Failures):len(next.Failures)], failure)
		}
	}
	for _, failure := range failures {
		if failure.Position > j.Position && failure.Position <= to {
			fail(failure)
		}
	}
	if len(outdated) == 0 {
		if err := j.config.Store.saveRetag(ctx, j.tenant, &next, j.worker); err != nil {
			return err
		}
		j.retag = &next
		return nil
	}
	before := next
	for attempt := 1; ; attempt++ {
		next = before
		err := j.config.Events.Retag(ctx, j.tenant, outdated, func(tx pgx.Tx, done eventlog.Retagged) error {
			next.Changed += done.Changed
			for _, position := range done.Overfull {
				fail(RetagFailure{position, errTooMany.Error()})
			}
			return saveRetag(ctx, tx, j.tenant, &next, j.worker)
		})
		if err == nil {
			j.config.Retagged(next.Changed - before.Changed)
			j.retag = &next
			return nil
		}
		if !pg.Busy(pg.SQLState(err)) || attempt == retagAttempts {
			return pg.Unavailable(err)
		}
		pg.BackOff(ctx, attempt)
	}
}

// retagAttempts is how often a transaction is tried whose rows others use.
const retagAttempts = 10

// checkUpcasters restarts finished retaggings where the upcasters that they have applied are no longer in force. An
// error for one tenant does not keep others from being checked.
func (s *Schemas) checkUpcasters(ctx context.Context) (err error) {
	tenants, err := s.config.Store.RetaggedTenants(ctx)
	if err != nil {
		return err
	}
	checked := make(map[domain.TenantID]domain.UpcasterRevision, len(tenants))
	for _, tenant := range tenants {
		if !s.config.Owns(tenant) {
			continue
		}
		revision, complete, one := s.checkUpcastersOf(ctx, tenant)
		if one != nil && err == nil {
			err = one
		}
		if complete {
			checked[tenant] = revision
		}
	}
	s.retags.checked = checked
	return err
}

// checkUpcastersOf checks one tenant. complete reports whether all of its retaggings have applied the upcasters of the
// revision.
func (s *Schemas) checkUpcastersOf(ctx context.Context, tenant domain.TenantID) (revision domain.UpcasterRevision, complete bool, err error) {
	if revision, err = s.config.Upcasters.Revision(ctx, tenant); err != nil {
		return revision, false, err
	}
	if known, ok := s.retags.checked[tenant]; ok && known == revision {
		return revision, true, nil
	}
	set, err := s.config.Upcasters.At(ctx, tenant, revision)
	if err != nil {
		return revision, false, err
	}
	jobs, err := s.config.Store.retagsOf(ctx, tenant, "")
	if err != nil {
		return revision, false, err
	}
	complete = true
	for _, job := range jobs {
		if !job.finished {
			complete = false // it compares by itself
		} else if digestOf(set, job.eventType) != job.upcasters {
			if err := s.config.Store.restartRetag(ctx, tenant, job); err != nil {
				return revision, false, err
			}
			complete = false
			s.retags.wake()
		}
	}
	return revision, complete, nil
}
