package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/cli"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/projection/folding"
)

// differ is the exit code of `manifold diff` if there are differences.
const differ = 2

func diffCommand() *cobra.Command {
	to, files, remove := &connection{}, "", false
	command := &cobra.Command{
		Use:   "diff -f DIR",
		Short: "Show what deploying a folder of definitions would change",
		Long: `Show what "manifold apply" would do with the definitions in a folder: which projections it would create, change at once, rebuild or
remove, and how their definitions differ. Nothing is changed.

With a tenant's key these are the tenant's own projections; with the operator's key, the shared ones.

The exit code is 0 without differences, 2 with differences, and 1 if a definition is invalid or the service does not answer.`,
		Args: cobra.NoArgs,
		RunE: to.run(func(ctx context.Context, c *call) error {
			d, err := planDeployment(ctx, c, files, remove)
			if err != nil {
				return err
			}
			if err := d.print(c); err != nil {
				return err
			}
			if d.differences() > 0 {
				return cli.ExitError{Code: differ}
			}
			return nil
		}),
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	bindFiles(command, &files, &remove)
	return command
}

// bindFiles adds the flags that select projections.
func bindFiles(command *cobra.Command, files *string, remove *bool) {
	command.Flags().StringVarP(files, "file", "f", "", "the folder with the definitions, one YAML or JSON file each")
	_ = command.MarkFlagRequired("file") // the flag exists: see the line above
	command.Flags().BoolVar(remove, "remove", false, "remove projections without a file")
}

// deployment is the plan for deploying a folder of definitions.
type deployment struct {
	files   []folding.DefinitionFile
	changes []client.PlannedChange
}

// planDeployment reads a folder and asks the service what deploying it would change.
func planDeployment(ctx context.Context, c *call, folder string, remove bool) (d deployment, err error) {
	if d.files, err = folding.ReadDefinitions(folder); err != nil {
		fmt.Fprintln(c.people, err) // one line for each mistake, with its file
		return d, cli.ErrShown
	}
	if len(d.files) == 0 && !remove {
		return d, fmt.Errorf("%s has no definitions: files that end in .yaml, .yml or .json", folder)
	}
	definitions := make([]any, len(d.files))
	for i, file := range d.files {
		definitions[i] = file.Definition
	}
	body, err := json.Marshal(map[string]any{"definitions": definitions, "remove": remove})
	if err != nil {
		return d, err
	}
	plan, err := read[client.PlanResult](c.PlanProjectionsWithBody(ctx, "application/json", bytes.NewReader(body)))
	d.changes = plan.Changes
	return d, err
}

// file returns the file that defines a projection, or nil if there is none.
func (d *deployment) file(name string) *folding.DefinitionFile {
	for i := range d.files {
		if d.files[i].Definition.Name == name {
			return &d.files[i]
		}
	}
	return nil
}

// differences returns how many projections differ from their definitions.
func (d *deployment) differences() (n int) {
	for _, change := range d.changes {
		if change.Action != "none" {
			n++
		}
	}
	return n
}

// print prints the plan. It also prints each mistake with file and line, and returns an error if there is any.
func (d *deployment) print(c *call) error {
	counts := map[string]int{}
	mistakes := 0
	for _, change := range d.changes {
		counts[change.Action]++
		printPlanned(c.out, change)
		for _, e := range change.Errors {
			mistakes++
			place, field := change.Name, ""
			if file := d.file(change.Name); file != nil {
				place = fmt.Sprintf("%s:%d", file.Path, file.Line(e.Field))
			}
			if e.Field != "" {
				field = e.Field + ": "
			}
			fmt.Fprintf(c.people, "%s: %s%s\n", place, field, e.Message)
		}
	}
	printSummary(c.out, counts)
	if mistakes > 0 {
		return fmt.Errorf("%d mistakes in the definitions: %w", mistakes, cli.ErrShown)
	}
	return nil
}

func printPlanned(out *output, change client.PlannedChange) {
	events := ""
	if change.Events != nil {
		events = fmt.Sprintf(", %d events", *change.Events)
	}
	switch change.Action {
	case "none":
		return
	case "create":
		out.line(green, "+ %s: create%s", change.Name, events)
	case "rebuild":
		out.line(yellow, "~ %s: rebuild%s; the current documents serve until it is done", change.Name, events)
	case "change":
		out.line(yellow, "~ %s: change at once", change.Name)
	case "remove":
		out.line(red, "- %s: remove, with its documents", change.Name)
		return
	default: // from a newer service
		out.line(yellow, "~ %s: %s%s", change.Name, change.Action, events)
	}
	out.changes(change.Changes)
}

func printSummary(out *output, counts map[string]int) {
	var parts []string
	for _, part := range []struct{ action, words string }{
		{"create", "to create"}, {"change", "to change at once"}, {"rebuild", "to rebuild"}, {"remove", "to remove"}, {"none", "unchanged"},
	} {
		if n := counts[part.action]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, part.words))
		}
	}
	if len(parts) == 0 {
		parts = []string{"there is nothing to change"}
	}
	out.line("", "%s", strings.Join(parts, ", "))
}
