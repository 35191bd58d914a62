package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// removal returns a command that removes something by name, with everything that belongs to it, after confirmation.
func removal(to *connection, use, short, what string, remove func(ctx context.Context, service *client.ClientWithResponses, name string) (response *http.Response, body []byte, err error)) *cobra.Command {
	yes := false
	command := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if !yes {
				return fmt.Errorf("this removes %s (the events stay); say --yes if that is meant", what)
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			response, body, err := remove(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			if response.StatusCode != http.StatusNoContent {
				return refusal(response.Status, body)
			}
			return nil
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "confirm")
	return command
}
