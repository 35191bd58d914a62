package service

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// running is the set of a process's tasks under way. The zero value is ready to use.
type running struct {
	mu    sync.Mutex
	tasks map[*task]struct{}
	none  chan struct{} // closed when no task is left; nil: nothing waits
}

// task is one piece of work under way, described for people.
type task struct{ what, where string }

// begin adds a task. The caller must call end.
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

// spawn runs a task in its own goroutine.
func (r *running) spawn(what string, run func()) {
	end := r.begin(what, "")
	go func() {
		defer end()
		run()
	}()
}

// wait returns when no task is left, or when ctx ends.
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

// mostNamed is the largest number of tasks that are named.
const mostNamed = 10

// left returns the names of the tasks still under way, sorted.
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

// requests counts the requests that next answers as tasks under way.
func (r *running) requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		defer r.begin(request.Method, request.URL.Path)()
		next.ServeHTTP(w, request)
	})
}
