package projection_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// faulty is a driver whose calls fail when the test says so.
type faulty struct {
	drivers.Driver
	mu      sync.Mutex
	verdict func(call string) verdict // asked for each Load, Save and Checkpoint
	lose    bool                      // saves are confirmed and never made, as by a database that crashes before it syncs
	check   func(drivers.Batch)       // sees each batch that is saved
}

// verdict is the outcome of a call.
type verdict int

const (
	works       verdict = iota
	failsBefore         // nothing is done
	failsAfter          // it is done, but the answer is lost
	overtaken           // of a save: nothing is done, since somebody else has moved the checkpoint
)

var errInjected = errors.New("injected: the connection was lost")

// rule sets the verdict, also while calls are under way; nil: all calls work.
func (f *faulty) rule(verdict func(call string) verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.verdict = verdict
}

func (f *faulty) ask(call string) verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.verdict == nil {
		return works
	}
	return f.verdict(call)
}

func (f *faulty) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	if f.ask("load") != works {
		return nil, errInjected
	}
	return f.Driver.Load(ctx, build, tenant, ids)
}

func (f *faulty) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error) {
	if f.ask("checkpoint") != works {
		return 0, errInjected
	}
	return f.Driver.Checkpoint(ctx, build, tenant)
}

func (f *faulty) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	f.mu.Lock()
	lose, check := f.lose, f.check
	f.mu.Unlock()
	if lose {
		return nil
	}
	if check != nil {
		check(batch)
	}
	switch f.ask("save") {
	case failsBefore:
		return errInjected
	case overtaken:
		return drivers.ErrStale
	case failsAfter:
		if err := f.Driver.Save(ctx, build, tenant, batch); err != nil {
			return err
		}
		return errInjected
	default:
		return f.Driver.Save(ctx, build, tenant, batch)
	}
}

// refusing is a driver that refuses one document as too large, or with another code.
type refusing struct {
	drivers.Driver
	document string
	code     domain.Code // empty: domain.CodeTooLarge
	unnamed  bool        // the error does not say which document it is
}

func (r refusing) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	for _, document := range batch.Upserts {
		if string(document.Data) == r.document {
			where := "document " + document.ID
			if r.unnamed {
				where = ""
			}
			return domain.Errorf(cmp.Or(r.code, domain.CodeTooLarge), where, "it is too large, or too deep")
		}
	}
	return r.Driver.Save(ctx, build, tenant, batch)
}

// limited is a driver that times out on batches of more than a number of positions.
type limited struct {
	drivers.Driver
	most     int64
	timedOut atomic.Int64
}

func (l *limited) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if batch.To-batch.From > l.most {
		l.timedOut.Add(1)
		return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeUnavailable, "", "the database took too long"), drivers.ErrTimedOut)
	}
	return l.Driver.Save(ctx, build, tenant, batch)
}

// beforeReads is a driver that calls a function before it reads its first page of documents.
type beforeReads struct {
	drivers.Driver
	once *sync.Once
	do   func()
}

func (r beforeReads) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	r.once.Do(r.do)
	return r.Driver.Query(ctx, build, tenant, query)
}

// withoutCheckpoint is a driver whose documents were saved without their checkpoint, which is still at an earlier
// position. It records what is saved.
type withoutCheckpoint struct {
	drivers.Driver
	at    int64
	saved []drivers.Batch
}

func (w *withoutCheckpoint) Checkpoint(context.Context, domain.Build, domain.TenantID) (int64, error) {
	return w.at, nil
}

func (w *withoutCheckpoint) Save(_ context.Context, _ domain.Build, _ domain.TenantID, batch drivers.Batch) error {
	w.saved = append(w.saved, batch)
	return nil
}
