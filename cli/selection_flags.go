package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"
)

// selectionFlags are the flags that groups and webhooks share: which events to select, and where to begin.
type selectionFlags struct {
	stream, filter, from, ordering string
	categories, types              []string
	all                            bool
}

// bind adds the flags to a command. what is a group or a webhook, from lists the keywords with which it can begin,
// and ordered is what it does in the order of streams.
func (f *selectionFlags) bind(command *cobra.Command, what, from, ordered string) {
	flags := command.Flags()
	flags.StringVar(&f.stream, "stream", "", "of one stream")
	flags.StringSliceVar(&f.categories, "category", nil, "of the streams of these categories; may be repeated")
	flags.BoolVar(&f.all, "all", false, "of the whole log: what a new "+what+" is of where nothing is said")
	flags.StringSliceVar(&f.types, "types", nil, "only events of these types, separated by commas; '' for all")
	flags.StringVar(&f.filter, "filter", "", "an expression of event: only events for which it is true; '' for none")
	flags.StringVar(&f.from, "from", "", "where a new "+what+" begins: "+from+", a position, a time or an event's id")
	flags.StringVar(&f.ordering, "ordering", "", "none (default); or stream: "+ordered)
}

// field is a field of a definition that a flag sets.
type field struct {
	flag, name string
	value      any
}

// onTopOf returns a copy of a definition with the given flags applied: those of a selection, and further ones.
func (f *selectionFlags) onTopOf(definition map[string]json.RawMessage, changed func(flag string) bool, further ...field) map[string]any {
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
