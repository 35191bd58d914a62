package egress

import (
	"fmt"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// Alphabet says which bytes a value may have where it is put into a subject or topic, and how others are written.
type Alphabet struct {
	Allowed func(c byte) bool
	Escape  byte // begins two hexadecimal digits
	Most    int  // bytes of the whole
	// Reserved reports whether the whole is a name that the broker has for itself, or none at all. Of one that begins with a value the
	// first byte is escaped then. nil: there is no such name.
	Reserved func(name string) bool
}

// template is the subject or topic of messages, with places for what the events have.
type template struct {
	parts    []part
	alphabet Alphabet
}

type part struct {
	text  string
	value func(tenant domain.TenantID, event *domain.Event) string // nil: text stands as it is
}

var placeholders = map[string]func(domain.TenantID, *domain.Event) string{
	"tenant":   func(tenant domain.TenantID, _ *domain.Event) string { return tenant.String() },
	"category": func(_ domain.TenantID, e *domain.Event) string { return domain.Category(e.Stream) },
	"key":      func(_ domain.TenantID, e *domain.Event) string { return domain.Key(e.Stream) },
	"type":     func(_ domain.TenantID, e *domain.Event) string { return e.Type },
}

// CheckTemplate reports what is wrong with the template of a subject or topic. The error says what to write instead.
func CheckTemplate(text string) error {
	_, err := newTemplate(text, Alphabet{})
	return err
}

// newTemplate reads a template. The error says what to write instead.
func newTemplate(text string, alphabet Alphabet) (template, error) {
	t := template{alphabet: alphabet}
	for rest := text; rest != ""; {
		before, behind, ok := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return template{}, fmt.Errorf("%q has a } without a {", text)
		}
		if before != "" {
			t.parts = append(t.parts, part{text: before})
		}
		if !ok {
			break
		}
		name, after, ok := strings.Cut(behind, "}")
		value := placeholders[name]
		if !ok || value == nil {
			return template{}, fmt.Errorf("%q has a place that is none of {tenant}, {category}, {key} and {type}", text)
		}
		t.parts = append(t.parts, part{value: value})
		rest = after
	}
	if len(t.parts) == 0 {
		return template{}, fmt.Errorf("it is empty; write a name, or one with places such as {category}")
	}
	return t, nil
}

// text is the subject or topic of an event. Bytes of a value that may not stand there are escaped, and what is longer than
// allowed is cut off.
func (t template) text(tenant domain.TenantID, event *domain.Event) string {
	b := t.fill(tenant, event)
	if t.parts[0].value != nil && t.alphabet.Reserved != nil && t.alphabet.Reserved(string(b)) {
		b = append(t.escape(nil, b[0]), b[1:]...)
	}
	return string(b[:min(len(b), t.alphabet.Most)])
}

// escape appends a byte that may not stand as it is.
func (t template) escape(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(b, t.alphabet.Escape, digits[c>>4], digits[c&15])
}

func (t template) fill(tenant domain.TenantID, event *domain.Event) (b []byte) {
	for _, p := range t.parts {
		if p.value == nil {
			b = append(b, p.text...)
			continue
		}
		value := p.value(tenant, event)
		if value == "" {
			b = append(b, t.alphabet.Escape) // a name with nothing between its dots would be none
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
