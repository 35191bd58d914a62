package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/cli/doctor"
	"github.com/manifold-es/manifold/service"
)

func doctorCommand(extensions service.Extensions) *cobra.Command {
	var file string
	var asJSON, allEvents bool
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Look at everything that the service needs, and say what to do",
		Long: `Look at everything that the service needs, and say what to do: the configuration, each login and what it may do, the
schema, whether commits are synced, the clocks, each database of documents, the definitions, the shared projections, and whether
events can be read.
It is the first thing to try where manifold serve does not start, and may be run beside services that work: it changes
nothing, but makes and removes a table of its own in each database of documents. A failure makes the exit code 1.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			findings := doctor.Examine(command.Context(), file, os.Environ(), extensions, allEvents)
			write := doctor.Write
			if asJSON {
				write = doctor.WriteJSON
			}
			if err := write(command.OutOrStdout(), findings); err != nil {
				return err
			}
			if doctor.Failed(findings) {
				return fmt.Errorf("something must be mended: %w", ErrShown)
			}
			return nil
		},
	}
	command.Flags().StringVar(&file, "config", os.Getenv("MANIFOLD_CONFIG"), "the configuration file (MANIFOLD_CONFIG)")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	command.Flags().BoolVar(&allEvents, "events", false, "look for unreadable events in all of the logs, however long it takes")
	return command
}
