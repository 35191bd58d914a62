package systemtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/client"
)

// The editions of the tests' definitions differ in a factor, so each document shows which edition made it. The code
// below computes the expected documents a second time, and shares nothing with the service.

// sumsDefinition adds up by a key in the events' data, over many streams of one category. Documents are created and
// deleted.
func sumsDefinition(name string, edition int64) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{
		"name": %q, "source": {"categories": ["account"]}, "key": "event.data.k",
		"on": {
			"Added": "merge(doc, {'edition': %[2]d, 'sum': doc.?sum.orValue(0) + %[2]d * event.data.n, 'events': doc.?events.orValue(0) + 1})",
			"Closed": "null"
		}
	}`, name, edition))
}

// sums are a document's fields, and the position of the last event applied to it.
type sums struct {
	Edition  int64 `json:"edition"`
	Sum      int64 `json:"sum"`
	Events   int64 `json:"events"`
	Position int64 `json:"-"`
}

// datum is an event's data.
type datum struct {
	K string `json:"k"`
	N int64  `json:"n"`
}

// foldSums folds a log from scratch.
func foldSums(t *testing.T, log []client.Event, edition int64) map[string]sums {
	t.Helper()
	all := make(map[string]sums)
	for _, event := range log {
		if category, _, _ := strings.Cut(event.Stream, "-"); category != "account" {
			continue
		}
		var data datum
		if err := json.Unmarshal(event.Data, &data); err != nil {
			t.Fatal(err)
		}
		switch event.Type {
		case "Added":
			old := all[data.K]
			all[data.K] = sums{edition, old.Sum + edition*data.N, old.Events + 1, event.Position}
		case "Closed":
			delete(all, data.K)
		}
	}
	return all
}

// readSums converts documents to the form that foldSums returns.
func readSums(documents []client.Document) (map[string]sums, error) {
	all := make(map[string]sums)
	for _, document := range documents {
		var s sums
		if err := json.Unmarshal(document.Document, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", document.Id, err)
		}
		if _, there := all[document.Id]; there {
			return nil, fmt.Errorf("%s is listed twice", document.Id)
		}
		s.Position = document.Position
		all[document.Id] = s
	}
	return all, nil
}

// compareSums reports where documents are not as a fold from scratch makes them.
func compareSums(t *testing.T, what string, got, want map[string]sums) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	ids := make(map[string]bool)
	for id := range got {
		ids[id] = true
	}
	for id := range want {
		ids[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if got[id] != want[id] {
			t.Errorf("%s: %s is %+v; from scratch it is %+v", what, id, got[id], want[id])
		}
	}
}
