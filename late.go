package manifold

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// retryDriver is how long to wait before a database that does not answer is asked again.
const retryDriver = 5 * time.Second

// openTimeout is how long an attempt to open a database may take: one may also answer nothing at all, and the start waits
// for the first attempt.
const openTimeout = 10 * time.Second

// errNotOpened is why a database cannot be used before the first attempt to open it has come to its end.
var errNotOpened = errors.New("it is being opened")

// lateDriver is a driver whose database need not answer yet when the process starts: until it does, each method fails
// with domain.CodeUnavailable, and the projections of the other databases go on.
type lateDriver struct {
	name string
	open func(ctx context.Context) (drivers.Driver, error)
	log  *slog.Logger

	mu     sync.RWMutex
	opened drivers.Driver // nil until it is
	why    error          // why it is not
}

// run opens the driver, again and again until that succeeds or ctx ends. opened is called then.
func (l *lateDriver) run(ctx context.Context, opened func()) {
	for l.try(ctx) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryDriver):
		}
	}
	opened()
}

// try opens the driver once, where it is not open yet.
func (l *lateDriver) try(ctx context.Context) error {
	if _, err := l.driver(); err == nil {
		return nil
	}
	attempt, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	driver, err := l.open(attempt)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil && (l.why == nil || l.why.Error() != err.Error()) {
			l.log.Warn("a database of documents cannot be used; asking it again", "database", l.name, "error", err)
		}
		l.why = err
		return err
	}
	l.opened = driver
	return nil
}

func (l *lateDriver) driver() (drivers.Driver, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.opened != nil {
		return l.opened, nil
	}
	why := l.why
	if why == nil {
		why = errNotOpened
	}
	return nil, domain.Errorf(domain.CodeUnavailable, "", "the database %q cannot be used: %s", l.name, why)
}

// CreateTemporaryTable is drivers.Driver's, as all that follow.
func (l *lateDriver) CreateTemporaryTable(ctx context.Context, build domain.Build) error {
	d, err := l.driver()
	if err != nil {
		return err
	}
	return d.CreateTemporaryTable(ctx, build)
}

func (l *lateDriver) IndexTable(ctx context.Context, build domain.Build) error {
	d, err := l.driver()
	if err != nil {
		return err
	}
	return d.IndexTable(ctx, build)
}

func (l *lateDriver) SwapTable(ctx context.Context, build domain.Build) error {
	d, err := l.driver()
	if err != nil {
		return err
	}
	return d.SwapTable(ctx, build)
}

func (l *lateDriver) DropTable(ctx context.Context, build domain.Build) error {
	d, err := l.driver()
	if err != nil {
		return err
	}
	return d.DropTable(ctx, build)
}

func (l *lateDriver) DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	d, err := l.driver()
	if err != nil {
		return err
	}
	return d.DropTenant(ctx, build, tenant)
}

func (l *lateDriver) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	d, err := l.driver()
	if err != nil {
		return nil, err
	}
	return d.Load(ctx, build, tenant, ids)
}

func (l *lateDriver) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	d, err := l.driver()
	if err != nil {
		return err
	}
	return d.Save(ctx, build, tenant, batch)
}

func (l *lateDriver) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error) {
	d, err := l.driver()
	if err != nil {
		return 0, err
	}
	return d.Checkpoint(ctx, build, tenant)
}

func (l *lateDriver) Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[drivers.Checkpoint, error] {
	d, err := l.driver()
	if err != nil {
		return func(yield func(drivers.Checkpoint, error) bool) { yield(drivers.Checkpoint{}, err) }
	}
	return d.Checkpoints(ctx, build)
}

func (l *lateDriver) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (domain.Document, bool, error) {
	d, err := l.driver()
	if err != nil {
		return domain.Document{}, false, err
	}
	return d.Get(ctx, build, tenant, id)
}

func (l *lateDriver) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	d, err := l.driver()
	if err != nil {
		return nil, err
	}
	return d.Query(ctx, build, tenant, query)
}

func (l *lateDriver) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	d, err := l.driver()
	if err != nil {
		return 0, err
	}
	return d.Count(ctx, build, tenant, where)
}

func (l *lateDriver) Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error) {
	d, err := l.driver()
	if err != nil {
		return domain.Explanation{}, err
	}
	return d.Explain(ctx, build, tenant, query)
}

func (l *lateDriver) Ping(ctx context.Context) error {
	d, err := l.driver()
	if err != nil {
		return err
	}
	return d.Ping(ctx)
}

func (l *lateDriver) Close() {
	if d, err := l.driver(); err == nil {
		d.Close()
	}
}
