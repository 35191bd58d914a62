package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/service"
)

func testCommand(extensions service.Extensions) *cobra.Command {
	return &cobra.Command{
		Use:   "test DIR...",
		Short: "Run the examples of projections' and aggregates' definitions",
		Long: `Run the examples in a folder's .test.yaml files. Each example has events, and the documents that the projection must make of them.
Examples have the name of their projection's file: order-summary.test.yaml belongs to order-summary.yaml.

    cases:
      - name: an item adds to the total
        given:
          - {stream: order-1, type: OrderPlaced, data: {customer: c-17}}
          - {stream: order-1, type: ItemAdded, data: {sku: A-1, price: 12.5, qty: 2}}
        documents:
          order-1: {customer: c-17, status: placed, total: 25, items: [A-1]}

Examples of an aggregate have the name of its file: account.test.yaml belongs to account.yaml. They have events, and a command with
what it must decide, or the state that the events must make. For the command's boundary, events may have a stream and tags:

    cases:
      - name: a withdrawal takes what is there
        given:
          - {type: Deposited, data: {amount: 5}}
        when: {command: Withdraw, data: {amount: 3}}
        then:
          - Withdrawn: {amount: 3}
      - name: nobody overdraws
        when: {command: Withdraw, data: {amount: 3}}
        then: {rejected: overdrawn}
      - name: a deposit adds to the balance
        given:
          - {type: Deposited, data: {amount: 5}}
        state: {balance: 5}

It needs no service and no database. The exit code is 1 if an example fails.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, folders []string) error {
			e := exampleRun{out: command.OutOrStdout(), handlers: extensions.Handlers(), registered: extensions.Definitions()}
			for _, folder := range folders {
				if err := e.folder(command.Context(), folder); err != nil {
					fmt.Fprintln(command.ErrOrStderr(), err) // one line for each mistake, with its file
					e.failed++
				}
			}
			return e.end()
		},
	}
}

// exampleTimeout bounds one example. Expressions always end, but Go handlers may not.
const exampleTimeout = time.Minute

// exampleRun runs examples and prints their results.
type exampleRun struct {
	out        io.Writer
	handlers   map[string]folding.Handler
	registered []domain.Definition // definitions registered by the program
	ran        int
	failed     int
}

// folder runs the examples of a folder. It returns an error if they cannot be run.
func (e *exampleRun) folder(ctx context.Context, folder string) error {
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is not a folder", folder)
	}
	files, aggregates, err := folding.ReadFolder(folder)
	if err != nil {
		return err
	}
	var others []string
	for _, file := range aggregates {
		others = append(others, file.Examples)
	}
	examples, err := folding.ReadExamples(folder, others...)
	if err != nil {
		return err
	}
	for _, file := range aggregates {
		if err := e.aggregate(ctx, file); err != nil {
			fmt.Fprintf(e.out, "FAIL  %s\n      %s\n", file.Category, strings.ReplaceAll(err.Error(), "\n", "\n      "))
			e.failed++
		}
	}
	for i := range examples {
		if err := e.file(ctx, files, aggregates, &examples[i]); err != nil {
			fmt.Fprintf(e.out, "FAIL  %s\n      %s\n", examples[i].Projection, err)
			e.failed++
		}
	}
	return nil
}

// withRules returns a definition with the rules of the aggregate that it names, which a file in the same folder
// defines.
func withRules(definition domain.Definition, aggregates []folding.AggregateFile) (domain.Definition, error) {
	i := slices.IndexFunc(aggregates, func(f folding.AggregateFile) bool { return f.Category == definition.Aggregate })
	if i < 0 {
		return definition, fmt.Errorf("no file in the same folder defines the aggregate %q", definition.Aggregate)
	}
	rules, err := aggregate.ParseDefinition(aggregates[i].JSON)
	if err != nil {
		return definition, err
	}
	return folding.FromAggregate(definition, folding.AggregateRules{Initial: rules.Initial, On: rules.On})
}

func (e *exampleRun) file(ctx context.Context, files []folding.DefinitionFile, aggregates []folding.AggregateFile, examples *folding.ExampleFile) error {
	named := func(d domain.Definition) bool { return d.Name == examples.Projection }
	var definition domain.Definition
	place := examples.Path
	if i := slices.IndexFunc(files, func(f folding.DefinitionFile) bool { return named(f.Definition) }); i >= 0 {
		definition, place = files[i].Definition, files[i].Path
	} else if i := slices.IndexFunc(e.registered, named); i >= 0 {
		definition = e.registered[i]
	} else {
		return fmt.Errorf("%s: projection %q is defined neither by a file in the same folder nor by the program", examples.Path, examples.Projection)
	}
	if definition.Aggregate != "" {
		var err error
		if definition, err = withRules(definition, aggregates); err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
	}
	fold, err := folding.CompileWith(definition, e.handlers)
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	ctx, cancel := context.WithTimeout(ctx, exampleTimeout)
	defer cancel()
	for i, failures := range examples.Run(ctx, fold) {
		report(e, examples.Projection, examples.Examples[i].Name, failures)
	}
	return nil
}

// report prints the result of an example, which passes without failures.
func report[E error](e *exampleRun, definition, example string, failures []E) {
	e.ran++
	verdict := "ok  "
	if len(failures) > 0 {
		verdict = "FAIL"
		e.failed++
	}
	fmt.Fprintf(e.out, "%s  %s: %s\n", verdict, definition, example)
	for _, failure := range failures {
		fmt.Fprintf(e.out, "      %s\n", failure)
	}
}

// end prints how many examples passed. It returns an error if any failed.
func (e *exampleRun) end() error {
	switch {
	case e.failed > 0:
		fmt.Fprintf(e.out, "%d of %d examples failed\n", e.failed, max(e.ran, e.failed))
		return fmt.Errorf("examples failed: %w", ErrShown)
	case e.ran == 0:
		return fmt.Errorf("no examples found: expected files that end in .test.yaml in the folder of the definitions")
	}
	fmt.Fprintf(e.out, "%d examples passed\n", e.ran)
	return nil
}
