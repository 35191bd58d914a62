package service

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/mongo"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/drivers/sqlserver"
	"github.com/manifold-es/manifold/projection/folding"
)

// Extensions are what a program adds to the service. The zero value adds nothing.
type Extensions struct {
	Drivers     map[string]OpenDriver // by the name that a configured database uses in its `driver` setting
	Projections []Projection
	Reactors    []reactor.Reactor
	Deciders    []Decider
	// TracerProvider records the spans of traces. If it is nil, OpenTelemetry's environment variables say where they
	// are exported to.
	TracerProvider trace.TracerProvider
	// Docs has the repository's pages, for /docs; see api.Config.
	Docs fs.FS
}

// Decider decides a command of a category in Go.
type Decider struct {
	Category, Command string
	Decide            aggregate.Decider
	Options           []aggregate.DeciderOption
}

// Projection is a shared projection whose fold is written in Go.
type Projection struct {
	Definition domain.Definition
	Handler    folding.Handler
}

// Definitions returns the definitions of the program's projections.
func (e Extensions) Definitions() []domain.Definition {
	definitions := make([]domain.Definition, len(e.Projections))
	for i, p := range e.Projections {
		definitions[i] = p.Definition
		definitions[i].Handler = p.Definition.Name
	}
	return definitions
}

// Handlers returns all folds written in Go, by their names in definitions.
func (e Extensions) Handlers() map[string]folding.Handler {
	handlers := make(map[string]folding.Handler)
	for _, p := range e.Projections {
		handlers[p.Definition.Name] = p.Handler
	}
	handlers[folding.UsageName] = folding.UsageHandler()
	return handlers
}

// drivers returns all drivers by name. The program's drivers may replace Manifold's.
func (e Extensions) drivers() map[string]OpenDriver {
	all := map[string]OpenDriver{"postgres": openPostgres, "mongo": openMongo, "sqlserver": openSQLServer}
	maps.Copy(all, e.Drivers)
	return all
}

// DriverConfig is the configuration with which a driver is opened: one configured database.
type DriverConfig struct {
	URL      string // contains the password
	MaxConns int    // 0: the driver's own default
	Log      *slog.Logger

	Replicas   []string      // URLs of replicas that may answer queries, with the password; for the driver postgres only
	ReplicaLag time.Duration // how far a replica may be behind; 0: the driver's own default
	Mongo      config.Mongo  // for the driver mongo only
}

// OpenDriver opens a driver. ctx covers only the opening, and ends after it. If opening fails because the database
// does not answer, OpenDriver is called again later.
type OpenDriver func(ctx context.Context, config DriverConfig) (drivers.Driver, error)

func openPostgres(ctx context.Context, config DriverConfig) (drivers.Driver, error) {
	driver, err := postgres.Open(ctx, postgres.Config{
		URL: config.URL, MaxConns: config.MaxConns, Log: config.Log, Replicas: config.Replicas, ReplicaLag: config.ReplicaLag,
	})
	if err != nil {
		return nil, err // a nil *postgres.Driver in the interface would not be nil
	}
	return driver, nil
}

func openMongo(ctx context.Context, config DriverConfig) (drivers.Driver, error) {
	wildcard := config.Mongo.WildcardIndex
	driver, err := mongo.Open(ctx, mongo.Config{
		URL: config.URL, MaxConns: config.MaxConns, Log: config.Log,
		Transactions: config.Mongo.Transactions, NoWildcardIndex: wildcard != nil && !*wildcard, ShardBuilds: config.Mongo.ShardBuilds, Layout: config.Mongo.Layout,
	})
	if err != nil {
		return nil, err
	}
	return driver, nil
}

func openSQLServer(ctx context.Context, config DriverConfig) (drivers.Driver, error) {
	driver, err := sqlserver.Open(ctx, sqlserver.Config{URL: config.URL, MaxConns: config.MaxConns, Log: config.Log})
	if err != nil {
		return nil, err
	}
	return driver, nil
}
