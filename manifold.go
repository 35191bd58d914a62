// Package manifold is Manifold as a library: an event store and projection service for many tenants.
//
// A team that brings its own driver builds its own binary:
//
//	func main() {
//		manifold.Main(manifold.WithDriver("cosmos", cosmos.Open))
//	}
//
// Such a binary has the commands of a service: serve, dev, migrate, doctor, test and version. The commands of `manifold`
// that are clients of one (import, export, tenant, bench, ...) work with every service, and are in cmd/manifold.
//
// This package is also the one place where everything is wired together: Start makes a running process of a
// configuration.
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

// Main runs the program with this process's arguments and exits. SIGINT or SIGTERM ends it in order: it stops taking,
// lets what is under way finish until the configured deadline, and cancels the rest. The second signal skips the
// waiting, and the third ends the process where it stands; what was acknowledged is kept in any case.
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

// ExitError is what a command returns to end the program with a code of its own, when all that there is to say was said.
type ExitError struct{ Code int }

// Error names the code.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// ErrShown is what a command's error wraps when the user has been told already.
var ErrShown = errors.New("see above")

// command makes the program's commands. hard ends when there is to be no more waiting.
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

// tellUse makes the refusal of a command's arguments say how it is used. A command that is only there for those below
// it shows its help, and refuses what is none of them.
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

// How cobra refuses flags by the groups in which they were declared, which nobody knows who calls the program.
var (
	exclusiveFlags = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
	oneFlagNeeded  = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
	togetherFlags  = regexp.MustCompile(`^if any flags in the group \[(.*)\] are set they must all be set; missing \[(.*)\]$`)
)

// flagGroups refuses flags that do not go together, and says so by their names alone.
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

// interrupted is the cause of what a signal ends.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return "stopped by " + i.signal.String() }

// interrupts returns two contexts: the first signal ends soft, the second hard. The third ends the process.
func interrupts() (soft, hard context.Context) {
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	soft, cancelSoft := context.WithCancelCause(context.Background())
	hard, cancelHard := context.WithCancelCause(context.Background())
	// For as long as the process lives: nobody waits for it.
	go func() {
		cancelSoft(interrupted{<-signals})
		cancelHard(interrupted{<-signals})
		<-signals
		os.Exit(130)
	}()
	return soft, hard
}

// Version is the version of this build: the module's, or the revision that it was built from.
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
