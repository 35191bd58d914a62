package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// cluster checks the nodes of a distributed database. Its setting and its tables are part of the schema's check.
func (d *doctor) cluster(ctx context.Context) {
	if d.store == nil || !d.store.Distributed {
		return
	}
	var nodes []pg.Node
	err := within(ctx, func(ctx context.Context) (err error) {
		nodes, err = d.store.Nodes(ctx)
		return err
	})
	if err != nil {
		d.fail("cluster", err.Error(), "check that every node is up, and accepts the logins from the other nodes")
		return
	}
	d.nodes(nodes)
	var refused, hidden []string
	err = within(ctx, func(ctx context.Context) (err error) {
		refused, hidden, err = migrations.MovesRefused(ctx, d.store.System)
		return err
	})
	if err != nil {
		d.fail(movesCheck, err.Error(), "check that every node is up, and accepts the logins from the other nodes")
	} else {
		d.moves(refused, hidden)
	}
	if err := within(ctx, func(ctx context.Context) error { return migrations.SeveralOwners(ctx, d.store.System) }); err != nil {
		d.fail("cluster", err.Error(), "move no shards until then")
	}
}

// movesCheck is the name of a check.
const movesCheck = "moves of shards"

// moves judges whether shards can move: not if nodes refuse it. If the login may not know, hidden names the nodes.
func (d *doctor) moves(refused, hidden []string) {
	switch {
	case len(refused) > 0:
		d.fail(movesCheck, "output_plugin_libraries does not allow pgoutput on "+strings.Join(refused, ", "), "add it there, and reload the configuration; until then no shard can move")
	case len(hidden) > 0:
		d.warn(movesCheck, "whether shards can move is unknown: the system login cannot read output_plugin_libraries on "+strings.Join(hidden, ", "),
			"run `manifold cluster status` with a superuser's --url, or grant pg_read_all_settings to the login on these nodes")
	default:
		d.ok(movesCheck, "no node refuses the plugin that they need")
	}
}

// nodes judges the nodes of a distributed database.
func (d *doctor) nodes(nodes []pg.Node) {
	const check = "cluster"
	reported := len(d.findings)
	versions := make(map[string][]string)
	var notLogical []string
	for _, node := range nodes {
		if node.Problem != "" {
			d.fail(check, fmt.Sprintf("the node %s does not answer: %s", node.Address, node.Problem), "check that it is up, and accepts the logins from the other nodes")
			continue
		}
		version := fmt.Sprintf("Citus %s on PostgreSQL %s", node.Citus, node.PostgreSQL)
		versions[version] = append(versions[version], node.Address)
		if node.WALLevel != "logical" {
			notLogical = append(notLogical, node.Address)
		}
	}
	if len(versions) > 1 {
		d.warn(check, fmt.Sprintf("the nodes have different versions: %v", versions), "bring all nodes to the same version, and run alter extension citus update on each")
	}
	if len(notLogical) > 0 {
		d.warn(check, "wal_level is not logical on "+strings.Join(notLogical, ", ")+": moving a shard blocks appends to it", "set wal_level = logical there, and restart the nodes")
	}
	if len(d.findings) == reported {
		for version := range versions {
			d.ok(check, "%d nodes answer, with %s", len(nodes), version)
		}
	}
}
