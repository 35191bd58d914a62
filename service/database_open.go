package service

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
)

// defaultDatabase is the name of the log's own database in definitions.
const defaultDatabase = "default"

// openDatabases opens all databases of documents concurrently.
func (p *Process) openDatabases(ctx context.Context, e Extensions, own string) error {
	var configured map[string]config.DocumentsDatabase
	configured, p.logDatabase = DocumentsDatabases(p.config, own)
	p.databases, p.drivers = make(map[string]*database), make(map[string]drivers.Driver)
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		open, err := e.Opener(name, configured[name], p.log)
		if err != nil {
			return err
		}
		d := newDatabase(name, open, p.log)
		d.documentsRead = p.metrics.DocumentsRead
		p.undo = append(p.undo, d.Close)
		p.databases[name], p.drivers[name] = d, d
	}
	p.ownWatch.Store(p.databases[p.logDatabase])
	var tries sync.WaitGroup
	var ownErr error
	for name, d := range p.databases {
		tries.Go(func() {
			if err := d.try(ctx); name == p.logDatabase {
				ownErr = err
			}
		})
	}
	tries.Wait()
	if ownErr != nil {
		return fmt.Errorf("open the log's own database for documents: %w", ownErr)
	}
	return nil
}

// DocumentsDatabases returns the configured databases of documents. It adds the log's own database, at the URL own,
// under the name logDatabase. If the configuration has another database of that name, it adds none and logDatabase is
// empty.
func DocumentsDatabases(c config.Config, own string) (all map[string]config.DocumentsDatabase, logDatabase string) {
	all = make(map[string]config.DocumentsDatabase)
	maps.Copy(all, c.Databases)
	if _, elsewhere := all[defaultDatabase]; !elsewhere {
		documents := config.DocumentsDatabase{Driver: "postgres", URL: own}
		if c.Database.ReplicaDocuments {
			documents.Replicas = c.Database.Replicas
		}
		all[defaultDatabase] = documents
		logDatabase = defaultDatabase
	}
	for name, of := range all {
		of.ReplicaLag = c.Database.ReplicaLag
		all[name] = of
	}
	return all, logDatabase
}

// Opener returns a function that opens one of the configured databases of documents. Its errors never contain a
// password.
func (e Extensions) Opener(name string, of config.DocumentsDatabase, log *slog.Logger) (func(context.Context) (drivers.Driver, error), error) {
	known := e.drivers()
	open, ok := known[of.Driver]
	if !ok {
		return nil, fmt.Errorf("databases.%s.driver: there is no driver %q; there is %s", name, of.Driver, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	url, err := of.Address()
	if err != nil {
		return nil, fmt.Errorf("databases.%s.url: %w", name, err)
	}
	replicas, err := of.ReplicaURLs()
	if err != nil {
		return nil, fmt.Errorf("databases.%s.replicas: %w", name, err)
	}
	return func(ctx context.Context) (drivers.Driver, error) {
		driver, err := open(ctx, DriverConfig{
			URL: url, MaxConns: of.MaxConns, Log: log.With("database", name), Replicas: replicas, ReplicaLag: of.ReplicaLag, Mongo: of.Mongo,
		})
		if err != nil {
			return nil, config.WithoutSecrets(err, url)
		}
		return driver, nil
	}, nil
}

// outage returns the outage of a database of documents, and whether that database is known not to answer.
func (p *Process) outage(database string) (projection.Outage, bool) {
	if d := p.databases[database]; d != nil {
		return d.Outage()
	}
	return projection.Outage{}, false
}

// loginConnected is called when a login of the log has connected. The documents in the log's database can be reached
// again, too.
func (p *Process) loginConnected() {
	if d := p.ownWatch.Load(); d != nil {
		d.serverAnswers()
	}
}
