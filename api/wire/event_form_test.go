package wire

import (
	"net/http"
	"testing"

	"github.com/manifold-es/manifold/cloudevents"
)

// A client or a proxy may send several Accept headers.
func TestAcceptsSeveralHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		accept []string
		want   bool
	}{
		{nil, false},
		{[]string{"application/json"}, false},
		{[]string{"application/json, Application/CloudEvents+JSON;q=0.9"}, true},
		{[]string{"application/json", "application/cloudevents+json"}, true},
	} {
		request := &http.Request{Header: http.Header{"Accept": c.accept}}
		if got := Accepts(request, cloudevents.StructuredType); got != c.want {
			t.Errorf("%q: %t", c.accept, got)
		}
	}
}
