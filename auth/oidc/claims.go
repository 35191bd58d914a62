package oidc

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Claims are a token's claims as JSON values; numbers are float64.
type Claims map[string]any

// Value returns the value of a claim. A name that begins with "/" is a JSON Pointer into nested objects, such as
// /realm_access/roles.
func (c Claims) Value(name string) (value any, ok bool) {
	if !strings.HasPrefix(name, "/") {
		value, ok = c[name]
		return value, ok
	}
	value = map[string]any(c)
	for part := range strings.SplitSeq(name[1:], "/") {
		object, isObject := value.(map[string]any)
		if !isObject {
			return nil, false
		}
		if value, ok = object[pointerUnescape.Replace(part)]; !ok {
			return nil, false
		}
	}
	return value, true
}

var pointerUnescape = strings.NewReplacer("~1", "/", "~0", "~")

// Text returns the value of a claim that is a string.
func (c Claims) Text(name string) (string, bool) {
	value, _ := c.Value(name)
	text, ok := value.(string)
	return text, ok
}

// Has reports whether a claim is value, or a list with value. A boolean or number equals its JSON text. The claims
// scope and scp may also be lists in one string, separated by spaces (RFC 9068). Other strings are never split: their
// users may have chosen them. An empty value matches any value except null and false.
func (c Claims) Has(name, value string) bool {
	switch given, _ := c.Value(name); given := given.(type) {
	case nil:
		return false
	case []any:
		return slices.ContainsFunc(given, func(element any) bool { return isText(element, value) })
	case string:
		if name == "scope" || name == "scp" {
			return slices.ContainsFunc(strings.Fields(given), func(word string) bool { return isText(word, value) })
		}
		return isText(given, value)
	default:
		return isText(given, value)
	}
}

// isText reports whether a JSON value, as text, is the wanted one.
func isText(value any, wanted string) bool {
	text := ""
	switch value := value.(type) {
	case string:
		text = value
	case bool:
		text = strconv.FormatBool(value)
		if wanted == "" {
			return value
		}
	case float64:
		encoded, _ := json.Marshal(value)
		text = string(encoded)
	case map[string]any:
		return wanted == "" && len(value) > 0
	}
	return text != "" && (wanted == "" || text == wanted)
}
