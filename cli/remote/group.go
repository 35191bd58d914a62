package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func groupCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "group",
		Short: "Manage consumer groups and their dead letters",
		Long: `Manage a tenant's groups: named subscriptions whose checkpoint, deliveries and dead letters the service keeps.

Creating, changing and moving a group needs the scope subscriptions:write. Receiving needs events:consume. Peeking and reading
dead letters show events, so they need events:consume or events:read. Other reads accept any of these scopes.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	command.AddCommand(groupList(to), groupGet(to), groupPut(to),
		removal(to, "delete NAME", "Delete a group with its checkpoint and dead letters", "the group's checkpoint, retries and dead letters", (*client.Client).DeleteSubscription),
		groupChange(to, "pause", "Pause a group: it delivers nothing, but accepts answers to events in flight", "is paused", (*client.Client).PauseSubscription),
		groupChange(to, "resume", "Resume a paused group", "delivers again", (*client.Client).ResumeSubscription),
		groupSeek(to), groupPeek(to), groupReceive(to), groupDeadLetters(to), groupReplay(to), groupDiscard(to), groupMembers(to))
	completeGroups(to, command)
	return command
}

func groupList(to *connection) *cobra.Command {
	return withJSON("the groups", list(to, &cobra.Command{
		Use:   "list",
		Short: "List groups and their progress",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.Subscription, error] {
		return pages(func(token *string) (*http.Response, error) {
			return c.ListSubscriptions(ctx, &client.ListSubscriptionsParams{PageSize: new(pageSize), PageToken: token})
		}, func(page client.SubscriptionList) []client.Subscription { return page.Subscriptions })
	}, table[client.Subscription]{
		none:   "groups",
		header: "NAME\tSOURCE\tORDERING\tPARTITIONS\tSTATE\tBEHIND\tIN FLIGHT\tRETRYING\tDEAD LETTERS",
		row: func(group client.Subscription) []any {
			sum := progressOf(group)
			return []any{group.Name, sourceOf(group.Source), group.Ordering, group.Partitions, stateOf(group), behind(group),
				sum.InFlight, sum.Retrying, sum.DeadLetters}
		},
	}))
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

// queryText writes a query as JSON.
func queryText(query *client.Query) string {
	text, _ := json.Marshal(query)
	return string(text)
}

func groupGet(to *connection) *cobra.Command {
	return withJSON("the group", show(to, &cobra.Command{
		Use:   "get NAME",
		Short: "Show a group: its definition, progress and members",
		Args:  cobra.ExactArgs(1),
	}, (*client.Client).GetSubscription, printGroup))
}

func printGroup(ctx context.Context, c *call, group client.Subscription) error {
	labels := map[string]string{} // of members, by id
	if group.Partitions > 0 {
		for member, err := range groupMembersOf(ctx, c) {
			if err != nil {
				return err
			}
			labels[member.MemberId] = member.Label
		}
	}
	c.out.printf("%s: %s, of %s from %s", group.Name, stateOf(group), sourceOf(group.Source), group.From)
	if len(group.Types) > 0 {
		c.out.printf(", types %s", strings.Join(group.Types, ","))
	}
	if group.Query != nil {
		c.out.printf("\n  query:        %s", queryText(group.Query))
	}
	if group.Filter != "" {
		c.out.printf("\n  filter:       %s", indented(group.Filter, 16))
	}
	c.out.printf("\n  ordering:     %s", group.Ordering)
	if group.Partitions > 0 {
		c.out.printf(", %d partitions", group.Partitions)
	}
	c.out.printf("\n  delivers:     %d at a time, %d in flight, acknowledged within %s", group.BatchSize, group.MaxInFlight, seconds(group.AckTimeout))
	c.out.printf("\n  attempts:     %d, %s to %s apart", group.MaxAttempts, seconds(orZero(group.Backoff.Min)), seconds(orZero(group.Backoff.Max)))
	sum := progressOf(group)
	c.out.printf("\n  checkpoint:   %d of %d, %s behind", sum.Checkpoint, group.Head, howMany(behind(group), "position"))
	if group.RemovedTo > 0 {
		c.out.printf("\n  removed:      events up to position %d, by retention", group.RemovedTo)
	}
	c.out.printf("\n  under way:    %d in flight, %d waiting for a retry", sum.InFlight, sum.Retrying)
	c.out.printf("\n  dead letters: %d", sum.DeadLetters)
	if sum.DeadLetters > 0 {
		c.out.printf("; see manifold group dead-letters %s", group.Name)
	}
	c.out.printf("\n")
	return table[client.SubscriptionProgress]{
		header: "PARTITION\tCHECKPOINT\tREAD TO\tOLDEST\tIN FLIGHT\tRETRYING\tDEAD LETTERS\tMEMBER",
		row: func(p client.SubscriptionProgress) []any {
			return []any{p.Partition, p.Checkpoint, p.ReadTo, known(p.Oldest), p.InFlight, p.Retrying, p.DeadLetters,
				strings.TrimSpace(p.MemberId + " " + labels[p.MemberId])}
		},
	}.print(c.out, each(group.Progress))
}

// groupChange returns a command that changes a group, and then prints the group's state.
func groupChange(to *connection, use, short, result string, change named) *cobra.Command {
	return show(to, &cobra.Command{
		Use:   use + " NAME",
		Short: short,
		Args:  cobra.ExactArgs(1),
	}, change, func(_ context.Context, c *call, group client.Subscription) error {
		return c.out.printf("%s: %s; %s behind, %d in flight\n", group.Name, result, howMany(behind(group), "position"), progressOf(group).InFlight)
	})
}

func groupSeek(to *connection) *cobra.Command {
	var position int64
	moment := ""
	command := &cobra.Command{
		Use:   "seek NAME --position N | --time TIME",
		Short: "Move a group to a position or a time",
		Long: `Continue a group at a position, or at the first event recorded at or after a time. Leases and retries are cancelled: the service
ignores later answers to those deliveries. Dead letters are kept.`,
		Example: `  manifold group seek send-mail --position 1
  manifold group seek send-mail --time 2026-03-01T09:00:00Z`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			var body client.Seek
			if c.changed("position") {
				body.Position = &position
			} else {
				at, err := time.Parse(time.RFC3339Nano, moment)
				if err != nil {
					return fmt.Errorf("--time: %q is not a time such as 2026-03-01T09:00:00Z", moment)
				}
				body.Timestamp = &at
			}
			group, err := read[client.Subscription](c.SeekSubscription(ctx, c.args[0], body))
			if err != nil {
				return err
			}
			return c.out.printf("%s: continues at position %d; the head is at %d\n", group.Name, progressOf(group).Checkpoint+1, group.Head)
		}),
	}
	command.Flags().Int64Var(&position, "position", 0, "the first position to deliver")
	command.Flags().StringVar(&moment, "time", "", "deliver from the first event recorded at or after this time, such as 2026-03-01T09:00:00Z")
	exclusiveFlags(command, "position", "time")
	oneFlagRequired(command, "position", "time")
	return command
}

// groupFields are the fields of a group's definition, in the order in which changes are printed.
var groupFields = []string{
	"source", "types", "query", "filter", "from", "batchSize", "maxInFlight", "ackTimeout", "maxAttempts", "backoff", "ordering", "partitions",
}

// groupFlags are the fields of a definition that were given as flags.
type groupFlags struct {
	selectionFlags
	batchSize, maxInFlight, maxAttempts, partitions int
	ackTimeout, backoffMin, backoffMax              time.Duration
}

func groupPut(to *connection) *cobra.Command {
	f := &groupFlags{}
	command := &cobra.Command{
		Use:   "put NAME",
		Short: "Create or change a group, and show what has changed",
		Long: `Create or change a group, and show what has changed. Fields without a flag keep their values; a new group has the service's
defaults. With -f, the file is the whole definition: fields missing from it have their defaults, and flags override it.

--from sets where a new group begins; to move an existing group, use manifold group seek. Ordering and partitions cannot be
changed.`,
		Example: `  manifold group put send-mail --category order --types OrderPlaced --ordering stream
  manifold group put send-mail --max-attempts 10 --backoff-max 1h
  manifold group put send-mail -f send-mail.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			_, err := putDefinition[client.Subscription](ctx, c, definitionPut{
				kind: "group", fields: groupFields, file: f.file,
				get: c.GetSubscription, put: c.PutSubscriptionWithBody, change: f.change,
			})
			return err
		}),
	}
	flags := command.Flags()
	f.bind(command, "group", "start (default), end", "at most one event of a stream in flight")
	flags.IntVar(&f.batchSize, "batch-size", 0, "events per receive that does not give a number")
	flags.IntVar(&f.maxInFlight, "max-in-flight", 0, "the largest number of unanswered events in each partition")
	flags.DurationVar(&f.ackTimeout, "ack-timeout", 0, "how long a consumer may take to answer, such as 30s")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "deliveries of an event before it becomes a dead letter")
	flags.DurationVar(&f.backoffMin, "backoff-min", 0, "the wait before the second attempt, such as 1s; it doubles with each further attempt")
	flags.DurationVar(&f.backoffMax, "backoff-max", 0, "the longest wait between two attempts, such as 5m")
	flags.IntVar(&f.partitions, "partitions", 0, "the number of partitions for the streams; one member receives each partition")
	exclusiveFlags(command, "stream", "category", "all")
	return command
}

// change returns the definition with the given flags applied.
func (f *groupFlags) change(definition map[string]json.RawMessage, changed func(flag string) bool) (map[string]any, error) {
	body := f.selectionFlags.change(definition, changed,
		field{"batch-size", "batchSize", f.batchSize}, field{"max-in-flight", "maxInFlight", f.maxInFlight},
		field{"ack-timeout", "ackTimeout", f.ackTimeout.Seconds()}, field{"max-attempts", "maxAttempts", f.maxAttempts},
		field{"partitions", "partitions", f.partitions})
	return body, changeObject(body, "backoff", "{min: 1, max: 300}", changed,
		field{"backoff-min", "min", f.backoffMin.Seconds()}, field{"backoff-max", "max", f.backoffMax.Seconds()})
}

func groupMembers(to *connection) *cobra.Command {
	return withJSON("the members", list(to, &cobra.Command{
		Use:   "members NAME",
		Short: "List the members that share a group's partitions",
		Args:  cobra.ExactArgs(1),
	}, groupMembersOf, table[client.SubscriptionMember]{
		none:   "members",
		header: "ID\tLABEL\tJOINED\tALIVE\tPARTITIONS",
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
