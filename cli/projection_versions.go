package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func projectionVersions(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "versions NAME",
		Short: "Show who changed a projection's definition, when, and how",
		Long: `Show the definitions that a projection has had, the newest first, each with how it differs from the one before. They are
kept when the projection is removed.`,
		Args: cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			r, err := service.ListProjectionVersionsWithResponse(command.Context(), args[0])
			if err != nil {
				return err
			}
			list, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			out := command.OutOrStdout()
			p := newPainter(out)
			for _, v := range list.Versions {
				rebuild := ""
				if v.Rebuild != "" {
					rebuild = ", rebuild " + v.Rebuild
				}
				p.line(yellow, "version %d: %s by %s, %s%s", v.Version, v.Cause, v.By, v.At.Local().Format(time.RFC3339), rebuild)
				p.fields(v.Changes)
			}
			return p.err
		}),
	}
}
