// Package manifold is Manifold as a library: an event store and projection service for many tenants.
//
// Start turns a configuration into a running Process. Main runs the whole program. An Option adds a driver, a
// projection, a reactor, a decider or commands. The code is in other packages: all parts are wired together in package
// service, and the commands are in package cli.
//
// A team that brings its own driver builds its own binary:
//
//	func main() {
//		manifold.Main(manifold.WithDriver("cosmos", cosmos.Open))
//	}
//
// Such a binary has the commands of a service: serve, dev, migrate, doctor, test, docs and version. The standard
// binary, cmd/manifold, adds the client commands (import, export, tenant, bench, ...), which work with every service.
package manifold

import (
	"context"
	"embed"
	"log/slog"

	"github.com/manifold-es/manifold/cli"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/service"
)

// pages are shown at /docs.
//
//go:embed README.md CHANGELOG.md CONTRIBUTING.md docs client/README.md client/typescript/README.md
var pages embed.FS

// Main runs the program with this process's arguments and exits. The first SIGINT or SIGTERM ends it in order: it
// accepts no new work, lets work under way finish until the configured deadline, and then cancels the rest. The
// second signal skips the waiting, and the third ends the process at once. Acknowledged events are kept in any case.
func Main(options ...Option) { newProgram(options).Main() }

// Process is one running process of the service, wired together from a configuration. Any number of processes may run
// on one database, even in one program.
type Process = service.Process

// Start starts a process, and returns when it answers requests. ctx bounds only the start. The process runs until
// Stop, which the caller must call. If the process cannot continue, Failed reports that. See service.Start.
func Start(ctx context.Context, c config.Config, log *slog.Logger, options ...Option) (*Process, error) {
	return service.Start(ctx, c, log, newProgram(options).Extensions)
}

// Version returns the version of this build: the module's version, or the revision from which it was built.
func Version() string { return service.Version() }

// DefinitionFile is a file that contains the definition of a projection.
type DefinitionFile = folding.DefinitionFile

// ReadDefinitions reads the definitions in a folder, as the setting `projections` does: see projection.ReadDefinitions.
func ReadDefinitions(folder string) ([]DefinitionFile, error) {
	return folding.ReadDefinitions(folder)
}

// ExitError makes the program exit with the given code. A command returns it after it has already printed everything.
type ExitError = cli.ExitError

// ErrShown marks a command's error that the user has already seen. Wrap it in the error that the command returns.
var ErrShown = cli.ErrShown
