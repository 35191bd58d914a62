package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

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
