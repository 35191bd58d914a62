package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/service"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the program's version and the schema version that it needs",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(command.OutOrStdout(), versionText())
			return err
		},
	}
}

// UserAgent names this program in requests to a service: "manifold/" and its version.
func UserAgent() string { return "manifold/" + service.Version() }

func versionText() string {
	return fmt.Sprintf("manifold %s, %s %s/%s, schema %d\n", service.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, migrations.Latest())
}
