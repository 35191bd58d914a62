package manifold

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/mongo"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/drivers/sqlserver"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/reactor"
)

// Option changes what Main and Start set up.
type Option func(*settings)

type settings struct {
	drivers     map[string]OpenDriver
	handlers    map[string]projection.Handler
	definitions []domain.Definition
	reactors    []reactor.Reactor
	commands    []*cobra.Command
}

func newSettings(options []Option) settings {
	s := settings{
		drivers:  map[string]OpenDriver{"postgres": openPostgres, "mongo": openMongo, "sqlserver": openSQLServer},
		handlers: make(map[string]projection.Handler),
	}
	for _, option := range options {
		option(&s)
	}
	s.handlers[projection.UsageName] = projection.UsageHandler()
	return s
}

// DriverConfig is the configuration with which a driver is opened: one configured database.
type DriverConfig struct {
	URL      string // contains the password
	MaxConns int    // 0: the driver's own default
	Log      *slog.Logger
	Mongo    config.Mongo // for the driver mongo only
}

// OpenDriver opens a driver. ctx covers only the opening, and ends after it. If opening fails because the database
// does not answer, OpenDriver is called again later.
type OpenDriver func(ctx context.Context, config DriverConfig) (drivers.Driver, error)

func openPostgres(ctx context.Context, config DriverConfig) (drivers.Driver, error) {
	driver, err := postgres.Open(ctx, postgres.Config{URL: config.URL, MaxConns: config.MaxConns, Log: config.Log})
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

// WithDriver adds a driver under a name, which a configured database uses in its `driver` setting. It may replace a
// driver that comes with Manifold.
func WithDriver(name string, open OpenDriver) Option {
	return func(s *settings) { s.drivers[name] = open }
}

// WithProjection adds a shared projection whose fold is written in Go: see projection.HandlerOf. The handler gets the
// definition's name. Leave out definition.On and definition.Key.
func WithProjection(definition domain.Definition, handler projection.Handler) Option {
	return func(s *settings) {
		definition.Handler = definition.Name
		s.handlers[definition.Name] = handler
		s.definitions = append(s.definitions, definition)
	}
}

// WithCommands adds commands to the program.
func WithCommands(commands ...*cobra.Command) Option {
	return func(s *settings) { s.commands = append(s.commands, commands...) }
}
