package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
)

// docsTree is the contract as a tree that keeps the order of its parts. The validator's form does not keep it, and
// people read id before data.
type docsTree struct {
	root    *yaml.Node
	schemas openapi3.Schemas
}

func newDocsTree(text []byte, schemas openapi3.Schemas) (docsTree, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return docsTree{}, fmt.Errorf("openapi.yaml: %w", err)
	}
	if len(document.Content) != 1 {
		return docsTree{}, fmt.Errorf("openapi.yaml: it is empty")
	}
	return docsTree{document.Content[0], schemas}, nil
}

// at follows a path from the root, through references. It returns nil if the path does not exist.
func (t docsTree) at(path ...string) *yaml.Node {
	node := t.root
	for _, name := range path {
		node = t.resolve(node)
		if node = child(node, name); node == nil {
			return nil
		}
	}
	return t.resolve(node)
}

func (t docsTree) resolve(node *yaml.Node) *yaml.Node {
	for node != nil {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
			continue
		}
		to := child(node, "$ref")
		if to == nil {
			break
		}
		node = t.at(strings.Split(strings.TrimPrefix(to.Value, "#/"), "/")...)
	}
	return node
}

// child returns a mapping's value by its name, or nil.
func child(node *yaml.Node, name string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

// names returns a mapping's keys in order.
func (t docsTree) names(path ...string) []string {
	var names []string
	if node := t.at(path...); node != nil && node.Kind == yaml.MappingNode {
		for i := 0; i < len(node.Content); i += 2 {
			names = append(names, node.Content[i].Value)
		}
	}
	return names
}

// example returns a body's example as text, or "".
func (t docsTree) example(path ...string) (string, error) {
	node := t.at(path...)
	if node == nil {
		return "", nil
	}
	if node.Kind == yaml.ScalarNode {
		return node.Value, nil
	}
	return shortJSON(node, "")
}

// exampleWidth is the maximum number of characters of an object or array on one line.
const exampleWidth = 84

// shortJSON formats JSON for people: it puts on one line what fits.
func shortJSON(node *yaml.Node, indent string) (string, error) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind == yaml.ScalarNode {
		var value any
		if err := node.Decode(&value); err != nil {
			return "", fmt.Errorf("the example in line %d: %w", node.Line, err)
		}
		return plainJSON(value)
	}
	open, end, step := "{", "}", 2
	if node.Kind == yaml.SequenceNode {
		open, end, step = "[", "]", 1
	}
	inner := indent + "  "
	var parts []string
	length := len(indent) + len(open) + len(end)
	for i := 0; i < len(node.Content); i += step {
		text, err := shortJSON(node.Content[i+step-1], inner)
		if err != nil {
			return "", err
		}
		if step == 2 {
			name, err := plainJSON(node.Content[i].Value)
			if err != nil {
				return "", err
			}
			text = name + ": " + text
		}
		parts = append(parts, text)
		length += len(text) + len(", ")
		if strings.Contains(text, "\n") {
			length += exampleWidth
		}
	}
	if length <= exampleWidth {
		return open + strings.Join(parts, ", ") + end, nil
	}
	return open + "\n" + inner + strings.Join(parts, ",\n"+inner) + "\n" + indent + end, nil
}

func plainJSON(value any) (string, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSpace(b.String()), nil
}
