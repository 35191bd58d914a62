package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/manifold-es/manifold/client"
)

func commandCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "command",
		Short: "Send commands to aggregates, and explain what they decide",
		Long: `Send the commands that an aggregate's definition declares. Set the service's key in MANIFOLD_KEY: --key is the command's key of
idempotency.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	command.AddCommand(commandSend(to), commandExplain(to))
	return command
}

func commandSend(to *connection) *cobra.Command {
	f := &commandFlags{connection: to}
	dryRun := false
	command := &cobra.Command{
		Use:   "send CATEGORY-ID COMMAND",
		Short: "Send a command to a stream",
		Long: `Send a command to a stream: the service decides on the stream's newest state, and appends the events. A repetition with the same
--key has the same outcome.

The exit code is 1 if the command is rejected, also in a dry run.`,
		Example: `  manifold command send order-1001 AddItem --data '{"sku": "A-1", "price": 12.5, "qty": 2}'
  manifold command send order-1001 Cancel --dry-run`,
		RunE: to.run(func(ctx context.Context, c *call) error {
			outcome, err := f.send(ctx, c, client.SendCommandParams{DryRun: given(dryRun)})
			if err != nil {
				return err
			}
			if c.asJSON {
				err = c.out.json(outcome)
			} else {
				printDecision(c.out, outcome, dryRun)
			}
			if err == nil && outcome.Rejected != nil {
				err = fmt.Errorf("the command would be rejected (%s)", outcome.Rejected.Code)
			}
			return err
		}),
	}
	command.Flags().BoolVar(&dryRun, "dry-run", false, "decide, and append nothing")
	return f.bind(command)
}

func commandExplain(to *connection) *cobra.Command {
	f := &commandFlags{connection: to}
	definition := ""
	command := f.bind(&cobra.Command{
		Use:   "explain CATEGORY-ID COMMAND",
		Short: "Show how a command would be decided, and append nothing",
		Long: `Show how a command would be decided on the stream's newest state: each rule with the values that it reads, up to the first that does
not hold, and the events. Nothing is appended. The key needs the scope events:read, too.

With --definition, the definition in a file decides, which need not be stored. The stream may have a thousand events then, and the
key needs projections:write instead of commands:send.`,
		Example: `  manifold command explain order-1001 AddItem --data '{"sku": "A-1", "price": 12.5, "qty": 2}'
  manifold command explain order-1001 AddItem --data '{"sku": "A-1", "price": 12.5, "qty": 2}' --definition order.yaml`,
		RunE: to.run(func(ctx context.Context, c *call) error {
			var outcome client.CommandOutcome
			var err error
			if definition == "" {
				outcome, err = f.send(ctx, c, client.SendCommandParams{DryRun: given(true), Explain: given(true)})
			} else {
				outcome, err = f.preview(ctx, c, definition)
			}
			if err != nil {
				return err
			}
			if c.asJSON {
				return c.out.json(outcome)
			}
			printExplained(c.out, outcome)
			return nil
		}),
	})
	command.Flags().StringVar(&definition, "definition", "", "a YAML or JSON file with the definition that decides, instead of the stored one")
	command.MarkFlagsMutuallyExclusive("definition", "key")
	command.MarkFlagsMutuallyExclusive("definition", "expected-version")
	return command
}

// commandFlags are a command's parts besides its stream and name.
type commandFlags struct {
	*connection
	data, metadata, key, expected string
}

// bind completes a command of the command line that sends one to a stream.
func (f *commandFlags) bind(command *cobra.Command) *cobra.Command {
	command.Args = cobra.ExactArgs(2)
	command.PreRunE = func(*cobra.Command, []string) error {
		return f.needsKey("--key is the command's key of idempotency")
	}
	flags := command.Flags()
	f.bindBody(flags)
	flags.StringVar(&f.key, "key", "", "commands with the same key, stream and name have one outcome")
	flags.StringVar(&f.expected, "expected-version", "", "the version that the stream must have: a number, none or exists")
	return withJSON("the outcome", command)
}

// bindBody adds the flags for data and metadata.
func (f *commandFlags) bindBody(flags *pflag.FlagSet) {
	flags.StringVar(&f.data, "data", "{}", "the command's data, a JSON object; - is standard input, @FILE a file")
	flags.StringVar(&f.metadata, "metadata", "", "a JSON object, for the metadata of each event")
}

// send sends the command of the arguments and flags. A rejection is an error unless it is a dry run.
func (f *commandFlags) send(ctx context.Context, c *call, params client.SendCommandParams) (outcome client.CommandOutcome, err error) {
	category, id, ok := strings.Cut(c.args[0], "-")
	if !ok || id == "" {
		return outcome, fmt.Errorf("%q is not a stream: expected its category, a dash and an id, such as order-1001", c.args[0])
	}
	body, err := f.body(c)
	if err != nil {
		return outcome, err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return outcome, err
	}
	params.IdempotencyKey, params.ExpectedVersion = given(f.key), given(f.expected)
	return read[client.CommandOutcome](c.SendCommandWithBody(ctx, category, id, c.args[1], &params, "application/json", bytes.NewReader(text)))
}

// body returns the command's data and metadata.
func (f *commandFlags) body(c *call) (body map[string]any, err error) {
	body = make(map[string]any)
	if body["data"], err = readJSON("--data", f.data, c.in); err != nil {
		return nil, err
	}
	if f.metadata != "" {
		body["metadata"], err = readJSON("--metadata", f.metadata, nil)
	}
	return body, err
}

// preview explains the command by the definition in a file.
func (f *commandFlags) preview(ctx context.Context, c *call, path string) (outcome client.CommandOutcome, err error) {
	command, err := f.body(c)
	if err != nil {
		return outcome, err
	}
	command["name"] = c.args[1]
	result, file, err := previewAggregate(ctx, c, path, map[string]any{"stream": c.args[0], "command": command})
	if err != nil {
		return outcome, err
	}
	if n := len(result.Steps); n > 0 && result.Steps[n-1].Fault != nil {
		return outcome, fmt.Errorf("%s: %s", result.Steps[n-1].Fault.Where, result.Steps[n-1].Fault.Message)
	}
	if result.Problem != nil {
		return outcome, inDefinition(file, problemError(*result.Problem))
	}
	return outcome, json.Unmarshal(result.Outcome, &outcome)
}

// readJSON returns the JSON of a flag's value. With stdin, the value may be - or @FILE.
func readJSON(flag, value string, stdin io.Reader) (text json.RawMessage, err error) {
	text = json.RawMessage(value)
	if stdin != nil && value == "-" {
		text, err = io.ReadAll(stdin)
	} else if path, file := strings.CutPrefix(value, "@"); stdin != nil && file {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if !json.Valid(text) {
		return nil, fmt.Errorf(`%s: it is not JSON; expected an object such as {"price": 12.5}`, flag)
	}
	return text, nil
}

// printExplained prints the rules and the outcome of a command that appends nothing.
func printExplained(out *output, outcome client.CommandOutcome) {
	for _, rule := range outcome.Rules {
		printRule(out, rule)
	}
	printDecision(out, outcome, true)
}

// printRule prints a rule with the values that it reads.
func printRule(out *output, rule client.CommandRule) {
	colour, verdict := green, "holds"
	if !rule.Holds {
		colour, verdict = red, "FAILS"
	}
	out.line(colour, "rule %d  %s  %s", rule.Rule, verdict, oneLine(rule.If))
	shown := make(map[string]string, len(rule.Values)+len(rule.Missing))
	for path, value := range rule.Values {
		shown[path] = string(value)
	}
	for _, path := range rule.Missing {
		shown[path] = "(missing)"
	}
	for _, path := range rule.Clipped {
		var start string
		_ = json.Unmarshal(rule.Values[path], &start)
		shown[path] = start + " ..."
	}
	columns := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, path := range slices.Sorted(maps.Keys(shown)) {
		fmt.Fprintf(columns, "        %s\t%s\n", path, shown[path])
	}
	_ = columns.Flush() // the output keeps the error
}

// printDecision prints a command's outcome and events.
func printDecision(out *output, o client.CommandOutcome, dryRun bool) {
	would, note := "is", ""
	if dryRun {
		would = "would be"
	}
	if o.Duplicate {
		note = "  (duplicate)"
	}
	switch {
	case o.Rejected != nil:
		message := ""
		if o.Rejected.Message != "" {
			message = ": " + o.Rejected.Message
		}
		out.line(red, "rejected by rule %d: %s%s", o.Rejected.Rule, o.Rejected.Code, message)
		return
	case len(o.Events) == 0:
		out.line("", "nothing to append: %s is at version %d%s", o.Stream, o.Version, note)
		return
	}
	out.line(green, "accepted: %s %s at version %d%s", o.Stream, would, o.Version, note)
	columns := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, e := range o.Events {
		if dryRun && e.Id == "" {
			fmt.Fprintf(columns, "  %s\t%s\t%s\t%s\n", e.Stream, e.Type, e.Data, e.Metadata)
		} else {
			fmt.Fprintf(columns, "  %d\t%s\tversion %d\t%s\t%s\n", e.Position, e.Stream, e.Version, e.Type, e.Id)
		}
	}
	_ = columns.Flush()
}
