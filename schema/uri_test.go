package schema_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/schema"
)

func TestURIsOfVersions(t *testing.T) {
	t.Parallel()
	if schema.VersionURI("") != nil {
		t.Error("without an address there are URIs")
	}
	uri := schema.VersionURI("https://events.example/manifold")
	for _, c := range []struct{ kind, metadata, want string }{
		{"OrderPlaced", `{"schemaVersion": 2}`, "https://events.example/manifold/v1/schemas/OrderPlaced/versions/2"},
		{"com.example/order:placed+x", `{"schemaVersion": 1}`, "https://events.example/manifold/v1/schemas/com.example%2Forder:placed+x/versions/1"},
		{"OrderPlaced", `{"user": "u"}`, ""},
		{"OrderPlaced", ``, ""},
		{"OrderPlaced", `{"schemaVersion": "2"}`, ""},
		{"OrderPlaced", `{"schemaVersion": 0}`, ""},
		{"OrderPlaced", `{"schemaVersion": 101}`, ""},
	} {
		if got := uri(&domain.Event{Type: c.kind, Metadata: []byte(c.metadata)}); got != c.want {
			t.Errorf("%s with %s has %q, want %q", c.kind, c.metadata, got, c.want)
		}
	}
}
