package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
)

// progressInterval is how often a command looks for progress of the cluster.
const progressInterval = time.Second

func clusterCommand() *cobra.Command {
	var c clusterAdmin
	command := &cobra.Command{
		Use:   "cluster",
		Short: "Show and move the shards of a distributed database",
		Long: `Show and move the shards of a distributed database (see docs/guides/cluster.md).

The commands connect with the migrator's login, or with that of --url.`,
		Args: cobra.NoArgs,
	}
	command.PersistentFlags().StringVar(&c.file, "config", os.Getenv("MANIFOLD_CONFIG"), "the configuration file (MANIFOLD_CONFIG)")
	command.PersistentFlags().StringVar(&c.url, "url", "", "connect with this postgres:// URL instead of the migrator's login")
	command.AddCommand(
		&cobra.Command{
			Use: "status", Short: "Show the nodes with their shards, and running moves", Args: cobra.NoArgs,
			RunE: func(command *cobra.Command, _ []string) error { return c.run(command, c.status) },
		},
		&cobra.Command{
			Use: "rebalance", Short: "Distribute the shards evenly over the nodes, while the service runs", Args: cobra.NoArgs,
			RunE: func(command *cobra.Command, _ []string) error { return c.run(command, c.rebalance) },
		},
		&cobra.Command{
			Use: "isolate TENANT", Short: "Give a tenant, named by its id, separate shards", Args: cobra.ExactArgs(1),
			Long: "Give a tenant, named by its id, separate shards.\n\nWrites wait meanwhile, also those of other tenants, for a time that depends on the shards' size.",
			RunE: func(command *cobra.Command, arguments []string) error {
				tenant, err := domain.ParseTenantID(arguments[0])
				if err != nil {
					return err
				}
				return c.run(command, func(ctx context.Context, conn *pgx.Conn, out io.Writer) error {
					return c.isolate(ctx, conn, out, tenant)
				})
			},
		},
	)
	return command
}

// clusterAdmin runs the commands. Each connects to the coordinator.
type clusterAdmin struct{ file, url string }

func (c *clusterAdmin) run(command *cobra.Command, do func(context.Context, *pgx.Conn, io.Writer) error) error {
	ctx := command.Context()
	if c.url == "" {
		_, url, err := migrator(c.file)
		if err != nil {
			return err
		}
		c.url = url
	}
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	distributed, err := migrations.IsDistributed(ctx, conn)
	if err != nil {
		return err
	}
	if !distributed {
		return errors.New("the database is not distributed; manifold migrate up --distribute distributes it")
	}
	return do(ctx, conn, command.OutOrStdout())
}

func (c *clusterAdmin) status(ctx context.Context, conn *pgx.Conn, out io.Writer) error {
	rows, _ := conn.Query(ctx, `
		select n.nodename || ':' || n.nodeport, case when n.isactive then 'active' else 'inactive' end, count(s.shardid), coalesce(sum(s.shard_size), 0)::bigint
		from pg_dist_node n
		left join citus_shards s on s.nodename = n.nodename and s.nodeport = n.nodeport and s.citus_table_type = 'distributed'
		group by n.nodeid, n.nodename, n.nodeport, n.isactive order by n.nodeid`)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tSTATE\tSHARDS\tBYTES")
	var node, state string
	var shards, bytes int64
	_, err := pgx.ForEachRow(rows, []any{&node, &state, &shards, &bytes}, func() error {
		_, err := fmt.Fprintf(table, "%s\t%s\t%d\t%d\n", node, state, shards, bytes)
		return err
	})
	if err := errors.Join(err, table.Flush()); err != nil {
		return err
	}
	missing, err := migrations.Undistributed(ctx, conn)
	if err != nil {
		return err
	}
	for _, name := range missing {
		fmt.Fprintf(out, "manifold.%s is not distributed: run manifold migrate up --distribute\n", name)
	}
	if err := reportRefusedMoves(ctx, conn, out); err != nil {
		fmt.Fprintln(out, err)
	}
	moves, err := movesInProgress(ctx, conn)
	if bad, ok := errors.AsType[*pgconn.PgError](err); ok && bad.Code == "XX000" {
		// Citus lists the moves of all databases on the nodes, and fails where it does not know the shard.
		_, err := fmt.Fprintf(out, "moves of shards cannot be read now, perhaps because another database on these nodes moves some: %s\n",
			bad.Message)
		return err
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, moves)
	return err
}

// reportRefusedMoves returns an error if a node would refuse to move a shard, and prints which nodes do not say.
func reportRefusedMoves(ctx context.Context, conn *pgx.Conn, out io.Writer) error {
	refused, hidden, err := migrations.MovesRefused(ctx, conn)
	switch {
	case err != nil:
		return err
	case len(refused) > 0:
		return fmt.Errorf("no shard can move: output_plugin_libraries does not allow pgoutput on %s; add it there, and reload the configuration", strings.Join(refused, ", "))
	case len(hidden) > 0:
		_, err := fmt.Fprintf(out, "whether shards can move is unknown: output_plugin_libraries cannot be read on %s; use a superuser's --url\n", strings.Join(hidden, ", "))
		return err
	}
	return nil
}

// movesInProgress describes the shards that are being moved or split, a line each.
func movesInProgress(ctx context.Context, conn *pgx.Conn) (text string, err error) {
	rows, _ := conn.Query(ctx, `
		select distinct format('%s of shard %s of %s to %s:%s: %s, %s of %s bytes', operation_type, shardid, table_name, targetname, targetport, status, target_shard_size, source_shard_size)
		from get_rebalance_progress() where progress = 1 order by 1`)
	var line string
	_, err = pgx.ForEachRow(rows, []any{&line}, func() error {
		text += line + "\n"
		return nil
	})
	return text, err
}

func (c *clusterAdmin) rebalance(ctx context.Context, conn *pgx.Conn, out io.Writer) error {
	if err := migrations.SeveralOwners(ctx, conn); err != nil {
		return err
	}
	if err := reportRefusedMoves(ctx, conn, out); err != nil {
		return err
	}
	var job *int64
	if err := conn.QueryRow(ctx, "select citus_rebalance_start()").Scan(&job); err != nil {
		return err
	}
	if job == nil {
		_, err := fmt.Fprintln(out, "the shards are balanced")
		return err
	}
	fmt.Fprintf(out, "job %d moves shards; it continues if this command is interrupted\n", *job)
	last := ""
	for {
		var state, tasks string
		err := conn.QueryRow(ctx, `
			select state::text, (select coalesce(string_agg(count || ' ' || status, ', ' order by status), 'nothing to do')
			  from (select status, count(*) from pg_dist_background_task where job_id = $1 group by status) tasks)
			from pg_dist_background_job where job_id = $1`, *job).Scan(&state, &tasks)
		if err != nil {
			return err
		}
		if line := state + ": " + tasks; line != last {
			last = line
			fmt.Fprintln(out, line)
		}
		switch state {
		case "finished":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("job %d is %s: select * from citus_job_status(%d) says why", *job, state, *job)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(progressInterval):
		}
	}
}

// isolateTenant blocks writes. Online, Citus 13.2 does not finish while the log's rows are updated, as every append
// does.
const isolateTenant = "select isolate_tenant_to_new_shard('manifold.logs', $1::uuid, 'CASCADE', 'block_writes')"

func (c *clusterAdmin) isolate(ctx context.Context, conn *pgx.Conn, out io.Writer, tenant domain.TenantID) error {
	watch, err := pgx.Connect(ctx, c.url)
	if err != nil {
		return err
	}
	defer watch.Close(context.WithoutCancel(ctx))
	var shard int64
	done := make(chan error, 1)
	go func() {
		done <- conn.QueryRow(ctx, isolateTenant, [16]byte(tenant)).Scan(&shard)
	}()
	last := ""
	for {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			var node string
			err = conn.QueryRow(ctx, "select nodename || ':' || nodeport from citus_shards where shardid = $1", shard).Scan(&node)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "the tenant's log is alone in shard %d on %s\n", shard, node)
			return err
		case <-time.After(progressInterval):
			// Citus reports an error instead, if what it would report has just ended.
			if moves, err := movesInProgress(ctx, watch); err == nil && moves != last {
				last = moves
				if _, err := io.WriteString(out, moves); err != nil {
					return errors.Join(err, <-done)
				}
			}
		}
	}
}
