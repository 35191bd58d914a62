package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func rebuildCommand() *cobra.Command {
	to, f := &connection{}, rebuildFlags{}
	command := &cobra.Command{
		Use:   "rebuild NAME",
		Short: "Rebuild a projection's documents beside the current ones, and swap them in",
		Long: `Rebuild a projection's documents beside the current ones, and swap them in. Until then readers see the current ones. With the
operator's key, rebuild a shared projection. The service does the work, and continues if this command is interrupted.

The commands below list and control rebuilds. Without a rebuild's id they act on the one under way; rollback acts on the last
one that was swapped in, and show on the newest.`,
		Example: `  manifold rebuild orders --dry-run --definition orders.yaml
  manifold rebuild orders --approve manual --keep 4h
  manifold rebuild approve orders
  manifold rebuild rollback orders`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			body, err := f.body(ctx, c)
			if err != nil {
				return err
			}
			rebuild, err := read[client.Rebuild](c.StartRebuildWithBody(ctx, c.args[0], "application/json", bytes.NewReader(body)))
			if err != nil {
				return err
			}
			return followRebuild(ctx, c, rebuild, f.detach)
		}),
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	flags := command.Flags()
	flags.BoolVar(&f.detach, "detach", false, "do not wait for the end")
	flags.StringVarP(&f.definition, "definition", "f", "", "a YAML or JSON file (-: standard input) with the definition to rebuild with (default: the current one)")
	flags.StringVar(&f.database, "database", "", "move the documents to this database of the configuration")
	flags.StringArrayVar(&f.tenants, "tenant", nil, "the name or id of a tenant: rebuild a shared projection for it only; may be repeated (operator)")
	flags.BoolVar(&f.faulted, "faulted", false, "rebuild a shared projection only for the tenants that the last rebuild has left behind (operator)")
	flags.IntVar(&f.maxFaulted, "max-faulted-tenants", -1, "fail if more tenants than this have faults; 1000 by default (operator)")
	flags.Int64Var(&f.rate, "max-events-per-second", 0, "fold no more events per second than this")
	flags.StringVar(&f.approve, "approve", "", "auto; or manual, to wait before the swap for \"manifold rebuild approve\"")
	flags.StringVar(&f.keep, "keep", "", "how long to keep the old documents for a rollback, such as 90m (default: as configured)")
	flags.StringArrayVar(&f.assertions, "assert", nil, "an expression (doc) -> bool that every new document must pass; may be repeated")
	flags.BoolVar(&f.dryRun, "dry-run", false, "build, validate and report the differences, then drop the build")
	flags.BoolVar(&f.fromLog, "from-log", false, "fold every event, and begin no document from a snapshot")
	acceptLoss(command, &f.loss)
	command.AddCommand(
		rebuildList(to), rebuildShow(to), rebuildDiff(to), rebuildFaulted(to),
		rebuildOrder(to, "approve", "Approve a rebuild's swap", follow, underWay(), (*client.Client).ApproveRebuild),
		rebuildOrder(to, "cancel", "Cancel a rebuild, and keep the current documents", doNotFollow, underWay(), (*client.Client).CancelRebuild),
		rebuildOrder(to, "pause", "Pause a rebuild", doNotFollow, underWay(), (*client.Client).PauseRebuild),
		rebuildOrder(to, "resume", "Resume a paused rebuild", follow, underWay(), (*client.Client).ResumeRebuild),
		rebuildRollback(to),
	)
	completeProjections(to, command)
	return command
}

// acceptLoss adds the flag for commands that may run although events are missing.
func acceptLoss(command *cobra.Command, loss *bool) {
	command.Flags().BoolVar(loss, "accept-loss", false, "continue even if retention has removed events that the documents need: they are made from the remaining events")
}

// rebuildFlags are the parameters of a rebuild.
type rebuildFlags struct {
	definition, database, approve, keep string
	tenants, assertions                 []string
	rate                                int64
	maxFaulted                          int
	dryRun, detach, loss, faulted       bool
	fromLog                             bool
}

// body returns the request. The service reports mistakes in it.
func (f rebuildFlags) body(ctx context.Context, c *call) ([]byte, error) {
	body := map[string]any{}
	set := func(name string, value any, given bool) {
		if given {
			body[name] = value
		}
	}
	if f.definition != "" {
		_, definition, err := readDefinition(f.definition, c.in)
		if err != nil {
			return nil, err
		}
		body["definition"] = json.RawMessage(definition)
	}
	var tenants []string
	if f.faulted {
		behind, err := collect(faultedTenants(ctx, c))
		if err != nil {
			return nil, err
		}
		if len(behind) == 0 {
			return nil, fmt.Errorf("the last rebuild of %s has left no tenant behind", c.args[0])
		}
		for _, tenant := range behind {
			tenants = append(tenants, tenant.Tenant)
		}
	}
	for _, name := range f.tenants {
		tenant, err := findTenant(ctx, c, name)
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
	set("fromLog", true, f.fromLog)
	set("acceptLoss", true, f.loss)
	return json.Marshal(body)
}

// pollEvery is the time between two requests for a rebuild's progress.
const pollEvery = 200 * time.Millisecond

// followRebuild prints a rebuild's progress until the rebuild ends or waits for a person. It returns an error if the
// rebuild has failed.
func followRebuild(ctx context.Context, c *call, rebuild client.Rebuild, detach bool) error {
	if detach {
		return c.out.printf("rebuild %s of %s is under way\n", rebuild.Id, rebuild.Projection)
	}
	bar := newProgress(max(rebuild.EventsTotal, 1), rebuild.State, false)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for rebuild.EndedAt == nil && !waitsForPerson(rebuild) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("rebuild %s of %s continues in the service", rebuild.Id, rebuild.Projection)
		}
		newer, err := read[client.Rebuild](c.GetRebuild(ctx, rebuild.Projection, rebuild.Id))
		if ctx.Err() != nil {
			continue
		}
		if err != nil {
			return err
		}
		rebuild = newer
		bar.Describe(rebuild.State)
		bar.ChangeMax64(max(rebuild.EventsTotal, 1))
		_ = bar.Set64(min(rebuild.EventsDone, max(rebuild.EventsTotal, 1))) // affects only the screen
	}
	_ = bar.Finish()
	return printOutcome(c.out, rebuild)
}

func waitsForPerson(rebuild client.Rebuild) bool {
	return rebuild.Paused || rebuild.State == "awaiting-approval" && !rebuild.Approved
}
