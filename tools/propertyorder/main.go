// Propertyorder copies an OpenAPI document and adds to each property of a schema its position in the document, as the
// extension x-order. oapi-codegen generates fields in that order, and alphabetically without it.
//
//	propertyorder FROM TO
package main

import (
	"fmt"
	"os"
	"strconv"

	"go.yaml.in/yaml/v3"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: propertyorder FROM TO")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "propertyorder:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	order(&document)
	text, err = yaml.Marshal(&document)
	if err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	return os.WriteFile(to, text, 0o644)
}

// order visits everything below node. The content of an example or an enumeration is not a schema, even if its name
// suggests it.
func order(node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		for _, child := range node.Content {
			order(child)
		}
		return
	}
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i].Value, node.Content[i+1]
		if name == "example" || name == "examples" || name == "enum" {
			continue
		}
		order(value)
		if name != "properties" || value.Kind != yaml.MappingNode {
			continue
		}
		for j := 1; j < len(value.Content); j += 2 {
			property := value.Content[j]
			property.Content = append(property.Content,
				&yaml.Node{Kind: yaml.ScalarNode, Value: "x-order"},
				&yaml.Node{Kind: yaml.ScalarNode, Value: strconv.Itoa(j/2 + 1), Tag: "!!int"})
		}
	}
}
