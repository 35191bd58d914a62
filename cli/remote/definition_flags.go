package remote

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

// selectionFlags are the flags of put that groups and webhooks share: the definition's file, which events to select,
// and where to begin.
type selectionFlags struct {
	file, stream, filter, from, ordering string
	categories, types                    []string
	all                                  bool
}

// bind adds the flags to a command. kind is group or webhook, from lists the keywords with which it can begin, and
// ordered is what it does in the order of streams.
func (f *selectionFlags) bind(command *cobra.Command, kind, from, ordered string) {
	flags := command.Flags()
	fileFlag(command, &f.file, "the definition as YAML or JSON")
	flags.StringVar(&f.stream, "stream", "", "events of this stream")
	flags.StringSliceVar(&f.categories, "category", nil, "events of these categories; may be repeated")
	flags.BoolVar(&f.all, "all", false, "events of the whole log, the default for a new "+kind)
	flags.StringSliceVar(&f.types, "types", nil, "only events of these types, separated by commas; '' for all")
	flags.StringVar(&f.filter, "filter", "", "an expression of event: only events for which it is true; '' for none")
	flags.StringVar(&f.from, "from", "", "where a new "+kind+" begins: "+from+", a position, a time or an event's id")
	flags.StringVar(&f.ordering, "ordering", "", "none (default); or stream: "+ordered)
}

// field is a field of a definition that a flag sets.
type field struct {
	flag, name string
	value      any
}

// change returns a copy of a definition with the given flags applied: those of a selection, and further ones.
func (f *selectionFlags) change(definition map[string]json.RawMessage, changed func(flag string) bool, further ...field) map[string]any {
	body := map[string]any{}
	for name, value := range definition {
		body[name] = value
	}
	switch {
	case changed("stream"):
		body["source"] = map[string]any{"stream": f.stream}
	case changed("category"):
		body["source"] = map[string]any{"categories": f.categories}
	case changed("all"):
		body["source"] = map[string]any{}
	}
	own := []field{{"types", "types", f.types}, {"filter", "filter", f.filter}, {"from", "from", f.from}, {"ordering", "ordering", f.ordering}}
	for _, field := range append(own, further...) {
		if changed(field.flag) {
			body[field.name] = field.value
		}
	}
	if changed("types") && len(f.types) == 0 {
		delete(body, "types") // means all: the service refuses an empty list, since a program might send one by mistake
	}
	return body
}

// changeObject sets fields within a definition's object from the given flags. example shows the object in the error
// for a definition that has something else there.
func changeObject(body map[string]any, name, example string, changed func(flag string) bool, fields ...field) error {
	object := map[string]any{}
	if before, found := body[name].(json.RawMessage); found {
		if err := json.Unmarshal(before, &object); err != nil {
			object = nil
		}
	}
	for _, field := range fields {
		if !changed(field.flag) {
			continue
		}
		if object == nil {
			return fmt.Errorf("%s: expected an object such as %s", name, example)
		}
		object[field.name] = field.value
		body[name] = object
	}
	return nil
}
