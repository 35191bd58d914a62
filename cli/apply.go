package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/projection/folding"
)

func applyCommand() *cobra.Command {
	to, files, remove, yes, wait := &connection{}, "", false, false, true
	command := &cobra.Command{
		Use:   "apply -f DIR",
		Short: "Deploy a folder of definitions",
		Long: `Make projections what the definitions in a folder say: new ones are created, changed ones rebuilt while their present
documents serve, and, with --remove, those that no file defines are removed. What is to be done is shown first, and asked
about.

With a tenant's key these are the tenant's own projections; with the operator's key, the shared ones. The service does the
work: when this command is interrupted while it waits for rebuilds, they go on.

It ends with 0 when all is done, and with 1 where something could not be.`,
		Args: cobra.NoArgs,
		RunE: to.withService(func(command *cobra.Command, _ []string, service *client.ClientWithResponses) error {
			d, err := planDeployment(command.Context(), service, files, remove, command.ErrOrStderr())
			if err != nil {
				return err
			}
			out := command.OutOrStdout()
			if err := d.show(out, command.ErrOrStderr()); err != nil {
				return err
			}
			if d.differences() == 0 {
				return nil
			}
			if !yes {
				if err := ask(command.InOrStdin(), out); err != nil {
					return err
				}
			}
			return d.apply(command.Context(), service, wait, out, command.ErrOrStderr())
		}),
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	bindFiles(command, &files, &remove)
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	command.Flags().BoolVar(&wait, "wait", true, "wait for the end of rebuilds; --wait=false leaves them to the service")
	return command
}

// ask waits for the answer yes. Any other answer is an error.
func ask(in io.Reader, out io.Writer) error {
	if !isTerminal(in) {
		return errNotAsked
	}
	if _, err := fmt.Fprint(out, "Go on? [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing is changed")
}

// apply carries out the plan. If one step fails, the others are still carried out.
func (d *deployment) apply(ctx context.Context, service *client.ClientWithResponses, wait bool, out, errs io.Writer) error {
	var rebuilds []client.Rebuild
	failed := 0
	fail := func(name string, err error) {
		failed++
		fmt.Fprintf(errs, "%s: %s\n", name, err)
	}
	for _, change := range d.changes {
		switch file := d.file(change.Name); {
		case change.Action == "none":
		case ctx.Err() != nil:
			fail(change.Name, context.Cause(ctx))
		case file == nil:
			if err := removeProjection(ctx, service, change.Name); err != nil {
				fail(change.Name, err)
				continue
			}
			fmt.Fprintf(out, "%s: removed\n", change.Name)
		default:
			done, rebuild, err := putProjection(ctx, service, file)
			if err != nil {
				fail(change.Name, err)
				continue
			}
			fmt.Fprintf(out, "%s: %s\n", change.Name, done)
			if rebuild != nil {
				rebuilds = append(rebuilds, *rebuild)
			}
		}
	}
	if wait {
		for _, rebuild := range rebuilds {
			if err := followRebuild(ctx, service, rebuild, false, out); err != nil {
				fail(rebuild.Projection, err)
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d changes failed: %w", failed, d.differences(), ErrShown)
	}
	return nil
}

// putProjection stores a file's definition in the service, and prints the result.
func putProjection(ctx context.Context, service *client.ClientWithResponses, file *folding.DefinitionFile) (done string, rebuild *client.Rebuild, err error) {
	body, err := json.Marshal(file.Definition)
	if err != nil {
		return "", nil, err
	}
	r, err := service.PutProjectionWithBodyWithResponse(ctx, file.Definition.Name, nil, "application/json", bytes.NewReader(body))
	switch {
	case err != nil:
		return "", nil, err
	case r.JSON200 != nil:
		return "changed", nil, nil
	case r.JSON201 != nil:
		return "created", nil, nil
	case r.JSON202 != nil:
		return "rebuild " + r.JSON202.Id + " is under way", r.JSON202, nil
	}
	return "", nil, refusal(r.Status(), r.Body)
}

func removeProjection(ctx context.Context, service *client.ClientWithResponses, name string) error {
	r, err := service.DeleteProjectionWithResponse(ctx, name)
	if err == nil && r.StatusCode() != http.StatusNoContent {
		err = refusal(r.Status(), r.Body)
	}
	return err
}
