package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/telemetry"
)

// startInterval is the longest time that the start waits before it tries the database again.
const startInterval = 2 * time.Second

// checkSettings refuses settings that cannot work with any database, before the process waits for one.
func (p *Process) checkSettings(e Extensions) error {
	if _, err := operatorKeys(p.config); err != nil {
		return err
	}
	if _, err := TokenRules(p.config); err != nil {
		return err
	}
	own, err := p.config.Database.URLFor(p.config.Database.Documents)
	if err != nil {
		return err
	}
	configured, _ := DocumentsDatabases(p.config, own)
	for name, database := range configured {
		if _, err := e.Opener(name, database, p.log); err != nil {
			return err
		}
	}
	for _, folder := range p.config.Projections {
		if _, err := folding.ReadDefinitions(folder); err != nil {
			return fmt.Errorf("projections: %w", err)
		}
	}
	return nil
}

// assemble opens the store and the databases, and wires all parts together. While Manifold's own database is not
// available, it waits and starts over, until ctx ends.
func (p *Process) assemble(ctx context.Context, e Extensions) error {
	began := time.Now()
	logged := make(map[string]bool)
	for tries := 1; ; tries++ {
		err := p.tryAssemble(ctx, e)
		if err == nil {
			if len(logged) > 0 {
				p.log.Info("the database is available", "waited", time.Since(began).Round(time.Millisecond).String())
			}
			return nil
		}
		p.close()
		if ctx.Err() != nil {
			if reason := p.waiting.Load(); reason != nil {
				return fmt.Errorf("%w, while the start was waiting: %s", context.Cause(ctx), *reason)
			}
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		reason := pg.Absence(err)
		if reason == "" {
			return err
		}
		p.waiting.Store(&reason)
		if !logged[reason] { // log each reason once, even if reasons alternate
			logged[reason] = true
			p.log.Warn("waiting for the database: "+reason, "address", p.Address(), "error", err)
		}
		wait := min(time.Duration(tries)*startInterval/8, startInterval)
		select {
		case <-ctx.Done():
		case <-time.After(wait - rand.N(wait/4)):
		}
	}
}

// tryAssemble makes one attempt to assemble the process. If it fails, the caller must close what it has opened.
func (p *Process) tryAssemble(ctx context.Context, e Extensions) error {
	if ctx.Err() != nil {
		return errors.New("the start was ended")
	}
	p.metrics = telemetry.NewMetrics(Version())
	p.egresses, p.deployLater = nil, nil
	p.ownWatch.Store(nil)
	if err := p.connect(ctx, e); err != nil {
		return err
	}
	var err error
	if p.limits, err = limits.LoadSettings(ctx, p.store.LimitTables, p.log); err != nil {
		return err
	}
	if err := p.wire(e); err != nil {
		return err
	}
	p.metrics.CollectConnections(p.connectionStats)
	p.metrics.CollectOutages(p.outages)
	p.metrics.CollectReplicas(p.replicaLags)
	p.metrics.CollectDocumentsReplicas(p.documentsReplicaLags)
	p.metrics.CollectIssuers(p.issuerKeysAge)
	if err := p.reactors.Declare(ctx); err != nil {
		return err
	}
	if err := p.declareEgress(ctx); err != nil {
		return err
	}
	if p.config.Role.Worker() {
		return p.deploy(ctx, e)
	}
	return nil
}

// connectionStats yields the statistics of each listener by name.
func (p *Process) connectionStats(yield func(listener string, of telemetry.Connections)) {
	for name, l := range map[string]*listener{"public": p.public, "admin": p.admin} {
		if l != nil {
			stats := l.Stats()
			yield(name, telemetry.Connections{Open: stats.Open, Closed: stats.Closed, Refused: stats.Refused})
		}
	}
}

// replicaLags yields how far each replica is behind.
func (p *Process) replicaLags(yield func(replica string, lag time.Duration)) {
	for _, state := range p.store.ReplicaStates() {
		yield(state.Name, state.Lag)
	}
}

// documentsReplicaLags yields how far each replica of a database of documents is behind.
func (p *Process) documentsReplicaLags(yield func(database, replica string, lag time.Duration)) {
	for name, database := range p.databases {
		for _, state := range database.ReplicaStates() {
			yield(name, state.Name, state.Lag)
		}
	}
}

// StoreConfig returns the store's connection settings.
func StoreConfig(c config.Config, log *slog.Logger) (tables.Config, error) {
	s := tables.Config{
		MaxConns: c.Database.MaxConns, Log: log, ReplicaLag: c.Database.ReplicaLag,
		QueueBytes: int64(c.Limits.TenantQueueBytes), TotalQueueBytes: int64(c.Limits.QueueBytes),
	}
	for _, login := range []struct {
		url *string
		of  config.Login
	}{{&s.AppURL, c.Database.App}, {&s.SystemURL, c.Database.System}, {&s.RetentionURL, c.Database.Retention}} {
		url, err := c.Database.URLFor(login.of)
		if err != nil {
			return tables.Config{}, err
		}
		*login.url = url
	}
	var err error
	if s.Secrets, err = c.Encryption.Parsed(); err != nil {
		return tables.Config{}, err
	}
	s.Replicas, err = c.Database.ReplicaURLs()
	return s, err
}

// checkDistributed compares the configuration with the database.
func checkDistributed(c config.Database, distributed bool) error {
	switch wanted := c.Distributed; {
	case distributed && len(c.Replicas) > 0:
		return errors.New("database.replicas are given, and the database is distributed: a replica of one node does not have the whole log; remove them")
	case wanted == config.DistributedTrue && !distributed:
		return errors.New("database.distributed is true, and the database is not distributed: run `manifold migrate up --distribute`, or set it to auto")
	case wanted == config.DistributedFalse && distributed:
		return errors.New("database.distributed is false, and the database is distributed: check database.url, or set it to auto")
	}
	return nil
}

// connect opens the store and the databases of documents.
func (p *Process) connect(ctx context.Context, e Extensions) error {
	c, err := StoreConfig(p.config, p.log)
	if err != nil {
		return err
	}
	own, err := p.config.Database.URLFor(p.config.Database.Documents)
	if err != nil {
		return err
	}
	c.Member = p.id
	c.Observer, c.Tracer = eventlog.Observer{Appended: p.metrics.Appended, HistoryRead: p.metrics.HistoryRead, ReplicaRefused: p.metrics.ReplicaRefused}, p.tracer
	c.Connected = p.loginConnected
	c.Inline = inlineFolds{&p.inline}
	p.store, err = tables.Open(ctx, c)
	if err != nil {
		return err
	}
	p.undo = append(p.undo, p.store.Close)
	if err := p.store.CheckSchema(ctx); err != nil {
		return err
	}
	if err := checkDistributed(p.config.Database, p.store.Distributed); err != nil {
		return err
	}
	synced, err := p.store.Synced(ctx)
	if err != nil {
		return err
	}
	if !synced {
		p.log.Warn("the database does not sync its commits: a crash of its machine can lose what was acknowledged; set fsync and synchronous_commit on")
	}
	return p.openDatabases(ctx, e, own)
}
