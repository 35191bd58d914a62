package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

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
		Long: `Show what "manifold apply" would do with the definitions in a folder: which projections it would create, change at once,
rebuild or remove, and how their definitions differ. Nothing is changed.

With a tenant's key these are the tenant's own projections; with the operator's key, the shared ones.

It ends with 0 where there is nothing to change, with 2 where there is, and with 1 where a definition is wrong or the
service does not answer.`,
		Args: cobra.NoArgs,
		RunE: to.withService(func(command *cobra.Command, _ []string, service *client.ClientWithResponses) error {
			d, err := planDeployment(command.Context(), service, files, remove, command.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := d.show(command.OutOrStdout(), command.ErrOrStderr()); err != nil {
				return err
			}
			if d.differences() > 0 {
				return ExitError{Code: differ}
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
	command.Flags().StringVarP(files, "file", "f", "", "the folder with the definitions: a YAML or JSON file each")
	_ = command.MarkFlagRequired("file") // the flag exists: see the line above
	command.Flags().BoolVar(remove, "remove", false, "remove projections that no file defines")
}

// deployment is the plan for deploying a folder of definitions.
type deployment struct {
	files   []folding.DefinitionFile
	changes []client.PlannedChange
}

// planDeployment reads a folder and asks the service what deploying it would change.
func planDeployment(ctx context.Context, service *client.ClientWithResponses, folder string, remove bool, errs io.Writer) (deployment, error) {
	d := deployment{}
	var err error
	if d.files, err = folding.ReadDefinitions(folder); err != nil {
		fmt.Fprintln(errs, err) // one line for each mistake, with its file
		return d, ErrShown
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
	r, err := service.PlanProjectionsWithBodyWithResponse(ctx, "application/json", bytes.NewReader(body))
	if err != nil {
		return d, err
	}
	plan, err := answered(r.JSON200, r.HTTPResponse, r.Body)
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

// show prints the plan. It also prints each mistake with file and line, and returns an error if there is any.
func (d *deployment) show(out, errs io.Writer) error {
	p := newPainter(out)
	counts := map[string]int{}
	wrong := 0
	for _, change := range d.changes {
		counts[change.Action]++
		p.change(change)
		for _, e := range change.Errors {
			wrong++
			where, field := change.Name, ""
			if file := d.file(change.Name); file != nil {
				where = fmt.Sprintf("%s:%d", file.Path, file.Line(e.Field))
			}
			if e.Field != "" {
				field = e.Field + ": "
			}
			fmt.Fprintf(errs, "%s: %s%s\n", where, field, e.Message)
		}
	}
	p.summary(counts)
	if p.err != nil {
		return p.err
	}
	if wrong > 0 {
		return fmt.Errorf("%d definitions or parts of them are wrong: %w", wrong, ErrShown)
	}
	return nil
}

func (p *painter) change(c client.PlannedChange) {
	events := ""
	if c.Events != nil {
		events = fmt.Sprintf(", %d events", *c.Events)
	}
	switch c.Action {
	case "none":
		return
	case "create":
		p.line(green, "+ %s: create%s", c.Name, events)
	case "rebuild":
		p.line(yellow, "~ %s: rebuild%s; the present documents serve until it is done", c.Name, events)
	case "change":
		p.line(yellow, "~ %s: change at once", c.Name)
	case "remove":
		p.line(red, "- %s: remove, with its documents", c.Name)
		return
	default: // from a newer service
		p.line(yellow, "~ %s: %s%s", c.Name, c.Action, events)
	}
	p.fields(c.Changes)
}

func (p *painter) summary(counts map[string]int) {
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
	p.line("", "%s", strings.Join(parts, ", "))
}

// errNotAsked is the error when there is no confirmation and no terminal to ask for it.
var errNotAsked = errors.New("nothing is changed: this is no terminal to ask at; say --yes if it is meant")
