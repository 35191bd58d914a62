package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/manifold-es/manifold/domain"
)

// Limits of what an event contains of a request's body and of a thing's representation.
const (
	maxText  = 16 << 10
	maxBegin = 1 << 10

	// MaxMasked is the longest JSON that Mask reads: it makes a tree of it.
	MaxMasked = 256 << 10
)

// masked replaces secrets.
const masked = "***"

// secretPrefixes begin the secrets that the service makes: keys, tickets, and those that sign webhooks' messages.
var secretPrefixes = [...]string{"mfk_", "mft_", "whsec_"}

// Mask returns JSON in which texts and the names of members have no secrets, as from MaskText. It returns nil for what
// is not JSON, and Cut for what is longer than MaxMasked.
func Mask(text []byte) json.RawMessage {
	if len(text) > MaxMasked {
		return Cut(len(text))
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if len(text) == 0 || decoder.Decode(&value) != nil {
		return nil
	}
	cleaned, err := json.Marshal(mapStrings(value, maskText))
	if err != nil {
		return nil
	}
	return cleaned
}

// Hide returns a request as Mask has returned it, without the strings that contain a text.
func Hide(request json.RawMessage, text string) json.RawMessage {
	decoder := json.NewDecoder(bytes.NewReader(request))
	decoder.UseNumber()
	var value any
	if len(request) == 0 || decoder.Decode(&value) != nil {
		return nil
	}
	cleaned, err := json.Marshal(mapStrings(value, func(of string) string {
		if strings.Contains(of, text) {
			return masked
		}
		return of
	}))
	if err != nil {
		return nil
	}
	return cleaned
}

// mapStrings replaces the strings in a JSON value, and the names of members.
func mapStrings(value any, replace func(string) string) any {
	switch value := value.(type) {
	case map[string]any:
		cleaned := make(map[string]any, len(value))
		for name, member := range value {
			cleaned[replace(name)] = mapStrings(member, replace)
		}
		return cleaned
	case []any:
		for i := range value {
			value[i] = mapStrings(value[i], replace)
		}
	case string:
		return replace(value)
	}
	return value
}

// MaskText returns a client's text as Clean does, without secrets. It removes the secrets that the service makes, and
// everything after a URL's host, which often has tokens.
func MaskText(text string) string { return Clean(maskText(text)) }

// beginsURL matches the beginning of a URL, after characters that a reader of URLs may skip.
var beginsURL = regexp.MustCompile(`^[^\pL\pN]*[A-Za-z][A-Za-z0-9+.-]*://`)

func maskText(text string) string {
	for _, prefix := range secretPrefixes {
		if strings.Contains(text, prefix) {
			return masked
		}
	}
	if !beginsURL.MatchString(text) {
		return text
	}
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil || u.Host == "":
		return masked
	case u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == "":
		return text
	}
	return u.Scheme + "://" + u.Host + "/" + masked
}

// cut replaces JSON that is too long for an event.
type cut struct {
	Cut    bool   `json:"cut"`
	Bytes  int    `json:"bytes"`
	Begins string `json:"begins,omitempty"`
}

// Cut returns what replaces JSON of so many bytes that is not recorded.
func Cut(size int) json.RawMessage {
	return fmt.Appendf(nil, `{"cut":true,"bytes":%d}`, size)
}

// shorten returns JSON without what makes it too long for an event.
func shorten(text json.RawMessage) json.RawMessage {
	if len(text) <= maxText {
		return text
	}
	short, err := json.Marshal(cut{true, len(text), domain.Clip(string(text), maxBegin)})
	if err != nil {
		return nil
	}
	return short
}

// Clean returns a client's text as an event may contain it: short, and without control characters.
func Clean(text string) string {
	return domain.Clip(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text), 256)
}
