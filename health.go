package manifold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
)

// onlyHealth answers what is asked of a process that has no other requests to answer.
func onlyHealth(all http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		mux.Handle(path, all)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this process has the role worker; ask one with the role web", http.StatusNotFound)
	})
	return mux
}

// checkTimeout bounds the look at one dependency for /readyz.
const checkTimeout = 2 * time.Second

// checks says what the process depends on, and how that is.
func (p *Process) checks(ctx context.Context) []api.Check {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	names := slices.Sorted(maps.Keys(p.databases))
	all := make([]api.Check, 1+len(names))
	var done sync.WaitGroup
	done.Go(func() { all[0] = api.Check{Name: "database", Err: forAnybody(p.store.Ping(ctx))} })
	for i, name := range names {
		done.Go(func() {
			all[1+i] = api.Check{Name: "documents: " + name, Err: forAnybody(p.databases[name].Ping(ctx)), Optional: true}
		})
	}
	done.Wait()
	if p.stopping.Load() {
		all = append(all, api.Check{Name: "stopping", Err: errors.New("the process is about to end")})
	}
	return all
}

// forAnybody is what whoever asks is told of a ping's error. The log says more, and so does manifold doctor.
func forAnybody(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it did not answer within %s", checkTimeout)
	}
	return errors.New(domain.ClientMessage(err))
}
