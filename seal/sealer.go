package seal

import (
	"context"
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
	// lookEvery is how often the Sealer looks for logs that it was not notified of.
	lookEvery = time.Minute
)

// Config configures a Sealer. All fields are required.
type Config struct {
	Store  *Postgres
	Events *eventlog.Log
	Owns   func(log domain.TenantID) bool // whether this process works for the log's tenant
	Log    *slog.Logger
}

// Sealer seals the logs that its process owns: a slice of each in turn, and never more than half of the time, so that a
// backlog leaves room for appends. If two processes seal a log, one of them waits. Its methods may be called concurrently.
type Sealer struct {
	config Config

	mu      sync.Mutex
	waiting map[domain.TenantID]*waitingLog
	look    bool // for logs that are not sealed
}

// waitingLog is a log with events that are not sealed.
type waitingLog struct {
	head, size int64
	due        time.Time
}

// New returns a Sealer. Its caller must run Run.
func New(config Config) *Sealer {
	return &Sealer{config: config, waiting: make(map[domain.TenantID]*waitingLog)}
}

// Wake reports that a log has grown.
func (s *Sealer) Wake(head domain.Head) {
	if !s.config.Owns(head.Tenant) {
		return // Rebalance finds it if that changes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expect(head, time.Now().Add(sealTail))
}

// Rebalance reports that the answers of Owns may have changed.
func (s *Sealer) Rebalance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look = true
}

// expect puts a log in line. The caller holds the mutex.
func (s *Sealer) expect(head domain.Head, due time.Time) {
	log := s.waiting[head.Tenant]
	if log == nil {
		log = &waitingLog{size: head.Position, due: due} // at least its newest event is new
		s.waiting[head.Tenant] = log
	}
	if log.head = max(log.head, head.Position); log.head-log.size >= tile {
		log.due = time.Time{}
	}
}

// Run seals until ctx ends, and then returns nil.
func (s *Sealer) Run(ctx context.Context) error {
	tick := time.NewTicker(sealEvery)
	defer tick.Stop()
	var looked time.Time
	for {
		s.mu.Lock()
		look := s.look || time.Since(looked) >= lookEvery
		s.look = false
		s.mu.Unlock()
		if look {
			looked = time.Now()
			s.lookForLogs(ctx)
		}
		s.sealDue(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// lookForLogs puts all logs in line that are not sealed up to their heads.
func (s *Sealer) lookForLogs(ctx context.Context) {
	heads, err := s.config.Store.unsealed(ctx)
	if err != nil {
		s.warn(ctx, "logs to seal could not be listed; trying again", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, head := range heads {
		if s.config.Owns(head.Tenant) {
			s.expect(head, time.Now().Add(sealTail))
			s.waiting[head.Tenant].due = time.Time{}
		}
	}
}

// due returns the logs that must not wait longer.
func (s *Sealer) due() (logs []domain.TenantID) {
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

// sealDue seals the logs that must not wait longer, in rounds of a slice of each.
func (s *Sealer) sealDue(ctx context.Context) {
	for logs := s.due(); len(logs) > 0; logs = s.due() {
		failed := false
		for _, id := range logs {
			began := time.Now()
			if err := s.seal(ctx, id); err != nil {
				failed = true
				s.warn(ctx, "a log could not be sealed; trying again in a minute", "tenant", id, "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Since(began)):
			}
		}
		if failed {
			return
		}
	}
}

// seal seals the next slice of a log.
func (s *Sealer) seal(ctx context.Context, id domain.TenantID) error {
	s.mu.Lock()
	before := s.waiting[id].head
	s.mu.Unlock()
	size, done, err := s.config.Store.Seal(ctx, id)
	if pg.Unprintable(err) {
		err = s.markUnreadable(ctx, id, size)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.waiting[id]
	log.size = size
	switch {
	case err != nil:
		delete(s.waiting, id) // lookForLogs finds it
	case !done:
		log.due = time.Time{}
	case log.head <= max(before, size):
		delete(s.waiting, id)
	default:
		log.due = time.Now().Add(sealTail)
	}
	return err
}

// markUnreadable reads the slice after a position, which marks the events that PostgreSQL cannot print.
func (s *Sealer) markUnreadable(ctx context.Context, id domain.TenantID, after int64) error {
	for from := after + 1; from <= after+slice; {
		events, err := s.config.Events.ReadLog(ctx, id, domain.LogQuery{From: from, To: after + slice, Limit: slice, MaxBytes: 1 << 20})
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
