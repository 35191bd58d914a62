package remote

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func planCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "plan",
		Short: "Manage plans: limits and quotas of tenants",
		Long: `Manage plans. A plan is a named set of limits and quotas that is assigned to tenants; the plan named default, if there is
one, is that of tenants without a plan. Plan commands need the operator's key, except plan current.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, operatorKey, "MANIFOLD_KEY")
	get := show(to, &cobra.Command{
		Use:   "get NAME",
		Short: "Show a plan",
		Args:  cobra.ExactArgs(1),
	}, (*client.Client).GetPlan, func(_ context.Context, c *call, plan client.LimitPlan) error {
		return printPlan(c.out, plan.Name, plan.Limits, quotaLines(plan.Quotas))
	})
	command.AddCommand(planList(to), withJSON("the plan", get), planSet(to), planDelete(to), planAssign(to), planOf(to), planCurrent(to))
	return command
}

// limitsFlags are limits as flags.
type limitsFlags struct {
	requests, events, bytes string
	connections, inFlight   int64
}

func (f *limitsFlags) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.requests, "requests", "", "requests a second, and how many at once, such as 50 or 50:100")
	flags.StringVar(&f.events, "events", "", "appended events a second, and how many at once")
	flags.StringVar(&f.bytes, "bytes", "", "bytes of appended events a second, and how many at once")
	flags.Int64Var(&f.connections, "connections", -1, "open connections at a time (default: any number)")
	flags.Int64Var(&f.inFlight, "in-flight", -1, "requests under way at a time (default: any number)")
}

func (f *limitsFlags) limits() (limits client.Limits, err error) {
	for _, rate := range []struct {
		flag, text string
		into       **client.Rate
	}{{"requests", f.requests, &limits.Requests}, {"events", f.events, &limits.Events}, {"bytes", f.bytes, &limits.Bytes}} {
		if rate.text == "" {
			continue
		}
		if *rate.into, err = parseRate(rate.text); err != nil {
			return limits, fmt.Errorf("--%s %w", rate.flag, err)
		}
	}
	if f.connections >= 0 {
		limits.Connections = &f.connections
	}
	if f.inFlight >= 0 {
		limits.RequestsInFlight = &f.inFlight
	}
	return limits, nil
}

// parseRate parses a rate, such as 50, or a rate and a burst, such as 50:100.
func parseRate(text string) (*client.Rate, error) {
	perSecond, burst, hasBurst := strings.Cut(text, ":")
	rate := &client.Rate{}
	var err error
	if rate.PerSecond, err = strconv.ParseInt(perSecond, 10, 64); err == nil && hasBurst {
		rate.Burst, err = strconv.ParseInt(burst, 10, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("%q is not a rate; write 50, or 50:100 for 50 a second and 100 at once", text)
	}
	return rate, nil
}

// quotasFlag is the help of the flag --quota.
const quotasFlag = "a quota, such as events=1000000; of events, bytes, projections, groups, webhooks and keys; may be repeated"

func parseQuotas(texts map[string]int64) (quotas client.Quotas, err error) {
	into := map[string]**int64{
		"events": &quotas.Events, "bytes": &quotas.Bytes, "projections": &quotas.Projections,
		"groups": &quotas.Groups, "webhooks": &quotas.Webhooks, "keys": &quotas.Keys,
	}
	for name, n := range texts {
		if into[name] == nil {
			return quotas, fmt.Errorf("--quota %s=%d: there is no quota %q; there are events, bytes, projections, groups, webhooks and keys", name, n, name)
		}
		*into[name] = &n
	}
	return quotas, nil
}

func planList(to *connection) *cobra.Command {
	return withJSON("the plans", list(to, &cobra.Command{
		Use:   "list",
		Short: "List the plans",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.LimitPlan, error] {
		return pages(func(token *string) (*http.Response, error) {
			return c.ListPlans(ctx, &client.ListPlansParams{PageSize: new(pageSize), PageToken: token})
		}, func(page client.LimitPlanList) []client.LimitPlan { return page.Plans })
	}, table[client.LimitPlan]{
		none:   "plans",
		header: "NAME\tREQUESTS\tEVENTS\tBYTES\tQUOTAS",
		row: func(plan client.LimitPlan) []any {
			return []any{plan.Name, rateText(plan.Limits.Requests), rateText(plan.Limits.Events), rateText(plan.Limits.Bytes), strings.Join(quotaLines(plan.Quotas), " ")}
		},
	}))
}

func planSet(to *connection) *cobra.Command {
	var flags limitsFlags
	var quotas map[string]int64
	command := &cobra.Command{
		Use:   "set NAME",
		Short: "Create or replace a plan; what is not given is not limited",
		Example: `  manifold plan set starter --requests 50:100 --events 200:1000 --connections 20 --quota events=1000000 --quota groups=10
  manifold plan set default --requests 20`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			limits, err := flags.limits()
			if err != nil {
				return err
			}
			of, err := parseQuotas(quotas)
			if err != nil {
				return err
			}
			plan, err := read[client.LimitPlan](c.PutPlan(ctx, c.args[0], client.LimitPlanDefinition{Limits: &limits, Quotas: &of}))
			if err != nil {
				return err
			}
			return printPlan(c.out, plan.Name, plan.Limits, quotaLines(plan.Quotas))
		}),
	}
	flags.bind(command)
	command.Flags().StringToInt64Var(&quotas, "quota", nil, quotasFlag)
	return command
}

func planDelete(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a plan that is assigned to no tenant",
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if err := done(c.DeletePlan(ctx, c.args[0])); err != nil {
				return err
			}
			return c.out.printf("plan %s is deleted\n", c.args[0])
		}),
	}
}

func planAssign(to *connection) *cobra.Command {
	var flags limitsFlags
	var quotas map[string]int64
	command := &cobra.Command{
		Use:   "assign TENANT [PLAN]",
		Short: "Assign a plan to a tenant, with what differs from it; without PLAN, the default one",
		Example: `  manifold plan assign acme starter
  manifold plan assign acme starter --connections 50 --quota events=5000000`,
		Args: cobra.RangeArgs(1, 2),
		RunE: to.run(func(ctx context.Context, c *call) error {
			limits, err := flags.limits()
			if err != nil {
				return err
			}
			of, err := parseQuotas(quotas)
			if err != nil {
				return err
			}
			tenant, err := findTenant(ctx, c, c.args[0])
			if err != nil {
				return err
			}
			body := client.TenantLimits{Limits: &limits, Quotas: &of}
			if len(c.args) > 1 {
				body.Plan = c.args[1]
			}
			assigned, err := read[client.AssignedLimits](c.PutTenantLimits(ctx, tenant.Id, body))
			if err != nil {
				return err
			}
			return printCurrent(c.out, assigned.Current)
		}),
	}
	flags.bind(command)
	command.Flags().StringToInt64Var(&quotas, "quota", nil, quotasFlag)
	return command
}

func planOf(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "of TENANT",
		Short: "Show a tenant's limits and quotas, and how much of them is used",
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			tenant, err := findTenant(ctx, c, c.args[0])
			if err != nil {
				return err
			}
			assigned, err := read[client.AssignedLimits](c.GetTenantLimits(ctx, tenant.Id))
			if err != nil {
				return err
			}
			return printCurrent(c.out, assigned.Current)
		}),
	}
}

func planCurrent(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "current",
		Short: "Show the limits and quotas of the key's own tenant, with a key that has the scope tenant:admin",
		Args:  cobra.NoArgs,
		RunE: to.run(func(ctx context.Context, c *call) error {
			current, err := read[client.CurrentLimits](c.GetLimits(ctx))
			if err != nil {
				return err
			}
			return printCurrent(c.out, current)
		}),
	}
}

func printCurrent(out *output, current client.CurrentLimits) error {
	name := current.Plan
	if name == "" {
		name = "none"
	}
	var quotas []string
	for _, q := range current.Quotas {
		used, limit := "unknown", "any number"
		if q.Used != nil {
			used = strconv.FormatInt(*q.Used, 10)
		}
		if q.Limit != nil {
			limit = strconv.FormatInt(*q.Limit, 10)
		}
		quotas = append(quotas, fmt.Sprintf("%s: %s of %s", q.Quota, used, limit))
	}
	return printPlan(out, name, current.Limits, quotas)
}

func printPlan(out *output, name string, limits client.Limits, quotas []string) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "plan\t%s\n", name)
	fmt.Fprintf(t, "requests\t%s\n", rateText(limits.Requests))
	fmt.Fprintf(t, "events\t%s\n", rateText(limits.Events))
	fmt.Fprintf(t, "bytes\t%s\n", rateText(limits.Bytes))
	fmt.Fprintf(t, "connections\t%s\n", countText(limits.Connections))
	fmt.Fprintf(t, "in flight\t%s\n", countText(limits.RequestsInFlight))
	for _, quota := range quotas {
		fmt.Fprintf(t, "quota\t%s\n", quota)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return out.err
}

func rateText(rate *client.Rate) string {
	if rate == nil {
		return "-"
	}
	return fmt.Sprintf("%d/s, %d at once", rate.PerSecond, rate.Burst)
}

func countText(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

// quotaLines returns the quotas that are set, as --quota takes them.
func quotaLines(q client.Quotas) []string {
	var lines []string
	for _, quota := range []struct {
		name string
		n    *int64
	}{{"events", q.Events}, {"bytes", q.Bytes}, {"projections", q.Projections}, {"groups", q.Groups}, {"webhooks", q.Webhooks}, {"keys", q.Keys}} {
		if quota.n != nil {
			lines = append(lines, fmt.Sprintf("%s=%d", quota.name, *quota.n))
		}
	}
	return lines
}
