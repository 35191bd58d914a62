package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func membersOf(ctx context.Context, service *client.ClientWithResponses, name string) ([]client.SubscriptionMember, error) {
	r, err := service.ListSubscriptionMembersWithResponse(ctx, name)
	if err != nil {
		return nil, err
	}
	list, err := answered(r.JSON200, r.HTTPResponse, r.Body)
	return list.Members, err
}

func groupMembers(to *connection) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "members NAME",
		Short: "List who shares a group's partitions",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			members, err := membersOf(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				for _, m := range members {
					if err := writeJSON(command.OutOrStdout(), m); err != nil {
						return err
					}
				}
				return nil
			}
			t := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tLABEL\tJOINED\tALIVE\tPARTITIONS")
			for _, m := range members {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", m.MemberId, oneLine(m.Label), m.JoinedAt.Local().Format(time.RFC3339),
					m.AliveAt.Local().Format(time.RFC3339), numbers(m.Partitions))
			}
			return t.Flush()
		}),
	}
	jsonFlag(command, &asJSON, "the members")
	return command
}

// numbers formats numbers with commas between them.
func numbers(all []int) string {
	parts := make([]string, len(all))
	for i, n := range all {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ",")
}
