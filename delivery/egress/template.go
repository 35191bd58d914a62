package egress

import (
	"fmt"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// Alphabet says which bytes of a value a subject or topic may contain, and how other bytes are escaped.
type Alphabet struct {
	Allowed func(c byte) bool
	Escape  byte // precedes two hexadecimal digits
	Most    int  // maximum bytes of the subject or topic
	// Reserved reports whether a name is invalid or belongs to the broker itself. If such a name begins with a value,
	// its first byte is escaped. Nil means that there are no such names.
	Reserved func(name string) bool
}

// template is the template of a subject or topic, with placeholders for parts of an event.
type template struct {
	parts    []part
	alphabet Alphabet
}

type part struct {
	text  string
	value func(tenant domain.TenantID, event *domain.Event) string // nil: text is used as it is
}

var placeholders = map[string]func(domain.TenantID, *domain.Event) string{
	"tenant":   func(tenant domain.TenantID, _ *domain.Event) string { return tenant.String() },
	"category": func(_ domain.TenantID, e *domain.Event) string { return domain.Category(e.Stream) },
	"key":      func(_ domain.TenantID, e *domain.Event) string { return domain.Key(e.Stream) },
	"type":     func(_ domain.TenantID, e *domain.Event) string { return e.Type },
}

// CheckTemplate returns what is wrong with the template of a subject or topic. The error says what to write instead.
func CheckTemplate(text string) error {
	_, err := newTemplate(text, Alphabet{})
	return err
}

// newTemplate parses a template. The error says what to write instead.
func newTemplate(text string, alphabet Alphabet) (template, error) {
	t := template{alphabet: alphabet}
	for rest := text; rest != ""; {
		before, after, ok := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return template{}, fmt.Errorf("%q has a } without a {", text)
		}
		if before != "" {
			t.parts = append(t.parts, part{text: before})
		}
		if !ok {
			break
		}
		name, remaining, ok := strings.Cut(after, "}")
		value := placeholders[name]
		if !ok || value == nil {
			return template{}, fmt.Errorf("%q has an unknown placeholder; use {tenant}, {category}, {key} and {type}", text)
		}
		t.parts = append(t.parts, part{value: value})
		rest = remaining
	}
	if len(t.parts) == 0 {
		return template{}, fmt.Errorf("it is empty; write a name, which may have placeholders such as {category}")
	}
	return t, nil
}

// text returns the subject or topic of an event. It escapes bytes of a value that are not allowed, and truncates a
// result that is too long.
func (t template) text(tenant domain.TenantID, event *domain.Event) string {
	b := t.expand(tenant, event)
	if t.parts[0].value != nil && t.alphabet.Reserved != nil && t.alphabet.Reserved(string(b)) {
		b = append(t.escape(nil, b[0]), b[1:]...)
	}
	return string(b[:min(len(b), t.alphabet.Most)])
}

// escape appends a byte in escaped form.
func (t template) escape(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(b, t.alphabet.Escape, digits[c>>4], digits[c&15])
}

func (t template) expand(tenant domain.TenantID, event *domain.Event) (b []byte) {
	for _, p := range t.parts {
		if p.value == nil {
			b = append(b, p.text...)
			continue
		}
		value := p.value(tenant, event)
		if value == "" {
			b = append(b, t.alphabet.Escape) // an empty part between dots would make the name invalid
		}
		for i := range len(value) {
			if c := value[i]; t.alphabet.Allowed(c) {
				b = append(b, c)
			} else {
				b = t.escape(b, c)
			}
		}
	}
	return b
}
