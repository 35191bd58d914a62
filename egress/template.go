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
	var b []byte
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
				const digits = "0123456789ABCDEF"
				b = append(b, t.alphabet.Escape, digits[c>>4], digits[c&15])
			}
		}
	}
	return string(b[:min(len(b), t.alphabet.Most)])
}
