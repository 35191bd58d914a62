package remote

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// printFault prints, for people, what stops a projection.
func printFault(out *output, fault client.Fault) {
	out.printf("  event:      %d, %s", fault.Position, fault.EventId)
	if fault.Type != "" {
		out.printf(", %s of %s", fault.Type, fault.Stream)
	}
	out.printf("\n")
	for _, part := range []struct{ name, text string }{
		{"document", fault.DocumentId}, {"part", fault.Where}, {"expression", fault.Expression}, {"before", string(fault.Before)},
	} {
		if part.text != "" {
			out.printf("  %-11s %s\n", part.name+":", indented(part.text, 14))
		}
	}
	out.printf("  message:    %s\n", fault.Message)
	if fault.NextRetryAt != nil {
		out.printf("  retry %d:    %s\n", fault.Retries+1, fault.NextRetryAt.UTC().Format(time.RFC3339))
	}
}

// onBehalf completes a command that acts for a tenant: the key's own, or, with the operator's key, the one in the flag
// --tenant. do receives the tenant's id in the form of a request parameter.
func (to *connection) onBehalf(command *cobra.Command, do func(ctx context.Context, c *call, tenant *string) error) *cobra.Command {
	name := command.Flags().String("tenant", "", "with the operator's key: the tenant's name or id")
	run := to.run(func(ctx context.Context, c *call) error {
		if *name == "" {
			return do(ctx, c, nil)
		}
		tenant, err := findTenant(ctx, c, *name)
		if err != nil {
			return err
		}
		return do(ctx, c, &tenant.Id)
	})
	command.RunE = func(command *cobra.Command, args []string) error {
		if *name != "" {
			to.asOperator()
		}
		return run(command, args)
	}
	return command
}

func projectionRetry(to *connection) *cobra.Command {
	return to.onBehalf(&cobra.Command{
		Use:   "retry NAME",
		Short: "Retry the event at which a projection is stopped",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, c *call, tenant *string) error {
		if err := done(c.RetryProjection(ctx, c.args[0], &client.RetryProjectionParams{Tenant: tenant})); err != nil {
			return err
		}
		return c.out.printf("%s: retrying; `manifold projection state %[1]s` shows the result\n", c.args[0])
	})
}

func projectionSkip(to *connection) *cobra.Command {
	reason := ""
	command := &cobra.Command{
		Use:   "skip NAME POSITION",
		Short: "Skip the event at which a projection is stopped",
		Long: `Skip the event at which a projection is stopped, at the position that its state shows. The skip is recorded with its author and
reason. It applies to every build, also of later versions of the definition, until "manifold projection unskip".`,
		Args: cobra.ExactArgs(2),
	}
	command.Flags().StringVar(&reason, "reason", "", "the reason, kept with the skip")
	return to.onBehalf(command, func(ctx context.Context, c *call, tenant *string) error {
		position, err := parsePosition(c.args[1])
		if err != nil {
			return fmt.Errorf("%w: give the one that `manifold projection state %s` shows", err, c.args[0])
		}
		skipped, err := read[client.SkippedEvent](c.SkipEvent(ctx, c.args[0], &client.SkipEventParams{Tenant: tenant}, client.Skip{Position: position, Reason: reason}))
		if err != nil {
			return err
		}
		return c.out.printf("%s: event %d (%s) is skipped from version %d on\n", c.args[0], skipped.Position, skipped.EventId, skipped.Version)
	})
}

func projectionSkipped(to *connection) *cobra.Command {
	return to.onBehalf(&cobra.Command{
		Use:   "skipped NAME",
		Short: "List the events that a projection skips",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, c *call, tenant *string) error {
		answer, err := read[client.SkippedEventList](c.ListSkippedEvents(ctx, c.args[0], &client.ListSkippedEventsParams{Tenant: tenant}))
		if err != nil {
			return err
		}
		return table[client.SkippedEvent]{
			none:   "skipped events",
			header: "POSITION\tDOCUMENTS\tVERSION\tBY\tREASON\tFAULT",
			row: func(e client.SkippedEvent) []any {
				version := fmt.Sprint(e.Version)
				if e.Lasting {
					version += "+"
				}
				documents := "all"
				if len(e.Documents) > 0 {
					documents = strings.Join(e.Documents, ", ")
				}
				return []any{e.Position, documents, version, e.By, oneLine(e.Reason), oneLine(e.Message)}
			},
		}.print(c.out, each(answer.Skipped))
	})
}

// parsePosition parses a position in a command's arguments.
func parsePosition(text string) (int64, error) {
	position, err := strconv.ParseInt(text, 10, 64)
	if err != nil || position < 1 {
		return 0, fmt.Errorf("%q is not a position such as 4711", text)
	}
	return position, nil
}

func projectionUnskip(to *connection) *cobra.Command {
	return to.onBehalf(&cobra.Command{
		Use:   "unskip NAME POSITION",
		Short: "Withdraw a skip, so that later builds fold the event",
		Long: `Withdraw the skip at a position that "manifold projection skipped" shows. Builds made from now on fold the event. Existing documents
lack it until the next rebuild.`,
		Args: cobra.ExactArgs(2),
	}, func(ctx context.Context, c *call, tenant *string) error {
		position, err := parsePosition(c.args[1])
		if err != nil {
			return fmt.Errorf("%w: give one that `manifold projection skipped %s` shows", err, c.args[0])
		}
		if err := done(c.WithdrawSkip(ctx, c.args[0], position, &client.WithdrawSkipParams{Tenant: tenant})); err != nil {
			return err
		}
		return c.out.printf("%s: event %d is no longer skipped, from the next rebuild on\n", c.args[0], position)
	})
}

func projectionParked(to *connection) *cobra.Command {
	return to.onBehalf(&cobra.Command{
		Use:   "parked NAME",
		Short: "List a projection's parked documents, with their faults",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, c *call, tenant *string) error {
		for d, err := range pages(func(token *string) (*http.Response, error) {
			return c.ListParkedDocuments(ctx, c.args[0], &client.ListParkedDocumentsParams{Tenant: tenant, PageToken: token})
		}, func(page client.ParkedDocumentList) []client.ParkedDocument { return page.Parked }) {
			if err != nil {
				return err
			}
			c.out.printf("%s: %d events wait\n", d.Id, d.Events)
			printFault(c.out, d.Fault)
		}
		return nil
	})
}

func projectionReplay(to *connection) *cobra.Command {
	return to.onBehalf(&cobra.Command{
		Use:   "replay NAME [DOCUMENT]",
		Short: "Fold the waiting events of one parked document or all",
		Args:  cobra.RangeArgs(1, 2),
	}, func(ctx context.Context, c *call, tenant *string) error {
		var replayed client.Replayed
		var err error
		if len(c.args) == 2 {
			replayed, err = read[client.Replayed](c.ReplayParkedDocument(ctx, c.args[0], c.args[1], &client.ReplayParkedDocumentParams{Tenant: tenant}))
		} else {
			replayed, err = read[client.Replayed](c.ReplayParkedDocuments(ctx, c.args[0], &client.ReplayParkedDocumentsParams{Tenant: tenant}))
		}
		if err != nil {
			return err
		}
		c.out.printf("%s: %d events took effect, %d documents are no longer parked\n", c.args[0], replayed.Events, replayed.Documents)
		if replayed.StillParked > 0 {
			return fmt.Errorf("%d documents are still parked; `manifold projection parked %s` shows why", replayed.StillParked, c.args[0])
		}
		return nil
	})
}

func projectionDiscard(to *connection) *cobra.Command {
	return confirmed(to.onBehalf(&cobra.Command{
		Use:   "discard NAME DOCUMENT",
		Short: "Discard the waiting events of a parked document",
		Args:  cobra.ExactArgs(2),
	}, func(ctx context.Context, c *call, tenant *string) error {
		return done(c.DiscardParkedDocument(ctx, c.args[0], c.args[1], &client.DiscardParkedDocumentParams{Tenant: tenant}))
	}), "this version of the projection will skip all waiting events of the document (they stay in the log)")
}
