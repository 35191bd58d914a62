package manifold

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/drivers"
)

// Option changes what Main and Start make.
type Option func(*settings)

type settings struct {
	drivers  map[string]OpenDriver
	commands []*cobra.Command
}

// DriverConfig is what a driver is opened with: one database of the configuration.
type DriverConfig struct {
	URL      string // with the password in it
	MaxConns int    // 0: the driver's own default
	Log      *slog.Logger
}

// OpenDriver opens a driver. It must not wait for the database: one that is down is shown by /readyz and asked again.
type OpenDriver func(ctx context.Context, config DriverConfig) (drivers.Driver, error)

// WithDriver adds a driver under the name that a database's `driver` setting has in the configuration. The names of the
// drivers that come with Manifold can be taken over.
func WithDriver(name string, open OpenDriver) Option {
	return func(s *settings) {
		if s.drivers == nil {
			s.drivers = make(map[string]OpenDriver)
		}
		s.drivers[name] = open
	}
}

// WithCommands adds commands to the program.
func WithCommands(commands ...*cobra.Command) Option {
	return func(s *settings) { s.commands = append(s.commands, commands...) }
}
