package api

import (
	"net/http"
	"testing"

	"github.com/manifold-es/manifold/cloudevents"
)

// A client, or what stands before it, may say in several headers what it takes.
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
		if got := accepts(request, cloudevents.StructuredType); got != c.want {
			t.Errorf("%q: %t", c.accept, got)
		}
	}
}
