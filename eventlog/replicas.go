package eventlog

import (
	"context"
	"errors"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Replicas answer reads of old events (docs/decisions/0095-replicas-answer-reads-of-history.md). Each read of a replica
// takes the beacon, the log's head and the events from one snapshot. A read asks one replica at most, and then the
// primary.

var (
	// replicaState has one row: the log's head, this process's beacon, and whether the server is a replica.
	replicaState = pg.Statement{Name: "manifold_replica_state", SQL: `
		select coalesce((select l.head from logs as l where l.tenant_id = $1::uuid), 0),
			coalesce((select b.number from replica_beacons as b where b.member_id = $2::uuid), 0), pg_is_in_recovery()`}

	beacons = pg.BeaconStatements{
		Show: `
			select coalesce((select b.number from replica_beacons as b where b.member_id = $1), 0), pg_is_in_recovery()`,
		Put: `
			insert into replica_beacons as b (member_id, number, at) values ($1, $2, now())
			on conflict (member_id) do update set number = excluded.number, at = excluded.at
			returning pg_postmaster_start_time()`,
		Remove:     `delete from replica_beacons as b where b.member_id = $1`,
		RemoveIdle: `delete from replica_beacons as b where b.at < now() - interval '1 hour'`,
	}
)

// replicas are the replicas of a process.
type replicas struct {
	*pg.Replicas
	db       *pg.DB
	observer Observer
}

// newReplicas returns nil if there are no replicas.
func newReplicas(db *pg.DB, maxLag time.Duration, observer Observer) *replicas {
	found := pg.NewReplicas(pg.ReplicasConfig{Primary: db.System, All: db.Replicas, Member: db.Member(), MaxLag: maxLag, Beacons: beacons, Log: db.Log})
	if found == nil {
		return nil
	}
	return &replicas{found, db, observer}
}

// Recent returns the time for an AsOf that permits replicas which lag no more than configured; zero if there are none.
func (s *Log) Recent() time.Time {
	if s.replicas == nil {
		return time.Time{}
	}
	return s.replicas.Recent()
}

// ReplicaStates returns the states of the configured replicas.
func (s *Log) ReplicaStates() []pg.ReplicaState {
	if s.replicas == nil {
		return nil
	}
	return s.replicas.States()
}

// read runs queries on a replica that has everything committed at asOf, and whose head of the tenant's log is at least
// least. It returns the head that belongs to the answer. If ok is false, the primary must answer, and the caller must
// discard what the queries have returned. errEnough of a query counts as success and is returned.
func (r *replicas) read(ctx context.Context, tenant domain.TenantID, asOf time.Time, least int64, queries []pg.Query) (head int64, ok bool, enough error) {
	one, number := r.Choose(asOf)
	if one == nil {
		r.observe("primary")
		return 0, false, nil
	}
	var shown int64
	replays := false
	state := pg.Query{Statement: &replicaState, Params: [][]byte{pg.TenantParam(tenant), pg.UUIDParam(r.Member())}, Row: func(values [][]byte) error {
		head, shown, replays = pg.Int8Value(values[0]), pg.Int8Value(values[1]), pg.BoolValue(values[2])
		return nil
	}}
	err := one.Read(ctx, tenant, append([]pg.Query{state}, queries...)...)
	if errors.Is(err, errEnough) {
		enough, err = err, nil
	}
	switch {
	case ctx.Err() != nil:
		return 0, false, nil // the read of the primary reports it
	case errors.Is(err, pg.ErrReplicaBusy):
		r.refused(one, "busy")
	case err != nil:
		if pg.SQLState(err) == "" && !errors.Is(err, context.DeadlineExceeded) {
			one.Failed() // otherwise it is the read, such as a slow one, and others need not suffer
		}
		r.refused(one, "failed")
		r.db.Log.Debug("a read of a replica failed; the primary answers", "replica", one.Name, "error", err)
	case !replays || shown < number || head < least:
		r.refused(one, "behind")
	default:
		one.Answered()
		r.observe(one.Name)
		return head, true, enough
	}
	r.observe("primary")
	return 0, false, nil
}

// readReplica reads a page of r from a replica, if it permits that and one can answer.
func (s *Log) readReplica(ctx context.Context, tenant domain.TenantID, r *pageReader, queries []pg.Query) (head int64, ok bool, enough error) {
	if s.replicas == nil || r.asOf.IsZero() {
		return 0, false, nil
	}
	least := int64(0)
	if r.least != nil {
		least = r.least()
	}
	return s.replicas.read(ctx, tenant, r.asOf, least, queries)
}

func (r *replicas) observe(source string) {
	if r.observer.HistoryRead != nil {
		r.observer.HistoryRead(source)
	}
}

func (r *replicas) refused(one *pg.Replica, reason string) {
	if r.observer.ReplicaRefused != nil {
		r.observer.ReplicaRefused(one.Name, reason)
	}
}
