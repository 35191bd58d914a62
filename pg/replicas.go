package pg

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
)

const (
	beaconEvery   = 500 * time.Millisecond
	beaconTimeout = 2 * time.Second  // for writing a beacon, and for a replica to show it
	keptBeacons   = 256              // the newest; they cover more than the longest lag that may be configured
	longestAside  = 30 * time.Second // after reads that failed
	leaveTimeout  = time.Second

	defaultReplicaLag = 5 * time.Second
)

var (
	errNotReplica = errors.New("the server is not a replica: it was promoted, or it is the primary")
	errBehind     = errors.New("the replica is too far behind")
	errAside      = errors.New("its last reads failed; it is tried again soon")
)

// Replicas find a replica of a database that is recent enough to be read (docs/decisions/0095). Every half second the
// process writes a number, its beacon, to the primary. A replica that shows a beacon has everything that was committed
// before the beacon was begun, on the same history. Each read must take the beacon from the snapshot that it reads.
//
// Replicas are skipped while they are behind, down or promoted. All methods may be called concurrently.
type Replicas struct {
	config ReplicasConfig
	turn   atomic.Uint32 // chooses the next replica

	mu      sync.Mutex
	number  int64     // of the last beacon that was begun
	beacons []beacon  // committed ones, in order, all on one primary
	started time.Time // when that primary's server started
}

// ReplicasConfig says how beacons are written and shown.
type ReplicasConfig struct {
	Primary *pgxpool.Pool
	All     []*Replica
	Member  domain.MemberID // the beacon's
	MaxLag  time.Duration   // of a replica that is read; 0: 5 s
	Beacons BeaconStatements
	Log     *slog.Logger
}

// BeaconStatements work on the table of beacons.
type BeaconStatements struct {
	Put        string // stores the beacon $2 of the member $1, and returns pg_postmaster_start_time()
	Show       string // returns the beacon of the member $1, 0 if there is none, and pg_is_in_recovery()
	Remove     string // removes the member $1's
	RemoveIdle string // removes those of processes that have ended
}

// beacon is a number that the process has committed on the primary.
type beacon struct {
	number int64
	begun  time.Time
}

// ReplicaState is the state of a replica, as of the last half second.
type ReplicaState struct {
	Name    string        // host:port
	Lag     time.Duration // how old the state of the database is that it shows, at most
	Problem error         // why it is not read; nil: it is. The message has no addresses
}

// NewReplicas returns nil if there are no replicas.
func NewReplicas(config ReplicasConfig) *Replicas {
	if len(config.All) == 0 {
		return nil
	}
	config.MaxLag = cmp.Or(config.MaxLag, defaultReplicaLag)
	if config.Member == (domain.MemberID{}) {
		config.Member = domain.NewMemberID()
	}
	now := time.Now()
	for _, one := range config.All {
		one.logged, one.problem, one.behindSince = errBehind, errBehind, now
	}
	return &Replicas{config: config}
}

// Member returns the id with which beacons are stored.
func (r *Replicas) Member() domain.MemberID { return r.config.Member }

// Recent returns the earliest time of a state that may be read.
func (r *Replicas) Recent() time.Time { return time.Now().Add(-r.config.MaxLag) }

// States returns the states of the replicas.
func (r *Replicas) States() []ReplicaState {
	states := make([]ReplicaState, len(r.config.All))
	for i, one := range r.config.All {
		states[i] = one.state(r.config.MaxLag)
	}
	return states
}

// Run writes beacons and watches the replicas until ctx ends.
func (r *Replicas) Run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	for _, one := range r.config.All {
		watching.Go(func() { every(ctx, beaconEvery, func() { r.watch(ctx, one) }) })
	}
	if _, err := r.config.Primary.Exec(ctx, r.config.Beacons.RemoveIdle); err != nil {
		r.config.Log.Debug("beacons of processes that have ended were not removed", "error", err)
	}
	every(ctx, beaconEvery, func() { r.beat(ctx) })
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if _, err := r.config.Primary.Exec(leaving, r.config.Beacons.Remove, r.config.Member.String()); err != nil {
		r.config.Log.Debug("the beacon of this process was not removed", "error", err)
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

// beat writes a beacon. If that fails, or the primary is another server, the earlier beacons prove nothing any longer:
// the primary may have failed over, and a replica of the lost history may show them.
func (r *Replicas) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beaconTimeout)
	defer cancel()
	r.mu.Lock()
	r.number++
	written := beacon{r.number, time.Now()}
	r.mu.Unlock()
	var started time.Time
	err := r.config.Primary.QueryRow(ctx, r.config.Beacons.Put, r.config.Member.String(), written.number).Scan(&started)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.beacons = nil
		r.config.Log.Debug("a beacon for the replicas was not written", "error", err)
		return
	}
	if !started.Equal(r.started) {
		r.beacons, r.started = nil, started
	}
	r.beacons = append(r.beacons, written)
	if len(r.beacons) > keptBeacons {
		r.beacons = slices.Delete(r.beacons, 0, len(r.beacons)-keptBeacons)
	}
}

// watch checks a replica once, and logs when that changes whether it is read.
func (r *Replicas) watch(ctx context.Context, one *Replica) {
	asking, cancel := context.WithTimeout(ctx, beaconTimeout)
	defer cancel()
	r.mu.Lock()
	committed := slices.Clone(r.beacons)
	r.mu.Unlock()
	asked := time.Now()
	var number int64
	var replays bool
	err := one.pool.QueryRow(asking, r.config.Beacons.Show, r.config.Member.String()).Scan(&number, &replays)
	if ctx.Err() != nil {
		return
	}
	detail := err
	switch {
	case err != nil:
		err = errors.New(ReplicaProblem(err))
	case !replays:
		err = errNotReplica
	}
	one.checked(asked, err, committed, number)
	problem := one.state(r.config.MaxLag).Problem
	switch {
	case one.logged == nil && problem != nil, errors.Is(one.logged, errBehind) && err != nil: // at the start, it is behind
		r.config.Log.Warn("a replica is not read", "replica", one.Name, "reason", problem, "error", detail)
	case one.logged != nil && problem == nil:
		r.config.Log.Info("a replica is read", "replica", one.Name)
	}
	one.logged = problem
}

// required returns the lowest beacon that proves that a replica has everything committed at a time, and at least what
// the longest lag permits; ok is false if there is none.
func (r *Replicas) required(asOf time.Time) (number int64, ok bool) {
	if oldest := r.Recent(); asOf.Before(oldest) {
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

// Choose returns a replica to read, and the beacon that the read's snapshot must show, or a later one, to have
// everything that was committed at asOf. It returns nil if no replica can be read.
func (r *Replicas) Choose(asOf time.Time) (one *Replica, number int64) {
	number, possible := r.required(asOf)
	if !possible {
		return nil, 0
	}
	first := int(r.turn.Add(1))
	for i := range r.config.All {
		if one := r.config.All[(first+i)%len(r.config.All)]; one.state(r.config.MaxLag).Problem == nil {
			return one, number
		}
	}
	return nil, 0
}

func (r *Replica) state(maxLag time.Duration) ReplicaState {
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
		state.Problem = errAside
	}
	return state
}

// checked records the outcome of a check, which began at asked: an error, or the beacon that the replica shows, of
// those that were committed before the check. An error ends the reads under way, which might wait for a server that
// hangs.
func (r *Replica) checked(asked time.Time, err error, committed []beacon, number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problem = err
	if err != nil {
		for _, end := range r.reads {
			end(err)
		}
	}
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

// Failed sets a replica aside after a read that failed, for longer after each failure: checks may succeed while reads
// fail.
func (r *Replica) Failed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aside = time.Now().Add(min(time.Second<<min(r.failures, 5), longestAside))
	r.failures++
}

// Answered ends a row of failures.
func (r *Replica) Answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = 0
}
