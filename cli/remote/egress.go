package remote

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func egressCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "egress",
		Short: "Show the egresses, which publish events to message brokers, with the operator's key",
		Args:  cobra.NoArgs,
	}
	to.bind(command, operatorKey, "MANIFOLD_KEY")
	command.AddCommand(list(to, &cobra.Command{
		Use:   "list",
		Short: "List the egresses: whether their brokers answer, and why events wait",
		Long: `List the egresses of the live processes' configurations: whether the broker answers, since when the oldest event has waited (if that
is 5 seconds or more), how many processes publish, and why events wait. -o json shows each process. "no process" means that no live
process runs the egress; its groups still hold their events.

How far each tenant is: manifold lag --all-tenants, as the group egress.NAME.`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.Egress, error] {
		return pages(func(*string) (*http.Response, error) { return c.ListEgresses(ctx) }, func(answer client.EgressList) []client.Egress { return answer.Egresses })
	}, table[client.Egress]{none: "egresses", header: "NAME\tBROKER\tTOPIC\tSTATE\tWAITING SINCE\tPROCESSES\tERROR", row: egressRow}))
	return command
}

func egressRow(e client.Egress) []any {
	state, waiting := "up", ""
	failing := 0
	worst := client.EgressProcess{Up: true} // the process with an error for the longest time
	for _, p := range e.Processes {
		failing += p.Failing
		if p.Error != "" && (worst.Error == "" || worst.Up && !p.Up || worst.Up == p.Up && earlier(p.ErrorSince, worst.ErrorSince)) {
			worst = p
		}
		if p.WaitingSince != nil {
			if since := p.WaitingSince.Format(time.RFC3339); waiting == "" || since < waiting {
				waiting = since
			}
		}
	}
	switch {
	case len(e.Processes) == 0:
		state = "no process"
	case e.Removing:
		state = "removing"
	case e.Removed:
		state = "removed"
	case !worst.Up:
		state = "down"
	case failing > 0:
		state = fmt.Sprintf("failing for %d", failing)
	}
	cause := worst.Error
	if worst.ErrorTenant != "" {
		cause = "tenant " + worst.ErrorTenant + ": " + cause
	}
	broker := strings.TrimSpace(e.Kind + " " + strings.Join(slices.Sorted(slices.Values(e.Addresses)), ","))
	return []any{e.Name, cmp.Or(broker, "-"), cmp.Or(e.Topic, "-"), state, cmp.Or(waiting, "-"), len(e.Processes), oneLine(cause)}
}

// earlier reports whether a known time is before another, which may be unknown.
func earlier(a, b *time.Time) bool { return a != nil && (b == nil || a.Before(*b)) }
