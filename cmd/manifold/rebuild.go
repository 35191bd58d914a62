package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func rebuildCommand() *cobra.Command {
	to, f := &connection{}, rebuildFlags{}
	command := &cobra.Command{
		Use:   "rebuild NAME",
		Short: "Make a projection's documents anew, beside the present ones, and swap them in",
		Long: `Make a projection's documents anew, beside the present ones, and swap them in. Readers see the present ones until then.
With the operator's key, a shared projection's. The service does the work: when this command is interrupted, it goes on.

The commands below list rebuilds and steer them. Without the id of a rebuild they mean the one that is under way; rollback
means the last one that was swapped in, and show the newest.`,
		Example: `  manifold rebuild orders --dry-run --definition orders.yaml
  manifold rebuild orders --approve manual --keep 4h
  manifold rebuild approve orders
  manifold rebuild rollback orders`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			service, err := to.open()
			if err != nil {
				return err
			}
			body, err := f.body(command.Context(), service, command.InOrStdin())
			if err != nil {
				return err
			}
			r, err := service.StartRebuildWithBodyWithResponse(command.Context(), args[0], "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			rebuild, err := answered(r.JSON202, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return followRebuild(command.Context(), service, rebuild, f.detach, command.OutOrStdout())
		},
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	flags := command.Flags()
	flags.BoolVar(&f.detach, "detach", false, "do not wait for the end")
	flags.StringVarP(&f.definition, "definition", "f", "", "a YAML or JSON file (-: standard input) with the definition to rebuild by; the present one without")
	flags.StringVar(&f.database, "database", "", "move the documents to this database of the configuration")
	flags.StringArrayVar(&f.tenants, "tenant", nil, "the name or id of a tenant to rebuild for alone, of a shared projection; may be repeated (operator)")
	flags.Int64Var(&f.rate, "max-events-per-second", 0, "go no faster than that")
	flags.StringVar(&f.approve, "approve", "", "auto; or manual, to wait before the swap for \"manifold rebuild approve\"")
	flags.StringVar(&f.keep, "keep", "", "how long the old documents stay for a rollback, such as 90m; as configured without")
	flags.StringArrayVar(&f.assertions, "assert", nil, "an expression (doc) -> bool that every new document must pass; may be repeated")
	flags.BoolVar(&f.dryRun, "dry-run", false, "build, validate, report what would change, and drop it")
	acceptLoss(command, &f.loss)
	command.AddCommand(
		rebuildList(to), rebuildShow(to),
		rebuildOrder(to, "approve", "Let a rebuild swap", true, underWay(), func(ctx context.Context, s *client.ClientWithResponses, name, id string) (client.Rebuild, error) {
			r, err := s.ApproveRebuildWithResponse(ctx, name, id)
			if err != nil {
				return client.Rebuild{}, err
			}
			return answered(r.JSON202, r.HTTPResponse, r.Body)
		}),
		rebuildOrder(to, "cancel", "Cancel a rebuild; the present documents stay", false, underWay(), func(ctx context.Context, s *client.ClientWithResponses, name, id string) (client.Rebuild, error) {
			r, err := s.CancelRebuildWithResponse(ctx, name, id)
			if err != nil {
				return client.Rebuild{}, err
			}
			return answered(r.JSON202, r.HTTPResponse, r.Body)
		}),
		rebuildOrder(to, "pause", "Let a rebuild rest", false, underWay(), func(ctx context.Context, s *client.ClientWithResponses, name, id string) (client.Rebuild, error) {
			r, err := s.PauseRebuildWithResponse(ctx, name, id)
			if err != nil {
				return client.Rebuild{}, err
			}
			return answered(r.JSON202, r.HTTPResponse, r.Body)
		}),
		rebuildOrder(to, "resume", "Let a paused rebuild go on", true, underWay(), func(ctx context.Context, s *client.ClientWithResponses, name, id string) (client.Rebuild, error) {
			r, err := s.ResumeRebuildWithResponse(ctx, name, id)
			if err != nil {
				return client.Rebuild{}, err
			}
			return answered(r.JSON202, r.HTTPResponse, r.Body)
		}),
		rebuildRollback(to),
	)
	return command
}

func rebuildRollback(to *connection) *cobra.Command {
	loss := false
	command := rebuildOrder(to, "rollback", "Go back to the documents from before a rebuild, while they are kept", true, swappedIn(), func(ctx context.Context, s *client.ClientWithResponses, name, id string) (client.Rebuild, error) {
		r, err := s.RollbackRebuildWithResponse(ctx, name, id, &client.RollbackRebuildParams{AcceptLoss: given(loss)})
		if err != nil {
			return client.Rebuild{}, err
		}
		return answered(r.JSON202, r.HTTPResponse, r.Body)
	})
	acceptLoss(command, &loss)
	return command
}

// acceptLoss is the flag of commands that events may be missing for.
func acceptLoss(command *cobra.Command, loss *bool) {
	command.Flags().BoolVar(loss, "accept-loss", false, "go on where retention has removed events that the documents need: they are made of what is left")
}

// tellLoss says what was missing when documents were made.
func tellLoss(losses []client.Loss, out io.Writer) error {
	for _, loss := range losses {
		if _, err := fmt.Fprintf(out, "events of %s up to position %d were removed by retention: the documents lack them\n", loss.Category, loss.RemovedTo); err != nil {
			return err
		}
	}
	return nil
}

// rebuildFlags are what a rebuild is asked for with.
type rebuildFlags struct {
	definition, database, approve, keep string
	tenants, assertions                 []string
	rate                                int64
	dryRun, detach, loss                bool
}

// body is the request. What is wrong with it is the service's to say.
func (f rebuildFlags) body(ctx context.Context, service *client.ClientWithResponses, stdin io.Reader) ([]byte, error) {
	body := map[string]any{}
	set := func(name string, value any, given bool) {
		if given {
			body[name] = value
		}
	}
	if f.definition != "" {
		_, definition, err := readDefinition(f.definition, stdin)
		if err != nil {
			return nil, err
		}
		body["definition"] = json.RawMessage(definition)
	}
	var tenants []string
	for _, name := range f.tenants {
		tenant, err := findTenant(ctx, service, name)
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, tenant.Id)
	}
	set("database", f.database, f.database != "")
	set("tenants", tenants, len(tenants) > 0)
	set("maxEventsPerSecond", f.rate, f.rate != 0)
	set("approve", f.approve, f.approve != "")
	set("keep", f.keep, f.keep != "")
	set("assertions", f.assertions, len(f.assertions) > 0)
	set("dryRun", true, f.dryRun)
	set("acceptLoss", true, f.loss)
	return json.Marshal(body)
}

// pollEvery is how often a rebuild's progress is asked for.
const pollEvery = 200 * time.Millisecond

// followRebuild shows a rebuild's progress until its end, or until it waits for people. One that came to nothing is an
// error.
func followRebuild(ctx context.Context, service *client.ClientWithResponses, rebuild client.Rebuild, detach bool, out io.Writer) error {
	if detach {
		_, err := fmt.Fprintf(out, "rebuild %s of %s is under way\n", rebuild.Id, rebuild.Projection)
		return err
	}
	bar := newProgress(max(rebuild.EventsTotal, 1), rebuild.State, false)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for rebuild.EndedAt == nil && !waits(rebuild) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("rebuild %s of %s goes on in the service", rebuild.Id, rebuild.Projection)
		}
		r, err := service.GetRebuildWithResponse(ctx, rebuild.Projection, rebuild.Id)
		if ctx.Err() != nil {
			continue
		}
		if err != nil {
			return err
		}
		if rebuild, err = answered(r.JSON200, r.HTTPResponse, r.Body); err != nil {
			return err
		}
		bar.Describe(rebuild.State)
		bar.ChangeMax64(max(rebuild.EventsTotal, 1))
		_ = bar.Set64(min(rebuild.EventsDone, max(rebuild.EventsTotal, 1))) // nothing but the screen depends on it
	}
	_ = bar.Finish()
	return tellOutcome(rebuild, out)
}

// waits reports whether a rebuild waits for somebody to do something.
func waits(rebuild client.Rebuild) bool {
	return rebuild.Paused || rebuild.State == "awaiting-approval" && !rebuild.Approved
}

// tellOutcome says what became of a rebuild.
func tellOutcome(rebuild client.Rebuild, out io.Writer) error {
	if rebuild.EndedAt == nil {
		if err := tellDifference(rebuild, out); err != nil {
			return err
		}
		what := "waits for approval: manifold rebuild approve"
		if rebuild.Paused {
			what = "is paused: manifold rebuild resume"
		}
		_, err := fmt.Fprintf(out, "%s: rebuild %s %s %s %s\n", rebuild.Projection, rebuild.Id, what, rebuild.Projection, rebuild.Id)
		return err
	}
	took := rebuild.EndedAt.Sub(rebuild.CreatedAt).Round(time.Millisecond)
	if err := tellLoss(rebuild.Loss, out); err != nil {
		return err
	}
	switch rebuild.State {
	case "swapped", "rolled-back":
		if rebuild.RollbackUntil != nil {
			defer fmt.Fprintf(out, "until %s the old documents are there for: manifold rebuild rollback %s %s\n",
				rebuild.RollbackUntil.Local().Format(time.RFC3339), rebuild.Projection, rebuild.Id)
		}
		_, err := fmt.Fprintf(out, "%s: build %d of %d events is live, with %d documents, after %s\n",
			rebuild.Projection, rebuild.Build, rebuild.EventsDone, rebuild.Documents, took)
		return err
	case "reported":
		_, err := fmt.Fprintf(out, "%s: a build of %d events would have %d documents, made in %s\n",
			rebuild.Projection, rebuild.EventsDone, rebuild.Documents, took)
		if err != nil {
			return err
		}
		return tellDifference(rebuild, out)
	}
	return fmt.Errorf("the rebuild of %s is %s: %s", rebuild.Projection, rebuild.State, rebuild.Error)
}

// tellDifference says how the new documents differ from the live ones.
func tellDifference(rebuild client.Rebuild, out io.Writer) error {
	d := rebuild.Difference
	if d == nil {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d documents are new, %d are gone, %d are changed, %d are the same\n", d.New, d.Gone, d.Changed, d.Same)
	for _, e := range d.Examples {
		where := fmt.Sprintf("%s (tenant %s)", e.Id, e.Tenant)
		switch e.Kind {
		case "new":
			fmt.Fprintf(&text, "+ %s %s\n", where, e.Built)
		case "gone":
			fmt.Fprintf(&text, "- %s %s\n", where, e.Live)
		default:
			fmt.Fprintf(&text, "~ %s\n", where)
			live, built := fieldsOf(e.Live), fieldsOf(e.Built)
			for _, field := range e.Fields {
				fmt.Fprintf(&text, "    %s: %s -> %s\n", field, orNothing(live[field]), orNothing(built[field]))
			}
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func fieldsOf(text json.RawMessage) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	_ = json.Unmarshal(text, &fields) // where they are too long to be shown there are none
	return fields
}

func orNothing(value json.RawMessage) string {
	if value == nil {
		return "-"
	}
	return string(value)
}

func rebuildList(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "list NAME",
		Short: "List a projection's rebuilds, the newest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			service, err := to.open()
			if err != nil {
				return err
			}
			list, err := rebuildsOf(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			t := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tBUILD\tSTATE\tEVENTS\tDOCUMENTS\tSTARTED\tBY")
			for _, r := range list {
				state := r.State
				if r.Paused {
					state += " (paused)"
				}
				fmt.Fprintf(t, "%s\t%d\t%s\t%d/%d\t%d\t%s\t%s\n", r.Id, r.Build, state, r.EventsDone, r.EventsTotal, r.Documents,
					r.CreatedAt.Local().Format(time.RFC3339), r.By)
			}
			return t.Flush()
		},
	}
}

func rebuildShow(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME [ID]",
		Short: "Show a rebuild's progress, and how its documents differ from the live ones",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, args []string) error {
			service, err := to.open()
			if err != nil {
				return err
			}
			id, err := rebuildMeant(command.Context(), service, args, newest())
			if err != nil {
				return err
			}
			r, err := service.GetRebuildWithResponse(command.Context(), args[0], id)
			if err != nil {
				return err
			}
			rebuild, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return showRebuild(rebuild, command.OutOrStdout())
		},
	}
}

func showRebuild(rebuild client.Rebuild, out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "rebuild %s of %s, build %d: %s", rebuild.Id, rebuild.Projection, rebuild.Build, rebuild.State)
	if rebuild.Paused {
		text.WriteString(", paused")
	}
	fmt.Fprintf(&text, "\n%d of %d events", rebuild.EventsDone, rebuild.EventsTotal)
	if rebuild.EventsPerSecond != nil {
		fmt.Fprintf(&text, ", %.0f a second", *rebuild.EventsPerSecond)
	}
	if rebuild.SecondsLeft != nil {
		fmt.Fprintf(&text, ", %s left", time.Duration(*rebuild.SecondsLeft*float64(time.Second)).Round(time.Second))
	}
	text.WriteByte('\n')
	if rebuild.Documents > 0 || rebuild.LiveDocuments > 0 {
		fmt.Fprintf(&text, "%d documents; the live build had %d\n", rebuild.Documents, rebuild.LiveDocuments)
	}
	if rebuild.Error != "" {
		fmt.Fprintf(&text, "%s\n", rebuild.Error)
	}
	if err := tellLoss(rebuild.Loss, &text); err != nil {
		return err
	}
	if rebuild.RollbackUntil != nil {
		fmt.Fprintf(&text, "it can be rolled back until %s\n", rebuild.RollbackUntil.Local().Format(time.RFC3339))
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	return tellDifference(rebuild, out)
}

// meant says which rebuild is meant where a command is not given the id of one: the newest that fits. none is what is said
// where there is none.
type meant struct {
	fits func(client.Rebuild) bool
	none string // the projection's name goes in for %s
}

func underWay() meant {
	return meant{func(r client.Rebuild) bool { return r.EndedAt == nil }, "no rebuild of %s is under way"}
}

func swappedIn() meant {
	return meant{func(r client.Rebuild) bool { return r.State == "swapped" }, "no rebuild of %s was swapped in that could be rolled back"}
}

func newest() meant {
	return meant{func(client.Rebuild) bool { return true }, "%s was never rebuilt"}
}

// order asks the service to do something with a rebuild.
type order func(ctx context.Context, service *client.ClientWithResponses, name, id string) (client.Rebuild, error)

// rebuildOrder is a command that does something with a rebuild, and then, where follow is set, follows it.
func rebuildOrder(to *connection, use, short string, follow bool, which meant, do order) *cobra.Command {
	detach := false
	command := &cobra.Command{
		Use:   use + " NAME [ID]",
		Short: short,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, args []string) error {
			service, err := to.open()
			if err != nil {
				return err
			}
			id, err := rebuildMeant(command.Context(), service, args, which)
			if err != nil {
				return err
			}
			rebuild, err := do(command.Context(), service, args[0], id)
			if err != nil {
				return err
			}
			if follow {
				return followRebuild(command.Context(), service, rebuild, detach, command.OutOrStdout())
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s: rebuild %s was asked to %s\n", rebuild.Projection, rebuild.Id, use)
			return err
		},
	}
	if follow {
		command.Flags().BoolVar(&detach, "detach", false, "do not wait for the end")
	}
	return command
}

// rebuildMeant is the id of the rebuild that a command's arguments name: its second one, or that of the newest rebuild that
// can be meant.
func rebuildMeant(ctx context.Context, service *client.ClientWithResponses, args []string, which meant) (string, error) {
	if len(args) > 1 {
		return args[1], nil
	}
	list, err := rebuildsOf(ctx, service, args[0])
	if err != nil {
		return "", err
	}
	for _, r := range list {
		if which.fits(r) {
			return r.Id, nil
		}
	}
	return "", fmt.Errorf(which.none+"; `manifold rebuild list %[1]s` shows all", args[0])
}

func rebuildsOf(ctx context.Context, service *client.ClientWithResponses, name string) ([]client.Rebuild, error) {
	r, err := service.ListRebuildsWithResponse(ctx, name)
	if err != nil {
		return nil, err
	}
	if r.StatusCode() != http.StatusOK {
		return nil, refusal(r.Status(), r.Body)
	}
	list, err := answered(r.JSON200, r.HTTPResponse, r.Body)
	return list.Rebuilds, err
}
