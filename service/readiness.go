package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
)

// checkTimeout bounds the check of one dependency for /readyz.
const checkTimeout = 2 * time.Second

// checksKept is how long the results of the checks are reused. Anyone may request them, and each run takes a
// connection from each pool.
const checksKept = time.Second

// readiness holds the latest result of the checks. Only one run is under way at a time.
type readiness struct {
	mu     sync.Mutex
	ran    time.Time
	result []api.Check
}

// checks returns the state of each of the process's dependencies.
func (p *Process) checks(ctx context.Context) []api.Check {
	all := p.readiness.latest(func() []api.Check { return p.check(context.WithoutCancel(ctx)) })
	if p.stopping.Load() {
		all = append(all, api.Check{Name: "stopping", Err: errors.New("the process is about to end")})
	}
	return all
}

// latest runs the checks, unless they have just been run. The caller owns the result.
func (r *readiness) latest(run func() []api.Check) []api.Check {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ran.IsZero() || time.Since(r.ran) >= checksKept {
		r.result, r.ran = run(), time.Now()
	}
	return slices.Clone(r.result)
}

// check checks each dependency.
func (p *Process) check(ctx context.Context) []api.Check {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	names := slices.Sorted(maps.Keys(p.databases))
	all := make([]api.Check, 1+len(names))
	var done sync.WaitGroup
	done.Go(func() { all[0] = api.Check{Name: "database", Err: publicError(p.store.Ping(ctx))} })
	for i, name := range names {
		done.Go(func() {
			all[1+i] = api.Check{Name: "documents: " + name, Err: publicError(p.databases[name].Ping(ctx)), Optional: name != p.logDatabase}
		})
	}
	done.Wait()
	for i, replica := range p.store.ReplicaStates() { // addresses are not for everybody
		all = append(all, api.Check{Name: fmt.Sprintf("replica: %d", i+1), Err: replica.Problem, Optional: true})
	}
	for _, name := range names {
		for i, replica := range p.databases[name].ReplicaStates() {
			all = append(all, api.Check{Name: fmt.Sprintf("documents: %s: replica %d", name, i+1), Err: replica.Problem, Optional: true})
		}
	}
	return append(all, p.issuerChecks()...)
}

// publicError returns the part of a ping's error that any client may see. The log and `manifold doctor` show more.
func publicError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it did not answer within %s", checkTimeout)
	}
	return errors.New(domain.ClientMessage(err))
}
