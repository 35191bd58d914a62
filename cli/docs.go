package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/api/docs"
	"github.com/manifold-es/manifold/service"
)

func docsCommand(extensions service.Extensions) *cobra.Command {
	var folder string
	command := &cobra.Command{
		Use:   "docs --out FOLDER",
		Short: "Write the documentation as a static site",
		Long: `Write the documentation that a service has at /docs as files, for a web server. Links between pages are relative, so the
site works below any address. The search needs a web server; pages can also be opened from the disk.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			site, err := docs.New(extensions.Docs, docs.Relative)
			if err != nil {
				return err
			}
			files, err := site.Write(folder)
			if err != nil {
				return fmt.Errorf("write the documentation: %w", err)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s: %d files; begin with index.html\n", folder, files)
			return err
		},
	}
	command.Flags().StringVar(&folder, "out", "", "the folder to write to; it must be empty or new (required)")
	_ = command.MarkFlagRequired("out") // the flag exists
	return command
}
