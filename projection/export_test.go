package projection

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// Await, Moved and Waiting open Progress to its test.

func (p *Progress) Await(id domain.ProjectionID, tenant domain.TenantID) {
	moved, done := p.wait(id, tenant)
	defer done()
	<-moved
}

func (p *Progress) Moved(id domain.ProjectionID, tenant domain.TenantID) { p.wake(id, tenant) }

func (p *Progress) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// Prepared returns the result of prepare for a reading with a limit of bytes: how many events are folded now, their
// size, the position after them, and whether there are more.
func Prepared(f *folding.Fold, events []domain.Event, maxBytes int, set *upcasting.Set) (kept, bytes int, upTo int64, more bool) {
	reading := domain.Reading{Events: slices.Clone(events), Head: events[len(events)-1].Position}
	p, err := prepare(context.Background(), f, reading, domain.LogQuery{Limit: len(events) + 1, MaxBytes: maxBytes}, set)
	if err != nil {
		panic(err) // nothing ends it
	}
	for _, event := range p.events {
		bytes += len(event.Data) + len(event.Metadata)
	}
	return len(p.events), bytes, p.upTo, p.more
}

// Idle reports whether the runner has read the projections, and all its pairs are at rest.
func (r *Runner) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.allPairs() {
		if p.state != pairIdle && p.state != pairFaulted && p.state != pairInline {
			return false
		}
	}
	return r.projectionReads > 0 && len(r.unchecked) == 0
}

// PauseFor makes each pause so long, from the first reading of a backlog on.
func (p *Pacing) PauseFor(d time.Duration) {
	p.perWork, p.longest, p.at = 1e6, d, time.Now().Add(-time.Hour)
}

// Pausing reports whether a worker of a database pauses.
func (r *Runner) Pausing(database string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pool(database).needed != nil
}

// HasPaused reports whether anything has paused.
func (p *Pacing) HasPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.free.IsZero()
}

// AgePending makes the documents that wait for a save older. Only the goroutine that runs the Replay may call it.
func (r *Replay) AgePending(by time.Duration) { r.pending.since = r.pending.since.Add(-by) }

// FilterErrors adds ids to an idFilter. It returns how many of them the filter lacks, and how many of equally many
// other ids it reports by mistake.
func FilterErrors(ids int) (lacking, mistaken int) {
	f := newIDFilter()
	for i := range ids {
		f.add("order-" + strconv.Itoa(i))
	}
	for i := range ids {
		if !f.mayHave("order-" + strconv.Itoa(i)) {
			lacking++
		}
		if f.mayHave("customer-" + strconv.Itoa(i)) {
			mistaken++
		}
	}
	return lacking, mistaken
}
