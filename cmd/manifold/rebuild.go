package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func rebuildCommand() *cobra.Command {
	to, detach := &connection{}, false
	command := &cobra.Command{
		Use:   "rebuild NAME",
		Short: "Make a projection's documents anew, beside the present ones, and swap them in",
		Long: `Make a projection's documents anew, beside the present ones, and swap them in. Readers see the present ones until then.
With the operator's key, a shared projection's. The service does the work: when this command is interrupted, it goes on.`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			service, err := to.open()
			if err != nil {
				return err
			}
			r, err := service.StartRebuildWithBodyWithResponse(command.Context(), args[0], "application/json", bytes.NewReader(nil))
			if err != nil {
				return err
			}
			rebuild, err := answered(r.JSON202, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return followRebuild(command.Context(), service, rebuild, detach, command.OutOrStdout())
		},
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.Flags().BoolVar(&detach, "detach", false, "do not wait for the end")
	return command
}

// pollEvery is how often a rebuild's progress is asked for.
const pollEvery = 200 * time.Millisecond

// followRebuild shows a rebuild's progress until its end. A rebuild that was not swapped in is an error.
func followRebuild(ctx context.Context, service *client.ClientWithResponses, rebuild client.Rebuild, detach bool, out io.Writer) error {
	if detach {
		_, err := fmt.Fprintf(out, "rebuild %s of %s is under way\n", rebuild.Id, rebuild.Projection)
		return err
	}
	bar := newProgress(max(rebuild.EventsTotal, 1), rebuild.State, false)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for rebuild.EndedAt == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("rebuild %s of %s goes on in the service", rebuild.Id, rebuild.Projection)
		}
		r, err := service.GetRebuildWithResponse(ctx, rebuild.Projection, rebuild.Id)
		if ctx.Err() != nil {
			continue
		}
		if err != nil {
			return err
		}
		if rebuild, err = answered(r.JSON200, r.HTTPResponse, r.Body); err != nil {
			return err
		}
		bar.Describe(rebuild.State)
		bar.ChangeMax64(max(rebuild.EventsTotal, 1))
		_ = bar.Set64(min(rebuild.EventsDone, max(rebuild.EventsTotal, 1))) // nothing but the screen depends on it
	}
	_ = bar.Finish()
	if rebuild.State != "swapped" {
		return fmt.Errorf("the rebuild of %s is %s: %s", rebuild.Projection, rebuild.State, rebuild.Error)
	}
	took := rebuild.EndedAt.Sub(rebuild.CreatedAt)
	_, err := fmt.Fprintf(out, "%s: build %d of %d events is live, with %d documents, after %s\n",
		rebuild.Projection, rebuild.Build, rebuild.EventsDone, rebuild.Documents, took.Round(time.Millisecond))
	return err
}
