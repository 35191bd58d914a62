package api_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// The first instant of year 1 means "none" within the service: as a moment that is asked for it must not mean "now".
func TestStateAtTheBeginningOfTimeIsNotTheNewest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.append("order-1", 2)
	a.send("PUT", "/v1/aggregates/order", `{"on": {"*": "{\"seen\": true}"}}`).want(200, 201, 204)
	a.get("/v1/streams/order-1/state").want(200)
	for _, at := range []string{"0001-01-01T00:00:00Z", "0000-01-01T00:00:00Z"} {
		a.get("/v1/streams/order-1/state?at="+at).wantProblem(400, domain.CodeInvalidRequest, "query at")
	}
	a.get("/v1/streams/order-1/state?at=0002-01-01T00:00:00Z").wantProblem(404, domain.CodeNotFound, "at")
}
