package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// plainKey matches names that every version of YAML reads as texts, except yamlWords.
var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// yamlWords are what some version of YAML reads as a boolean or null.
var yamlWords = map[string]bool{
	"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true, "true": true, "false": true, "null": true,
}

// appendYAML appends a JSON value as YAML: objects and lists as blocks, and scalars as they are in JSON, since these
// mean the same in YAML. Keys that are names are not quoted. The members keep their order.
func appendYAML(to []byte, value []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	w := yamlWriter{decoder: decoder, out: to}
	err := w.value(0, true)
	return w.out, err
}

type yamlWriter struct {
	decoder *json.Decoder
	out     []byte
}

// value writes the next value. If begun, the line has nothing or only the mark of a list before it; otherwise it has a
// key.
func (w *yamlWriter) value(indent int, begun bool) error {
	token, err := w.decoder.Token()
	if err != nil {
		return err
	}
	delimiter, ok := token.(json.Delim)
	if ok && w.decoder.More() {
		return w.block(delimiter == '{', indent, begun)
	}
	if !begun {
		w.out = append(w.out, ' ')
	}
	if ok { // an empty one
		if token, err = w.decoder.Token(); err != nil {
			return err
		}
		w.out = append(w.out, map[bool]string{true: "{}\n", false: "[]\n"}[token == json.Delim('}')]...)
		return nil
	}
	return w.scalar(token, "\n")
}

// block writes an object or a list that is not empty.
func (w *yamlWriter) block(object bool, indent int, begun bool) error {
	if !begun {
		w.out = append(w.out, '\n')
	}
	for first := true; w.decoder.More(); first = false {
		if !first || !begun {
			w.out = append(w.out, strings.Repeat(" ", indent)...)
		}
		if !object {
			w.out = append(w.out, "- "...)
			if err := w.value(indent+2, true); err != nil {
				return err
			}
			continue
		}
		key, err := w.decoder.Token()
		if err != nil {
			return err
		}
		if name, _ := key.(string); plainKey.MatchString(name) && !yamlWords[strings.ToLower(name)] {
			w.out = append(append(w.out, name...), ':')
		} else if err := w.scalar(key, ":"); err != nil {
			return err
		}
		if err := w.value(indent+2, false); err != nil {
			return err
		}
	}
	_, err := w.decoder.Token()
	return err
}

// scalar writes a scalar as JSON. It also escapes characters that JSON allows and YAML does not.
func (w *yamlWriter) scalar(token json.Token, end string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(token); err != nil {
		return err
	}
	for _, char := range strings.TrimSuffix(text.String(), "\n") {
		if char >= 0x7f && char < 0xa0 || char == 0xfeff || char == 0xfffe || char == 0xffff {
			w.out = fmt.Appendf(w.out, `\u%04x`, char)
		} else {
			w.out = utf8.AppendRune(w.out, char)
		}
	}
	w.out = append(w.out, end...)
	return nil
}
