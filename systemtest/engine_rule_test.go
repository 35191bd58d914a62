package systemtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/client"
)

// rule is the model of a projection: the meaning of its definition, and a fold from scratch in code that shares
// nothing with the service.
type rule struct {
	maps    bool   // each event makes a record by itself; else events are folded
	byKey   bool   // documents are over many streams, by what the data names; else by stream, or of a map by event
	spreads bool   // each event has a second document, by what its number leaves over, that counts it thrice
	all     bool   // events of all categories; else of account alone
	parks   bool   // an event of 13 cannot be folded into its first document, and sets that aside
	mode    string // async, inline, live
}

// unlucky is the number that a rule with parks cannot fold.
const unlucky = 13

func drawRule(r *rand.Rand, modes ...string) rule {
	drawn := rule{maps: r.IntN(3) == 0, byKey: r.IntN(2) == 0, spreads: r.IntN(2) == 0, all: r.IntN(3) == 0, mode: modes[r.IntN(len(modes))]}
	drawn.parks = !drawn.maps && drawn.mode == "async" && r.IntN(2) == 0
	return drawn
}

func (u rule) String() string {
	text := "fold"
	if u.maps {
		text = "map"
	}
	for said, is := range map[string]bool{"by key": u.byKey, "that spreads": u.spreads, "of all categories": u.all, "that parks": u.parks} {
		if is {
			text += ", " + said
		}
	}
	return text + ", " + u.mode
}

// definition returns the definition of an edition. The documents and the assertion contain the edition.
func (u rule) definition(name, database string, edition int64) map[string]any {
	d := map[string]any{
		"name": name, "mode": u.mode, "onError": "stop", "database": database,
		"assert": []string{fmt.Sprintf("doc.edition == %d", edition)},
	}
	if !u.all {
		d["source"] = map[string]any{"categories": []string{"account"}}
	}
	key := "event.stream"
	switch {
	case u.byKey:
		key = "event.data.k"
	case u.maps:
		key = "event.id"
	}
	if u.spreads {
		second := "{'id': 'rest ' + string(event.data.n % 5), 'item': 3}"
		key = fmt.Sprintf("event.data.n %% 2 == 0 ? [%[1]s, %[2]s] : [%[2]s, {'id': %[1]s}]", key, second)
	}
	d["key"] = key
	if u.maps {
		d["map"] = map[string]string{
			"Added": fmt.Sprintf("{'edition': %[1]d, 'k': event.data.k, 'n': %[1]d * event.data.n * (item == null ? 1 : item)}", edition),
			"*":     "null",
		}
		return d
	}
	added := fmt.Sprintf("merge(doc, {'edition': %[1]d, 'sum': doc.?sum.orValue(0) + %[1]d * event.data.n * (item == null ? 1 : item), 'events': doc.?events.orValue(0) + 1})", edition)
	if u.parks {
		d["onError"] = "park"
		added = fmt.Sprintf("event.data.n == %d && item == null ? doc.nowhere.to.be.found : %s", unlucky, added)
	}
	d["on"] = map[string]string{"Added": added, "Closed": "null"}
	return d
}

// editionOf reads the edition from a definition that the service gives back.
func editionOf(d client.Definition) (edition int64, err error) {
	if len(d.Assert) != 1 {
		return 0, fmt.Errorf("the definition has no edition: %+v", d)
	}
	_, err = fmt.Sscanf(d.Assert[0], "doc.edition == %d", &edition)
	return edition, err
}

// made is an expected document.
type made struct {
	Document map[string]any
	Position int64
}

// fold folds a log from scratch.
func (u rule) fold(t *testing.T, log []client.Event, edition int64) map[string]made {
	t.Helper()
	all, parked := make(map[string]made), make(map[string]bool)
	for _, event := range log {
		if category, _, _ := strings.Cut(event.Stream, "-"); category != "account" && !u.all {
			continue
		}
		var data datum
		if err := json.Unmarshal(event.Data, &data); err != nil {
			t.Fatal(err)
		}
		id := event.Stream
		switch {
		case u.byKey:
			id = data.K
		case u.maps:
			id = event.Id
		}
		u.apply(all, parked, event, data, id, edition, 1)
		if u.spreads {
			u.apply(all, parked, event, data, fmt.Sprint("rest ", data.N%5), edition, 3)
		}
	}
	return all
}

// apply folds an event into one of its documents, which counts it so many times.
func (u rule) apply(all map[string]made, parked map[string]bool, event client.Event, data datum, id string, edition, times int64) {
	n := edition * data.N * times
	switch {
	case parked[id]:
	case event.Type == "Added" && u.maps:
		all[id] = made{map[string]any{"edition": float64(edition), "k": data.K, "n": float64(n)}, event.Position}
	case event.Type == "Added" && u.parks && data.N == unlucky && times == 1:
		parked[id] = true
	case event.Type == "Added":
		sum, events := 0.0, 0.0
		if before, ok := all[id]; ok {
			sum, events = before.Document["sum"].(float64), before.Document["events"].(float64)
		}
		all[id] = made{map[string]any{"edition": float64(edition), "sum": sum + float64(n), "events": events + 1}, event.Position}
	case event.Type == "Closed" && !u.maps:
		delete(all, id)
	}
}

// readMade converts documents to the form that fold returns.
func readMade(documents []client.Document) (map[string]made, error) {
	all := make(map[string]made, len(documents))
	for _, document := range documents {
		var fields map[string]any
		if err := json.Unmarshal(document.Document, &fields); err != nil {
			return nil, fmt.Errorf("%s: %w", document.Id, err)
		}
		if _, there := all[document.Id]; there {
			return nil, fmt.Errorf("%s is listed twice", document.Id)
		}
		all[document.Id] = made{fields, document.Position}
	}
	return all, nil
}

// compareMade reports documents that differ from a fold from scratch.
func compareMade(t *testing.T, what string, got, want map[string]made) {
	t.Helper()
	ids := maps.Clone(got)
	maps.Copy(ids, want)
	wrong := 0
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if reflect.DeepEqual(got[id], want[id]) {
			continue
		}
		if wrong++; wrong <= 5 {
			t.Errorf("%s: %s is %+v; from scratch it is %+v", what, id, got[id], want[id])
		}
	}
	if wrong > 5 {
		t.Errorf("%s: and %d more", what, wrong-5)
	}
}
