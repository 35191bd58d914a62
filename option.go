package manifold

import (
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/cli"
	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/service"
)

// Option changes what Main and Start set up.
type Option func(*cli.Program)

func newProgram(options []Option) cli.Program {
	p := cli.Program{Extensions: service.Extensions{Docs: pages}}
	for _, option := range options {
		option(&p)
	}
	return p
}

// DriverConfig is the configuration with which a driver is opened: one configured database.
type DriverConfig = service.DriverConfig

// OpenDriver opens a driver. ctx covers only the opening, and ends after it. If opening fails because the database
// does not answer, OpenDriver is called again later.
type OpenDriver = service.OpenDriver

// WithDriver adds a driver under a name, which a configured database uses in its `driver` setting. It may replace a
// driver that comes with Manifold.
func WithDriver(name string, open OpenDriver) Option {
	return func(p *cli.Program) {
		if p.Drivers == nil {
			p.Drivers = make(map[string]OpenDriver)
		}
		p.Drivers[name] = open
	}
}

// WithProjection adds a shared projection whose fold is written in Go: see folding.HandlerOf. The handler gets the
// definition's name. Leave out definition.On and definition.Key.
func WithProjection(definition domain.Definition, handler folding.Handler) Option {
	return func(p *cli.Program) {
		p.Projections = append(p.Projections, service.Projection{Definition: definition, Handler: handler})
	}
}

// WithReactor adds a function that is called for events. Select events by categories and types, or name a projection:
// then the function is called after the projection has stored what an event changes in a document. See
// reactor.Definition. The name must be the same in every process of a service. The function may be called more than
// once for an event, so it must be idempotent by the event's id.
func WithReactor(definition reactor.Definition, handler reactor.Handler) Option {
	return func(p *cli.Program) {
		p.Reactors = append(p.Reactors, reactor.Reactor{Definition: definition, Handler: handler})
	}
}

// WithDecider adds a function that decides a command of a category's aggregates: behind the same endpoint as the
// commands of definitions, with the same guarantees. A tenant's definition of the category must exist, since it gives
// the state; its own command of that name goes first. See aggregate.Decider, and aggregate.WithBoundary for what it may
// depend on besides the state.
func WithDecider(category, command string, decide aggregate.Decider, options ...aggregate.DeciderOption) Option {
	return func(p *cli.Program) {
		p.Deciders = append(p.Deciders, service.Decider{Category: category, Command: command, Decide: decide, Options: options})
	}
}

// WithTracerProvider records the service's spans with the program's own provider of OpenTelemetry. Otherwise the
// environment variables of OpenTelemetry (OTEL_...) say where they are exported to. The program shuts the provider
// down, after the service has stopped.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return func(p *cli.Program) { p.TracerProvider = provider }
}

// WithCommands adds commands to the program.
func WithCommands(commands ...*cobra.Command) Option {
	return func(p *cli.Program) { p.Commands = append(p.Commands, commands...) }
}
