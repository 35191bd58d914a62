package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/domain"
)

func (w *retentionWorkload) put(category string, policy map[string]any) {
	w.t.Helper()
	a, err := w.user.call(w.t.Context(), 0, "PUT", "/v1/retention/"+category, policy)
	if err != nil || a.status/100 != 2 {
		w.t.Fatalf("put a policy for %s: %s, %v", category, a, err)
	}
}

func (w *retentionWorkload) policy(category string) (p client.RetentionPolicy) {
	w.t.Helper()
	w.user.must(w.t, 200, &p, "GET", "/v1/retention/"+category, nil)
	return p
}

// until waits for something that can only be looked at. If it waits in vain, it logs what keeps the policies from
// removing more.
func (w *retentionWorkload) until(what string, holds func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	for !holds() {
		if rest(ctx, 50*time.Millisecond); ctx.Err() == nil {
			continue
		}
		for _, category := range []string{countedCategory, compactCategory} {
			a, err := w.user.call(w.t.Context(), 0, "GET", "/v1/retention/"+category, nil)
			w.t.Logf("the policy of %s: %s, %v", category, a, err)
		}
		w.t.Fatalf("waited in vain: %s", what)
	}
}

// left returns the remaining events of the log, by category. Their order, versions and positions must be those of the
// appended events.
func (w *retentionWorkload) left() map[string][]retained {
	w.t.Helper()
	left := map[string][]retained{}
	position := int64(0)
	for path := "/v1/streams/$all?count=1000"; path != ""; {
		a, err := w.user.call(w.t.Context(), 0, "GET", path, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		var page client.EventList
		if err := a.decode(200, &page); err != nil {
			w.t.Fatal(err)
		}
		w.mu.Lock()
		for _, e := range page.Events {
			if e.Position <= position {
				w.t.Fatalf("behind position %d comes %d", position, e.Position)
			}
			position = e.Position
			if err := w.mustBe(e); err != nil {
				w.t.Fatal(err)
			}
			place := retained{e.Stream, e.Version}
			if err := w.at(e.Position, place); err != nil {
				w.t.Fatal(err)
			}
			category := domain.Category(e.Stream)
			left[category] = append(left[category], place)
		}
		w.mu.Unlock()
		path = a.next()
	}
	return left
}

// shouldBeLeft returns the events that the policies keep.
func (w *retentionWorkload) shouldBeLeft() map[string][]retained {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string][]retained{}
	newest := map[string]int64{}
	for e := range w.events {
		newest[e.stream] = max(newest[e.stream], e.version)
	}
	for _, position := range slices.Sorted(maps.Keys(w.positions)) {
		e := w.positions[position]
		category := domain.Category(e.stream)
		if category == compactCategory && e.version < newest[e.stream] {
			continue
		}
		all[category] = append(all[category], e)
	}
	counted := all[countedCategory]
	all[countedCategory] = counted[max(0, len(counted)-countKept):]
	return all
}

// difference describes how the remaining events differ from those that the policies keep; it is empty if they do not.
func (w *retentionWorkload) difference() (text string) {
	w.t.Helper()
	left, want := w.left(), w.shouldBeLeft()
	for _, category := range []string{countedCategory, compactCategory, keptCategory} {
		if !slices.Equal(left[category], want[category]) {
			text += fmt.Sprintf("of %s are left\n%v\nand should be\n%v\n", category, left[category], want[category])
		}
	}
	return text
}

// documents compares a projection's documents with a fold of the given events: all that were appended, or those that
// are left.
func (w *retentionWorkload) documents(name string, edition int64, of func(retained) bool) {
	w.t.Helper()
	documents, err := w.user.documents(w.t.Context(), name, 100, w.head)
	if err != nil {
		w.t.Fatal(err)
	}
	type folded struct{ Edition, N, Sum, Version int64 }
	want, got := map[string]folded{}, map[string]folded{}
	for e, number := range w.events {
		if of(e) {
			f := want[e.stream]
			want[e.stream] = folded{edition, f.N + 1, f.Sum + number, max(f.Version, e.version)}
		}
	}
	for _, d := range documents {
		var f folded
		if err := json.Unmarshal(d.Document, &f); err != nil {
			w.t.Fatal(err)
		}
		got[d.Id] = f
	}
	if !maps.Equal(got, want) {
		w.t.Errorf("the documents of %s are\n%v, a fold gives\n%v", name, got, want)
	}
}

func (w *retentionWorkload) loss(name string) []client.Loss {
	w.t.Helper()
	var state client.ProjectionState
	w.user.must(w.t, 200, &state, "GET", "/v1/projections/"+name+"/state", nil)
	return state.Loss
}

func (w *retentionWorkload) rebuild(body map[string]any) (r client.Rebuild) {
	w.t.Helper()
	w.user.must(w.t, 202, &r, "POST", "/v1/projections/rebuilt/rebuilds", body)
	return r
}

func (w *retentionWorkload) swapped(id string) (r client.Rebuild) {
	w.t.Helper()
	w.until("the rebuild's end", func() bool {
		r = client.Rebuild{}
		w.user.must(w.t, 200, &r, "GET", "/v1/projections/rebuilt/rebuilds/"+id, nil)
		return r.EndedAt != nil
	})
	if r.State != "swapped" {
		w.t.Fatalf("the rebuild is %+v", r)
	}
	return r
}
