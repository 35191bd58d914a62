package cli

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func groupCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "group",
		Short: "Look after groups: make and change them, see how far they are, move them, and see to their dead letters",
		Long: `Look after a tenant's groups: named subscriptions whose checkpoint, deliveries and dead letters the service keeps. Making,
changing and moving one needs the scope subscriptions:write, receiving events:consume, looking any of these or events:read; peeking and reading
dead letters, which show events, events:consume or events:read.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	command.AddCommand(groupList(to), groupGet(to), groupPut(to), groupDelete(to),
		groupChange(to, "pause", "Let a group deliver nothing for now; what is in flight can still be answered", "is paused",
			func(ctx context.Context, s *client.ClientWithResponses, name string) (client.Subscription, error) {
				r, err := s.PauseSubscriptionWithResponse(ctx, name)
				if err != nil {
					return client.Subscription{}, err
				}
				return answered(r.JSON200, r.HTTPResponse, r.Body)
			}),
		groupChange(to, "resume", "Let a paused group deliver again", "delivers again",
			func(ctx context.Context, s *client.ClientWithResponses, name string) (client.Subscription, error) {
				r, err := s.ResumeSubscriptionWithResponse(ctx, name)
				if err != nil {
					return client.Subscription{}, err
				}
				return answered(r.JSON200, r.HTTPResponse, r.Body)
			}),
		groupSeek(to), groupPeek(to), groupReceive(to), groupDeadLetters(to), groupReplay(to), groupDiscard(to), groupMembers(to))
	return command
}

// groups yields all groups. It stops at the first error.
func groups(ctx context.Context, service *client.ClientWithResponses) iter.Seq2[client.Subscription, error] {
	size := pageSize
	return pages(func(token *string) ([]client.Subscription, *http.Response, error) {
		r, err := service.ListSubscriptionsWithResponse(ctx, &client.ListSubscriptionsParams{PageSize: &size, PageToken: token})
		if err != nil {
			return nil, nil, err
		}
		page, err := answered(r.JSON200, r.HTTPResponse, r.Body)
		return page.Subscriptions, r.HTTPResponse, err
	})
}

func groupList(to *connection) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "list",
		Short: "List the groups, and how far each has come",
		Args:  cobra.NoArgs,
		RunE: to.withService(func(command *cobra.Command, _ []string, service *client.ClientWithResponses) error {
			return writeList(command.OutOrStdout(), asJSON, "NAME\tSOURCE\tORDERING\tPARTITIONS\tSTATE\tBEHIND\tIN FLIGHT\tRETRYING\tDEAD LETTERS",
				groups(command.Context(), service), func(group client.Subscription) []any {
					sum := progressOf(group)
					return []any{group.Name, sourceOf(group.Source), group.Ordering, group.Partitions, stateOf(group), behind(group),
						sum.InFlight, sum.Retrying, sum.DeadLetters}
				})
		}),
	}
	jsonFlag(command, &asJSON, "the groups")
	return command
}

// progressOf returns a group's progress over all its partitions: sums, and the lowest position.
func progressOf(group client.Subscription) client.SubscriptionProgress {
	sum := client.SubscriptionProgress{Checkpoint: math.MaxInt64}
	for _, p := range group.Progress {
		sum.Checkpoint = min(sum.Checkpoint, p.Checkpoint)
		sum.InFlight += p.InFlight
		sum.Retrying += p.Retrying
		sum.DeadLetters += p.DeadLetters
	}
	return sum
}

// behind returns how many positions a group lags behind the head. The result is 0 if the group was moved beyond the
// head.
func behind(group client.Subscription) int64 {
	return max(group.Head-progressOf(group).Checkpoint, 0)
}

func stateOf(group client.Subscription) string {
	if group.Paused {
		return "paused"
	}
	return "active"
}

// sourceOf describes a group's source.
func sourceOf(source client.SubscriptionSource) string {
	switch {
	case source.Stream != "":
		return source.Stream
	case len(source.Categories) > 0:
		return strings.Join(source.Categories, ",")
	default:
		return allStreams
	}
}

func groupGet(to *connection) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "get NAME",
		Short: "Show a group: its definition, how far it has come, and who receives from its partitions",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			r, err := service.GetSubscriptionWithResponse(command.Context(), args[0])
			if err != nil {
				return err
			}
			group, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), group)
			}
			labels := map[string]string{}
			if group.Partitions > 0 {
				members, err := membersOf(command.Context(), service, args[0])
				if err != nil {
					return err
				}
				for _, m := range members {
					labels[m.MemberId] = m.Label
				}
			}
			return showGroup(command.OutOrStdout(), group, labels)
		}),
	}
	jsonFlag(command, &asJSON, "the group")
	return command
}

// showGroup prints a group for people. labels are the labels of its members by id.
func showGroup(out io.Writer, group client.Subscription, labels map[string]string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s, of %s from %s", group.Name, stateOf(group), sourceOf(group.Source), group.From)
	if len(group.Types) > 0 {
		fmt.Fprintf(&text, ", types %s", strings.Join(group.Types, ","))
	}
	if group.Filter != "" {
		fmt.Fprintf(&text, "\n  filter:       %s", strings.ReplaceAll(strings.TrimSpace(group.Filter), "\n", "\n                "))
	}
	fmt.Fprintf(&text, "\n  ordering:     %s", group.Ordering)
	if group.Partitions > 0 {
		fmt.Fprintf(&text, ", %d partitions", group.Partitions)
	}
	fmt.Fprintf(&text, "\n  delivers:     %d at a time, %d in flight, acknowledged within %s", group.BatchSize, group.MaxInFlight, seconds(group.AckTimeout))
	fmt.Fprintf(&text, "\n  attempts:     %d, %s to %s apart", group.MaxAttempts, seconds(orZero(group.Backoff.Min)), seconds(orZero(group.Backoff.Max)))
	sum := progressOf(group)
	fmt.Fprintf(&text, "\n  checkpoint:   %d of %d, %s behind", sum.Checkpoint, group.Head, howMany(behind(group), "position"))
	if group.RemovedTo > 0 {
		fmt.Fprintf(&text, "\n  removed:      events up to position %d, by retention", group.RemovedTo)
	}
	fmt.Fprintf(&text, "\n  under way:    %d in flight, %d waiting for a retry", sum.InFlight, sum.Retrying)
	fmt.Fprintf(&text, "\n  dead letters: %d", sum.DeadLetters)
	if sum.DeadLetters > 0 {
		fmt.Fprintf(&text, "; see manifold group dead-letters %s", group.Name)
	}
	fmt.Fprintln(&text)
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PARTITION\tCHECKPOINT\tREAD TO\tOLDEST\tIN FLIGHT\tRETRYING\tDEAD LETTERS\tMEMBER")
	for _, p := range group.Progress {
		oldest := ""
		if p.Oldest != nil {
			oldest = strconv.FormatInt(*p.Oldest, 10)
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t%d\t%d\t%d\t%s\n", p.Partition, p.Checkpoint, p.ReadTo, oldest, p.InFlight, p.Retrying, p.DeadLetters, strings.TrimSpace(p.MemberId+" "+labels[p.MemberId]))
	}
	return t.Flush()
}

func groupDelete(to *connection) *cobra.Command {
	return removal(to, "delete NAME", "Delete a group, with its checkpoint and its dead letters", "the group's checkpoint, retries and dead letters",
		func(ctx context.Context, service *client.ClientWithResponses, name string) (*http.Response, []byte, error) {
			r, err := service.DeleteSubscriptionWithResponse(ctx, name)
			if err != nil {
				return nil, nil, err
			}
			return r.HTTPResponse, r.Body, nil
		})
}

// groupChange returns a command that changes a group, and then prints the group's state.
func groupChange(to *connection, use, short, what string, do func(context.Context, *client.ClientWithResponses, string) (client.Subscription, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use + " NAME",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			group, err := do(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			sum := progressOf(group)
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s: %s; %s behind, %d in flight\n", group.Name, what, howMany(behind(group), "position"), sum.InFlight)
			return err
		}),
	}
}

func groupSeek(to *connection) *cobra.Command {
	var position int64
	moment := ""
	command := &cobra.Command{
		Use:   "seek NAME --position N | --time TIME",
		Short: "Move a group to a position, or to a time",
		Long: `Let a group go on at a position, or at the first event recorded at a time or later. What is in flight or waits for a retry is
given up: answers to it change nothing any more. Dead letters stay.`,
		Example: `  manifold group seek send-mail --position 1
  manifold group seek send-mail --time 2026-03-01T09:00:00Z`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			var body client.Seek
			if command.Flags().Changed("position") {
				body.Position = &position
			} else {
				at, err := time.Parse(time.RFC3339Nano, moment)
				if err != nil {
					return fmt.Errorf("--time: %q is not a time such as 2026-03-01T09:00:00Z", moment)
				}
				body.Timestamp = &at
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			r, err := service.SeekSubscriptionWithResponse(command.Context(), args[0], body)
			if err != nil {
				return err
			}
			group, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s: goes on at position %d; the head is at %d\n", group.Name, progressOf(group).Checkpoint+1, group.Head)
			return err
		},
	}
	command.Flags().Int64Var(&position, "position", 0, "the first position that may be delivered")
	command.Flags().StringVar(&moment, "time", "", "such as 2026-03-01T09:00:00Z: the first event recorded then or later")
	exclusiveFlags(command, "position", "time")
	oneFlagRequired(command, "position", "time")
	return command
}
