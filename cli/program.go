// Package cli has the commands of Manifold's programs, a file for each.
//
// Main runs a Program. Every program has the commands in this package, which run and check a service: serve, dev,
// migrate, doctor, test, docs and version. Package remote has the commands that call a service over HTTP.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/service"
)

// Program is what a program adds to Manifold.
type Program struct {
	service.Extensions
	Commands []*cobra.Command
}

// Main runs the program with this process's arguments and exits. The first SIGINT or SIGTERM ends it in order: it
// accepts no new work, lets work under way finish until the configured deadline, and then cancels the rest. The
// second signal skips the waiting, and the third ends the process at once. Acknowledged events are kept in any case.
func (p Program) Main() {
	soft, hard := interrupts()
	root := p.command(hard)
	if err := root.ExecuteContext(soft); err != nil {
		if exit, ok := errors.AsType[ExitError](err); ok {
			os.Exit(exit.Code)
		}
		if !errors.Is(err, ErrShown) {
			fmt.Fprintln(os.Stderr, "manifold:", asCalled(root, err.Error()))
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
func (p Program) command(hard context.Context) *cobra.Command {
	root := &cobra.Command{
		Use:           "manifold",
		Short:         "An event store and projection service for many tenants",
		Version:       service.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: os.Args[0]},
	}
	root.SetVersionTemplate(versionText())
	root.AddCommand(devCommand(p.Extensions, hard), serveCommand(p.Extensions, hard), migrateCommand(), clusterCommand(), doctorCommand(p.Extensions), testCommand(p.Extensions), docsCommand(p.Extensions), versionCommand())
	root.AddCommand(p.Commands...)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, command.CommandPath())
	})
	explainArguments(root)
	return root
}

// asCalled replaces the program's name in suggested commands with the name that the user has typed, such as
// ./bin/manifold.
func asCalled(root *cobra.Command, text string) string {
	if root.DisplayName() == root.Name() {
		return text
	}
	var names []string
	for _, command := range root.Commands() {
		names = append(names, command.Name())
	}
	// A text may have the name as it was typed, such as bin/manifold, which stays.
	suggested := regexp.MustCompile(`(^|[^\w./\\-])` + root.Name() + ` ((?:` + strings.Join(names, "|") + `)\b)`)
	return suggested.ReplaceAllString(text, "${1}"+strings.ReplaceAll(root.DisplayName(), "$", "$$")+" $2")
}

// explainArguments adds the usage to the error for a command's invalid arguments. A command that only has subcommands
// shows its help, and refuses any unknown subcommand.
func explainArguments(command *cobra.Command) {
	use := "usage: " + command.UseLine()
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
			return nil
		}
	}
	for _, inner := range command.Commands() {
		explainArguments(inner)
	}
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
