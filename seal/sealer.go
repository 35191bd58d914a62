package seal

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
)

const (
	// sealEvery is the pause between two rounds over the logs with new events.
	sealEvery = time.Second
	// sealTail is how long a log's events wait if they do not fill a row, so that a log with few events has few rows.
	sealTail = 5 * time.Second
	// lookEvery is how often the Sealer looks for logs that it was not notified of. It looks at those with an event
	// since the last time, and lookBack more, since appends become visible late. Every lookAtAllEvery, it looks at all.
	lookEvery      = time.Minute
	lookBack       = 5 * time.Minute
	lookAtAllEvery = time.Hour
	// retryAfter is how long a log waits that could not be sealed. Each further failure doubles it, up to retryAtMost.
	retryAfter  = 5 * time.Second
	retryAtMost = 5 * time.Minute
)

// Config configures a Sealer. All fields are required, except Failed.
type Config struct {
	Store  *Postgres
	Events *eventlog.Log
	Owns   func(log domain.TenantID) bool // whether this process works for the log's tenant
	Failed func(changed bool)             // called when a log could not be sealed; changed: because of ErrChanged
	Log    *slog.Logger
}

// Sealer seals the logs that its process owns: a slice of each in turn, and never more than half of the time, so that a
// backlog leaves room for appends. If two processes seal a log, one of them waits. Its methods may be called
// concurrently.
type Sealer struct {
	config Config

	mu          sync.Mutex
	waiting     map[domain.TenantID]*waitingLog
	lookedAt    time.Time // zero: it must look now
	lookedAtAll time.Time // zero: it must look at all logs
}

// waitingLog is a log with events that are not sealed.
type waitingLog struct {
	head, size int64
	due        time.Time
	failures   int // in a row
}

// New returns a Sealer. Its caller must run Run.
func New(config Config) *Sealer {
	if config.Failed == nil {
		config.Failed = func(bool) {}
	}
	return &Sealer{config: config, waiting: make(map[domain.TenantID]*waitingLog)}
}

// Wake reports that a log has grown.
func (s *Sealer) Wake(head domain.Head) {
	if !s.config.Owns(head.Tenant) {
		return // Rebalance finds it if that changes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueue(head, time.Now().Add(sealTail))
}

// Rebalance reports that the answers of Owns may have changed.
func (s *Sealer) Rebalance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookedAt, s.lookedAtAll = time.Time{}, time.Time{}
}

// enqueue puts a log in line. A log that could not be sealed keeps waiting. The caller holds the mutex.
func (s *Sealer) enqueue(head domain.Head, due time.Time) *waitingLog {
	log := s.waiting[head.Tenant]
	if log == nil {
		log = &waitingLog{size: head.Position, due: due} // at least its newest event is new
		s.waiting[head.Tenant] = log
	}
	if log.head = max(log.head, head.Position); log.head-log.size >= tile && log.failures == 0 {
		log.due = time.Time{}
	}
	return log
}

// Run seals until ctx ends, and then returns nil.
func (s *Sealer) Run(ctx context.Context) error {
	tick := time.NewTicker(sealEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.lookForLogs(ctx)
		if s.sealRound(ctx) && len(s.dueLogs()) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// lookForLogs puts the logs in line that are not sealed up to their heads, if it is time to look for them.
func (s *Sealer) lookForLogs(ctx context.Context) {
	now := time.Now()
	s.mu.Lock()
	lookedAt, since := s.lookedAt, s.lookedAt.Add(-lookBack)
	atAll := now.Sub(s.lookedAtAll) >= lookAtAllEvery
	if now.Sub(lookedAt) < lookEvery {
		s.mu.Unlock()
		return
	}
	s.lookedAt = now
	if atAll {
		s.lookedAtAll, since = now, time.Time{}
	}
	s.mu.Unlock()

	heads, err := s.config.Store.unsealed(ctx, since)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.warn(ctx, "logs to seal could not be listed; trying again", "error", err)
		s.lookedAtAll = time.Time{} // the next look finds what this one has missed
		return
	}
	for _, head := range heads {
		if s.config.Owns(head.Tenant) && s.waiting[head.Tenant] == nil {
			s.enqueue(head, now).due = time.Time{}
		}
	}
}

// dueLogs returns the logs that must not wait longer.
func (s *Sealer) dueLogs() (logs []domain.TenantID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, log := range s.waiting {
		switch {
		case !s.config.Owns(id):
			delete(s.waiting, id)
		case !time.Now().Before(log.due):
			logs = append(logs, id)
		}
	}
	return logs
}

// sealRound seals a slice of each log that must not wait longer. reachable is false if it ended early, because the
// database cannot be reached.
func (s *Sealer) sealRound(ctx context.Context) (reachable bool) {
	for _, id := range s.dueLogs() {
		began := time.Now()
		err := s.sealLog(ctx, id)
		if err != nil && ctx.Err() == nil {
			changed := errors.Is(err, ErrChanged)
			s.config.Failed(changed)
			if changed {
				s.config.Log.Error("a log is no longer sealed, because its seal was changed", "tenant", id, "error", err)
			} else {
				s.warn(ctx, "a log could not be sealed; trying again later", "tenant", id, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Since(began)):
		}
		if unavailable(err) {
			return false
		}
	}
	return true
}

func unavailable(err error) bool {
	refused, ok := errors.AsType[*domain.Error](err)
	return ok && refused.Code == domain.CodeUnavailable
}

// sealLog seals the next slice of a log.
func (s *Sealer) sealLog(ctx context.Context, id domain.TenantID) error {
	s.mu.Lock()
	before := s.waiting[id].head
	s.mu.Unlock()
	size, done, err := s.config.Store.Seal(ctx, id)
	if pg.Unprintable(err) && s.markUnreadable(ctx, id, size) == nil {
		size, done, err = s.config.Store.Seal(ctx, id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.waiting[id]
	switch {
	case unavailable(err): // which is not the log's fault
		log.due = time.Now().Add(retryAfter)
		return err
	case err != nil:
		log.due = time.Now().Add(min(retryAfter<<min(log.failures, 10), retryAtMost))
		log.failures++
		return err
	}
	log.size, log.failures = size, 0
	switch {
	case !done:
		log.due = time.Time{}
	case log.head <= max(before, size):
		delete(s.waiting, id)
	default:
		log.due = time.Now().Add(sealTail)
	}
	return nil
}

// markUnreadable reads the slice after a position, which marks the events that PostgreSQL cannot print.
func (s *Sealer) markUnreadable(ctx context.Context, id domain.TenantID, after int64) error {
	for from := after + 1; from <= after+slice; {
		events, err := s.config.Events.ReadLog(ctx, id, domain.LogQuery{
			From: from, To: after + slice, Limit: slice, MaxBytes: 1 << 20,
		})
		if err != nil || len(events) == 0 {
			return err
		}
		from = events[len(events)-1].Position + 1
	}
	return nil
}

func (s *Sealer) warn(ctx context.Context, message string, args ...any) {
	if ctx.Err() == nil {
		s.config.Log.Warn(message, args...)
	}
}
