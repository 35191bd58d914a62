package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
)

// operation is an append with a final answer, and everything known about it.
type operation struct {
	request    client.AppendRequest
	answer     client.Appended
	refused    bool          // by its expected versions
	begin, end time.Duration // from before the first attempt until the answer, since the history's beginning
}

// history is what a tenant's clients did.
type history struct {
	epoch time.Time

	mu         sync.Mutex
	operations []operation
	changed    chan struct{} // closed with the next operation
}

func newHistory() *history {
	return &history{epoch: time.Now(), changed: make(chan struct{})}
}

func (h *history) add(o operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, o)
	close(h.changed)
	h.changed = make(chan struct{})
}

// await waits for so many more operations.
func (h *history) await(ctx context.Context, more int) error {
	h.mu.Lock()
	want := len(h.operations) + more
	for len(h.operations) < want {
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d operations more: %w", more, context.Cause(ctx))
		case <-time.After(patience):
			return fmt.Errorf("appends are no longer answered")
		}
		h.mu.Lock()
	}
	h.mu.Unlock()
	return nil
}

// check compares a tenant's log with its history. These properties must hold, whatever was killed meanwhile:
//
//   - Positions are 1, 2, 3 ..., and so are each stream's versions. Recorded times never decrease.
//   - Each acknowledged event exists once, at the position in the answer. No refused or unknown event exists.
//   - An expected version was the stream's version when the request's events were appended.
//   - The log's order is the order in which non-overlapping requests were answered. Together with the previous point
//     this is linearisability: positions give the order, so the check need not search for it.
func (h *history) check(t *testing.T, log []client.Event) {
	t.Helper()
	versions := make(map[string]int64)
	byID := make(map[string]client.Event, len(log))
	for i, event := range log {
		versions[event.Stream]++
		if event.Position != int64(i+1) || event.Version != versions[event.Stream] {
			t.Fatalf("the log's event %d has position %d and is version %d of %s; it must be version %d", i+1, event.Position, event.Version, event.Stream, versions[event.Stream])
		}
		if i > 0 && event.RecordedAt.Before(log[i-1].RecordedAt) {
			t.Errorf("position %d was recorded before the one below it", event.Position)
		}
		if _, there := byID[event.Id]; there {
			t.Fatalf("event %s is there twice", event.Id)
		}
		byID[event.Id] = event
	}
	h.mu.Lock()
	operations := slices.Clone(h.operations)
	h.mu.Unlock()
	owners := make([]*operation, len(log))
	for i := range operations {
		o := &operations[i]
		if o.refused {
			for _, stream := range o.request.Streams {
				for _, event := range stream.Events {
					if _, there := byID[*event.Id]; there {
						t.Errorf("event %s is there, and its request was refused", *event.Id)
					}
				}
			}
			continue
		}
		o.check(t, byID, owners)
	}
	unknown := 0
	for _, owner := range owners {
		if owner == nil {
			unknown++
		}
	}
	if unknown > 0 {
		t.Errorf("%d events are in the log that no answered request had", unknown)
		return
	}
	latest := time.Duration(0) // when the last of the requests below began
	for i, owner := range owners {
		if owner.end < latest {
			t.Errorf("position %d was answered before a request began that has a lower one", i+1)
			return
		}
		latest = max(latest, owner.begin)
	}
}

// check compares one acknowledged request with the log, and records which positions it owns. A repeated request
// leaves them to the request that appended them.
func (o *operation) check(t *testing.T, byID map[string]client.Event, owners []*operation) {
	t.Helper()
	if len(o.answer.Streams) != len(o.request.Streams) {
		t.Errorf("%d streams are answered of %d", len(o.answer.Streams), len(o.request.Streams))
		return
	}
	for i, stream := range o.request.Streams {
		answered := o.answer.Streams[i]
		if answered.Stream != stream.Stream || len(answered.Events) != len(stream.Events) {
			t.Errorf("%s with %d events is answered as %s with %d", stream.Stream, len(stream.Events), answered.Stream, len(answered.Events))
			return
		}
		for j, sent := range stream.Events {
			kept, there := byID[*sent.Id]
			switch place := answered.Events[j]; {
			case !there:
				t.Errorf("event %s of %s was acknowledged at position %d, and is lost", *sent.Id, stream.Stream, place.Position)
			case kept.Stream != stream.Stream || kept.Type != sent.Type || !sameJSON(kept.Data, sent.Data):
				t.Errorf("event %s was sent as %+v and is kept as %+v", *sent.Id, sent, kept)
			case place.Id != *sent.Id || place.Position != kept.Position || place.Version != kept.Version:
				t.Errorf("event %s was answered as %+v, and is at position %d as version %d", *sent.Id, place, kept.Position, kept.Version)
			case stream.ExpectedVersion != nil && stream.ExpectedVersion != "any" && kept.Version != expected(stream.ExpectedVersion)+int64(j)+1:
				t.Errorf("event %s is version %d, and its request expected the stream at %v", *sent.Id, kept.Version, stream.ExpectedVersion)
			}
			if there && (owners[kept.Position-1] == nil || owners[kept.Position-1].begin > o.begin) {
				owners[kept.Position-1] = o
			}
		}
	}
}

func expected(expectation client.Expectation) int64 {
	if version, ok := expectation.(int64); ok {
		return version
	}
	return 0 // none
}

func sameJSON(a, b json.RawMessage) bool {
	canonical := func(text json.RawMessage) []byte {
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return nil
		}
		again, err := json.Marshal(value)
		if err != nil {
			return nil
		}
		return again
	}
	x, y := canonical(a), canonical(b)
	return x != nil && bytes.Equal(x, y)
}
