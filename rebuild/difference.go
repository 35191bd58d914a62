package rebuild

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// Limits of examples: a few of each kind, each short enough to read.
const (
	maxExamplesPerKind = 5
	maxFields          = 20
	maxExampleBytes    = 4 << 10
)

// tally counts the findings among one tenant's documents.
type tally struct {
	domain.Difference
	documents, live int64
	noExamples      bool
}

func (t *tally) addNew(tenant domain.TenantID, built *domain.Document) {
	t.New++
	t.addExample(domain.DifferenceExample{Tenant: tenant, ID: built.ID, Kind: domain.DifferenceNew, Built: exampleText(built.Data)})
}

func (t *tally) addGone(tenant domain.TenantID, live *domain.Document) {
	t.Gone++
	t.addExample(domain.DifferenceExample{Tenant: tenant, ID: live.ID, Kind: domain.DifferenceGone, Live: exampleText(live.Data)})
}

// addBoth compares a document that exists in both builds.
func (t *tally) addBoth(tenant domain.TenantID, live, built *domain.Document) {
	if bytes.Equal(live.Data, built.Data) {
		t.Same++
		return
	}
	differing := differences(live.Data, built.Data)
	if len(differing) == 0 {
		t.Same++
		return
	}
	t.Changed++
	example := domain.DifferenceExample{Tenant: tenant, ID: live.ID, Kind: domain.DifferenceChanged}
	before, after := make(map[string]json.RawMessage), make(map[string]json.RawMessage)
	for _, d := range differing {
		example.Fields = append(example.Fields, d.path)
		if d.live != nil {
			before[d.path] = d.live
		}
		if d.built != nil {
			after[d.path] = d.built
		}
	}
	example.Live, example.Built = exampleFields(before), exampleFields(after)
	t.addExample(example)
}

func (t *tally) addExample(example domain.DifferenceExample) {
	if t.noExamples {
		return
	}
	of := 0
	for i := range t.Examples {
		if t.Examples[i].Kind == example.Kind {
			of++
		}
	}
	if of < maxExamplesPerKind {
		t.Examples = append(t.Examples, example)
	}
}

// exampleText returns a document in the form of an example; nil if it is too long.
func exampleText(data json.RawMessage) json.RawMessage {
	if len(data) > maxExampleBytes {
		return nil
	}
	return bytes.Clone(data)
}

func exampleFields(fields map[string]json.RawMessage) json.RawMessage {
	if len(fields) == 0 {
		return nil
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil // not JSON, so it cannot be shown
	}
	return exampleText(text)
}

// report collects the findings of all tenants. It is safe for concurrent use.
type report struct {
	mu sync.Mutex
	tally
	abandoned bool // the live build cannot be read
}

func (r *report) add(t tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.documents += t.documents
	r.live += t.live
	r.New += t.New
	r.Gone += t.Gone
	r.Changed += t.Changed
	r.Same += t.Same
	for _, example := range t.Examples {
		r.addExample(example)
	}
}

// abandon gives up the comparison; it returns true for the first caller.
func (r *report) abandon() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.abandoned
	r.abandoned = true
	return first
}

// fieldDifference is a place in which two documents differ.
type fieldDifference struct {
	path        string          // such as "lines[2].price"
	live, built json.RawMessage // nil: missing
}

// differences returns the places in which two JSON values differ, in order, at most maxFields of them. It ignores the
// order of members, and compares numbers by value.
func differences(live, built json.RawMessage) []fieldDifference {
	var before, after any
	if domain.DecodeJSON(live, &before) != nil || domain.DecodeJSON(built, &after) != nil {
		return []fieldDifference{{path: "", live: live, built: built}}
	}
	var found []fieldDifference
	findDifferences("", before, after, &found)
	return found
}

func findDifferences(path string, live, built any, found *[]fieldDifference) {
	if len(*found) == maxFields {
		return
	}
	switch before := live.(type) {
	case map[string]any:
		after, ok := built.(map[string]any)
		if !ok {
			break
		}
		names := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			was, there := before[name]
			is, here := after[name]
			switch at := member(path, name); {
			case there && here:
				findDifferences(at, was, is, found)
			case there:
				addDifference(at, encode(was), nil, found)
			default:
				addDifference(at, nil, encode(is), found)
			}
		}
		return
	case []any:
		after, ok := built.([]any)
		if !ok {
			break
		}
		for i := range max(len(before), len(after)) {
			switch at := fmt.Sprintf("%s[%d]", path, i); {
			case i < len(before) && i < len(after):
				findDifferences(at, before[i], after[i], found)
			case i < len(before):
				addDifference(at, encode(before[i]), nil, found)
			default:
				addDifference(at, nil, encode(after[i]), found)
			}
		}
		return
	case json.Number:
		if after, ok := built.(json.Number); ok && domain.ParseNumber(before.String()) == domain.ParseNumber(after.String()) {
			return
		}
	default: // a text, true, false, or null
		switch built.(type) {
		case map[string]any, []any:
		default:
			if live == built {
				return
			}
		}
	}
	addDifference(path, encode(live), encode(built), found)
}

func addDifference(path string, live, built json.RawMessage, found *[]fieldDifference) {
	if len(*found) < maxFields {
		*found = append(*found, fieldDifference{path, live, built})
	}
}

// member returns the path of an object's member. It quotes a name that could be misread.
func member(path, name string) string {
	for i, c := range name {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return path + "[" + strconv.Quote(name) + "]"
		}
	}
	switch {
	case name == "":
		return path + `[""]`
	case path == "":
		return name
	}
	return path + "." + name
}

func encode(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		return nil // impossible: what was read from JSON can be written as JSON
	}
	return text
}
