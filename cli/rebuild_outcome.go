package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/manifold-es/manifold/client"
)

// tellLoss prints which events were missing when documents were built.
func tellLoss(losses []client.Loss, out io.Writer) error {
	for _, loss := range losses {
		if _, err := fmt.Fprintf(out, "events of %s up to position %d were removed by retention: the documents lack them\n", loss.Category, loss.RemovedTo); err != nil {
			return err
		}
	}
	return nil
}

// tellFaulted prints which tenants keep their old documents, and why.
func tellFaulted(rebuild client.Rebuild, out io.Writer) error {
	faulted := rebuild.FaultedTenants
	if faulted == nil {
		return nil
	}
	var text strings.Builder
	what := "stay on their old documents"
	if rebuild.State != "swapped" && rebuild.State != "rolled-back" {
		what = "cannot get the new documents"
	}
	fmt.Fprintf(&text, "tenants that %s: %d\n", what, faulted.Count)
	for _, fault := range faulted.First {
		fmt.Fprintf(&text, "  %s: %s\n", fault.Tenant, oneLine(fault.Reason))
	}
	if more := faulted.Count - len(faulted.First); more > 0 {
		fmt.Fprintf(&text, "  and %d others: manifold rebuild faulted %s %s\n", more, rebuild.Projection, rebuild.Id)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// tellOutcome prints the result of a rebuild.
func tellOutcome(rebuild client.Rebuild, out io.Writer) error {
	if rebuild.EndedAt == nil {
		if err := tellFaulted(rebuild, out); err != nil {
			return err
		}
		if err := tellDifference(rebuild, out); err != nil {
			return err
		}
		what := "waits for approval: manifold rebuild approve"
		if rebuild.Paused {
			what = "is paused: manifold rebuild resume"
		}
		_, err := fmt.Fprintf(out, "%s: rebuild %s %s %s %s\n", rebuild.Projection, rebuild.Id, what, rebuild.Projection, rebuild.Id)
		return err
	}
	took := rebuild.EndedAt.Sub(rebuild.CreatedAt).Round(time.Millisecond)
	if err := tellLoss(rebuild.Loss, out); err != nil {
		return err
	}
	if err := tellFaulted(rebuild, out); err != nil {
		return err
	}
	switch rebuild.State {
	case "swapped", "rolled-back":
		if rebuild.RollbackUntil != nil {
			defer fmt.Fprintf(out, "until %s the old documents are there for: manifold rebuild rollback %s %s\n",
				rebuild.RollbackUntil.Local().Format(time.RFC3339), rebuild.Projection, rebuild.Id)
		}
		_, err := fmt.Fprintf(out, "%s: build %d of %d events is live, with %d documents, after %s\n",
			rebuild.Projection, rebuild.Build, rebuild.EventsDone, rebuild.Documents, took)
		return err
	case "reported":
		_, err := fmt.Fprintf(out, "%s: a build of %d events would have %d documents, made in %s\n",
			rebuild.Projection, rebuild.EventsDone, rebuild.Documents, took)
		if err != nil {
			return err
		}
		return tellDifference(rebuild, out)
	}
	return fmt.Errorf("the rebuild of %s is %s: %s", rebuild.Projection, rebuild.State, rebuild.Error)
}

// tellDifference prints how the new documents differ from the live ones.
func tellDifference(rebuild client.Rebuild, out io.Writer) error {
	d := rebuild.Difference
	if d == nil {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d documents are new, %d are gone, %d are changed, %d are the same\n", d.New, d.Gone, d.Changed, d.Same)
	for _, e := range d.Examples {
		where := fmt.Sprintf("%s (tenant %s)", e.Id, e.Tenant)
		switch e.Kind {
		case "new":
			fmt.Fprintf(&text, "+ %s %s\n", where, e.Built)
		case "gone":
			fmt.Fprintf(&text, "- %s %s\n", where, e.Live)
		default:
			fmt.Fprintf(&text, "~ %s\n", where)
			live, built := fieldsOf(e.Live), fieldsOf(e.Built)
			for _, field := range e.Fields {
				fmt.Fprintf(&text, "    %s: %s -> %s\n", field, orNothing(live[field]), orNothing(built[field]))
			}
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func fieldsOf(text json.RawMessage) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	_ = json.Unmarshal(text, &fields) // empty if they are too long to be shown
	return fields
}

func orNothing(value json.RawMessage) string {
	if value == nil {
		return "-"
	}
	return string(value)
}
