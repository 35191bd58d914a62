package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// receiveFlags say what to receive, and what to do with it.
type receiveFlags struct {
	batch             int
	wait, delay       time.Duration
	ack, keep         bool
	nack, reason      string
	join, asJSON      bool
	delayed, nackSaid bool // whether --delay and --nack were given
}

func groupReceive(to *connection) *cobra.Command {
	f := &receiveFlags{}
	command := &cobra.Command{
		Use:   "receive NAME",
		Short: "Take events as a consumer does, and answer",
		Long: `Take events of a group as a consumer does, and print them; "manifold group peek" only looks. Without another word they are given back
at once, so that the group's consumers get them again; that was a delivery nevertheless, and counts as an attempt: an event whose last
one it was becomes a dead letter. --keep leaves them in flight until their deadline, --ack and --nack answer for good.

Of a group with partitions only members receive: with --join it becomes one, and leaves again.`,
		Example: `  manifold group receive send-mail
  manifold group receive send-mail --batch 1 --nack park --reason 'no such address'`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			f.delayed, f.nackSaid = command.Flags().Changed("delay"), command.Flags().Changed("nack")
			if err := f.check(); err != nil {
				return err
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			return f.receive(command.Context(), service, args[0], command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	command.Flags().IntVar(&f.batch, "batch", 10, "how many events at most")
	command.Flags().DurationVar(&f.wait, "wait", 0, "how long to wait for one, up to 30s")
	command.Flags().BoolVar(&f.ack, "ack", false, "acknowledge them when they are printed")
	command.Flags().StringVar(&f.nack, "nack", "", "retry, park or skip them when they are printed")
	command.Flags().DurationVar(&f.delay, "delay", 0, "with --nack retry: before the next attempt (default: the group's back-off)")
	command.Flags().StringVar(&f.reason, "reason", "", "with --nack: why, for whoever looks at the dead letters")
	command.Flags().BoolVar(&f.keep, "keep", false, "answer nothing: they come again behind their deadline")
	command.Flags().BoolVar(&f.join, "join", false, "be a member of a group with partitions meanwhile")
	jsonFlag(command, &f.asJSON, "the deliveries")
	exclusiveFlags(command, "ack", "nack", "keep")
	return command
}

// check refuses what the service would refuse. After a receive it would be too late, since the events were already
// delivered.
func (f *receiveFlags) check() error {
	switch {
	case f.batch < 1:
		return errors.New("--batch must be at least 1")
	case !f.nackSaid && (f.delayed || f.reason != ""):
		return errors.New("--delay and --reason go with --nack")
	case f.nackSaid && f.nack != "retry" && f.nack != "park" && f.nack != "skip":
		return fmt.Errorf("--nack %s: say retry, park or skip", f.nack)
	case f.delayed && f.nack != "retry":
		return fmt.Errorf("--delay goes with --nack retry: nothing comes again behind --nack %s", f.nack)
	case f.delay < 0 || f.delay > 24*time.Hour:
		return fmt.Errorf("--delay %s: say up to 24h", f.delay)
	case len(f.reason) > longestReason:
		return fmt.Errorf("--reason has %d bytes; it may have %d", len(f.reason), longestReason)
	}
	return nil
}

// longestReason is the largest number of bytes that the service accepts in a reason.
const longestReason = 1000

func (f *receiveFlags) receive(ctx context.Context, service *client.ClientWithResponses, name string, out, people io.Writer) (err error) {
	body := client.Receive{Batch: f.batch, Wait: f.wait.Seconds()}
	if f.join {
		r, err := service.JoinSubscriptionWithResponse(ctx, name, client.JoinSubscription{Label: "manifold group receive"})
		if err != nil {
			return err
		}
		member, err := answered(r.JSON201, r.HTTPResponse, r.Body)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, leave(ctx, service, name, member.MemberId)) }()
		body.MemberId = member.MemberId
	}
	var got client.Deliveries
	for searched := false; ; searched = true {
		r, err := service.ReceiveWithResponse(ctx, name, body)
		if err != nil {
			return err
		}
		if got, err = answered(r.JSON200, r.HTTPResponse, r.Body); err != nil {
			return err
		}
		if !got.Searching || len(got.Deliveries) > 0 {
			break
		}
		if !searched {
			fmt.Fprintln(people, stillSearching)
		}
		body.Wait = 0
	}
	var attempts []client.Attempt
	for _, d := range got.Deliveries {
		attempts = append(attempts, client.Attempt{Id: d.Event.Id, Attempt: d.Attempt})
		if d.Gap != nil {
			fmt.Fprintln(people, gapLine(*d.Gap))
		}
		if f.asJSON {
			err = writeJSON(out, d)
		} else {
			_, err = fmt.Fprintln(out, deliveryLine(d, f.keep))
		}
		if err != nil {
			return err
		}
	}
	if len(attempts) == 0 {
		fmt.Fprintln(people, "nothing is due"+whyNothing(ctx, service, name))
		return nil
	}
	if f.keep {
		return nil
	}
	return f.answer(ctx, service, name, attempts)
}

// leave ends a membership, even if a signal has ended the command.
func leave(ctx context.Context, service *client.ClientWithResponses, name, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	r, err := service.LeaveSubscriptionWithResponse(ctx, name, id)
	if err != nil {
		return err
	}
	if r.StatusCode() >= 300 {
		return refusal(r.Status(), r.Body)
	}
	return nil
}

// whyNothing returns what a group that returned no events is waiting for, if that can be found out.
func whyNothing(ctx context.Context, service *client.ClientWithResponses, name string) string {
	r, err := service.GetSubscriptionWithResponse(ctx, name)
	if err != nil || r.JSON200 == nil {
		return ""
	}
	group := *r.JSON200
	sum := progressOf(group)
	switch {
	case group.Partitions > 0 && !group.Paused && behind(group) > 0:
		return fmt.Sprintf(" in the partitions that were had meanwhile, %s behind; manifold group get %s shows who has the others", howMany(behind(group), "position"), name)
	case group.Paused:
		return fmt.Sprintf(": the group is paused; manifold group resume %s lets it deliver again", name)
	case sum.InFlight > 0 || sum.Retrying > 0:
		return fmt.Sprintf(": %d in flight, %d waiting for a retry, %s behind", sum.InFlight, sum.Retrying, howMany(behind(group), "position"))
	default:
		return ""
	}
}

// deliveryLine formats a delivery on one line, for people. If the delivery is kept until its lease expires, the line
// contains that deadline.
func deliveryLine(d client.Delivery, kept bool) string {
	what := fmt.Sprintf("attempt %d", d.Attempt)
	if kept {
		what += ", until " + d.AckDeadline.Local().Format(toTheMillisecond)
	}
	if d.Replays > 0 {
		what += fmt.Sprintf(", replayed %d times", d.Replays)
	}
	return eventHead(d.Event) + "  (" + what + ")  " + string(d.Event.Data)
}

// answer acknowledges or rejects the received events. An answer after the lease has expired is an error.
func (f *receiveFlags) answer(ctx context.Context, service *client.ClientWithResponses, name string, attempts []client.Attempt) error {
	var answers client.Answers
	if f.ack {
		r, err := service.AckEventsWithResponse(ctx, name, client.Attempts{Ids: attempts})
		if err != nil {
			return err
		}
		if answers, err = answered(r.JSON200, r.HTTPResponse, r.Body); err != nil {
			return err
		}
	} else {
		delay := f.delay.Seconds()
		body := client.Nack{Ids: attempts, Action: "retry", Delay: &delay, Reason: "given back by manifold group receive"}
		if f.nackSaid {
			body.Action, body.Reason = f.nack, f.reason
			if !f.delayed {
				body.Delay = nil
			}
		}
		r, err := service.NackEventsWithResponse(ctx, name, body)
		if err != nil {
			return err
		}
		if answers, err = answered(r.JSON200, r.HTTPResponse, r.Body); err != nil {
			return err
		}
	}
	late := 0
	for _, a := range answers.Results {
		if a.Outcome != "done" {
			late++
		}
	}
	if late > 0 {
		return fmt.Errorf("%d of %d events were not answered: they were delivered again, or settled, meanwhile", late, len(attempts))
	}
	return nil
}
