package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/domain"
)

// definitionPut is a put of a group or a webhook.
type definitionPut struct {
	kind   string   // group or webhook
	fields []string // of the definition, in the order in which changes are printed
	file   string   // with the whole definition; empty: change the stored one
	get    func(ctx context.Context, name string, editors ...client.RequestEditorFn) (*http.Response, error)
	put    func(ctx context.Context, name, contentType string, body io.Reader, editors ...client.RequestEditorFn) (*http.Response, error)
	// change applies the given flags.
	change func(definition map[string]json.RawMessage, changed func(flag string) bool) (map[string]any, error)
}

// putDefinition creates or changes what the command's first argument names, and prints what has changed.
func putDefinition[T any](ctx context.Context, c *call, p definitionPut) (answer T, err error) {
	name := c.args[0]
	stored, err := readIfFound[T](p.get(ctx, name))
	if err != nil {
		return answer, err
	}
	before, err := definitionOf(stored, p.fields)
	if err != nil {
		return answer, err
	}
	definition := before
	if p.file != "" {
		if definition, err = readNamed(p.kind, p.file, name, c.in); err != nil {
			return answer, err
		}
	}
	wanted, err := p.change(definition, c.changed)
	if err != nil {
		return answer, err
	}
	body, err := json.Marshal(wanted)
	if err != nil {
		return answer, err
	}
	response, err := p.put(ctx, name, "application/json", bytes.NewReader(body))
	if answer, err = read[T](response, err); err != nil {
		return answer, err
	}
	if response.StatusCode == http.StatusCreated {
		c.out.line(green, "%s: created", name)
		return answer, nil
	}
	after, err := definitionOf(answer, p.fields)
	if err != nil {
		return answer, err
	}
	printChanges(c.out, name, p.fields, before, after)
	return answer, nil
}

// definitionOf returns the fields of the service's answer that belong to the definition.
func definitionOf(answer any, fields []string) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	all, definition := fieldsOf(text), map[string]json.RawMessage{}
	for _, field := range fields {
		if value, found := all[field]; found {
			definition[field] = value
		}
	}
	return definition, nil
}

func printChanges(out *output, name string, fields []string, before, after map[string]json.RawMessage) {
	var changes []client.FieldChange
	for _, field := range fields {
		if was, is := before[field], after[field]; !bytes.Equal(was, is) {
			changes = append(changes, client.FieldChange{Field: field, Before: was, After: is})
		}
	}
	if len(changes) == 0 {
		out.line("", "%s: nothing to change", name)
		return
	}
	out.line(yellow, "%s: changed", name)
	out.changes(changes)
}

// readDefinition returns a definition as JSON without checking it, since the service does that.
func readDefinition(path string, stdin io.Reader) (name string, definition []byte, err error) {
	text, err := readInput(path, stdin)
	if err != nil {
		return "", nil, err
	}
	if definition, err = definitionJSON(path, text); err != nil {
		return "", nil, err
	}
	var named struct{ Name string }
	if err := json.Unmarshal(definition, &named); err != nil || named.Name == "" {
		return "", nil, fmt.Errorf("%s: the definition has no name; add one, such as name: order-summary", path)
	}
	return named.Name, definition, nil
}

// definitionJSON converts a definition to JSON. If the first character is "{" or "[", the definition is JSON already;
// otherwise it is YAML.
func definitionJSON(path string, text []byte) ([]byte, error) {
	if start := bytes.TrimLeft(text, " \t\r\n"); len(start) > 0 && (start[0] == '{' || start[0] == '[') {
		if wrong, ok := errors.AsType[*domain.JSONError](domain.CheckJSON(text)); ok {
			return nil, fmt.Errorf("%s: line %d: not JSON: %w", path, wrong.Line(text), wrong)
		}
		return text, nil
	}
	definition, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", path, yaml.FormatError(err, false, true))
	}
	return definition, nil
}

// readNamed reads the definition of a group or a webhook without checking it, since the service does that. The
// definition may contain the name.
func readNamed(kind, path, name string, stdin io.Reader) (map[string]json.RawMessage, error) {
	text, err := readInput(path, stdin)
	if err != nil {
		return nil, err
	}
	if text, err = definitionJSON(path, text); err != nil {
		return nil, err
	}
	var definition map[string]json.RawMessage
	if err := json.Unmarshal(text, &definition); err != nil {
		return nil, fmt.Errorf("%s: expected a %s's definition: an object with fields such as source, types and ordering", path, kind)
	}
	if written, found := definition["name"]; found {
		var own string
		if json.Unmarshal(written, &own) != nil || own != name {
			return nil, fmt.Errorf("%s: it defines the %s %s, not %s", path, kind, written, name)
		}
		delete(definition, "name")
	}
	return definition, nil
}

// readInput reads a file, or standard input if path is "-".
func readInput(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

// fieldsOf returns the fields of a JSON object. It is empty for anything else.
func fieldsOf(text json.RawMessage) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	_ = json.Unmarshal(text, &fields)
	return fields
}

// selectionFlags are the flags of put that groups and webhooks share: the definition's file, which events to select,
// and where to begin.
type selectionFlags struct {
	file, stream, query, filter, from, ordering string
	categories, types                           []string
	all                                         bool
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
	queryFlag(command, &f.query, "; '' for none")
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
	own := []field{{"types", "types", f.types}, {"query", "query", json.RawMessage(f.query)}, {"filter", "filter", f.filter}, {"from", "from", f.from}, {"ordering", "ordering", f.ordering}}
	for _, field := range append(own, further...) {
		if changed(field.flag) {
			body[field.name] = field.value
		}
	}
	if changed("types") && len(f.types) == 0 {
		delete(body, "types") // means all: the service refuses an empty list, since a program might send one by mistake
	}
	if changed("query") && f.query == "" {
		delete(body, "query")
	}
	return body
}

// queryFlag adds the flag for a query of events.
func queryFlag(command *cobra.Command, query *string, none string) {
	command.Flags().Func("query", "only events that this query matches, as `JSON`: {\"items\": [{\"tags\": [\"course:c1\"]}]}"+none, func(text string) error {
		if text != "" && !json.Valid([]byte(text)) {
			return errors.New(`it is not JSON; write one such as {"items": [{"tags": ["course:c1"]}]}`)
		}
		*query = text
		return nil
	})
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
