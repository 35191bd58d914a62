package manifold

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// running is what a process has under way. The zero value is ready.
type running struct {
	mu    sync.Mutex
	tasks map[*task]struct{}
	none  chan struct{} // closed when there is nothing any more; nil: nobody waits
}

// task is something under way, in words for people.
type task struct{ what, where string }

// begin adds a task; end must be called.
func (r *running) begin(what, where string) (end func()) {
	t := &task{what, where}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tasks == nil {
		r.tasks = make(map[*task]struct{})
	}
	r.tasks[t] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.tasks, t)
		if len(r.tasks) == 0 && r.none != nil {
			close(r.none)
			r.none = nil
		}
	}
}

// spawn runs a task beside its caller.
func (r *running) spawn(what string, run func()) {
	end := r.begin(what, "")
	go func() {
		defer end()
		run()
	}()
}

// wait returns when there is nothing any more, or when ctx ends.
func (r *running) wait(ctx context.Context) {
	r.mu.Lock()
	if len(r.tasks) == 0 {
		r.mu.Unlock()
		return
	}
	if r.none == nil {
		r.none = make(chan struct{})
	}
	none := r.none
	r.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// mostNamed is how many tasks are named where there are many.
const mostNamed = 10

// left names what is under way still, in order.
func (r *running) left() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.tasks))
	for t := range r.tasks {
		if t.where == "" {
			names = append(names, t.what)
		} else {
			names = append(names, t.what+" "+t.where)
		}
	}
	slices.Sort(names)
	if more := len(names) - mostNamed; more > 0 {
		names = append(names[:mostNamed], fmt.Sprintf("%d more", more))
	}
	return names
}

// requests counts the requests that next answers among what is under way.
func (r *running) requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		defer r.begin(request.Method, request.URL.Path)()
		next.ServeHTTP(w, request)
	})
}
