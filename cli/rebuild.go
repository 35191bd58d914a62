package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func rebuildCommand() *cobra.Command {
	to, f := &connection{}, rebuildFlags{}
	command := &cobra.Command{
		Use:   "rebuild NAME",
		Short: "Make a projection's documents anew, beside the present ones, and swap them in",
		Long: `Make a projection's documents anew, beside the present ones, and swap them in. Readers see the present ones until then.
With the operator's key, a shared projection's. The service does the work: when this command is interrupted, it goes on.

The commands below list rebuilds and steer them. Without the id of a rebuild they mean the one that is under way; rollback
means the last one that was swapped in, and show the newest.`,
		Example: `  manifold rebuild orders --dry-run --definition orders.yaml
  manifold rebuild orders --approve manual --keep 4h
  manifold rebuild approve orders
  manifold rebuild rollback orders`,
		Args: cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			body, err := f.body(command.Context(), service, args[0], command.InOrStdin())
			if err != nil {
				return err
			}
			r, err := service.StartRebuildWithBodyWithResponse(command.Context(), args[0], "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			rebuild, err := answered(r.JSON202, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return followRebuild(command.Context(), service, rebuild, f.detach, command.OutOrStdout())
		}),
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	flags := command.Flags()
	flags.BoolVar(&f.detach, "detach", false, "do not wait for the end")
	flags.StringVarP(&f.definition, "definition", "f", "", "a YAML or JSON file (-: standard input) with the definition to rebuild by; the present one without")
	flags.StringVar(&f.database, "database", "", "move the documents to this database of the configuration")
	flags.StringArrayVar(&f.tenants, "tenant", nil, "the name or id of a tenant to rebuild for alone, of a shared projection; may be repeated (operator)")
	flags.BoolVar(&f.faulted, "faulted", false, "for the tenants that the last rebuild has left behind, of a shared projection (operator)")
	flags.IntVar(&f.maxFaulted, "max-faulted-tenants", -1, "fail with more tenants than that whose events or documents do not pass; 1000 without (operator)")
	flags.Int64Var(&f.rate, "max-events-per-second", 0, "go no faster than that")
	flags.StringVar(&f.approve, "approve", "", "auto; or manual, to wait before the swap for \"manifold rebuild approve\"")
	flags.StringVar(&f.keep, "keep", "", "how long the old documents stay for a rollback, such as 90m; as configured without")
	flags.StringArrayVar(&f.assertions, "assert", nil, "an expression (doc) -> bool that every new document must pass; may be repeated")
	flags.BoolVar(&f.dryRun, "dry-run", false, "build, validate, report what would change, and drop it")
	acceptLoss(command, &f.loss)
	command.AddCommand(
		rebuildList(to), rebuildShow(to), rebuildFaulted(to),
		rebuildOrder(to, "approve", "Let a rebuild swap", true, underWay(), func(ctx context.Context, s *client.ClientWithResponses, name, id string) (client.Rebuild, error) {
			r, err := s.ApproveRebuildWithResponse(ctx, name, id)
			if err != nil {
				return client.Rebuild{}, err
			}
			return answered(r.JSON202, r.HTTPResponse, r.Body)
		}),
		rebuildOrder(to, "cancel", "Cancel a rebuild; the present documents stay", false, underWay(), func(ctx context.Context, s *client.ClientWithResponses, name, id string) (client.Rebuild, error) {
			r, err := s.CancelRebuildWithResponse(ctx, name, id)
			if err != nil {
				return client.Rebuild{}, err
			}
			return answered(r.JSON202, r.HTTPResponse, r.Body)
		}),
		rebuildOrder(to, "pause", "Let a rebuild rest", false, underWay(), func(ctx context.Context, s *client.ClientWithResponses, name, id string) (client.Rebuild, error) {
			r, err := s.PauseRebuildWithResponse(ctx, name, id)
			if err != nil {
				return client.Rebuild{}, err
			}
			return answered(r.JSON202, r.HTTPResponse, r.Body)
		}),
		rebuildOrder(to, "resume", "Let a paused rebuild go on", true, underWay(), func(ctx context.Context, s *client.ClientWithResponses, name, id string) (client.Rebuild, error) {
			r, err := s.ResumeRebuildWithResponse(ctx, name, id)
			if err != nil {
				return client.Rebuild{}, err
			}
			return answered(r.JSON202, r.HTTPResponse, r.Body)
		}),
		rebuildRollback(to),
	)
	return command
}

// acceptLoss adds the flag for commands that may run although events are missing.
func acceptLoss(command *cobra.Command, loss *bool) {
	command.Flags().BoolVar(loss, "accept-loss", false, "go on where retention has removed events that the documents need: they are made of what is left")
}

// rebuildFlags are the parameters of a rebuild.
type rebuildFlags struct {
	definition, database, approve, keep string
	tenants, assertions                 []string
	rate                                int64
	maxFaulted                          int
	dryRun, detach, loss, faulted       bool
}

// body returns the request. The service reports mistakes in it.
func (f rebuildFlags) body(ctx context.Context, service *client.ClientWithResponses, projection string, stdin io.Reader) ([]byte, error) {
	body := map[string]any{}
	set := func(name string, value any, given bool) {
		if given {
			body[name] = value
		}
	}
	if f.definition != "" {
		_, definition, err := readDefinition(f.definition, stdin)
		if err != nil {
			return nil, err
		}
		body["definition"] = json.RawMessage(definition)
	}
	var tenants []string
	if f.faulted {
		behind, err := faultedTenants(ctx, service, []string{projection})
		if err != nil {
			return nil, err
		}
		if len(behind) == 0 {
			return nil, fmt.Errorf("no tenant is left behind by the last rebuild of %s", projection)
		}
		for _, tenant := range behind {
			tenants = append(tenants, tenant.Tenant)
		}
	}
	for _, name := range f.tenants {
		tenant, err := findTenant(ctx, service, name)
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, tenant.Id)
	}
	set("database", f.database, f.database != "")
	set("tenants", tenants, len(tenants) > 0)
	set("maxFaultedTenants", f.maxFaulted, f.maxFaulted >= 0)
	set("maxEventsPerSecond", f.rate, f.rate != 0)
	set("approve", f.approve, f.approve != "")
	set("keep", f.keep, f.keep != "")
	set("assertions", f.assertions, len(f.assertions) > 0)
	set("dryRun", true, f.dryRun)
	set("acceptLoss", true, f.loss)
	return json.Marshal(body)
}

// pollEvery is the time between two requests for a rebuild's progress.
const pollEvery = 200 * time.Millisecond

// followRebuild prints a rebuild's progress until the rebuild ends or waits for a person. It returns an error if the
// rebuild has failed.
func followRebuild(ctx context.Context, service *client.ClientWithResponses, rebuild client.Rebuild, detach bool, out io.Writer) error {
	if detach {
		_, err := fmt.Fprintf(out, "rebuild %s of %s is under way\n", rebuild.Id, rebuild.Projection)
		return err
	}
	bar := newProgress(max(rebuild.EventsTotal, 1), rebuild.State, false)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for rebuild.EndedAt == nil && !waits(rebuild) {
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
		_ = bar.Set64(min(rebuild.EventsDone, max(rebuild.EventsTotal, 1))) // affects only the screen
	}
	_ = bar.Finish()
	return tellOutcome(rebuild, out)
}

// waits reports whether a rebuild waits for a person to act.
func waits(rebuild client.Rebuild) bool {
	return rebuild.Paused || rebuild.State == "awaiting-approval" && !rebuild.Approved
}
