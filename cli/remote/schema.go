package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func schemaCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "schema",
		Short: "Manage JSON Schemas of event types, and check events against them",
		Long: `Manage the JSON Schemas of a tenant's event types. A rule says for each category whether events that violate the schema of their type
are accepted (off, warn) or refused (enforce).`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	get := show(to, &cobra.Command{
		Use:   "get TYPE",
		Short: "Print a type's newest schema",
		Args:  cobra.ExactArgs(1),
	}, (*client.Client).GetSchema, func(_ context.Context, c *call, answer client.EventSchema) error {
		return c.out.json(answer.Schema)
	})
	describe := show(to, &cobra.Command{
		Use:   "show TYPE",
		Short: "Show a type's versions and tags, and how far stored events have these tags",
		Args:  cobra.ExactArgs(1),
	}, (*client.Client).GetSchema, func(_ context.Context, c *call, answer client.EventSchema) error {
		printSchema(c.out, answer)
		return nil
	})
	command.AddCommand(schemaPut(to), schemaCheck(to), schemaDiff(to), schemaList(to), withJSON("the type with the list of its versions", get), withJSON("the type", describe), schemaRule(to),
		removal(to, "delete TYPE", "Delete a type's schema", "the schema with all its versions", (*client.Client).DeleteSchema))
	return command
}

func schemaPut(to *connection) *cobra.Command {
	file, compatibility, upcaster, tags, rebuild := "", "", "", "", false
	var personal []string
	var version int64
	command := &cobra.Command{
		Use:   "put TYPE [-f FILE]",
		Short: "Add a version of a type's schema, or change its tags",
		Long: `Add a version of a type's schema. It must be compatible with the versions before, unless an upcaster converts events of the newest
version. If the newest version is the same, nothing is added. With --upcaster, the schema and an upcaster from the version before are
stored together. With --tags, an expression derives tags for events of the type, with or without a schema in the request. Each version
has its own personal fields: use --version to set those of an older one.`,
		Example: `  manifold schema put OrderPlaced -f order-placed.json
  manifold schema put OrderPlaced -f order-placed.json --upcaster order-placed.cel --rebuild
  manifold schema put OrderPlaced --tags '"customer:" + event.data.customer'
  manifold schema put CustomerRegistered --version 1 --personal /mail`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			body := client.PutSchemaJSONRequestBody{Compatibility: compatibility, Version: version}
			if c.changed("tags") {
				body.Tags = &tags
			}
			if c.changed("personal") {
				body.Personal = &personal
			}
			if file != "" || body.Tags == nil && body.Personal == nil {
				text, err := readSchema(file, c)
				if err != nil {
					return err
				}
				body.Schema = text
			}
			if upcaster != "" {
				expression, err := upcasterExpression(nil, upcaster, c.in)
				if err != nil {
					return err
				}
				body.Upcaster = &client.NewUpcaster{Expression: expression, Rebuild: rebuild}
			}
			response, err := c.PutSchema(ctx, c.args[0], body)
			kept, err := read[client.EventSchema](response, err)
			if err != nil {
				return err
			}
			result := "unchanged"
			if response.StatusCode == http.StatusCreated {
				result = "added"
			}
			if version > 0 && version <= int64(len(kept.Versions)) {
				fields := cmp.Or(strings.Join(kept.Versions[version-1].Personal, " "), "none, so all data is personal")
				c.out.printf("%s: personal fields of version %d: %s\n", c.args[0], version, fields)
				return nil
			}
			c.out.printf("%s: version %d %s (%s)\n", c.args[0], kept.Version, result, kept.Compatibility)
			if kept.Default != kept.Version {
				c.out.printf("events that name no schemaVersion are checked against version %d\n", kept.Default)
			}
			printTags(c.out, kept.Tags, kept.Retagging)
			if readers := kept.TagReaders; readers != nil {
				for _, name := range readers.Projections {
					c.out.printf("projection %s selects by tags; rebuild it when the events are retagged\n", name)
				}
				for _, name := range readers.Groups {
					c.out.printf("group %s selects by tags; it does not go back to retagged events by itself\n", name)
				}
			}
			if kept.Touches == nil {
				return nil
			}
			return printTouches(c, *kept.Touches, rebuild)
		}),
	}
	fileFlag(command, &file, "the schema")
	command.Flags().StringVar(&compatibility, "compatibility", "", "backward (default), forward, full, each also with -transitive, or none")
	command.Flags().StringVar(&tags, "tags", "", "an expression that gives a tag, a list of tags, or null for an event; empty: derive none")
	command.Flags().StringSliceVar(&personal, "personal", nil, "JSON Pointers to personal data, such as /email,/address: what erasing a person sets to null; empty: all data")
	command.Flags().Int64Var(&version, "version", 0, "with --personal: the older version that has these fields; default: the newest")
	command.Flags().StringVar(&upcaster, "upcaster", "", "a file with the expression of an upcaster from the version before; - is standard input")
	command.Flags().BoolVar(&rebuild, "rebuild", false, "with --upcaster: rebuild the affected projections")
	checkFlags(command, []string{"rebuild", "upcaster"}, func(given, missing []string) error {
		if len(given) == 1 && missing[0] == "upcaster" {
			return errors.New("--rebuild needs --upcaster")
		}
		return nil
	})
	checkFlags(command, []string{"personal", "version"}, func(given, _ []string) error {
		if slices.Equal(given, []string{"version"}) {
			return errors.New("--version needs --personal")
		}
		return nil
	})
	return command
}

// printSchema prints a type's versions and tags.
func printSchema(out *output, of client.EventSchema) {
	out.printf("%s: version %d (%s)\n", of.Type, of.Version, of.Compatibility)
	if of.Default != of.Version {
		out.printf("events that name no schemaVersion are checked against version %d\n", of.Default)
	}
	for _, version := range of.Versions {
		breaking := ""
		if version.Breaking {
			breaking = ", breaking"
		}
		out.printf("version %d%s: %s by %s\n", version.Version, breaking, local(version.CreatedAt), version.By)
		if len(version.Personal) > 0 {
			out.printf("  personal: %s\n", strings.Join(version.Personal, " "))
		}
	}
	printTags(out, of.Tags, of.Retagging)
}

// printTags prints the expression for tags, and how far stored events have them.
func printTags(out *output, tags string, retagging *client.Retagging) {
	if tags != "" {
		out.printf("tags: %s\n", tags)
	}
	if retagging == nil {
		return
	}
	out.printf("stored events: %s\n", retaggingState(retagging))
	for _, failure := range retagging.Failures {
		out.printf("  position %d: %s\n", failure.Position, failure.Message)
	}
}

// retaggingState describes how far stored events have the derived tags.
func retaggingState(r *client.Retagging) string {
	switch {
	case r == nil:
		return ""
	case r.State == "waiting":
		return "waiting to be retagged"
	case r.State == "running":
		return fmt.Sprintf("retagged up to position %d of %d", r.Position, r.Until)
	case r.Failed > 0:
		return fmt.Sprintf("retagged, %d changed, %d failed", r.Changed, r.Failed)
	}
	return fmt.Sprintf("retagged, %d changed", r.Changed)
}

// readSchema reads the schema in a file.
func readSchema(file string, c *call) (json.RawMessage, error) {
	if file == "" {
		return nil, errors.New("give the schema with --file")
	}
	text, err := readInput(file, c.in)
	if err == nil && !json.Valid(text) {
		err = fmt.Errorf("%s is not JSON", file)
	}
	return text, err
}

func schemaDiff(to *connection) *cobra.Command {
	file := ""
	command := &cobra.Command{
		Use:   "diff TYPE -f FILE",
		Short: "Compare a schema with the stored versions",
		Long:  `Compare a schema with the stored versions, as put does, and store nothing. The exit code is 1 if put would refuse the schema.`,
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			text, err := readSchema(file, c)
			if err != nil {
				return err
			}
			checked, err := read[client.SchemaCheckResult](c.CheckSchema(ctx, c.args[0], client.CheckSchemaJSONRequestBody{Schema: text}))
			if err != nil {
				return err
			}
			return printDiff(c, checked)
		}),
	}
	fileFlag(command, &file, "the schema")
	return command
}

// printDiff prints why a schema is not compatible. After that, it returns an error if it would be refused.
func printDiff(c *call, checked client.SchemaCheckResult) error {
	switch {
	case checked.Against == 0:
		c.out.printf("%s has no schema yet\n", c.args[0])
	case len(checked.Violations) == 0:
		c.out.printf("compatible with version %d\n", checked.Against)
	}
	printViolations(c.out, checked.Violations)
	switch {
	case len(checked.Violations) == 0:
		return nil
	case checked.Breaking:
		c.out.printf("an upcaster converts events of version %d, so the schema may be put\n", checked.Against)
		return nil
	}
	return fmt.Errorf("not compatible with version %d", checked.Against)
}

func printViolations(out *output, violations []client.Violation) {
	for _, v := range violations {
		pointer := v.Pointer
		if pointer == "" {
			pointer = "(whole)"
		}
		out.printf("  %s: %s; %s\n", pointer, v.Message, v.Fix)
	}
}

func schemaCheck(to *connection) *cobra.Command {
	file, events, tags, version, last, all := "", "", "", int64(0), 0, false
	command := &cobra.Command{
		Use:   "check TYPE",
		Short: "Check events against a schema",
		Long: `Check events of a type against the stored schemas or, with --file, against another one: the last ones in the log, all of them, or the
data in a file. With --tags, try an expression for tags as well. Nothing is stored. The exit code is 1 if an event violates the schema,
or has no tags because the expression fails.`,
		Example: `  manifold schema check OrderPlaced --all
  manifold schema check OrderPlaced -f order-placed.json --last 100
  manifold schema check OrderPlaced --tags '"customer:" + event.data.customer' --all`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if err := oneSource(c.changed, last, "last", "all", "events"); err != nil {
				return err
			}
			body := client.CheckSchemaJSONRequestBody{Version: version, Tags: tags, Source: &client.SchemaCheckSource{Last: last}}
			if file != "" {
				text, err := readSchema(file, c)
				if err != nil {
					return err
				}
				body.Schema = text
			}
			if all {
				body.Source.From = 1
			}
			if events != "" {
				text, err := os.ReadFile(events)
				if err != nil {
					return err
				}
				if err := json.Unmarshal(text, &body.Source.Events); err != nil {
					return fmt.Errorf("%s: expected a JSON list of events' data: %w", events, err)
				}
			}
			return checkEvents(ctx, c, body)
		}),
	}
	fileFlag(command, &file, "the schema to try")
	command.Flags().StringVar(&tags, "tags", "", "an expression for tags to try")
	command.Flags().Int64Var(&version, "version", 0, "check against this stored version")
	command.Flags().IntVar(&last, "last", 0, "this number of the last events of the type")
	command.Flags().BoolVar(&all, "all", false, "all stored events of the type")
	command.Flags().StringVar(&events, "events", "", "a file with the data of events as a JSON list")
	exclusiveFlags(command, "file", "version")
	return command
}

// maxPrinted is how many invalid events are printed.
const maxPrinted = 10

// checkEvents checks events, step by step, and prints invalid ones.
func checkEvents(ctx context.Context, c *call, body client.CheckSchemaJSONRequestBody) error {
	events, invalid, printed, derived := 0, 0, 0, 0
	for {
		checked, err := read[client.SchemaCheckResult](c.CheckSchema(ctx, c.args[0], body))
		if err != nil {
			return err
		}
		events, invalid = events+checked.Events, invalid+checked.Invalid
		for _, example := range checked.Derived {
			if derived++; derived <= maxPrinted {
				c.out.printf("%s: %s\n", placeOf(example.Index, example.Position, example.Stream), strings.Join(example.Tags, " "))
			}
		}
		for _, example := range checked.Examples {
			if printed++; printed > maxPrinted {
				break
			}
			c.out.printf("%s:\n", placeOf(example.Index, example.Position, example.Stream))
			printViolations(c.out, example.Violations)
		}
		if checked.Next == 0 {
			break
		}
		body.Source.From = checked.Next
	}
	c.out.printf("%d events, %d invalid\n", events, invalid)
	if invalid > 0 {
		return fmt.Errorf("%d of %d events violate the schema", invalid, events)
	}
	return nil
}

// placeOf names a made-up event, or one of the log.
func placeOf(index *int, position int64, stream string) string {
	if index != nil {
		return fmt.Sprintf("event %d", *index)
	}
	return fmt.Sprintf("position %d, %s", position, stream)
}

func schemaList(to *connection) *cobra.Command {
	return withJSON("the schemas", list(to, &cobra.Command{
		Use:   "list",
		Short: "List the types with their newest versions",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.SchemaSummary, error] {
		return pages(func(*string) (*http.Response, error) { return c.ListSchemas(ctx, nil) },
			func(answer client.SchemaList) []client.SchemaSummary { return answer.Schemas })
	}, table[client.SchemaSummary]{
		none:   "schemas",
		header: "TYPE\tVERSION\tCOMPATIBILITY\tBY\tTAGS\tSTORED EVENTS",
		row: func(s client.SchemaSummary) []any {
			return []any{s.Type, s.Version, s.Compatibility, s.By, s.Tags, retaggingState(s.Retagging)}
		},
	}))
}

func schemaRule(to *connection) *cobra.Command {
	command := &cobra.Command{
		Use:   "rule",
		Short: "Say how the events of categories are checked",
		Args:  cobra.NoArgs,
	}
	rules := list(to, &cobra.Command{
		Use:   "list",
		Short: "List the rules",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.SchemaRule, error] {
		return pages(func(*string) (*http.Response, error) { return c.ListSchemas(ctx, nil) },
			func(answer client.SchemaList) []client.SchemaRule { return answer.Rules })
	}, table[client.SchemaRule]{
		none:   "rules",
		header: "CATEGORY\tMODE\tUNKNOWN TYPES\tBY",
		row:    func(r client.SchemaRule) []any { return []any{r.Category, r.Mode, r.UnknownTypes, r.By} },
	})
	refuse := false
	set := &cobra.Command{
		Use:     "set CATEGORY off|warn|enforce",
		Short:   "Set a category's rule",
		Example: `  manifold schema rule set order enforce --refuse-unknown`,
		Args:    cobra.ExactArgs(2),
		RunE: to.run(func(ctx context.Context, c *call) error {
			unknown := "allow"
			if refuse {
				unknown = "refuse"
			}
			rule, err := read[client.SchemaRule](c.PutSchemaRule(ctx, c.args[0], client.PutSchemaRuleJSONRequestBody{Mode: c.args[1], UnknownTypes: unknown}))
			if err != nil {
				return err
			}
			c.out.printf("%s: %s, unknown types: %s\n", rule.Category, rule.Mode, rule.UnknownTypes)
			return nil
		}),
	}
	set.Flags().BoolVar(&refuse, "refuse-unknown", false, "events whose type has no schema violate the rule")
	command.AddCommand(withJSON("the rules", rules), set)
	return command
}
