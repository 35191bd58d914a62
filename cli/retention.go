package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func retentionCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "retention",
		Short: "Look after retention policies: what is removed of a category, and what holds it",
		Long: `Look after a tenant's retention policies. A policy says which events of a category nobody needs any more; they are removed for
good, but not before every group, projection and rebuild that still has to read them has done so. It needs the scope
tenant:admin.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	command.AddCommand(retentionList(to), retentionGet(to), retentionSet(to), retentionDelete(to), retentionRun(to))
	return command
}

// rulesFlags are the rules of a policy as flags.
type rulesFlags struct {
	maxAge   time.Duration
	maxCount int64
	compact  bool
	force    client.RetentionForce
}

func (f *rulesFlags) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.DurationVar(&f.maxAge, "max-age", 0, "what was recorded longer ago goes, as in 720h")
	flags.Int64Var(&f.maxCount, "max-count", 0, "so many of the category's newest events stay")
	flags.BoolVar(&f.compact, "compact", false, "of each stream only the newest event stays")
	flags.StringSliceVar(&f.force.Groups, "force-group", nil, "a group that is not waited for; may be repeated")
	flags.StringSliceVar(&f.force.Projections, "force-projection", nil, "a projection that is not waited for; may be repeated")
	flags.StringSliceVar(&f.force.Rebuilds, "force-rebuild", nil, "a projection whose rebuilds are not waited for; may be repeated")
}

// given reports whether any rule is given as a flag.
func (f *rulesFlags) given() bool { return f.maxAge != 0 || f.maxCount != 0 || f.compact }

func (f *rulesFlags) rules() (client.RetentionRules, error) {
	if f.maxAge%time.Second != 0 {
		return client.RetentionRules{}, fmt.Errorf("--max-age %s is not a whole number of seconds", f.maxAge)
	}
	rules := client.RetentionRules{MaxAge: int64(f.maxAge / time.Second), MaxCount: f.maxCount, Compact: f.compact}
	if len(f.force.Groups)+len(f.force.Projections)+len(f.force.Rebuilds) > 0 {
		rules.Force = &f.force
	}
	return rules, nil
}

func retentionList(to *connection) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "list",
		Short: "List the policies, and how much each category has lost",
		Args:  cobra.NoArgs,
		RunE: to.withService(func(command *cobra.Command, _ []string, service *client.ClientWithResponses) error {
			r, err := service.ListRetentionWithResponse(command.Context())
			if err != nil {
				return err
			}
			list, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			out := command.OutOrStdout()
			if asJSON {
				for _, policy := range list.Policies {
					if err := writeJSON(out, policy); err != nil {
						return err
					}
				}
				return nil
			}
			t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "CATEGORY\tKEEPS\tREMOVED\tUP TO\tHELD BY")
			for _, p := range list.Policies {
				held := "-"
				if len(p.HeldBy) > 0 {
					held = fmt.Sprintf("%s %s at %d", p.HeldBy[0].Kind, p.HeldBy[0].Name, p.HeldBy[0].Position)
				}
				fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", p.Category, keeps(p), p.Removed, p.RemovedTo, held)
			}
			return t.Flush()
		}),
	}
	jsonFlag(command, &asJSON, "the policies")
	return command
}

// keeps summarizes in a few words which events a policy keeps.
func keeps(p client.RetentionPolicy) string {
	var rules []string
	if p.MaxAge > 0 {
		rules = append(rules, (time.Duration(p.MaxAge) * time.Second).String())
	}
	if p.MaxCount > 0 {
		rules = append(rules, fmt.Sprintf("%d newest", p.MaxCount))
	}
	if p.Compact {
		rules = append(rules, "newest of each stream")
	}
	return strings.Join(rules, ", ")
}

func retentionGet(to *connection) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "get CATEGORY",
		Short: "Show a policy, what it has removed, and what has held the last run",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			policy, err := getRetention(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), policy)
			}
			return printRetention(command.OutOrStdout(), policy)
		}),
	}
	jsonFlag(command, &asJSON, "the policy")
	return command
}

func getRetention(ctx context.Context, service *client.ClientWithResponses, category string) (client.RetentionPolicy, error) {
	r, err := service.GetRetentionWithResponse(ctx, category)
	if err != nil {
		return client.RetentionPolicy{}, err
	}
	return answered(r.JSON200, r.HTTPResponse, r.Body)
}

func printRetention(out io.Writer, p client.RetentionPolicy) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("category", "%s", p.Category)
	line("keeps", "%s", keeps(p))
	if p.Force != nil {
		for kind, names := range map[string][]string{"groups": p.Force.Groups, "projections": p.Force.Projections, "rebuilds of": p.Force.Rebuilds} {
			if len(names) > 0 {
				line("waits not for", "%s %s", kind, strings.Join(names, ", "))
			}
		}
	}
	line("removed", "%d events, up to position %d", p.Removed, p.RemovedTo)
	if p.Spared > 0 {
		line("spared", "%d events, which dead letters or parked documents name", p.Spared)
	}
	for _, hold := range p.HeldBy {
		line("held by", "%s", holdText(hold))
	}
	if p.LastRunAt != nil {
		line("last run", "%s", p.LastRunAt.Format(time.RFC3339))
	}
	if p.Error != "" {
		line("error", "%s", p.Error)
	}
	if p.AskedAt != nil {
		line("asked for", "%s", p.AskedAt.Format(time.RFC3339))
	}
	return t.Flush()
}

func holdText(hold client.RetentionHold) string {
	if hold.Problem != "" {
		return fmt.Sprintf("%s %s: %s", hold.Kind, hold.Name, hold.Problem)
	}
	return fmt.Sprintf("%s %s, which has come to position %d", hold.Kind, hold.Name, hold.Position)
}

func retentionSet(to *connection) *cobra.Command {
	var flags rulesFlags
	command := &cobra.Command{
		Use:   "set CATEGORY",
		Short: "Set what is removed of a category",
		Long: `Set what is removed of a category, in place of the policy that is there. An event goes where any of the rules says so, for good:
try it out before with manifold retention run CATEGORY --dry-run and the same options.`,
		Example: `  manifold retention set heartbeat --max-age 720h --max-count 1000000 --force-group audit`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			rules, err := flags.rules()
			if err != nil {
				return err
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			r, err := service.PutRetentionWithResponse(command.Context(), args[0], rules)
			if err != nil {
				return err
			}
			switch {
			case r.JSON201 != nil:
				_, err = fmt.Fprintf(command.OutOrStdout(), "%s: created\n", args[0])
			case r.JSON200 != nil:
				_, err = fmt.Fprintf(command.OutOrStdout(), "%s: changed, or as it was\n", args[0])
			default:
				err = refusal(r.Status(), r.Body)
			}
			return err
		},
	}
	flags.bind(command)
	return command
}

func retentionDelete(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "delete CATEGORY",
		Short: "Remove nothing more of a category; what was removed stays so",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			r, err := service.DeleteRetentionWithResponse(command.Context(), args[0])
			if err != nil {
				return err
			}
			if r.StatusCode() != 204 {
				return refusal(r.Status(), r.Body)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s: deleted; nothing more is removed\n", args[0])
			return err
		}),
	}
}

// retentionPoll is the time between two requests for the state of a run.
const retentionPoll = 200 * time.Millisecond

func retentionRun(to *connection) *cobra.Command {
	var flags rulesFlags
	dryRun := false
	command := &cobra.Command{
		Use:   "run CATEGORY",
		Short: "Run a policy now and wait until it has, or see what it would remove",
		Long: `Run a policy now, and wait until it has. With --dry-run nothing is removed: it says what would go, and what holds more of it; with
rules, as by a policy of these, which need not be there.`,
		Example: `  manifold retention run heartbeat --dry-run --max-age 720h`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if flags.given() && !dryRun {
				return errors.New("rules can be tried with --dry-run; manifold retention set keeps them")
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			ctx, out := command.Context(), command.OutOrStdout()
			if !dryRun {
				return runRetention(ctx, service, args[0], out)
			}
			body := client.RetentionRun{DryRun: true}
			if flags.given() {
				rules, err := flags.rules()
				if err != nil {
					return err
				}
				body.Policy = &rules
			}
			r, err := service.RunRetentionWithResponse(ctx, args[0], body)
			if err != nil {
				return err
			}
			preview, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			more := ""
			if !preview.Complete {
				more = " at least"
			}
			fmt.Fprintf(out, "%d events would go%s\n", preview.Events, more)
			for _, hold := range preview.HeldBy {
				fmt.Fprintf(out, "more is held by %s\n", holdText(hold))
			}
			return nil
		},
	}
	flags.bind(command)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "remove nothing")
	return command
}

// runRetention requests a run, and waits until it ends.
func runRetention(ctx context.Context, service *client.ClientWithResponses, category string, out io.Writer) error {
	r, err := service.RunRetentionWithResponse(ctx, category, client.RetentionRun{})
	if err != nil {
		return err
	}
	asked, err := answered(r.JSON202, r.HTTPResponse, r.Body)
	if err != nil {
		return err
	}
	poll := time.NewTicker(retentionPoll)
	defer poll.Stop()
	for {
		policy, err := getRetention(ctx, service, category)
		if err != nil {
			return err
		}
		if policy.AskedAt == nil {
			fmt.Fprintf(out, "%d events removed since it was asked for\n", policy.Removed-asked.Removed)
			return printRetention(out, policy)
		}
		if policy.Error != "" && policy.LastRunAt != nil && policy.LastRunAt.After(*asked.AskedAt) {
			return fmt.Errorf("the run did not get through, and is tried again: %s", policy.Error)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
		}
	}
}
