package service

import (
	"context"
	"errors"
	"iter"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
)

// The following methods implement drivers.Driver, each with its time limit. Reads and saves have callTimeout. Calls
// whose duration depends on the size of a build have no limit: they continue while the database answers other calls.

var (
	_ drivers.Transactional = (*database)(nil)
	_ drivers.Replicated    = (*database)(nil)
)

// CreateTemporaryTable implements drivers.Driver, like all methods below.
func (d *database) CreateTemporaryTable(ctx context.Context, build domain.Build) error {
	return d.call(ctx, callTimeout, func(ctx context.Context, driver drivers.Driver) error {
		return driver.CreateTemporaryTable(ctx, build)
	})
}

func (d *database) IndexTable(ctx context.Context, build domain.Build) error {
	return d.call(ctx, 0, func(ctx context.Context, driver drivers.Driver) error {
		return driver.IndexTable(ctx, build)
	})
}

func (d *database) SwapTable(ctx context.Context, build domain.Build, overrides []drivers.Override) error {
	return d.call(ctx, callTimeout, func(ctx context.Context, driver drivers.Driver) error {
		return driver.SwapTable(ctx, build, overrides)
	})
}

func (d *database) DropTable(ctx context.Context, build domain.Build) error {
	return d.call(ctx, 0, func(ctx context.Context, driver drivers.Driver) error {
		return driver.DropTable(ctx, build)
	})
}

func (d *database) DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	return d.call(ctx, 0, func(ctx context.Context, driver drivers.Driver) error {
		return driver.DropTenant(ctx, build, tenant)
	})
}

func (d *database) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) (documents []domain.Document, err error) {
	err = d.call(ctx, callTimeout, func(ctx context.Context, driver drivers.Driver) (err error) {
		documents, err = driver.Load(ctx, build, tenant, ids)
		return err
	})
	return documents, err
}

func (d *database) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	return d.proves(d.call(ctx, callTimeout, func(ctx context.Context, driver drivers.Driver) error {
		return driver.Save(ctx, build, tenant, batch)
	}))
}

func (d *database) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (position int64, err error) {
	err = d.call(ctx, callTimeout, func(ctx context.Context, driver drivers.Driver) (err error) {
		position, err = driver.Checkpoint(ctx, build, tenant)
		return err
	})
	return position, d.proves(err)
}

func (d *database) Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[drivers.Checkpoint, error] {
	return calls(ctx, d, func(ctx context.Context, driver drivers.Driver) iter.Seq2[drivers.Checkpoint, error] {
		return driver.Checkpoints(ctx, build)
	})
}

func (d *database) OwnCheckpoints(ctx context.Context) iter.Seq2[drivers.OwnCheckpoint, error] {
	return calls(ctx, d, func(ctx context.Context, driver drivers.Driver) iter.Seq2[drivers.OwnCheckpoint, error] {
		return driver.OwnCheckpoints(ctx)
	})
}

// calls is call for a driver's sequences. It has no time limit, since the loop may take its time.
func calls[T any](ctx context.Context, d *database, sequence func(ctx context.Context, driver drivers.Driver) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := false
		err := d.call(ctx, 0, func(ctx context.Context, driver drivers.Driver) error {
			for one, err := range sequence(ctx, driver) {
				if err != nil {
					return err
				}
				if left = !yield(one, nil); left {
					return nil
				}
			}
			return nil
		})
		if err != nil && !left {
			var none T
			yield(none, err)
		}
	}
}

func (d *database) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error) {
	err = d.call(ctx, callTimeout, func(ctx context.Context, driver drivers.Driver) (err error) {
		document, ok, err = driver.Get(ctx, build, tenant, id)
		return err
	})
	return document, ok, err
}

func (d *database) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (documents []domain.Document, err error) {
	err = d.call(ctx, callTimeout, func(ctx context.Context, driver drivers.Driver) (err error) {
		documents, err = driver.Query(ctx, build, tenant, query)
		return err
	})
	return documents, d.proves(err)
}

func (d *database) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (count int64, err error) {
	err = d.call(ctx, 0, func(ctx context.Context, driver drivers.Driver) (err error) {
		count, err = driver.Count(ctx, build, tenant, where)
		return err
	})
	return count, err
}

func (d *database) Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (explanation domain.Explanation, err error) {
	err = d.call(ctx, callTimeout, func(ctx context.Context, driver drivers.Driver) (err error) {
		explanation, err = driver.Explain(ctx, build, tenant, query)
		return err
	})
	return explanation, err
}

// Ping reports whether the database answers. During an outage, the error says since when, and when the next attempt
// follows.
func (d *database) Ping(ctx context.Context) error {
	return d.call(ctx, pingTimeout, func(ctx context.Context, driver drivers.Driver) error {
		return driver.Ping(ctx)
	})
}

// SaveIn calls only the driver, not the database.
func (d *database) SaveIn(build domain.Build, tenant domain.TenantID, batch drivers.Batch) ([]domain.Statement, error) {
	driver, err := d.transactional()
	if err != nil {
		return nil, err
	}
	return driver.SaveIn(build, tenant, batch)
}

// CheckpointIn calls only the driver, like SaveIn.
func (d *database) CheckpointIn(build domain.Build, tenant domain.TenantID) (domain.Statement, error) {
	driver, err := d.transactional()
	if err != nil {
		return domain.Statement{}, err
	}
	return driver.CheckpointIn(build, tenant)
}

func (d *database) transactional() (drivers.Transactional, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened == nil {
		return nil, domain.Errorf(domain.CodeUnavailable, "", "the database %q cannot be used: it is being opened", d.name)
	}
	driver, ok := d.opened.(drivers.Transactional)
	if !ok {
		return nil, domain.Errorf(domain.CodeUnsupported, "database", "documents in the database %q cannot be saved with an append", d.name)
	}
	return driver, nil
}

// node returns the node of a cluster with a tenant's documents; false: it is another database, or not open.
func (d *database) node(tenant domain.TenantID) (int32, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if driver, ok := d.opened.(*postgres.Driver); ok {
		return driver.Node(tenant)
	}
	return 0, false
}

// replicated returns the driver if it is open and reads from replicas.
func (d *database) replicated() (drivers.Replicated, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	driver, ok := d.opened.(drivers.Replicated)
	return driver, ok
}

// AtPosition may be used while the primary does not answer: its reads say nothing about the primary.
func (d *database) AtPosition(position int64) (drivers.Reader, bool) {
	driver, ok := d.replicated()
	if !ok || len(driver.ReplicaStates()) == 0 {
		return nil, false
	}
	reader, ok := driver.AtPosition(position)
	if !ok {
		d.readDocuments("primary")
		return nil, false
	}
	return observedReader{reader, d}, true
}

func (d *database) ReplicaStates() []drivers.ReplicaState {
	if driver, ok := d.replicated(); ok {
		return driver.ReplicaStates()
	}
	return nil
}

// readDocuments counts a read that a replica may answer.
func (d *database) readDocuments(source string) {
	if d.documentsRead != nil {
		d.documentsRead(d.name, source)
	}
}

// observedReader counts what a replica answers.
type observedReader struct {
	drivers.Reader
	database *database
}

func (r observedReader) observe(err error) {
	if errors.Is(err, drivers.ErrNoReplica) {
		r.database.readDocuments("primary")
	} else {
		r.database.readDocuments("replica")
	}
}

func (r observedReader) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error) {
	document, ok, err = r.Reader.Get(ctx, build, tenant, id)
	r.observe(err)
	return document, ok, err
}

func (r observedReader) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	documents, err := r.Reader.Query(ctx, build, tenant, query)
	r.observe(err)
	return documents, err
}

func (r observedReader) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	count, err := r.Reader.Count(ctx, build, tenant, where)
	r.observe(err)
	return count, err
}
