package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// call is one run of a command that calls a service. The client's methods are its own. Give their results to read or
// done.
type call struct {
	*client.Client
	args    []string
	changed func(flag string) bool // whether a flag was given
	asJSON  bool                   // print what the service returns, in the format of out, and not for people
	in      io.Reader
	out     *output   // results
	people  io.Writer // everything except results: standard error
}

// run returns the RunE of a command that calls the service.
func (to *connection) run(do func(ctx context.Context, c *call) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		service, err := to.open()
		if err != nil {
			return err
		}
		format, err := outputFormat(command)
		if err != nil {
			return err
		}
		c := &call{
			Client: service, args: args, changed: command.Flags().Changed, asJSON: format != "",
			in: command.InOrStdin(), out: newOutput(command.OutOrStdout()), people: command.ErrOrStderr(),
		}
		c.out.format, c.out.people = format, c.people
		if err := do(command.Context(), c); err != nil {
			return err
		}
		return c.out.err
	}
}

// named is a method of the client that calls an operation on something by its name.
type named = func(service *client.Client, ctx context.Context, name string, editors ...client.RequestEditorFn) (*http.Response, error)

// show completes a command that calls an operation on its first argument. It prints the answer with print, or with
// --json as it is.
func show[T any](to *connection, command *cobra.Command, operation named, print func(ctx context.Context, c *call, answer T) error) *cobra.Command {
	command.RunE = to.run(func(ctx context.Context, c *call) error {
		answer, err := read[T](operation(c.Client, ctx, c.args[0]))
		if err != nil {
			return err
		}
		if c.asJSON {
			return c.out.json(answer)
		}
		return print(ctx, c, answer)
	})
	return command
}

// removal returns a command that removes something by its name after confirmation. what is everything that goes.
func removal(to *connection, use, short, what string, remove named) *cobra.Command {
	command := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			return done(remove(c.Client, ctx, c.args[0]))
		}),
	}
	return confirmed(command, "this removes "+what+" (the events stay)")
}

// read decodes the answer to a call of the client. An error status becomes an error for people.
func read[T any](response *http.Response, err error) (T, error) {
	var answer T
	body, err := bodyOf(response, err)
	if err == nil && json.Unmarshal(body, &answer) != nil {
		err = refusal(response.Status, body)
	}
	return answer, err
}

// done checks the answer to a call of the client whose content does not matter.
func done(response *http.Response, err error) error {
	_, err = bodyOf(response, err)
	return err
}

func bodyOf(response *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode >= 300 {
		return nil, refusal(response.Status, body)
	}
	return body, err
}

// readIfFound is read for something that may not exist. The result is nil if the service does not find it.
func readIfFound[T any](response *http.Response, err error) (*T, error) {
	answer, readErr := read[T](response, err)
	if err == nil && response.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	return &answer, readErr
}

// refusal turns an unexpected answer into an error for people.
func refusal(status string, body []byte) error {
	var problem client.Problem
	if err := json.Unmarshal(body, &problem); err != nil || problem.Code == "" {
		return fmt.Errorf("the service answered %s: %.200q", status, body)
	}
	return problemError(problem)
}

func problemError(problem client.Problem) error { return &refused{problem} }

// refused is the service's refusal of a call.
type refused struct{ client.Problem }

// Error returns the reason, for people.
func (r *refused) Error() string {
	text := r.Title
	if r.Detail != "" {
		text = r.Detail
	}
	if r.Where != "" {
		text = r.Where + ": " + text
	}
	for _, violation := range r.Violations {
		text += fmt.Sprintf("\n  %s%s: %s; %s", violation.Where, violation.Pointer, violation.Message, violation.Fix)
	}
	if r.Code == "events-removed" {
		text += "; to accept the loss, give --accept-loss to manifold rebuild, manifold rebuild rollback or manifold projection apply"
	}
	return fmt.Sprintf("%s (%s)", text, r.Code)
}
