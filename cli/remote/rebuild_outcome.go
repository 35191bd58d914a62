package remote

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/client"
)

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
