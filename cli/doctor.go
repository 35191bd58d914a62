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
		Short: "Check everything that the service needs, and suggest fixes",
		Long: `Check everything that the service needs, and suggest fixes: the configuration, the issuers of tokens, each login and its
privileges, the schema, whether commits are synced, the nodes of a cluster, the clocks, each database of documents, the
definitions, the shared projections, whether logs are sealed, whether the indexes of the events have grown by bloat, and
whether events can be read.

Run it first if manifold serve does not start. It is safe beside running services: it only creates and drops a test table in
each database of documents. The exit code is 1 if a check fails.`,
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
				return fmt.Errorf("a check failed: %w", ErrShown)
			}
			return nil
		},
	}
	command.Flags().StringVar(&file, "config", os.Getenv("MANIFOLD_CONFIG"), "the configuration file (MANIFOLD_CONFIG)")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	command.Flags().BoolVar(&allEvents, "events", false, "check every event of all logs, however long it takes")
	return command
}
