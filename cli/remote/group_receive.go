package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// receiveFlags say how many events to receive, and how to answer.
type receiveFlags struct {
	batch           int
	wait, delay     time.Duration
	ack, keep, join bool
	nack, reason    string
}

func groupReceive(to *connection) *cobra.Command {
	f := &receiveFlags{}
	command := &cobra.Command{
		Use:   "receive NAME",
		Short: "Receive events as a consumer, and answer",
		Long: `Receive events of a group as a consumer, and print them; to look without receiving, use manifold group peek.

By default the events are returned at once for the group's consumers to receive. That still counts as an attempt; after its last
attempt an event becomes a dead letter. --keep leaves events in flight until their lease expires; --ack and --nack answer for
good.

Only members receive from a group with partitions: --join joins the group and leaves at the end.`,
		Example: `  manifold group receive send-mail
  manifold group receive send-mail --batch 1 --nack park --reason 'no such address'`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(f.receive),
	}
	command.Flags().IntVar(&f.batch, "batch", 10, "the largest number of events")
	command.Flags().DurationVar(&f.wait, "wait", 0, "how long to wait for an event, up to 30s")
	command.Flags().BoolVar(&f.ack, "ack", false, "acknowledge the events after printing them")
	command.Flags().StringVar(&f.nack, "nack", "", "retry, park or skip the events after printing them")
	command.Flags().DurationVar(&f.delay, "delay", 0, "with --nack retry: the wait before the next attempt (default: the group's back-off)")
	command.Flags().StringVar(&f.reason, "reason", "", "with --nack: the reason, shown with dead letters")
	command.Flags().BoolVar(&f.keep, "keep", false, "do not answer: events are redelivered when their lease expires")
	command.Flags().BoolVar(&f.join, "join", false, "be a member of a group with partitions meanwhile")
	exclusiveFlags(command, "ack", "nack", "keep")
	return withJSON("the deliveries", command)
}

// longestReason is the largest number of bytes that the service accepts in a reason.
const longestReason = 1000

// check refuses what the service would refuse. After a receive it would be too late, since the events were already
// delivered.
func (f *receiveFlags) check(changed func(flag string) bool) error {
	switch {
	case f.batch < 1:
		return errors.New("--batch must be at least 1")
	case !changed("nack") && (changed("delay") || f.reason != ""):
		return errors.New("--delay and --reason go with --nack")
	case changed("nack") && f.nack != "retry" && f.nack != "park" && f.nack != "skip":
		return fmt.Errorf("--nack %s: expected retry, park or skip", f.nack)
	case changed("delay") && f.nack != "retry":
		return fmt.Errorf("--delay goes with --nack retry: --nack %s does not redeliver", f.nack)
	case f.delay < 0 || f.delay > 24*time.Hour:
		return fmt.Errorf("--delay %s: expected up to 24h", f.delay)
	case len(f.reason) > longestReason:
		return fmt.Errorf("--reason has %d bytes; at most %d are allowed", len(f.reason), longestReason)
	}
	return nil
}

func (f *receiveFlags) receive(ctx context.Context, c *call) (err error) {
	if err := f.check(c.changed); err != nil {
		return err
	}
	body := client.Receive{Batch: f.batch, Wait: f.wait.Seconds()}
	if f.join {
		member, err := read[client.SubscriptionMember](c.JoinSubscription(ctx, c.args[0], client.JoinSubscription{Label: "manifold group receive"}))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, leave(ctx, c, member.MemberId)) }()
		body.MemberId = member.MemberId
	}
	received, err := receive(ctx, c, body)
	if err != nil {
		return err
	}
	var attempts []client.Attempt
	for _, d := range received.Deliveries {
		attempts = append(attempts, client.Attempt{Id: d.Event.Id, Attempt: d.Attempt})
		if d.Gap != nil {
			fmt.Fprintln(c.people, gapLine(*d.Gap))
		}
		if !c.asJSON {
			c.out.printf("%s\n", deliveryLine(d, f.keep))
		} else if err := c.out.json(d); err != nil {
			return err
		}
	}
	switch {
	case c.out.err != nil || f.keep && len(attempts) > 0:
		return nil
	case len(attempts) == 0:
		fmt.Fprintln(c.people, "nothing is due"+whyNothing(ctx, c))
		return nil
	}
	return f.answer(ctx, c, attempts)
}

// receive asks until the service has delivered an event or has searched the log to its end.
func receive(ctx context.Context, c *call, body client.Receive) (client.Deliveries, error) {
	for searched := false; ; searched = true {
		received, err := read[client.Deliveries](c.Receive(ctx, c.args[0], body))
		if err != nil || !received.Searching || len(received.Deliveries) > 0 {
			return received, err
		}
		if !searched {
			fmt.Fprintln(c.people, stillSearching)
		}
		body.Wait = 0
	}
}

// leave ends a membership, even if a signal has ended the command.
func leave(ctx context.Context, c *call, member string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return done(c.LeaveSubscription(ctx, c.args[0], member))
}

// whyNothing returns what a group that returned no events is waiting for, if that can be found out.
func whyNothing(ctx context.Context, c *call) string {
	group, err := read[client.Subscription](c.GetSubscription(ctx, c.args[0]))
	if err != nil {
		return ""
	}
	sum, lag := progressOf(group), howMany(behind(group), "position")
	switch {
	case group.Partitions > 0 && !group.Paused && behind(group) > 0:
		return fmt.Sprintf(" in the partitions that this member holds, %s behind; manifold group get %s shows the other members", lag, group.Name)
	case group.Paused:
		return fmt.Sprintf(": the group is paused; to resume it, run manifold group resume %s", group.Name)
	case sum.InFlight > 0 || sum.Retrying > 0:
		return fmt.Sprintf(": %d in flight, %d waiting for a retry, %s behind", sum.InFlight, sum.Retrying, lag)
	default:
		return ""
	}
}

// deliveryLine formats a delivery on one line, for people. If the delivery is kept until its lease expires, the line
// contains that deadline.
func deliveryLine(d client.Delivery, kept bool) string {
	state := fmt.Sprintf("attempt %d", d.Attempt)
	if kept {
		state += ", until " + d.AckDeadline.Local().Format(toTheMillisecond)
	}
	if d.Replays > 0 {
		state += ", replayed " + howMany(d.Replays, "time")
	}
	return eventHead(d.Event) + "  (" + state + ")  " + string(d.Event.Data)
}

// answer acknowledges or rejects the received events. An answer after the lease has expired is an error.
func (f *receiveFlags) answer(ctx context.Context, c *call, attempts []client.Attempt) error {
	var answers client.Answers
	var err error
	if f.ack {
		answers, err = read[client.Answers](c.AckEvents(ctx, c.args[0], client.Attempts{Ids: attempts}))
	} else {
		body := client.Nack{Ids: attempts, Action: "retry", Delay: new(f.delay.Seconds()), Reason: "given back by manifold group receive"}
		if c.changed("nack") {
			body.Action, body.Reason = f.nack, f.reason
			if !c.changed("delay") {
				body.Delay = nil
			}
		}
		answers, err = read[client.Answers](c.NackEvents(ctx, c.args[0], body))
	}
	if err != nil {
		return err
	}
	late := 0
	for _, answer := range answers.Results {
		if answer.Outcome != "done" {
			late++
		}
	}
	if late > 0 {
		return fmt.Errorf("%d of %d events were not answered: they were redelivered or settled in the meantime", late, len(attempts))
	}
	return nil
}

func groupPeek(to *connection) *cobra.Command {
	limit, partition := 10, 0
	command := &cobra.Command{
		Use:   "peek NAME",
		Short: "Show the events that a group delivers next, has in flight or retries",
		Long: `Show the events that a group would deliver now, has in flight, or will retry. Nothing is leased, and no attempt is counted. A paused
group shows what it would deliver. A group with partitions shows all of them, each with an equal share of --limit; --partition
shows one.`,
		Example: `  manifold group peek send-mail
  manifold group peek totals --partition 3 --limit 100`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			params := &client.PeekSubscriptionParams{Limit: &limit}
			if limit < 1 {
				return errors.New("--limit must be at least 1")
			}
			if c.changed("partition") {
				params.Partition = &partition
			}
			found, err := peek(ctx, c, params)
			switch {
			case err != nil:
				return err
			case c.asJSON:
				return c.out.json(found)
			}
			printPeek(c, found)
			return nil
		}),
	}
	command.Flags().IntVar(&limit, "limit", limit, "the largest number of events of each kind, up to 100")
	command.Flags().IntVar(&partition, "partition", 0, "the only partition to show")
	return withJSON("the answer", command)
}

// peek asks until the service has found an event or has searched the log to its end.
func peek(ctx context.Context, c *call, params *client.PeekSubscriptionParams) (client.SubscriptionPeek, error) {
	for searched := false; ; searched = true {
		found, err := read[client.SubscriptionPeek](c.PeekSubscription(ctx, c.args[0], params))
		if err != nil || !found.Searching || len(found.Next) > 0 {
			return found, err
		}
		if !searched {
			fmt.Fprintln(c.people, stillSearching)
		}
	}
}

func printPeek(c *call, found client.SubscriptionPeek) {
	for _, kind := range []struct {
		name   string
		events []client.PeekedEvent
	}{{"next", found.Next}, {"in flight", found.InFlight}, {"retrying", found.Retrying}} {
		for _, e := range kind.events {
			c.out.printf("%-9s  %s\n", kind.name, peekedLine(e))
		}
	}
	switch {
	case len(found.Next)+len(found.InFlight)+len(found.Retrying) == 0:
		fmt.Fprintln(c.people, "nothing is due, in flight or waiting for a retry")
	case found.Searching:
		fmt.Fprintln(c.people, "there may be more: the log was not searched to its end")
	}
}

// stillSearching is printed once while a group skips many events that are not its own.
const stillSearching = "still searching the log for the group's events"

// peekedLine formats an event that a group has peeked at, on one line.
func peekedLine(e client.PeekedEvent) string {
	state := fmt.Sprintf("attempt %d", e.Attempt)
	if e.AckDeadline != nil {
		state += ", until " + e.AckDeadline.Local().Format(toTheMillisecond)
	}
	if e.DueAt != nil {
		state += ", due at " + e.DueAt.Local().Format(toTheMillisecond)
	}
	if e.Reason != "" {
		state += ": " + oneLine(e.Reason)
	}
	if e.Partition != nil {
		state = fmt.Sprintf("partition %d, ", *e.Partition) + state
	}
	if e.Replays > 0 {
		state += ", replayed " + howMany(e.Replays, "time")
	}
	return eventHead(e.Event) + "  (" + state + ")  " + string(e.Event.Data)
}
