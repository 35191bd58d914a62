package egress

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestTemplates(t *testing.T) {
	t.Parallel()
	alphabet := Alphabet{Allowed: func(c byte) bool { return c != '.' && c != '*' }, Escape: '%', Most: 60}
	tenant := domain.NewTenantID()
	for text, want := range map[string]string{
		"plain":                "plain",
		"a.{category}.{key}.b": "a.order.x%2Ey%2A-1.b",
		"{tenant}":             tenant.String(),
		"{type}{type}":         "PlacedPlaced",
	} {
		tm, err := newTemplate(text, alphabet)
		if err != nil {
			t.Fatal(err)
		}
		if got := tm.text(tenant, &domain.Event{Stream: "order-x.y*-1", Type: "Placed"}); got != want {
			t.Errorf("%q gives %q; want %q", text, got, want)
		}
	}
	tm, err := newTemplate("a.{key}.b", alphabet)
	if err != nil {
		t.Fatal(err)
	}
	if got := tm.text(tenant, &domain.Event{Stream: "order-"}); got != "a.%.b" {
		t.Errorf("without a key it is %q", got)
	}
	if got := tm.text(tenant, &domain.Event{Stream: "order-" + strings.Repeat("k", 100)}); len(got) != 60 {
		t.Errorf("%q has %d bytes", got, len(got))
	}
	alphabet.Reserved = func(name string) bool { return strings.HasPrefix(name, "order") }
	for text, want := range map[string]string{"{category}.{type}": "%6Frder.Placed", "a.{category}": "a.order", "order.{type}": "order.Placed"} {
		tm, err := newTemplate(text, alphabet)
		if err != nil {
			t.Fatal(err)
		}
		if got := tm.text(tenant, &domain.Event{Stream: "order-1", Type: "Placed"}); got != want {
			t.Errorf("%q gives %q, which is reserved; want %q", text, got, want)
		}
	}
}
