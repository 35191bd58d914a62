package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/cli"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/projection/folding"
)

func applyCommand() *cobra.Command {
	to, files, remove, yes, wait := &connection{}, "", false, false, true
	command := &cobra.Command{
		Use:   "apply -f DIR",
		Short: "Deploy a folder of definitions",
		Long: `Make projections match the definitions in a folder. New ones are created. Changed ones are rebuilt while their current documents
serve. With --remove, projections without a file are removed. The command shows its plan and asks before it changes anything.

Files with a category define aggregates, which are created or changed at once, before the projections. They are never removed.

With a tenant's key these are the tenant's own projections; with the operator's key, the shared ones. The service does the
work: rebuilds continue if this command is interrupted while it waits for them.

The exit code is 0 if everything was done, and 1 otherwise.`,
		Args: cobra.NoArgs,
		RunE: to.run(func(ctx context.Context, c *call) error {
			d, err := planDeployment(ctx, c, files, remove)
			if err != nil {
				return err
			}
			if err := d.print(c); err != nil || d.differences() == 0 {
				return err
			}
			if !yes {
				if err := ask(c); err != nil {
					return err
				}
			}
			return d.apply(ctx, c, wait)
		}),
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	bindFiles(command, &files, &remove)
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	command.Flags().BoolVar(&wait, "wait", true, "wait for the end of rebuilds; --wait=false returns at once")
	return command
}

// ask waits for the answer yes. Any other answer is an error.
func ask(c *call) error {
	if !isTerminal(c.in) {
		return errors.New("nothing was changed: confirmation needs a terminal; re-run with --yes to confirm")
	}
	c.out.printf("Continue? [y/N] ")
	answer, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was changed")
}

// apply carries out the plan. If one step fails, the others are still carried out.
func (d *deployment) apply(ctx context.Context, c *call, wait bool) error {
	var rebuilds []client.Rebuild
	failed := 0
	check := func(name string, err error) bool {
		if err != nil {
			failed++
			fmt.Fprintf(c.people, "%s: %s\n", name, err)
		}
		return err == nil
	}
	for _, plan := range d.aggregates {
		switch {
		case plan.Action == "none":
		case ctx.Err() != nil:
			check(plan.Name, context.Cause(ctx))
		case check(plan.Name, plan.put(ctx, c)):
			c.out.printf("%s: %sd\n", plan.Name, plan.Action) // created or changed
		}
	}
	for _, change := range d.changes {
		switch file := d.file(change.Name); {
		case change.Action == "none":
		case ctx.Err() != nil:
			check(change.Name, context.Cause(ctx))
		case file == nil:
			if check(change.Name, done(c.DeleteProjection(ctx, change.Name))) {
				c.out.printf("%s: removed\n", change.Name)
			}
		default:
			rebuild, err := d.put(ctx, c, file)
			if check(change.Name, err) && rebuild != nil {
				rebuilds = append(rebuilds, *rebuild)
			}
		}
	}
	if wait {
		for _, rebuild := range rebuilds {
			check(rebuild.Projection, followRebuild(ctx, c, rebuild, false))
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d changes failed: %w", failed, d.differences(), cli.ErrShown)
	}
	return nil
}

// put stores a file's definition in the service, and prints the result.
func (d *deployment) put(ctx context.Context, c *call, file *folding.DefinitionFile) (*client.Rebuild, error) {
	name := file.Definition.Name
	definition, err := json.Marshal(file.Definition)
	if err != nil {
		return nil, err
	}
	status, rebuild, err := putProjection(ctx, c, name, definition, nil)
	switch {
	case err != nil:
		return nil, err
	case rebuild != nil:
		c.out.printf("%s: rebuild %s is under way\n", name, rebuild.Id)
	case status == http.StatusCreated:
		c.out.printf("%s: created\n", name)
	default:
		c.out.printf("%s: changed\n", name)
	}
	return rebuild, nil
}

// differ is the exit code of `manifold diff` if there are differences.
const differ = 2

func diffCommand() *cobra.Command {
	to, files, remove := &connection{}, "", false
	command := &cobra.Command{
		Use:   "diff -f DIR",
		Short: "Show what deploying a folder of definitions would change",
		Long: `Show what "manifold apply" would do with the definitions in a folder: which projections it would create, change at once, rebuild or
remove, and how their definitions differ; likewise for aggregates. Nothing is changed.

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
	files      []folding.DefinitionFile
	changes    []client.PlannedChange
	aggregates []aggregatePlan
}

// planDeployment reads a folder and asks the service what deploying it would change.
func planDeployment(ctx context.Context, c *call, folder string, remove bool) (d deployment, err error) {
	files, aggregates, err := folding.ReadFolder(folder)
	if err != nil {
		fmt.Fprintln(c.people, err) // one line for each mistake, with its file
		return d, cli.ErrShown
	}
	if len(files)+len(aggregates) == 0 && !remove {
		return d, fmt.Errorf("%s has no definitions: files that end in .yaml, .yml or .json", folder)
	}
	d.files = files
	for _, file := range aggregates {
		plan, err := planAggregate(ctx, c, file)
		if err != nil {
			return d, err
		}
		d.aggregates = append(d.aggregates, plan)
	}
	if len(files) == 0 && !remove {
		return d, nil
	}
	definitions := make([]any, len(d.files))
	for i, file := range d.files {
		definitions[i] = file.Definition
	}
	wanted := map[string]any{"definitions": definitions, "remove": remove}
	if len(aggregates) > 0 {
		put := make([]json.RawMessage, len(aggregates))
		for i, file := range aggregates {
			put[i] = file.JSON
		}
		wanted["aggregates"] = put
	}
	body, err := json.Marshal(wanted)
	if err != nil {
		return d, err
	}
	plan, err := read[client.PlanResult](c.PlanProjectionsWithBody(ctx, "application/json", bytes.NewReader(body)))
	d.changes = plan.Changes
	return d, d.explain(err)
}

// explain adds the file to an error in an aggregate, with the line that the service found wrong.
func (d *deployment) explain(err error) error {
	wrong, ok := errors.AsType[*refused](err)
	if !ok {
		return err
	}
	number, where, _ := strings.Cut(strings.TrimPrefix(wrong.Where, "aggregates["), "].")
	i, notOne := strconv.Atoi(number)
	if notOne != nil || i < 0 || i >= len(d.aggregates) {
		return err
	}
	wrong.Where = where
	return d.aggregates[i].explain(wrong)
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

// differences returns how many projections and aggregates differ from their definitions.
func (d *deployment) differences() (n int) {
	for _, plan := range d.aggregates {
		if plan.Action != "none" {
			n++
		}
	}
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
	for _, plan := range d.aggregates {
		counts[plan.Action]++
		printPlanned(c.out, plan.PlannedChange)
	}
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
