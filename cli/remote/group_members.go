package remote

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func groupMembers(to *connection) *cobra.Command {
	return withJSON("the members", list(to, &cobra.Command{
		Use:   "members NAME",
		Short: "List the members that share a group's partitions",
		Args:  cobra.ExactArgs(1),
	}, groupMembersOf, table[client.SubscriptionMember]{
		isFixed: true,
		header:  "ID\tLABEL\tJOINED\tALIVE\tPARTITIONS",
		row: func(m client.SubscriptionMember) []any {
			partitions := make([]string, len(m.Partitions))
			for i, partition := range m.Partitions {
				partitions[i] = strconv.Itoa(partition)
			}
			return []any{m.MemberId, oneLine(m.Label), local(m.JoinedAt), local(m.AliveAt), strings.Join(partitions, ",")}
		},
	}))
}

// groupMembersOf yields the members of the group that the first argument names.
func groupMembersOf(ctx context.Context, c *call) iter.Seq2[client.SubscriptionMember, error] {
	return pages(func(*string) (*http.Response, error) {
		return c.ListSubscriptionMembers(ctx, c.args[0])
	}, func(answer client.SubscriptionMemberList) []client.SubscriptionMember { return answer.Members })
}
