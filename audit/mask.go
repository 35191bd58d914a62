package audit

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// Limits of what an event contains of a request's body and of a thing's representation.
const (
	maxText  = 16 << 10
	maxBegin = 1 << 10
)

// masked replaces secrets.
const masked = "***"

// secretPrefixes begin the secrets that the service makes: keys, tickets, and those that sign webhooks' messages.
var secretPrefixes = [...]string{"mfk_", "mft_", "whsec_"}

// Mask returns JSON in which secrets are replaced: those that the service makes, and the queries and passwords of URLs,
// which often have tokens. It returns nil for what is not JSON.
func Mask(text []byte) json.RawMessage {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if len(text) == 0 || decoder.Decode(&value) != nil {
		return nil
	}
	cleaned, err := json.Marshal(maskValue(value))
	if err != nil {
		return nil
	}
	return cleaned
}

func maskValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			value[name] = maskValue(member)
		}
	case []any:
		for i := range value {
			value[i] = maskValue(value[i])
		}
	case string:
		return maskText(value)
	}
	return value
}

func maskText(text string) string {
	for _, prefix := range secretPrefixes {
		if strings.Contains(text, prefix) {
			return masked
		}
	}
	if !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil {
		return masked
	}
	if u.RawQuery == "" && u.User == nil {
		return text
	}
	if u.User != nil {
		u.User = url.User(masked)
	}
	if u.RawQuery != "" {
		u.RawQuery = masked
	}
	return u.String()
}

// cut replaces JSON that is too long for an event.
type cut struct {
	Cut    bool   `json:"cut"`
	Bytes  int    `json:"bytes"`
	Begins string `json:"begins"`
}

// bound returns JSON without what makes it too long.
func bound(text json.RawMessage) json.RawMessage {
	if len(text) <= maxText {
		return text
	}
	short, err := json.Marshal(cut{true, len(text), domain.Clip(string(text), maxBegin)})
	if err != nil {
		return nil
	}
	return short
}

// Clean returns a client's text as an event may contain it: short, and without characters that a database refuses.
func Clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(domain.Clip(text, 256), "\uFFFD"), "\x00", "\uFFFD")
}
