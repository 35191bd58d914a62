package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/pg"
)

// Replicas answer queries for documents that name the position they need
// (docs/decisions/0102-replicas-answer-queries-for-documents.md). A read of a replica takes the beacon, the build's
// checkpoint and the documents from one snapshot.

var _ drivers.Replicated = (*Driver)(nil)

// beaconsTable exists in a database that has been read with replicas. It belongs to no tenant.
const beaconsTable = schema + "." + drivers.BeaconsTable // needs no quotes

var beacons = pg.BeaconStatements{
	Show: `select coalesce((select b.number from ` + beaconsTable + ` b where b.member_id = $1), 0), pg_is_in_recovery()`,
	Put: `insert into ` + beaconsTable + ` as b (member_id, number, at) values ($1, $2, now())
		on conflict (member_id) do update set number = excluded.number, at = excluded.at
		returning pg_postmaster_start_time()`,
	Remove:     `delete from ` + beaconsTable + ` b where b.member_id = $1`,
	RemoveIdle: `delete from ` + beaconsTable + ` b where b.at < now() - interval '1 hour'`,
}

// openReplicas prepares the connections to the replicas, and begins to watch them.
func (d *Driver) openReplicas(ctx, background context.Context, config Config) error {
	if len(config.Replicas) == 0 {
		return nil
	}
	if d.distributed {
		return errors.New("replicas are given, and the database is distributed: a replica of one node does not have all documents; remove them")
	}
	if err := d.makeBeaconsTable(ctx); err != nil {
		return err
	}
	settings := maps.Clone(querySettings)
	settings["statement_timeout"] = strconv.FormatInt(d.queryTimeout.Milliseconds(), 10)
	settings["application_name"] = settings["application_name"] + "-replica"
	var all []*pg.Replica
	for _, url := range config.Replicas {
		replica, err := pg.OpenReplica(background, url, config.MaxConns, settings)
		if err != nil {
			return err
		}
		d.closing = append(d.closing, replica.Close)
		all = append(all, replica)
	}
	d.replicas = pg.NewReplicas(pg.ReplicasConfig{Primary: d.pool.Pool, All: all, MaxLag: config.ReplicaLag, Beacons: beacons, Log: d.log})
	d.background.Go(func() { d.replicas.Run(background) })
	return nil
}

func (d *Driver) makeBeaconsTable(ctx context.Context) error {
	if exists, err := tableExists(ctx, d.pool.QueryRow, beaconsTable); err != nil || exists {
		return err
	}
	return d.define(ctx, beaconsTable, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `create table if not exists `+beaconsTable+` (
			member_id uuid primary key,
			number    bigint not null,
			at        timestamptz not null
		)`)
		return err
	})
}

// AtPosition implements drivers.Replicated.
func (d *Driver) AtPosition(position int64) (reader drivers.Reader, ok bool) {
	if d.replicas == nil {
		return nil, false
	}
	replica, beacon := d.replicas.Choose(d.replicas.Recent())
	if replica == nil {
		return nil, false
	}
	return &replicaReader{Driver: d, replica: replica, beacon: beacon, position: position}, true
}

// ReplicaStates implements drivers.Replicated.
func (d *Driver) ReplicaStates() (states []drivers.ReplicaState) {
	if d.replicas == nil {
		return nil
	}
	for _, state := range d.replicas.States() {
		states = append(states, drivers.ReplicaState(state))
	}
	return states
}

// replicaReader reads documents from a replica. What it does not override goes to the primary.
type replicaReader struct {
	*Driver
	replica          *pg.Replica
	beacon, position int64 // that the replica must show
}

// Get implements drivers.Reader, like the methods below.
func (r *replicaReader) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error) {
	return getFrom(ctx, r.run, build, tenant, id)
}

func (r *replicaReader) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	statement, err := r.queryStatement(build, tenant, query)
	if err != nil {
		return nil, err
	}
	return documentsFrom(ctx, r.run, build, tenant, statement)
}

func (r *replicaReader) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	statement, err := r.countStatement(build, tenant, where)
	if err != nil {
		return 0, err
	}
	statement.slow = true // it takes as long as there are documents, also without a condition
	return countFrom(ctx, r.run, build, tenant, statement)
}

// How long a replica may take for documents that are found by their ids. Queries have the driver's time limit, and a
// moment for the answer to arrive.
const (
	replicaLookupTime = 2 * time.Second
	replicaAnswerTime = time.Second
)

// run runs a statement on the replica, in a snapshot that shows the beacon and the position. In another snapshot the
// transaction fails before the statement begins. Whatever fails there, the primary may still answer.
func (r *replicaReader) run(ctx context.Context, build domain.Build, tenant domain.TenantID, read readStatement) error {
	table, err := tableOf(build, tenant)
	if err != nil {
		return err
	}
	shows := statement{
		// SQL alone cannot raise an error; a text that is no number does, with the text in its message.
		sql: `select case when s.replays and s.beacon >= $4::bigint and s.checkpoint >= $5::bigint then 0
				else ('manifold: this server is not a recent enough replica; it is at position ' || s.checkpoint)::int end
			from (select pg_is_in_recovery(),
				coalesce((select b.number from ` + beaconsTable + ` b where b.member_id = $3::uuid), 0),
				coalesce((select t.version from ` + table + ` t where t.tenant_id = $1::uuid and t.build = $2::bigint and t.id = ''), 0)
			) as s (replays, beacon, checkpoint)`,
		args: [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number), pg.UUIDParam(r.replicas.Member()), pg.Int8Param(r.beacon), pg.Int8Param(r.position)},
	}
	atMost := replicaLookupTime
	if read.slow {
		atMost = r.queryTimeout + replicaAnswerTime
	}
	err = r.replica.Use(ctx, tenant, atMost, func(ctx context.Context, pool *pgxpool.Pool) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		_, err = transactOn(ctx, conn, "begin isolation level repeatable read read only", tenant, []statement{shows, read.statement})
		return err
	})
	switch {
	case err == nil:
		r.replica.Answered()
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, pg.ErrReplicaBusy):
	default:
		if pg.SQLState(err) == "" && !errors.Is(err, context.DeadlineExceeded) {
			r.replica.Failed() // otherwise it is the read, such as a slow one, and others need not suffer
		}
		r.log.DebugContext(ctx, "a query of a replica failed; the primary answers", "replica", r.replica.Name, "error", err)
	}
	return fmt.Errorf("%w: %w", drivers.ErrNoReplica, err)
}
