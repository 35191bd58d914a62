package service

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// tasks is the set of a process's tasks under way. The zero value is ready to use.
type tasks struct {
	mu   sync.Mutex
	left map[*task]struct{}
	none chan struct{} // closed when no task is left; nil: nothing waits
}

// task is one piece of work under way, described for people.
type task struct{ what, where string }

// begin adds a task. The caller must call end.
func (t *tasks) begin(what, where string) (end func()) {
	one := &task{what, where}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left == nil {
		t.left = make(map[*task]struct{})
	}
	t.left[one] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.left, one)
		if len(t.left) == 0 && t.none != nil {
			close(t.none)
			t.none = nil
		}
	}
}

// spawn runs a task in its own goroutine.
func (t *tasks) spawn(what string, run func()) {
	end := t.begin(what, "")
	go func() {
		defer end()
		run()
	}()
}

// wait returns when no task is left, or when ctx ends.
func (t *tasks) wait(ctx context.Context) {
	t.mu.Lock()
	if len(t.left) == 0 {
		t.mu.Unlock()
		return
	}
	if t.none == nil {
		t.none = make(chan struct{})
	}
	none := t.none
	t.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
	}
}

// mostNamed is the largest number of tasks that are named.
const mostNamed = 10

// names returns the names of the tasks still under way, sorted.
func (t *tasks) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, 0, len(t.left))
	for one := range t.left {
		if one.where == "" {
			names = append(names, one.what)
		} else {
			names = append(names, one.what+" "+one.where)
		}
	}
	slices.Sort(names)
	if more := len(names) - mostNamed; more > 0 {
		names = append(names[:mostNamed], fmt.Sprintf("%d more", more))
	}
	return names
}

// requests counts the requests that next answers as tasks under way.
func (t *tasks) requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		path := request.URL.Path
		if strings.HasPrefix(path, "/v1/subjects/") {
			path = "/v1/subjects/***" // no log has people's ids
		}
		defer t.begin(request.Method, path)()
		next.ServeHTTP(w, request)
	})
}
