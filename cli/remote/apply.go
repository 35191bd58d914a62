package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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
