package eventlog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Replicas answer reads of old events (docs/decisions/0095-replicas-answer-reads-of-history.md). Every half second the
// process writes a number, its beacon, to the primary. A replica that shows a beacon has everything that was committed
// before the beacon was begun, on the same history. Each read of a replica takes the beacon, the log's head and the
// events from one snapshot.
//
// Replicas are skipped while they are behind, down or promoted. A read asks one replica at most, and then the primary.

const (
	beaconEvery   = 500 * time.Millisecond
	beaconTimeout = 2 * time.Second  // for writing a beacon, and for a replica to show it
	keptBeacons   = 256              // the newest; they cover more than the longest lag that may be configured
	longestAside  = 30 * time.Second // after reads that failed
	leaveTimeout  = time.Second

	defaultReplicaLag = 5 * time.Second
)

var (
	// replicaState has one row: the log's head, this process's beacon, and whether the server is a replica.
	replicaState = pg.Statement{Name: "manifold_replica_state", SQL: `
		select coalesce((select l.head from logs as l where l.tenant_id = $1::uuid), 0),
			coalesce((select b.number from replica_beacons as b where b.member_id = $2::uuid), 0), pg_is_in_recovery()`}

	// beaconState is replicaState without a tenant.
	beaconState = `
		select coalesce((select b.number from replica_beacons as b where b.member_id = $1), 0), pg_is_in_recovery()`

	putBeacon = `
		insert into replica_beacons as b (member_id, number, at) values ($1, $2, now())
		on conflict (member_id) do update set number = excluded.number, at = excluded.at
		returning pg_postmaster_start_time()`
	removeBeacon     = `delete from replica_beacons as b where b.member_id = $1`
	removeOldBeacons = `delete from replica_beacons as b where b.at < now() - interval '1 hour'`
)

var (
	errNotReplica = errors.New("the server is not a replica: it was promoted, or it is the primary")
	errBehind     = errors.New("the replica is too far behind")
)

// replicas are the replicas of a process. All methods may be called concurrently.
type replicas struct {
	db       *pg.DB
	member   domain.MemberID
	maxLag   time.Duration
	observer Observer
	all      []*replica
	turn     atomic.Uint32 // chooses the next replica

	mu      sync.Mutex
	number  int64     // of the last beacon that was begun
	beacons []beacon  // committed ones, in order, all on one primary
	primary time.Time // when that server started
}

// beacon is a number that the process has committed on the primary.
type beacon struct {
	number int64
	begun  time.Time
}

// replica is what the process knows of a replica.
type replica struct {
	*pg.Replica
	logged error // why it is not read, as last logged; only watch uses it

	mu          sync.Mutex
	problem     error     // of the last check; nil: none
	behindSince time.Time // the replica may lack what was committed after this time; zero: it had everything
	failures    int       // reads that failed in a row
	aside       time.Time // not to be read until then
}

// ReplicaState is the state of a replica, as of the last half second.
type ReplicaState struct {
	Name    string        // host:port
	Lag     time.Duration // how old the state of the database is that it shows, at most
	Problem error         // why it is not read; nil: it is. The message has no addresses
}

// newReplicas returns nil if there are no replicas.
func newReplicas(db *pg.DB, maxLag time.Duration, observer Observer) *replicas {
	if len(db.Replicas) == 0 {
		return nil
	}
	r := &replicas{db: db, member: db.Member(), maxLag: cmp.Or(maxLag, defaultReplicaLag), observer: observer}
	if r.member == (domain.MemberID{}) {
		r.member = domain.NewMemberID()
	}
	now := time.Now()
	for _, one := range db.Replicas {
		r.all = append(r.all, &replica{Replica: one, logged: errBehind, problem: errBehind, behindSince: now})
	}
	return r
}

// Recent returns the time for an AsOf that permits replicas which lag no more than configured; zero if there are none.
func (s *Log) Recent() time.Time {
	if s.replicas == nil {
		return time.Time{}
	}
	return time.Now().Add(-s.replicas.maxLag)
}

// ReplicaStates returns the states of the configured replicas.
func (s *Log) ReplicaStates() []ReplicaState {
	if s.replicas == nil {
		return nil
	}
	states := make([]ReplicaState, len(s.replicas.all))
	for i, one := range s.replicas.all {
		states[i] = one.state(s.replicas.maxLag)
	}
	return states
}

func (r *replica) state(maxLag time.Duration) ReplicaState {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := ReplicaState{Name: r.Name, Problem: r.problem}
	if !r.behindSince.IsZero() {
		state.Lag = time.Since(r.behindSince)
	}
	switch {
	case state.Problem != nil:
	case state.Lag > maxLag:
		state.Problem = errBehind
	case time.Now().Before(r.aside):
		state.Problem = errors.New("its last reads failed; it is tried again soon")
	}
	return state
}

// run writes beacons and watches the replicas until ctx ends.
func (r *replicas) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	for _, one := range r.all {
		watching.Go(func() { every(ctx, beaconEvery, func() { r.watch(ctx, one) }) })
	}
	if _, err := r.db.System.Exec(ctx, removeOldBeacons); err != nil {
		r.db.Log.Debug("beacons of processes that have ended were not removed", "error", err)
	}
	every(ctx, beaconEvery, func() { r.beat(ctx) })
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if _, err := r.db.System.Exec(leaving, removeBeacon, r.member.String()); err != nil {
		r.db.Log.Debug("the beacon of this process was not removed", "error", err)
	}
}

// every calls do at once, and again whenever the time has passed, until ctx ends.
func every(ctx context.Context, pause time.Duration, do func()) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// beat writes a beacon. If that fails, or the primary is another server, the earlier beacons prove nothing any longer: the
// primary may have failed over, and a replica of the lost history may show them.
func (r *replicas) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beaconTimeout)
	defer cancel()
	r.mu.Lock()
	r.number++
	written := beacon{r.number, time.Now()}
	r.mu.Unlock()
	var primary time.Time
	err := r.db.System.QueryRow(ctx, putBeacon, r.member.String(), written.number).Scan(&primary)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.beacons = nil
		r.db.Log.Debug("a beacon for the replicas was not written", "error", err)
		return
	}
	if !primary.Equal(r.primary) {
		r.beacons, r.primary = nil, primary
	}
	r.beacons = append(r.beacons, written)
	if len(r.beacons) > keptBeacons {
		r.beacons = slices.Delete(r.beacons, 0, len(r.beacons)-keptBeacons)
	}
}

// watch checks a replica once, and logs when that changes whether it is read.
func (r *replicas) watch(ctx context.Context, one *replica) {
	asking, cancel := context.WithTimeout(ctx, beaconTimeout)
	defer cancel()
	r.mu.Lock()
	committed := slices.Clone(r.beacons)
	r.mu.Unlock()
	asked := time.Now()
	var number int64
	var replays bool
	err := one.QueryRow(asking, beaconState, r.member.String()).Scan(&number, &replays)
	if ctx.Err() != nil {
		return
	}
	detail := err
	switch {
	case err != nil:
		err = errors.New(pg.ReplicaProblem(err))
	case !replays:
		err = errNotReplica
	}
	one.checked(asked, err, committed, number)
	problem := one.state(r.maxLag).Problem
	switch {
	case one.logged == nil && problem != nil, errors.Is(one.logged, errBehind) && err != nil: // at the start, it is behind
		r.db.Log.Warn("a replica is not read", "replica", one.Name, "reason", problem, "error", detail)
	case one.logged != nil && problem == nil:
		r.db.Log.Info("a replica is read", "replica", one.Name)
	}
	one.logged = problem
}

// checked records the outcome of a check, which began at asked: an error, or the beacon that the replica shows, of those
// that were committed before the check.
func (r *replica) checked(asked time.Time, err error, committed []beacon, number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problem = err
	unseen := slices.IndexFunc(committed, func(b beacon) bool { return b.number > number })
	switch {
	case err == nil && number > 0 && len(committed) > 0 && unseen < 0:
		r.behindSince = time.Time{}
	case err == nil && unseen >= 0 && number > 0:
		r.behindSince = committed[unseen].begun
	case r.behindSince.IsZero(): // unknown from now on
		r.behindSince = asked
	}
}

// required returns the lowest beacon that proves that a replica has everything committed at a time, and at least what
// the longest lag permits; ok is false if there is none.
func (r *replicas) required(asOf time.Time) (number int64, ok bool) {
	if oldest := time.Now().Add(-r.maxLag); asOf.Before(oldest) {
		asOf = oldest
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(r.beacons, func(b beacon) bool { return !b.begun.Before(asOf) })
	if at < 0 {
		return 0, false
	}
	return r.beacons[at].number, true
}

// choose returns a replica to read; nil if there is none.
func (r *replicas) choose() *replica {
	first := int(r.turn.Add(1))
	for i := range r.all {
		if one := r.all[(first+i)%len(r.all)]; one.state(r.maxLag).Problem == nil {
			return one
		}
	}
	return nil
}

// read runs queries on a replica that has everything committed at asOf, and whose head of the tenant's log is at least
// least. It returns the head that belongs to the answer. If ok is false, the primary must answer, and the caller must
// discard what the queries have returned. errEnough of a query counts as success and is returned.
func (r *replicas) read(ctx context.Context, tenant domain.TenantID, asOf time.Time, least int64, queries []pg.Query) (head int64, ok bool, enough error) {
	number, possible := r.required(asOf)
	var one *replica
	if possible {
		one = r.choose()
	}
	if one == nil {
		r.observe("primary")
		return 0, false, nil
	}
	var shown int64
	replays := false
	state := pg.Query{Statement: &replicaState, Params: [][]byte{pg.TenantParam(tenant), pg.UUIDParam(r.member)}, Row: func(values [][]byte) error {
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
			one.failed() // otherwise it is the read, such as a slow one, and others need not suffer
		}
		r.refused(one, "failed")
		r.db.Log.Debug("a read of a replica failed; the primary answers", "replica", one.Name, "error", err)
	case !replays || shown < number || head < least:
		r.refused(one, "behind")
	default:
		one.answered()
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

// failed sets a replica aside, for longer after each failure: checks may succeed while reads fail.
func (r *replica) failed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aside = time.Now().Add(min(time.Second<<min(r.failures, 5), longestAside))
	r.failures++
}

func (r *replica) answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = 0
}

func (r *replicas) observe(source string) {
	if r.observer.HistoryRead != nil {
		r.observer.HistoryRead(source)
	}
}

func (r *replicas) refused(one *replica, reason string) {
	if r.observer.ReplicaRefused != nil {
		r.observer.ReplicaRefused(one.Name, reason)
	}
}
