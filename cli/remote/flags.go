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

// withJSON adds --output, and its short form --json, to a command that otherwise prints for people.
func withJSON(what string, command *cobra.Command) *cobra.Command {
	usage := "table; json, yaml, or ndjson: " + what + " as the service returns them"
	if flag := command.Flags().Lookup("output"); flag != nil { // of list
		flag.Usage = usage
		return command
	}
	command.Flags().StringP("output", "o", "", usage)
	command.Flags().Bool("json", false, "the same as -o ndjson: one JSON object a line")
	if err := command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputFormats[:], cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
	exclusiveFlags(command, "json", "output")
	return command
}

var outputFormats = [...]string{"table", "json", "yaml", "ndjson"}

// outputFormat returns the format that flags of withJSON ask for; empty: for people.
func outputFormat(command *cobra.Command) (string, error) {
	asJSON, err := command.Flags().GetBool("json")
	if err != nil { // it has none of them; --output may be another flag
		return "", nil
	}
	if asJSON {
		return "ndjson", nil
	}
	format, _ := command.Flags().GetString("output") // empty without the flag
	switch {
	case format == "" || format == "table":
		return "", nil
	case !slices.Contains(outputFormats[:], format):
		return "", fmt.Errorf("--output: %q is not one of %s", format, strings.Join(outputFormats[:], ", "))
	}
	return format, nil
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
