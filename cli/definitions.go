package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/domain"
)

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
		return "", nil, fmt.Errorf("%s: it has no name; a definition has one on its first line, as in name: order-summary", path)
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
func readNamed(what, path, name string, stdin io.Reader) (map[string]json.RawMessage, error) {
	text, err := readInput(path, stdin)
	if err != nil {
		return nil, err
	}
	if text, err = definitionJSON(path, text); err != nil {
		return nil, err
	}
	var definition map[string]json.RawMessage
	if err := json.Unmarshal(text, &definition); err != nil {
		return nil, fmt.Errorf("%s: it is no %s's definition, which is an object with fields such as source, types and ordering", path, what)
	}
	if written, found := definition["name"]; found {
		var own string
		if json.Unmarshal(written, &own) != nil || own != name {
			return nil, fmt.Errorf("%s: it is of the %s %s, not of %s", path, what, written, name)
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

// definitionOf returns those fields of the service's answer that belong to the definition.
func definitionOf(answer any, fields []string) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	all := fieldsOf(text)
	definition := make(map[string]json.RawMessage)
	for _, field := range fields {
		if value, found := all[field]; found {
			definition[field] = value
		}
	}
	return definition, nil
}

// tellPut prints what has changed in a group or a webhook, whose definition has these fields.
func tellPut(out io.Writer, name string, fields []string, created bool, before, after map[string]json.RawMessage) error {
	p := newPainter(out)
	if created {
		p.line(green, "%s: created", name)
		return p.err
	}
	var changes []client.FieldChange
	for _, field := range fields {
		if was, is := before[field], after[field]; !bytes.Equal(was, is) {
			changes = append(changes, client.FieldChange{Field: field, Before: was, After: is})
		}
	}
	if len(changes) == 0 {
		p.line("", "%s: nothing to change", name)
		return p.err
	}
	p.line(yellow, "%s: changed", name)
	p.fields(changes)
	return p.err
}
