package folding

import (
	"bytes"
	"fmt"

	"github.com/manifold-es/manifold/expr"
)

// maxDifferences is how many differences of one document are reported.
const maxDifferences = 20

// Differences lists the fields in which a value differs from the expected one, one per line. The list is empty if
// both are the same JSON value, whatever the form of numbers and the order of fields.
func Differences(got, want []byte) []string {
	if bytes.Equal(canonical(got), canonical(want)) {
		return nil
	}
	is, err := expr.ParseJSON(got)
	if err != nil {
		return []string{fmt.Sprintf("it is not JSON: %s", err)}
	}
	wanted, err := expr.ParseJSON(want)
	if err != nil {
		return []string{fmt.Sprintf("the expected document is not JSON: %s", err)}
	}
	var all []string
	compare(is, wanted, "", &all)
	if len(all) > maxDifferences {
		all = append(all[:maxDifferences], fmt.Sprintf("and %d more differences", len(all)-maxDifferences))
	}
	return all
}

func compare(is, want expr.Value, path string, all *[]string) {
	if same(is, want) {
		return
	}
	switch want := want.(type) {
	case *expr.Object:
		if is, ok := is.(*expr.Object); ok {
			compareObjects(is, want, path, all)
			return
		}
	case expr.List:
		if is, ok := is.(expr.List); ok && is.Len() == want.Len() {
			for i := range want.Len() {
				compare(is.At(i), want.At(i), fmt.Sprintf("%s[%d]", path, i), all)
			}
			return
		}
	}
	*all = append(*all, fmt.Sprintf("%sis %s, want %s", subject(path), format(is), format(want)))
}

func compareObjects(is, want *expr.Object, path string, all *[]string) {
	prefix := ""
	if path != "" {
		prefix = path + "."
	}
	for i := range want.Len() {
		name, value := want.Entry(i)
		if there, ok := is.Get(name); ok {
			compare(there, value, prefix+name, all)
		} else {
			*all = append(*all, fmt.Sprintf("%sis missing, want %s", subject(prefix+name), format(value)))
		}
	}
	for i := range is.Len() {
		name, value := is.Entry(i)
		if _, ok := want.Get(name); !ok {
			*all = append(*all, fmt.Sprintf("%sis %s, want no such field", subject(prefix+name), format(value)))
		}
	}
}

func same(a, b expr.Value) bool {
	one, err := expr.AppendJSON(nil, a)
	if err != nil {
		return false
	}
	other, err := expr.AppendJSON(nil, b)
	return err == nil && bytes.Equal(one, other)
}

// subject returns a path followed by a space; for the document itself it returns "it ".
func subject(path string) string {
	if path == "" {
		return "it "
	}
	return path + " "
}

// format formats a value as JSON, always in the same form.
func format(v expr.Value) string {
	text, err := expr.AppendJSON(nil, v)
	if err != nil {
		return err.Error()
	}
	return Cut(string(text), MaxShown)
}
