package systemtest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// While events are appended, projections are rebuilt repeatedly, with new definitions and with the current ones. In one
// case each is rebuilt once while the appends are as fast as possible, and must catch up. Readers of single documents,
// lists and pages must see no gap, no partial result and no step back. In the end the documents must equal those of a
// fold from scratch.
func TestRebuildUnderLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		keep, rest time.Duration
		changed    []bool
	}{{"old tables stay", time.Hour, 0, []bool{true}}, {"old tables go at once", 0, loadedRest, []bool{true, false, true}}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			configured := configuration(pgtest.Database(t))
			configured.RebuildKeep = c.keep
			rebuildUnderLoad(t, configured, c.rest, c.changed)
		})
	}
}

// The same, while each rebuild moves the documents to another database and the next one back.
func TestMoveUnderLoad(t *testing.T) {
	t.Parallel()
	for name, place := range otherDatabases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == ferretDB {
				t.Skip("NOT RUN: FerretDB 1.24 hangs forever while collections are made and dropped beside many writes")
			}
			c := configuration(pgtest.Database(t))
			c.RebuildKeep = 0
			c.Databases = map[string]config.DocumentsDatabase{"elsewhere": place(t)}
			rebuildUnderLoad(t, c, loadedRest, []bool{true, false, true}, "default", "elsewhere")
		})
	}
}

// loadedRest is how long each of 16 appenders and 16 readers rests after an answer. Rebuilds pause for appends, so that
// without a rest they last several times as long, and the clients take a processor meanwhile.
const loadedRest = 100 * time.Millisecond

// rebuildUnderLoad rebuilds each projection once per element of changed: true for a new definition. The clients rest
// between appends.
func rebuildUnderLoad(t *testing.T, c config.Config, rest time.Duration, changed []bool, databases ...string) {
	w := newWorkload(t, inside(t, c))
	w.rest = rest
	w.calm.Store(true)
	w.load(8, 1)
	var rebuilds []<-chan struct{}
	for _, target := range w.targets {
		target.databases = databases
		for _, p := range target.tenants {
			w.run(func() error { return p.page(t.Context(), w, target.name) })
			w.run(func() error { return p.get(t.Context(), w, target.name) })
		}
		done := make(chan struct{})
		rebuilds = append(rebuilds, done)
		w.run(func() error {
			defer close(done)
			for _, changed := range changed {
				if err := target.rebuild(t.Context(), changed, func() {}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, done := range rebuilds {
		<-done
	}
	w.finish()
	for _, target := range w.targets {
		if target.rebuilds != len(changed) && !t.Failed() {
			t.Errorf("%s was rebuilt %d times", target.name, target.rebuilds)
		}
	}
}

// page reads documents page by page repeatedly. All pages of one pass are of one build. If that build was replaced,
// the answer says so, and the pass starts again.
func (p *tenantLoad) page(ctx context.Context, w *workload, name string) error {
	var edition int64
	for whole := 0; w.quit.Err() == nil || whole == 0; w.rests() {
		path, ids, now := "/v1/projections/"+name+"/documents?pageSize=3", make(map[string]bool), int64(0)
		for path != "" {
			a, err := p.once(ctx, 0, "GET", path, nil)
			if err != nil {
				return err
			}
			if a.status == http.StatusGone && len(ids) > 0 {
				break
			}
			var page client.DocumentList
			if err := a.decode(http.StatusOK, &page); err != nil {
				return fmt.Errorf("%s, %s: %w", p.name, path, err)
			}
			documents, err := readSums(page.Documents)
			if err != nil {
				return err
			}
			for id, s := range documents {
				if now != 0 && s.Edition != now || s.Edition < edition || ids[id] {
					return fmt.Errorf("%s, %s: in pages of edition %d, after %d, there is %s of edition %d", p.name, name, now, edition, id, s.Edition)
				}
				now, ids[id] = s.Edition, true
			}
			path = a.next()
		}
		if path != "" {
			continue
		}
		for k := range permanentDocuments {
			if !ids[fmt.Sprint("key-", k)] {
				return fmt.Errorf("%s, %s: the pages lack key-%d", p.name, name, k)
			}
		}
		edition = now
		whole++
	}
	return nil
}

// get reads single documents repeatedly. Some reads must include an append that it made before.
func (p *tenantLoad) get(ctx context.Context, w *workload, name string) error {
	seen := make([]sums, permanentDocuments)
	for n := 0; w.quit.Err() == nil; n++ {
		w.rests()
		k := n % permanentDocuments
		path := fmt.Sprintf("/v1/projections/%s/documents/key-%d", name, k)
		position := int64(0)
		if n%50 == 0 {
			o, err := p.append(ctx, 0, client.AppendRequest{Streams: []client.StreamAppend{{
				Stream: "account-reader", Events: []client.NewEvent{newEvent(eventID("reader", name, n), "Added", fmt.Sprint("key-", k), 1)}}}})
			if err != nil {
				return err
			}
			position = o.answer.Position
			path += fmt.Sprintf("?timeout=30&minPosition=%d", position)
		}
		a, err := p.once(ctx, 0, "GET", path, nil)
		if err != nil {
			return err
		}
		var document client.Document
		if err := a.decode(http.StatusOK, &document); err != nil {
			return fmt.Errorf("%s, %s: %w", p.name, path, err)
		}
		all, err := readSums([]client.Document{document})
		if err != nil {
			return err
		}
		now, before := all[fmt.Sprint("key-", k)], seen[k]
		if now.Edition < before.Edition || now.Events < before.Events || now.Position < before.Position || now.Position < position {
			return fmt.Errorf("%s, %s: %+v came after %+v", p.name, path, now, before)
		}
		seen[k] = now
	}
	return nil
}
