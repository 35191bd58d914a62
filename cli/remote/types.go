package remote

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/schema/codegen"
)

func typesCommand() *cobra.Command {
	to := &connection{}
	var language, packageName, file string
	var all bool
	command := &cobra.Command{
		Use:   "types",
		Short: "Generate types of TypeScript or Go from schemas",
		Long: `Generate types from the tenant's schemas of event types. The output is standard output or a file, which is written only when it is
complete. It changes only if the schemas do.`,
		Example: `  manifold types --lang typescript --out events.ts
  manifold types --lang go --package events --out events/events.go`,
		Args: cobra.NoArgs,
		RunE: to.run(func(ctx context.Context, c *call) error {
			if language != "typescript" && language != "go" {
				return fmt.Errorf("--lang %q: expected typescript or go", language)
			}
			if language != "go" && c.changed("package") {
				return fmt.Errorf("--package is only for --lang go")
			}
			types, err := readTypes(ctx, c, all)
			if err != nil {
				return err
			}
			var text []byte
			if language == "go" {
				text, err = codegen.Go(packageName, types)
			} else {
				text, err = codegen.TypeScript(types)
			}
			if err != nil {
				return err
			}
			if file == "" || file == "-" {
				_, err = c.out.Write(text)
				return err
			}
			return writeFile(file, 0o644, func(out io.Writer) error {
				_, err := out.Write(text)
				return err
			})
		}),
	}
	to.bind(command, "MANIFOLD_KEY")
	command.Flags().StringVar(&language, "lang", "", "typescript or go")
	command.Flags().StringVar(&packageName, "package", "events", "the name of the Go package")
	command.Flags().StringVarP(&file, "out", "o", "", "the file to write (default: standard output)")
	command.Flags().BoolVar(&all, "all-versions", false, "all versions of each schema, not only the newest")
	_ = command.MarkFlagRequired("lang") // the flag exists
	return command
}

// readTypes reads the tenant's schemas, in the order of their types.
func readTypes(ctx context.Context, c *call, all bool) (types []codegen.Type, err error) {
	texts := "newest"
	if all {
		texts = "all"
	}
	list, err := read[client.SchemaList](c.ListSchemas(ctx, &client.ListSchemasParams{Texts: given(texts)}))
	if err != nil {
		return nil, err
	}
	for _, of := range list.Schemas {
		for _, text := range of.Texts {
			types = append(types, codegen.Type{Name: of.Type, Version: text.Version, Schema: text.Schema})
		}
	}
	return types, nil
}
