package remote

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// exclusiveFlags refuses more than one of the flags. Like the functions below, it also declares the rule to cobra,
// whose completion uses it. Its errors name only the flags that are at fault, unlike those of cobra.
func exclusiveFlags(command *cobra.Command, names ...string) {
	command.MarkFlagsMutuallyExclusive(names...)
	checkFlags(command, names, func(given, _ []string) error {
		if len(given) > 1 {
			return fmt.Errorf("%s cannot be combined: give one of them", joinFlags(given, "and"))
		}
		return nil
	})
}

// oneFlagRequired refuses a command without any of the flags.
func oneFlagRequired(command *cobra.Command, names ...string) {
	command.MarkFlagsOneRequired(names...)
	checkFlags(command, names, func(given, _ []string) error {
		if len(given) == 0 {
			return fmt.Errorf("give %s; see %s --help", joinFlags(names, "or"), command.CommandPath())
		}
		return nil
	})
}

// flagsTogether refuses some of the flags without the others.
func flagsTogether(command *cobra.Command, names ...string) {
	command.MarkFlagsRequiredTogether(names...)
	checkFlags(command, names, func(given, missing []string) error {
		if len(given) > 0 && len(missing) > 0 {
			return fmt.Errorf("%s must be given together: %s is missing", joinFlags(names, "and"), joinFlags(missing, "and"))
		}
		return nil
	})
}

// confirmed adds --yes to a command, and refuses the command without it. warning says what the command does.
func confirmed(command *cobra.Command, warning string) *cobra.Command {
	yes := command.Flags().Bool("yes", false, "confirm")
	checkFlags(command, nil, func(_, _ []string) error {
		if !*yes {
			return fmt.Errorf("%s; re-run with --yes to confirm", warning)
		}
		return nil
	})
	return command
}

// withJSON adds --json to a command that otherwise prints for people.
func withJSON(what string, command *cobra.Command) *cobra.Command {
	command.Flags().Bool("json", false, "print "+what+" as the service returns them, one JSON object a line")
	return command
}

// fileFlag adds -f for a file that contains what.
func fileFlag(command *cobra.Command, file *string, what string) {
	command.Flags().StringVarP(file, "file", "f", "", "a file with "+what+"; - is standard input")
}

// checkFlags adds a check of flags to those that a command runs before anything else. check gets the names of the given
// and of the missing flags, sorted.
func checkFlags(command *cobra.Command, names []string, check func(given, missing []string) error) {
	earlier := command.PreRunE
	command.PreRunE = func(command *cobra.Command, args []string) error {
		if earlier != nil {
			if err := earlier(command, args); err != nil {
				return err
			}
		}
		var given, missing []string
		for _, name := range slices.Sorted(slices.Values(names)) {
			if command.Flags().Changed(name) {
				given = append(given, name)
			} else {
				missing = append(missing, name)
			}
		}
		return check(given, missing)
	}
}

func joinFlags(names []string, word string) string { return "--" + strings.Join(names, " "+word+" --") }
