package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/cli"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/projection/folding"
)

func aggregateCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "aggregate",
		Short: "Manage the definitions of aggregates: their states and commands",
		Args:  cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	command.AddCommand(aggregatePut(to), aggregateList(to), aggregateShow(to), aggregatePreview(to), aggregateState(to),
		removal(to, "delete CATEGORY", "Delete a definition with its snapshots", "the definition, its commands and snapshots",
			func(service *client.Client, ctx context.Context, name string, editors ...client.RequestEditorFn) (*http.Response, error) {
				return service.DeleteAggregate(ctx, name, editors...)
			}))
	return command
}

func aggregatePut(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "put FILE...",
		Short: "Create or change definitions",
		Long: `Create or change the aggregates that YAML or JSON files define, one a file:

    category: order
    initial: {status: new}
    on:
      OrderPlaced: 'merge(state, {"status": "placed"})'
    commands:
      Place:
        require:
          - {if: state.status == "new", reject: placed}
        emit:
          - OrderPlaced: '{"customer": command.customer}'

A changed fold applies to all events at once. The exit code is 1 if a file is not stored; the others are.`,
		Args: cobra.MinimumNArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			failed := 0
			for _, path := range c.args {
				file, err := folding.ReadAggregate(path)
				if err == nil {
					err = putAggregate(ctx, c, file)
				}
				if err != nil {
					failed++
					fmt.Fprintln(c.people, err)
				}
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d definitions were not stored: %w", failed, len(c.args), cli.ErrShown)
			}
			return nil
		}),
	}
}

// putAggregate stores a file's definition if it differs from the stored one, and prints the result.
func putAggregate(ctx context.Context, c *call, file folding.AggregateFile) error {
	plan, err := planAggregate(ctx, c, file)
	if err != nil {
		return err
	}
	if plan.Action == "none" {
		c.out.line("", "%s: nothing to change", file.Category)
		return nil
	}
	if err := plan.put(ctx, c); err != nil {
		return err
	}
	if plan.Action == "create" {
		c.out.line(green, "%s: created", file.Category)
		return nil
	}
	c.out.line(yellow, "%s: changed", file.Category)
	c.out.changes(plan.Changes)
	return nil
}

// aggregatePlan is what storing a file's definition changes.
type aggregatePlan struct {
	file folding.AggregateFile
	client.PlannedChange
}

// planAggregate compares a file's definition with the stored one.
func planAggregate(ctx context.Context, c *call, file folding.AggregateFile) (aggregatePlan, error) {
	plan := aggregatePlan{file, client.PlannedChange{Name: file.Category, Action: "create"}}
	stored, err := readIfFound[json.RawMessage](c.GetAggregate(ctx, file.Category))
	if err != nil {
		return plan, plan.explain(err)
	}
	if stored == nil {
		return plan, nil
	}
	plan.Action = "none"
	before, after := aggregateFields(*stored), aggregateFields(file.JSON)
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, field := range slices.Sorted(maps.Keys(all)) {
		was, is := before[field], after[field]
		if (was == nil) != (is == nil) || was != nil && !folding.SameValue(was, is) {
			plan.Action = "change"
			plan.Changes = append(plan.Changes, client.FieldChange{Field: field, Before: was, After: is})
		}
	}
	return plan, nil
}

// aggregateFields returns the fields of a definition by path, those of on and commands each, with the defaults.
func aggregateFields(definition json.RawMessage) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{"initial": json.RawMessage("{}"), "snapshotEvery": json.RawMessage("100")}
	for name, value := range fieldsOf(definition) {
		switch name {
		case "category":
		case "on", "commands":
			for inner, value := range fieldsOf(value) {
				fields[name+"."+inner] = value
			}
		default:
			fields[name] = value
		}
	}
	return fields
}

// put stores the definition.
func (p *aggregatePlan) put(ctx context.Context, c *call) error {
	return p.explain(done(c.PutAggregateWithBody(ctx, p.Name, "application/json", bytes.NewReader(p.file.JSON))))
}

// explain adds the file to an error, with the line that the service found wrong.
func (p *aggregatePlan) explain(err error) error {
	if err == nil {
		return nil
	}
	line := 0
	if refused, ok := errors.AsType[*refused](err); ok && refused.Where != "" {
		line = p.file.Line(refused.Where)
	}
	return &folding.FileError{Path: p.file.Path, Line: line, Err: err}
}

func aggregateList(to *connection) *cobra.Command {
	return withJSON("the definitions", list(to, &cobra.Command{
		Use:   "list",
		Short: "List the definitions",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.Aggregate, error] {
		return pages(func(*string) (*http.Response, error) { return c.ListAggregates(ctx) },
			func(answer client.AggregateList) []client.Aggregate { return answer.Aggregates })
	}, table[client.Aggregate]{
		none:   "aggregates",
		header: "CATEGORY\tEVENTS\tCOMMANDS",
		row: func(a client.Aggregate) []any {
			commands := strings.Join(slices.Sorted(maps.Keys(fieldsOf(a.Commands))), " ")
			return []any{orZero(a.Category), strings.Join(slices.Sorted(maps.Keys(a.On)), " "), commands}
		},
	}))
}

func aggregateShow(to *connection) *cobra.Command {
	return withJSON("the definition", show(to, &cobra.Command{
		Use:   "show CATEGORY",
		Short: "Show a definition, as a file that can be put",
		Args:  cobra.ExactArgs(1),
	}, func(service *client.Client, ctx context.Context, name string, editors ...client.RequestEditorFn) (*http.Response, error) {
		return service.GetAggregate(ctx, name, editors...)
	}, func(_ context.Context, c *call, answer client.Aggregate) error {
		text, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		return c.out.printf("%s", text)
	}))
}
