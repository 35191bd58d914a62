package cli

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func redactCommand() *cobra.Command {
	to := &connection{}
	var reason string
	var yes bool
	command := &cobra.Command{
		Use:   "redact TENANT POSITION --reason TEXT",
		Short: "Remove the data of an event that cannot be read, with the operator's key",
		Long: `Remove the data and metadata of an event that cannot be read, for good, with the operator's key. The event keeps its id, stream,
version, position, type and times; everybody who reads it sees that it was redacted, and the reason. Events that can be read
are immutable, and refused. manifold doctor --events lists those that cannot.`,
		Example: `  manifold redact acme 4711 --reason "9000 numbers of 131 kB each" --yes`,
		Args:    cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			position, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || position < 1 {
				return fmt.Errorf("%q is not a position such as 4711", args[1])
			}
			if !yes {
				return errors.New("this removes the event's data for good; re-run with --yes to confirm")
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			tenant, err := findTenant(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			r, err := service.RedactEventWithResponse(command.Context(), tenant.Id, position, client.Redaction{Reason: reason})
			if err != nil {
				return err
			}
			event, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "event %s, version %d of %s, has no data any more\n", event.Id, event.Version, event.Stream)
			return err
		},
	}
	to.bind(command, operatorKey, "MANIFOLD_KEY")
	command.Flags().StringVar(&reason, "reason", "", "why, for everybody who reads the event")
	command.Flags().BoolVar(&yes, "yes", false, "confirm that the data is to go for good")
	_ = command.MarkFlagRequired("reason") // the flag exists
	return command
}
