package remote

import (
	"strings"
	"testing"
)

// The error for a definition that was cut off says so, rather than that the name is missing.
func TestDefinitionsThatAreCutOffSaySo(t *testing.T) {
	t.Parallel()
	const whole = `{"on": {"A": "doc", "B": {"x": [1, 2]}}, "name": "orders"}`
	for end := 1; end < len(whole); end++ {
		_, _, err := readDefinition("-", strings.NewReader(whole[:end]))
		if err == nil || !strings.Contains(err.Error(), "the JSON ends in the middle") {
			t.Fatalf("the definition %s is answered %v", whole[:end], err)
		}
		if _, err := readNamed("group", "-", "orders", strings.NewReader(whole[:end])); err == nil || !strings.Contains(err.Error(), "the JSON ends in the middle") {
			t.Fatalf("the group %s is answered %v", whole[:end], err)
		}
	}
	if _, _, err := readDefinition("-", strings.NewReader("{\n \"name\": \"orders\",\n}")); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("what is not JSON is answered %v", err)
	}
	for _, text := range []string{whole, "name: orders\non: {A: doc}\n"} {
		if name, _, err := readDefinition("-", strings.NewReader(text)); err != nil || name != "orders" {
			t.Errorf("%s is read as %q, %v", text, name, err)
		}
	}
}
