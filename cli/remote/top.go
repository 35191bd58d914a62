package remote

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// reading is what top has asked for at one time.
type reading struct {
	at        time.Time
	head      int64
	consumers []client.Lag
	rebuilds  []client.Rebuild // those that have not ended
}

// mostAsked is the largest number of projections whose rebuilds top looks for, with a request for each.
const mostAsked = 50

func topCommand() *cobra.Command {
	to := &connection{}
	every := 2 * time.Second
	command := &cobra.Command{
		Use:   "top",
		Short: "Show a tenant's rates, lag and rebuilds, live",
		Long: `Show how fast a tenant's log grows, how fast each projection and group proceeds, how far it lags behind, and the rebuilds under way,
until Ctrl-C. Those that need attention come first: what is stopped, has dead letters, or lags furthest behind.

Rates are positions per second since the last answer. Rebuilds are those of the first 50 projections, for keys that may read
documents.`,
		Args: cobra.NoArgs,
		RunE: to.run(func(ctx context.Context, c *call) error {
			if every < leastWatch {
				return fmt.Errorf("--interval must be at least %s", leastWatch)
			}
			var before *reading
			return repeatedly(ctx, c, every, func(out *output) error {
				now, err := takeReading(ctx, c)
				if err != nil {
					return err
				}
				defer func() { before = now }()
				return now.print(out, before)
			})
		}),
	}
	to.bind(command, "MANIFOLD_KEY")
	command.Flags().DurationVar(&every, "interval", every, "the time between two answers")
	return command
}

func takeReading(ctx context.Context, c *call) (*reading, error) {
	lag, err := read[client.LagList](c.GetLag(ctx, nil))
	if err != nil {
		return nil, err
	}
	r := &reading{at: time.Now(), head: lag.Head, consumers: lag.Consumers}
	asked := 0
	for _, consumer := range lag.Consumers {
		if consumer.Kind != "projection" {
			continue
		}
		if asked++; asked > mostAsked {
			break
		}
		response, err := c.ListRebuilds(ctx, consumer.Name)
		list, err := read[client.RebuildList](response, err)
		switch {
		case err == nil:
		case response != nil && response.StatusCode == http.StatusForbidden:
			return r, nil
		case response != nil && response.StatusCode == http.StatusNotFound: // it was removed meanwhile
			continue
		default:
			return nil, err
		}
		for _, rebuild := range list.Rebuilds {
			if rebuild.EndedAt == nil {
				r.rebuilds = append(r.rebuilds, rebuild)
			}
		}
	}
	return r, nil
}

// print prints the reading, with rates since the one before, if there is one.
func (r *reading) print(out *output, before *reading) error {
	positions := map[string]int64{}
	elapsed := 0.0
	if before != nil {
		elapsed = r.at.Sub(before.at).Seconds()
		positions[""] = before.head
		for _, lag := range before.consumers {
			if lag.Position != nil {
				positions[consumerOf(lag)] = *lag.Position
			}
		}
	}
	rate := func(name string, position int64) string {
		was, known := positions[name]
		if !known || elapsed <= 0 {
			return ""
		}
		return strconv.FormatFloat(float64(position-was)/elapsed, 'f', 1, 64)
	}
	out.printf("%s  head %d", r.at.Format(time.TimeOnly), r.head)
	if perSecond := rate("", r.head); perSecond != "" {
		out.printf(", %s positions/s", perSecond)
	}
	out.printf("\n\n")
	consumers := slices.Clone(r.consumers)
	slices.SortStableFunc(consumers, func(a, b client.Lag) int {
		return cmp.Or(cmp.Compare(urgency(b), urgency(a)), cmp.Compare(orZero(b.LagPositions), orZero(a.LagPositions)))
	})
	err := table[client.Lag]{none: "consumers", header: "RATE\t" + lagHeader, row: func(lag client.Lag) []any {
		perSecond := ""
		if lag.Position != nil {
			perSecond = rate(consumerOf(lag), *lag.Position)
		}
		return append([]any{perSecond}, lagRow(lag)...)
	}}.print(out, each(consumers))
	if err != nil || len(r.rebuilds) == 0 {
		return err
	}
	out.printf("\n")
	return table[client.Rebuild]{header: "REBUILD OF\tSTATE\tDONE\tEVENTS/S\tTIME LEFT", row: func(rebuild client.Rebuild) []any {
		left := ""
		if rebuild.SecondsLeft != nil {
			left = seconds(*rebuild.SecondsLeft).Round(time.Second).String()
		}
		return []any{rebuild.Projection, stateOfRebuild(rebuild), shareDone(rebuild), strconv.FormatFloat(orZero(rebuild.EventsPerSecond), 'f', 0, 64), left}
	}}.print(out, each(r.rebuilds))
}

func consumerOf(lag client.Lag) string {
	return fmt.Sprint(lag.Kind, " ", lag.Name, " ", orZero(lag.Partition))
}

// urgency is higher for what a person has to look at first.
func urgency(lag client.Lag) int {
	switch {
	case orZero(lag.Faulted) || lag.Error != "":
		return 2
	case orZero(lag.DeadLetters) > 0:
		return 1
	default:
		return 0
	}
}

func shareDone(rebuild client.Rebuild) string {
	if rebuild.EventsTotal == 0 {
		return ""
	}
	return strconv.FormatInt(min(100, 100*rebuild.EventsDone/rebuild.EventsTotal), 10) + " %"
}
