package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func rebuildList(to *connection) *cobra.Command {
	return list(to, &cobra.Command{
		Use:   "list NAME",
		Short: "List a projection's rebuilds, the newest first",
		Args:  cobra.ExactArgs(1),
	}, rebuilds, table[client.Rebuild]{
		none:   "rebuilds",
		header: "ID\tBUILD\tSTATE\tEVENTS\tDOCUMENTS\tSTARTED\tBY",
		row: func(r client.Rebuild) []any {
			return []any{r.Id, r.Build, stateOfRebuild(r), fmt.Sprintf("%d/%d", r.EventsDone, r.EventsTotal), r.Documents, local(r.CreatedAt), r.By}
		},
	})
}

func stateOfRebuild(r client.Rebuild) string {
	if r.Paused {
		return r.State + " (paused)"
	}
	return r.State
}

// rebuilds yields the rebuilds of the projection that the first argument names, the newest first.
func rebuilds(ctx context.Context, c *call) iter.Seq2[client.Rebuild, error] {
	return pages(func(*string) (*http.Response, error) { return c.ListRebuilds(ctx, c.args[0]) },
		func(answer client.RebuildList) []client.Rebuild { return answer.Rebuilds })
}

func rebuildShow(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME [ID]",
		Short: "Show a rebuild's progress, and how its documents differ from the live ones",
		Args:  cobra.RangeArgs(1, 2),
		RunE: to.run(func(ctx context.Context, c *call) error {
			id, err := rebuildID(ctx, c, newest())
			if err != nil {
				return err
			}
			rebuild, err := read[client.Rebuild](c.GetRebuild(ctx, c.args[0], id))
			if err != nil {
				return err
			}
			printRebuild(c.out, rebuild)
			return nil
		}),
	}
}

func rebuildFaulted(to *connection) *cobra.Command {
	return list(to, &cobra.Command{
		Use:   "faulted NAME [ID]",
		Short: "List the tenants that a rebuild of a shared projection has left behind (operator)",
		Long: `List the tenants that a rebuild of a shared projection has left on their old documents, and why. Without an id, it is the last rebuild
that was swapped in. Remove the causes (skip an event, put an upcaster, or change the definition), then rebuild for these tenants:

  manifold rebuild NAME --faulted`,
		Args: cobra.RangeArgs(1, 2),
	}, faultedTenants, table[client.TenantProgress]{
		none:   "faulted tenants",
		header: "TENANT\tPOSITION\tREASON",
		row: func(t client.TenantProgress) []any {
			if t.Fault == nil {
				return []any{t.Tenant, "", ""}
			}
			return []any{t.Tenant, known(given(t.Fault.Position)), oneLine(t.Fault.Reason)}
		},
	})
}

// faultedTenants yields the tenants that keep their old documents after the rebuild in a command's arguments.
func faultedTenants(ctx context.Context, c *call) iter.Seq2[client.TenantProgress, error] {
	return func(yield func(client.TenantProgress, error) bool) {
		id, err := rebuildID(ctx, c, leavesBehind())
		if err != nil {
			yield(client.TenantProgress{}, err)
			return
		}
		for tenant, err := range pages(func(token *string) (*http.Response, error) {
			return c.ListRebuildTenants(ctx, c.args[0], id, &client.ListRebuildTenantsParams{Faulted: given(true), PageToken: token})
		}, func(page client.TenantProgressList) []client.TenantProgress { return page.Tenants }) {
			if !tenant.Swapped && !yield(tenant, err) {
				return
			}
		}
	}
}

func printRebuild(out *output, rebuild client.Rebuild) {
	out.printf("rebuild %s of %s, build %d: %s", rebuild.Id, rebuild.Projection, rebuild.Build, rebuild.State)
	if rebuild.Paused {
		out.printf(", paused")
	}
	out.printf("\n%d of %d events", rebuild.EventsDone, rebuild.EventsTotal)
	if rebuild.EventsPerSecond != nil {
		out.printf(", %.0f a second", *rebuild.EventsPerSecond)
	}
	if rebuild.SecondsLeft != nil {
		out.printf(", %s left", seconds(*rebuild.SecondsLeft).Round(time.Second))
	}
	out.printf("\n")
	if rebuild.Seeded > 0 {
		out.printf("%d documents began from snapshots\n", rebuild.Seeded)
	}
	if rebuild.Documents > 0 || rebuild.LiveDocuments > 0 {
		out.printf("%d documents; the live build had %d\n", rebuild.Documents, rebuild.LiveDocuments)
	}
	if rebuild.Error != "" {
		out.printf("%s\n", rebuild.Error)
	}
	printLoss(out, rebuild.Loss)
	printFaulted(out, rebuild)
	if rebuild.RollbackUntil != nil {
		out.printf("it can be rolled back until %s\n", local(*rebuild.RollbackUntil))
	}
	printDifference(out, rebuild.Difference)
}

// printLoss prints which events were missing when documents were built.
func printLoss(out *output, losses []client.Loss) {
	for _, loss := range losses {
		out.printf("events of %s up to position %d were removed by retention: the documents lack them\n", loss.Category, loss.RemovedTo)
	}
}

// printFaulted prints which tenants keep their old documents, and why.
func printFaulted(out *output, rebuild client.Rebuild) {
	faulted := rebuild.FaultedTenants
	if faulted == nil {
		return
	}
	state := "stay on their old documents"
	if rebuild.State != "swapped" && rebuild.State != "rolled-back" {
		state = "cannot get the new documents"
	}
	out.printf("tenants that %s: %d\n", state, faulted.Count)
	for _, fault := range faulted.First {
		out.printf("  %s: %s\n", fault.Tenant, oneLine(fault.Reason))
	}
	if more := faulted.Count - len(faulted.First); more > 0 {
		out.printf("  and %d others: manifold rebuild faulted %s %s\n", more, rebuild.Projection, rebuild.Id)
	}
}

// printOutcome prints the result of a rebuild. It returns an error if the rebuild has failed.
func printOutcome(out *output, rebuild client.Rebuild) error {
	if rebuild.EndedAt == nil {
		printFaulted(out, rebuild)
		printDifference(out, rebuild.Difference)
		next := "waits for approval: manifold rebuild approve"
		if rebuild.Paused {
			next = "is paused: manifold rebuild resume"
		}
		return out.printf("%s: rebuild %s %s %[1]s %[2]s\n", rebuild.Projection, rebuild.Id, next)
	}
	took := rebuild.EndedAt.Sub(rebuild.CreatedAt).Round(time.Millisecond)
	printLoss(out, rebuild.Loss)
	printFaulted(out, rebuild)
	switch rebuild.State {
	case "swapped", "rolled-back":
		out.printf("%s: build %d is live (%s, %s, %s)\n", rebuild.Projection, rebuild.Build,
			howMany(rebuild.EventsDone, "event"), howMany(rebuild.Documents, "document"), took)
		if rebuild.RollbackUntil != nil {
			out.printf("the old documents are kept until %s for: manifold rebuild rollback %s %s\n",
				local(*rebuild.RollbackUntil), rebuild.Projection, rebuild.Id)
		}
		return nil
	case "reported":
		out.printf("%s: a dry run built %s from %s in %s\n", rebuild.Projection,
			howMany(rebuild.Documents, "document"), howMany(rebuild.EventsDone, "event"), took)
		printDifference(out, rebuild.Difference)
		return nil
	}
	return fmt.Errorf("the rebuild of %s is %s: %s", rebuild.Projection, rebuild.State, rebuild.Error)
}

// printDifference prints how the new documents differ from the live ones.
func printDifference(out *output, d *client.Difference) {
	if d == nil {
		return
	}
	out.printf("%d documents are new, %d are gone, %d are changed, %d are the same\n", d.New, d.Gone, d.Changed, d.Same)
	for _, e := range d.Examples {
		document := fmt.Sprintf("%s (tenant %s)", e.Id, e.Tenant)
		switch e.Kind {
		case "new":
			out.printf("+ %s %s\n", document, e.Built)
		case "gone":
			out.printf("- %s %s\n", document, e.Live)
		default:
			out.printf("~ %s\n", document)
			live, built := fieldsOf(e.Live), fieldsOf(e.Built) // empty if they are too long to be shown
			for _, field := range e.Fields {
				out.printf("    %s: %s -> %s\n", field, orNothing(live[field]), orNothing(built[field]))
			}
		}
	}
}

func orNothing(value json.RawMessage) string {
	if value == nil {
		return "-"
	}
	return string(value)
}
