package remote

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
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
		Short: "Manage retention policies, which remove events of a category",
		Long: `Manage a tenant's retention policies. A policy says which events of a category to remove. They are removed for good, but only after
every group, projection and rebuild has read them. Retention commands need the scope tenant:admin.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	get := show(to, &cobra.Command{
		Use:   "get CATEGORY",
		Short: "Show a policy, what it has removed, and what has held back the last run",
		Args:  cobra.ExactArgs(1),
	}, (*client.Client).GetRetention, func(_ context.Context, c *call, policy client.RetentionPolicy) error {
		return printRetention(c.out, policy)
	})
	command.AddCommand(retentionList(to), withJSON("the policy", get), retentionSet(to), retentionDelete(to), retentionRun(to))
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
	flags.DurationVar(&f.maxAge, "max-age", 0, "remove events recorded longer ago than this, such as 720h")
	flags.Int64Var(&f.maxCount, "max-count", 0, "keep this number of the category's newest events")
	flags.BoolVar(&f.compact, "compact", false, "keep only the newest event of each stream")
	flags.StringSliceVar(&f.force.Groups, "force-group", nil, "a group not to wait for; may be repeated")
	flags.StringSliceVar(&f.force.Projections, "force-projection", nil, "a projection not to wait for; may be repeated")
	flags.StringSliceVar(&f.force.Rebuilds, "force-rebuild", nil, "a projection whose rebuilds not to wait for; may be repeated")
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
	return withJSON("the policies", list(to, &cobra.Command{
		Use:   "list",
		Short: "List the policies, and how many events each has removed",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.RetentionPolicy, error] {
		return pages(func(*string) (*http.Response, error) { return c.ListRetention(ctx) },
			func(answer client.RetentionList) []client.RetentionPolicy { return answer.Policies })
	}, table[client.RetentionPolicy]{
		none:   "policies",
		header: "CATEGORY\tKEEPS\tREMOVED\tUP TO\tHELD BY",
		row: func(p client.RetentionPolicy) []any {
			held := "-"
			if len(p.HeldBy) > 0 {
				held = fmt.Sprintf("%s %s at %d", p.HeldBy[0].Kind, p.HeldBy[0].Name, p.HeldBy[0].Position)
			}
			return []any{p.Category, keeps(p), p.Removed, p.RemovedTo, held}
		},
	}))
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

func printRetention(out *output, p client.RetentionPolicy) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("category", "%s", p.Category)
	line("keeps", "%s", keeps(p))
	if p.Force != nil {
		for kind, names := range map[string][]string{"groups": p.Force.Groups, "projections": p.Force.Projections, "rebuilds of": p.Force.Rebuilds} {
			if len(names) > 0 {
				line("does not wait for", "%s %s", kind, strings.Join(names, ", "))
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
		line("requested at", "%s", p.AskedAt.Format(time.RFC3339))
	}
	return t.Flush()
}

func holdText(hold client.RetentionHold) string {
	if hold.Problem != "" {
		return fmt.Sprintf("%s %s: %s", hold.Kind, hold.Name, hold.Problem)
	}
	return fmt.Sprintf("%s %s, which has reached position %d", hold.Kind, hold.Name, hold.Position)
}

func retentionSet(to *connection) *cobra.Command {
	var flags rulesFlags
	command := &cobra.Command{
		Use:   "set CATEGORY",
		Short: "Set a category's policy",
		Long: `Set a category's policy, replacing the current one. An event that matches any rule is removed for good. To try the rules first, run
manifold retention run CATEGORY --dry-run with the same options.`,
		Example: `  manifold retention set heartbeat --max-age 720h --max-count 1000000 --force-group audit`,
		Args:    cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			rules, err := flags.rules()
			if err != nil {
				return err
			}
			response, err := c.PutRetention(ctx, c.args[0], rules)
			if err := done(response, err); err != nil {
				return err
			}
			result := "changed or unchanged"
			if response.StatusCode == http.StatusCreated {
				result = "created"
			}
			return c.out.printf("%s: %s\n", c.args[0], result)
		}),
	}
	flags.bind(command)
	return command
}

func retentionDelete(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "delete CATEGORY",
		Short: "Delete a policy; events that it removed stay removed",
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if err := done(c.DeleteRetention(ctx, c.args[0])); err != nil {
				return err
			}
			return c.out.printf("%s: deleted; nothing more is removed\n", c.args[0])
		}),
	}
}

func retentionRun(to *connection) *cobra.Command {
	var flags rulesFlags
	dryRun := false
	command := &cobra.Command{
		Use:   "run CATEGORY",
		Short: "Run a policy now, or show what it would remove",
		Long: `Run a policy now, and wait for its end. With --dry-run nothing is removed: the command shows how many events it would remove, and what holds
back more. A dry run with rules uses these instead of a stored policy.`,
		Example: `  manifold retention run heartbeat --dry-run --max-age 720h`,
		Args:    cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			switch {
			case flags.given() && !dryRun:
				return errors.New("rules need --dry-run; to store them, use manifold retention set")
			case !dryRun:
				return runRetention(ctx, c)
			}
			body := client.RetentionRun{DryRun: true}
			if flags.given() {
				rules, err := flags.rules()
				if err != nil {
					return err
				}
				body.Policy = &rules
			}
			preview, err := read[client.RetentionPreview](c.RunRetention(ctx, c.args[0], body))
			if err != nil {
				return err
			}
			more := ""
			if !preview.Complete {
				more = " at least"
			}
			c.out.printf("%d events would be removed%s\n", preview.Events, more)
			for _, hold := range preview.HeldBy {
				c.out.printf("others are held by %s\n", holdText(hold))
			}
			return nil
		}),
	}
	flags.bind(command)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "remove nothing")
	return command
}

// retentionPoll is the time between two requests for the state of a run.
const retentionPoll = 200 * time.Millisecond

// runRetention requests a run, and waits until it ends.
func runRetention(ctx context.Context, c *call) error {
	asked, err := read[client.RetentionPolicy](c.RunRetention(ctx, c.args[0], client.RetentionRun{}))
	if err != nil {
		return err
	}
	poll := time.NewTicker(retentionPoll)
	defer poll.Stop()
	for {
		policy, err := read[client.RetentionPolicy](c.GetRetention(ctx, c.args[0]))
		if err != nil {
			return err
		}
		if policy.AskedAt == nil {
			c.out.printf("%d events removed since the request\n", policy.Removed-asked.Removed)
			return printRetention(c.out, policy)
		}
		if policy.Error != "" && policy.LastRunAt != nil && policy.LastRunAt.After(*asked.AskedAt) {
			return fmt.Errorf("the run failed, and will be retried: %s", policy.Error)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
		}
	}
}
