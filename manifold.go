// Package manifold is Manifold as a library: an event store and projection service for many tenants.
//
// Start turns a configuration into a running Process. This package is the one place where all parts are wired
// together. Main runs the whole program, and an Option adds a driver, a projection, a reactor or commands to it.
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
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
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
	root.AddCommand(newSettings(options).commands...)
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

// Version returns the version of this build: the module's version, or the revision from which it was built.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			revision = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = "+changes"
		}
	}
	if revision == "" {
		return "development"
	}
	return revision[:min(12, len(revision))] + modified
}
