package folding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/upcasting"
)

// ExampleFile contains the examples of one projection: the documents that events should produce. The file is stored
// beside the definition, and is named like the projection with .test before its extension: order-summary.test.yaml.
type ExampleFile struct {
	Path       string
	Projection string
	Examples   []Example
	upcasters  *upcasting.Set
}

// Example is a list of events and their expected results.
type Example struct {
	Name   string
	Line   int
	events []domain.Event
	want   struct {
		documents []wantedDocument
		absent    []wantedID
		parked    *[]wantedID // nil: not checked
		fault     *wantedFault
	}
}

type wantedDocument struct {
	wantedID
	data []byte // in canonical form
}

type wantedID struct {
	id   string
	line int
}

// wantedFault is the expected fault of an event that cannot be folded. Zero fields are not checked.
type wantedFault struct {
	line    int
	event   int64  // its position
	where   string // such as "on.ItemAdded"
	message string // a part of the message
}

// exampleTime is when the events of examples were recorded, unless they say otherwise. It is fixed, so that an example
// gives the same documents on any day.
var exampleTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// ReadExamples reads the files of examples in a folder: those that end in .test.yaml, .test.yml or .test.json, ordered
// by name, except those with the given paths. It returns all errors at once, each a *FileError.
func ReadExamples(folder string, except ...string) ([]ExampleFile, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read the folder of examples: %w", err)
	}
	var read []ExampleFile
	var wrong []error
	for _, entry := range entries {
		name, kind := definitionFileName(entry.Name())
		if kind == "" || !strings.HasSuffix(strings.ToLower(name), testSuffix) {
			continue
		}
		path := filepath.Join(folder, entry.Name())
		if slices.Contains(except, path) {
			continue
		}
		text, err := readText(path)
		if err != nil {
			wrong = append(wrong, &FileError{Path: path, Err: err})
			continue
		}
		file := ExampleFile{Path: path, Projection: name[:len(name)-len(testSuffix)]}
		if err := file.parse(text); err != nil {
			wrong = append(wrong, inFile(path, err))
			continue
		}
		read = append(read, file)
	}
	return read, errors.Join(wrong...)
}

func (f *ExampleFile) parse(text []byte) error {
	root, err := parseTree(text)
	if err != nil {
		return err
	}
	var found problems
	var upcasters []domain.Upcaster
	root.object(&found, "", map[string]func(tree){
		"upcasters": func(v tree) {
			for i, item := range v.items(&found, "upcasters", "a list of upcasters") {
				upcasters = append(upcasters, readUpcaster(item, &found, fmt.Sprintf("upcasters[%d]", i)))
			}
		},
		"cases": func(v tree) {
			for i, item := range v.items(&found, "cases", "a list of cases") {
				f.Examples = append(f.Examples, readExample(item, &found, fmt.Sprintf("cases[%d]", i)))
			}
		},
	})
	if len(found) == 0 && len(f.Examples) == 0 {
		found.add("cases, "+place(root.line), "there is no case; write cases: [{name: ..., given: [...], documents: {...}}]")
	}
	if len(found) == 0 {
		if f.upcasters, err = upcasting.NewSet(upcasters); err != nil {
			found.adopt(err)
		}
	}
	return found.err()
}

// items reads a list.
func (t tree) items(found *problems, where, wanted string) []tree {
	items, ok := t.value.([]tree)
	if !ok {
		t.addWrongType(found, where, wanted)
	}
	return items
}

// positive reads a whole number of at least 1.
func (t tree) positive(found *problems, where string) int64 {
	text, _ := t.value.(number)
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 {
		t.addWrongType(found, where, "a whole number of at least 1")
	}
	return n
}

// ids reads a list of document ids.
func (t tree) ids(found *problems, where string) []wantedID {
	ids := []wantedID{}
	for i, item := range t.items(found, where, "a list of document ids") {
		ids = append(ids, wantedID{item.text(found, fmt.Sprintf("%s[%d]", where, i)), item.line})
	}
	return ids
}

func readUpcaster(t tree, found *problems, where string) (u domain.Upcaster) {
	t.object(found, where, map[string]func(tree){
		"type":       func(v tree) { u.Type = v.text(found, where+".type") },
		"version":    func(v tree) { u.Version = v.positive(found, where+".version") },
		"expression": func(v tree) { u.Expression = v.expression(found, where+".expression") },
	})
	return u
}

func readExample(t tree, found *problems, where string) Example {
	e := Example{Line: t.line}
	var given []GivenEvent
	said := false
	t.object(found, where, map[string]func(tree){
		"name": func(v tree) { e.Name = v.text(found, where+".name") },
		"given": func(v tree) {
			for i, item := range v.items(found, where+".given", "a list of events") {
				given = append(given, readGiven(item, found, fmt.Sprintf("%s.given[%d]", where, i)))
			}
		},
		"documents": func(v tree) {
			said = true
			for _, field := range v.fields(found, where+".documents") {
				data := field.value.json(found, where+".documents")
				e.want.documents = append(e.want.documents, wantedDocument{wantedID{field.name, field.line}, canonical(data)})
			}
		},
		"absent": func(v tree) {
			said = true
			e.want.absent = v.ids(found, where+".absent")
		},
		"parked": func(v tree) {
			said = true
			e.want.parked = new(v.ids(found, where+".parked"))
		},
		"fault": func(v tree) {
			said = true
			w := &wantedFault{line: v.line}
			e.want.fault = w
			v.object(found, where+".fault", map[string]func(tree){
				"event":   func(v tree) { w.event = v.positive(found, where+".fault.event") },
				"where":   func(v tree) { w.where = v.text(found, where+".fault.where") },
				"message": func(v tree) { w.message = v.text(found, where+".fault.message") },
			})
		},
	})
	at := where + ", " + place(t.line)
	switch {
	case len(*found) > 0:
		return e
	case e.Name == "":
		found.add(at, "the case has no name")
	case !said:
		found.add(at, "the case expects nothing; give documents, absent, parked or fault")
	default:
		events, err := GivenEvents(where+".given", given)
		if wrong, ok := errors.AsType[*domain.Error](err); ok {
			found.add(wrong.Where+", "+place(t.line), "%s", wrong.Message)
		}
		e.events = events
	}
	return e
}

func readGiven(t tree, found *problems, where string) GivenEvent {
	g := GivenEvent{Data: []byte("{}")}
	moment := func(v tree, name string) time.Time {
		at, err := time.Parse(time.RFC3339Nano, v.text(found, where+"."+name))
		if err != nil {
			v.addWrongType(found, where+"."+name, "a time such as 2026-03-01T10:00:00Z")
		}
		return at.UTC()
	}
	t.object(found, where, map[string]func(tree){
		"stream":     func(v tree) { g.Stream = v.text(found, where+".stream") },
		"type":       func(v tree) { g.Type = v.text(found, where+".type") },
		"data":       func(v tree) { g.Data = v.json(found, where+".data") },
		"metadata":   func(v tree) { g.Metadata = v.json(found, where+".metadata") },
		"tags":       func(v tree) { g.Tags = v.texts(found, where+".tags") },
		"occurredAt": func(v tree) { g.OccurredAt = moment(v, "occurredAt") },
		"recordedAt": func(v tree) { g.RecordedAt = moment(v, "recordedAt") },
		"id": func(v tree) {
			var err error
			if g.ID, err = domain.ParseEventID(v.text(found, where+".id")); err != nil {
				v.addWrongType(found, where+".id", "a UUID of 36 characters")
			}
		},
	})
	if g.RecordedAt.IsZero() && g.OccurredAt.IsZero() {
		g.RecordedAt = exampleTime
	}
	return g
}

// Run folds each example's events, starting without documents. It returns the failures of each example, in the file's
// order; an example that passes has none. If ctx ends, its cause is the failure of the remaining examples.
func (f *ExampleFile) Run(ctx context.Context, fold *Fold) [][]*FileError {
	failures := make([][]*FileError, len(f.Examples))
	for i := range f.Examples {
		e := &f.Examples[i]
		fail := func(line int, format string, args ...any) {
			failures[i] = append(failures[i], &FileError{f.Path, line, fmt.Errorf(format, args...)})
		}
		preview, err := fold.Try(ctx, e.events, f.upcasters)
		if err != nil {
			fail(e.Line, "%w", err)
			continue
		}
		e.compare(preview, fail)
	}
	return failures
}

func (e *Example) compare(p Preview, fail func(line int, format string, args ...any)) {
	e.compareFaults(p, fail)
	for _, w := range e.want.documents {
		i := slices.IndexFunc(p.Documents, func(d domain.Document) bool { return d.ID == w.id })
		if i < 0 {
			fail(w.line, "document %q is missing%s", w.id, existingIDs(p))
			continue
		}
		for _, difference := range Differences(p.Documents[i].Data, w.data) {
			fail(w.line, "document %q: %s", w.id, difference)
		}
	}
	for _, w := range e.want.absent {
		if i := slices.IndexFunc(p.Documents, func(d domain.Document) bool { return d.ID == w.id }); i >= 0 {
			fail(w.line, "document %q exists: %s", w.id, Cut(string(p.Documents[i].Data), MaxShown))
		}
	}
}

// compare checks that the expected fault is among the faults.
func (w *wantedFault) compare(faults []*EventError, fail func(line int, format string, args ...any)) {
	if len(faults) == 0 {
		fail(w.line, "every event can be folded, but a fault is expected")
		return
	}
	at := 0
	if w.event > 0 {
		if at = slices.IndexFunc(faults, func(f *EventError) bool { return f.Event.Position == w.event }); at < 0 {
			fail(w.line, "event %d can be folded; event %d cannot: %s: %s", w.event, faults[0].Event.Position, faults[0].Where, faults[0].Err)
			return
		}
	}
	f := faults[at]
	if w.where != "" && f.Where != w.where {
		fail(w.line, "event %d is at fault in %s, not in %s: %s", f.Event.Position, f.Where, w.where, f.Err)
	}
	if !strings.Contains(f.Err.Error(), w.message) {
		fail(w.line, "the fault of event %d says %q, which does not contain %q", f.Event.Position, f.Err, w.message)
	}
}

// compareFaults checks the events that could not be folded: each is a failure unless it is expected.
func (e *Example) compareFaults(p Preview, fail func(line int, format string, args ...any)) {
	var faults []*EventError
	var parked []string
	for _, step := range p.Steps {
		if step.Fault != nil {
			faults = append(faults, step.Fault)
			parked = append(parked, step.DocumentID)
		}
	}
	if e.want.fault != nil {
		e.want.fault.compare(faults, fail)
	}
	if e.want.parked == nil {
		if e.want.fault != nil {
			return
		}
		for _, f := range faults {
			fail(e.Line, "event %d (%s) cannot be folded: %s: %s", f.Event.Position, f.Event.Type, f.Where, f.Err)
		}
		return
	}
	for _, w := range *e.want.parked {
		if !slices.Contains(parked, w.id) {
			fail(w.line, "document %q is not parked", w.id)
		}
	}
	for i, id := range parked {
		if !slices.ContainsFunc(*e.want.parked, func(w wantedID) bool { return w.id == id }) {
			fail(e.Line, "document %q is parked: event %d (%s): %s: %s", id, faults[i].Event.Position, faults[i].Event.Type, faults[i].Where, faults[i].Err)
		}
	}
}

// existingIDs names the documents that exist instead.
func existingIDs(p Preview) string {
	ids := make([]string, 0, 5)
	for _, d := range p.Documents[:min(len(p.Documents), cap(ids))] {
		ids = append(ids, fmt.Sprintf("%q", d.ID))
	}
	if len(ids) == 0 {
		return "; there is none"
	}
	more := ""
	if n := len(p.Documents) - len(ids); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return "; there is " + cmp.Or(strings.Join(ids, ", "), "none") + more
}
