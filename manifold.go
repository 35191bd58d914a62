// Package manifold is Manifold as a library: an event store and projection service for many tenants.
//
// Start turns a configuration into a running Process. Main runs the whole program. An Option adds a driver, a
// projection, a reactor or commands. All parts are wired together in package service.
//
// A team that brings its own driver builds its own binary:
//
//	func main() {
//		manifold.Main(manifold.WithDriver("cosmos", cosmos.Open))
//	}
//
// Such a binary has the commands of a service: serve, dev, migrate, doctor, test and version. The client commands of
// `manifold` (import, export, tenant, bench, ...) work with every service, and are in cmd/manifold.
package manifold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/service"
)

// Main runs the program with this process's arguments and exits. The first SIGINT or SIGTERM ends it in order: it
// accepts no new work, lets work under way finish until the configured deadline, and then cancels the rest. The
// second signal skips the waiting, and the third ends the process at once. Acknowledged events are kept in any case.
func Main(options ...Option) {
	soft, hard := interrupts()
	root := command(options, hard)
	if err := root.ExecuteContext(soft); err != nil {
		if exit, ok := errors.AsType[ExitError](err); ok {
			os.Exit(exit.Code)
		}
		if !errors.Is(err, ErrShown) {
			fmt.Fprintln(os.Stderr, "manifold:", err)
		}
		os.Exit(1)
	}
}

// Process is one running process of the service, wired together from a configuration. Any number of processes may run
// on one database, even in one program.
type Process = service.Process

// Start starts a process, and returns when it answers requests. ctx bounds only the start. The process runs until
// Stop, which the caller must call. If the process cannot go on, Failed reports that. See service.Start.
func Start(ctx context.Context, c config.Config, log *slog.Logger, options ...Option) (*Process, error) {
	return service.Start(ctx, c, log, newProgram(options).Extensions)
}

// Version returns the version of this build: the module's version, or the revision from which it was built.
func Version() string { return service.Version() }

// DefinitionFile is a file that contains the definition of a projection.
type DefinitionFile = projection.DefinitionFile

// ReadDefinitions reads the definitions in a folder, as the setting `projections` does: see projection.ReadDefinitions.
func ReadDefinitions(folder string) ([]DefinitionFile, error) {
	return projection.ReadDefinitions(folder)
}

// ExitError makes the program exit with the given code. A command returns it after it has already printed everything.
type ExitError struct{ Code int }

// Error returns a message with the code.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// ErrShown marks a command's error that the user has already seen. Wrap it in the error that the command returns.
var ErrShown = errors.New("see above")

// command creates the program's commands. The end of hard ends all waiting.
func command(options []Option, hard context.Context) *cobra.Command {
	root := &cobra.Command{
		Use:           "manifold",
		Short:         "An event store and projection service for many tenants",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(devCommand(options, hard), serveCommand(options, hard), migrateCommand(), doctorCommand(options), testCommand(options), versionCommand())
	root.AddCommand(newProgram(options).commands...)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, command.CommandPath())
	})
	tellUse(root)
	return root
}

// tellUse adds the usage to the error for a command's invalid arguments. A command that only has subcommands shows
// its help, and refuses any unknown subcommand.
func tellUse(command *cobra.Command) {
	use := "its use is: " + command.UseLine()
	if command.HasSubCommands() {
		use = "see " + command.CommandPath() + " --help"
		if command.HasParent() && !command.Runnable() {
			command.Args = cobra.NoArgs
			command.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
		}
	}
	if check := command.Args; check != nil {
		command.Args = func(command *cobra.Command, args []string) error {
			if err := check(command, args); err != nil {
				return fmt.Errorf("%w; %s", err, use)
			}
			return flagGroups(command)
		}
	}
	for _, inner := range command.Commands() {
		tellUse(inner)
	}
}

// These expressions match cobra's errors for flag groups. Those errors name the declared groups, which mean nothing
// to the user.
var (
	exclusiveFlags = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
	oneFlagNeeded  = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
	togetherFlags  = regexp.MustCompile(`^if any flags in the group \[(.*)\] are set they must all be set; missing \[(.*)\]$`)
)

// flagGroups refuses flags that do not go together, with an error that names only those flags.
func flagGroups(command *cobra.Command) error {
	err := command.ValidateFlagGroups()
	if err == nil {
		return nil
	}
	flags := func(names, word string) string {
		return "--" + strings.Join(strings.Fields(names), " "+word+" --")
	}
	if m := exclusiveFlags.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s do not go together: say one of them", flags(m[1], "and"))
	}
	if m := oneFlagNeeded.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("say %s; see %s --help", flags(m[1], "or"), command.CommandPath())
	}
	if m := togetherFlags.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s go together: %s is missing", flags(m[1], "and"), flags(m[2], "and"))
	}
	return err
}

// interrupted is the cause with which a signal ends a context.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return "stopped by " + i.signal.String() }

// interrupts returns two contexts: the first signal ends soft, and the second ends hard. The third signal ends the
// process.
func interrupts() (soft, hard context.Context) {
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	soft, cancelSoft := context.WithCancelCause(context.Background())
	hard, cancelHard := context.WithCancelCause(context.Background())
	// This goroutine runs until the process exits, so nothing waits for it.
	go func() {
		cancelSoft(interrupted{<-signals})
		cancelHard(interrupted{<-signals})
		<-signals
		os.Exit(130)
	}()
	return soft, hard
}
