package totals

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// scanID identifies a scan: there is one of each tenant and projection.
type scanID struct {
	name   string // of the projection
	tenant domain.TenantID
}

// scan reads all of a tenant's documents of a projection, in the order of their ids, over several turns. Documents may
// change meanwhile. Each document that exists throughout is on one page, so it is counted once, in its state at some
// moment of the scan. A checkpoint that moves meanwhile makes the next look scan again.
type scan struct {
	scanID
	build domain.Build
	spec  string
	tally *tally
	old   state

	began    time.Time // zero: it has not begun
	position int64     // the checkpoint then
	after    string    // the last document read
	worked   time.Duration
}

// failure identifies scans that have failed: those of another build do not wait for them.
type failure struct {
	scanID
	build int64
}

// queue adds a scan, unless there is one of the same projection and tenant, or the last one has failed just now.
func (t *Totals) queue(s *scan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, paused := t.paused[failure{s.scanID, s.build.Number}]; paused || t.queued[s.scanID] {
		return
	}
	t.queued[s.scanID] = true
	if s.isLong() {
		t.long = append(t.long, s)
	} else {
		t.short = append(t.short, s)
	}
}

func (s *scan) isLong() bool { return s.old.took > turnTime }

// next removes the next scan from the queue; nil if there is none. Scans that have begun and others take turns, and of
// the others short and long ones.
func (t *Totals) next() *scan {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.balance = !t.balance
	if t.balance && len(t.begun) > 0 {
		return pop(&t.begun)
	}
	if len(t.begun) < maxBegun {
		long := 0
		for _, s := range t.begun {
			if s.isLong() {
				long++
			}
		}
		if len(t.long) > 0 && long < maxLong && (t.longNow || len(t.short) == 0) {
			t.longNow = false
			return pop(&t.long)
		}
		t.longNow = true
		if s := pop(&t.short); s != nil {
			return s
		}
	}
	return pop(&t.begun)
}

func pop(from *[]*scan) *scan {
	if len(*from) == 0 {
		return nil
	}
	s := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	return s
}

// end records that a scan has ended or failed, or has had a turn.
func (t *Totals) end(s *scan, ended bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ended && err == nil {
		t.begun = append(t.begun, s)
		return
	}
	delete(t.queued, s.scanID)
	if err != nil {
		t.paused[failure{s.scanID, s.build.Number}] = time.Now().Add(failurePause)
	}
}

// endPauses lets scans that failed a while ago be queued again.
func (t *Totals) endPauses(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.paused, func(_ failure, until time.Time) bool { return !now.Before(until) })
}

// work gives turns to scans, until none is left or the time is over.
func (t *Totals) work(ctx context.Context, until time.Time) {
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for ctx.Err() == nil && time.Now().Before(until) {
				s := t.next()
				if s == nil {
					return
				}
				ended, err := t.continueScan(ctx, s)
				if err != nil && ctx.Err() == nil {
					t.config.Log.Warn("a tenant's totals could not be computed; trying again", "projection", s.name, "tenant", s.tenant.String(), "error", err)
				}
				t.end(s, ended, err)
			}
		})
	}
	working.Wait()
}

// continueScan reads documents for turnTime. It saves the totals if these were the last, or drops them if another
// process owns the tenant now.
func (t *Totals) continueScan(ctx context.Context, s *scan) (ended bool, err error) {
	for until := time.Now().Add(turnTime); ; {
		if !t.config.Owns(s.tenant) {
			return true, nil
		}
		start := time.Now()
		ended, err = t.page(ctx, s)
		s.worked += time.Since(start)
		if err == nil && ended {
			err = t.save(ctx, s)
		}
		rest := time.NewTimer(time.Since(start))
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-rest.C:
		}
		rest.Stop()
		if ended || err != nil || !time.Now().Before(until) {
			return ended, err
		}
	}
}

// page reads and sums a page of documents; last reports whether there are no more.
func (t *Totals) page(ctx context.Context, s *scan) (last bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	driver, err := t.driver(s.build)
	if err != nil {
		return false, err
	}
	if s.began.IsZero() {
		s.began = time.Now()
		if s.position, err = driver.Checkpoint(ctx, s.build, s.tenant); err != nil {
			return false, err
		}
	}
	query := domain.DocumentQuery{Limit: pageSize, MaxBytes: pageBytes}
	if s.after != "" {
		query.After = &domain.SortKey{ID: s.after}
	}
	documents, err := driver.Query(ctx, s.build, s.tenant, query)
	if err != nil {
		return false, err
	}
	for _, document := range documents {
		if err := s.tally.add(document); err != nil {
			return false, err
		}
		s.after = document.ID
	}
	return query.Ended(documents), nil
}

func (t *Totals) save(ctx context.Context, s *scan) error {
	_, err := t.config.Store.save(ctx, s.tenant, s.name, state{
		build: s.build.Number, position: s.position, spec: s.spec, keysDropped: s.tally.dropped, computedAt: s.began, took: s.worked, revision: s.old.revision + 1,
	}, s.tally)
	return err
}
