package systemtest

import (
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A projection that is removed and created again under the same name is followed, whatever the service was doing with
// the previous one.
func TestProjectionRecreatedUnderTheSameName(t *testing.T) {
	t.Parallel()
	_, u := newTenant(t, newUser(t, inside(t, configuration(pgtest.Database(t))), operatorKey), "acme")
	u.must(t, 201, nil, "POST", "/v1/streams/order-1/events", []byte(`[{"type":"A","data":{"n":1}},{"type":"A","data":{"n":2}}]`))
	for i := range 120 {
		expression := []string{"{'n': event.data.n}", "doc", "null", "{'a': event.data.missing}"}[i%4]
		u.must(t, 201, nil, "PUT", "/v1/projections/p", map[string]any{"name": "p", "on": map[string]string{"*": expression}})
		a, err := u.once(t.Context(), 0, "GET", "/v1/projections/p/documents/order-1?minPosition=2&timeout=30", nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := []int{200, 200, 404, 409}[i%4]; a.status != want {
			t.Fatalf("made for the %dth time, by %s, it answers %s, not %d", i+1, expression, a, want)
		}
		u.must(t, 204, nil, "DELETE", "/v1/projections/p", nil)
	}
}
