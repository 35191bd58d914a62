package usage

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	// saveEvery is the time between two saves, and the most that is lost when a process is killed while the database
	// answers.
	saveEvery = 2 * time.Second
	// saveTimeout limits the save of one batch.
	saveTimeout = 10 * time.Second
	// batchSize limits the tenants of a batch.
	batchSize = 500
	// pruneEvery is how often old days are deleted.
	pruneEvery = time.Hour
)

// Counts are what was used. All only grow.
type Counts struct {
	Events     int64 // appended, by clients and by the service
	Bytes      int64 // of these events, see domain.NewEvent.Bytes
	Documents  int64 // written or removed by live builds
	Deliveries int64 // events handed to consumers of groups, webhooks, reactors and egresses; each attempt
	Steps      int64 // of expressions
}

// Counter counts for a tenant. All methods may be called concurrently. Nil counts nothing.
type Counter struct{ events, bytes, documents, deliveries, steps atomic.Int64 }

// Appended counts events that were appended.
func (c *Counter) Appended(events, bytes int64) {
	if c != nil {
		c.events.Add(events)
		c.bytes.Add(bytes)
	}
}

// Documents counts documents.
func (c *Counter) Documents(n int) {
	if c != nil {
		c.documents.Add(int64(n))
	}
}

// Delivered counts deliveries.
func (c *Counter) Delivered(n int) {
	if c != nil {
		c.deliveries.Add(int64(n))
	}
}

// Steps counts steps of expressions.
func (c *Counter) Steps(n int) {
	if c != nil {
		c.steps.Add(int64(n))
	}
}

// drain returns what was counted since the last call.
func (c *Counter) drain() Counts {
	return Counts{c.events.Swap(0), c.bytes.Swap(0), c.documents.Swap(0), c.deliveries.Swap(0), c.steps.Swap(0)}
}

// Meter counts for all tenants of a process. All methods may be called concurrently. A nil Meter counts nothing.
type Meter struct {
	store  *Postgres
	log    *slog.Logger
	writer domain.UUID // identifies this Meter's batches

	mu      sync.RWMutex
	tenants map[domain.TenantID]*Counter

	number  int64 // of the last batch; for Run
	pending []row // the last batch, if it may not be saved; for Run
}

// row is what a tenant has used since the row before.
type row struct {
	tenant domain.TenantID
	Counts
}

// NewMeter returns a Meter. Its caller must run Run.
func NewMeter(store *Postgres, log *slog.Logger) *Meter {
	return &Meter{store: store, log: log, writer: domain.NewUUID(), tenants: make(map[domain.TenantID]*Counter)}
}

// Of returns the counter of a tenant. It stays valid. Everyone and audit logs have none.
func (m *Meter) Of(tenant domain.TenantID) *Counter {
	if m == nil || tenant == domain.Everyone || tenant.IsAuditLog() {
		return nil
	}
	m.mu.RLock()
	c := m.tenants[tenant]
	m.mu.RUnlock()
	if c != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c = m.tenants[tenant]; c == nil {
		c = new(Counter)
		m.tenants[tenant] = c
	}
	return c
}

// Run saves what was counted until ctx ends, then saves once more, and returns nil.
func (m *Meter) Run(ctx context.Context) error {
	save, prune := time.NewTicker(saveEvery), time.NewTicker(pruneEvery)
	defer save.Stop()
	defer prune.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-prune.C:
			if err := m.store.prune(ctx); err != nil && ctx.Err() == nil {
				m.log.Warn("old days of usage could not be deleted; it is tried again in an hour", "error", err)
			}
		case <-save.C:
			if err := m.Save(ctx); err != nil && ctx.Err() == nil {
				m.log.Warn("usage could not be saved; it is kept in memory and tried again", "error", err)
			}
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveEvery)
	defer cancel()
	if err := m.Save(last); err != nil {
		m.log.Warn("the usage of the last seconds is lost", "error", err)
	}
	return nil
}

// Save saves what was counted. It must not be called while Run runs.
func (m *Meter) Save(ctx context.Context) error {
	if err := m.savePending(ctx); err != nil { // nothing is taken from the counters while it is unknown whether the last batch is saved
		return err
	}
	m.mu.RLock()
	tenants := make([]domain.TenantID, 0, len(m.tenants))
	for tenant := range m.tenants {
		tenants = append(tenants, tenant)
	}
	m.mu.RUnlock()
	// Concurrent processes change the rows of tenants in the same order.
	slices.SortFunc(tenants, func(a, b domain.TenantID) int { return bytes.Compare(a[:], b[:]) })
	for len(tenants) > 0 {
		m.number++
		for len(tenants) > 0 && len(m.pending) < batchSize {
			if counts := m.Of(tenants[0]).drain(); counts != (Counts{}) {
				m.pending = append(m.pending, row{tenants[0], counts})
			}
			tenants = tenants[1:]
		}
		if err := m.savePending(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *Meter) savePending(ctx context.Context) error {
	if len(m.pending) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if err := m.store.add(ctx, m.writer, m.number, m.pending); err != nil {
		return err
	}
	m.pending = nil
	return nil
}
