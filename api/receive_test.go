package api_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// lateGroups does something between leasing events and returning them.
type lateGroups struct {
	api.Groups
	between func(ctx context.Context)
}

func (g *lateGroups) Poll(ctx context.Context, tenant domain.TenantID, name string, wanted group.Receive) (group.Received, error) {
	received, err := g.Groups.Poll(ctx, tenant, name, wanted)
	if between := g.between; between != nil && len(received.Deliveries) > 0 {
		g.between = nil
		between(ctx)
	}
	return received, err
}

// lateWorld has a group with one attempt for each event, and two events.
func lateWorld(t *testing.T) (*lateGroups, *actor, consumer) {
	late := &lateGroups{}
	a := newWorld(t, func(c *api.Config) {
		late.Groups = c.Groups
		c.Groups, c.Recheck = late, 1 // a nanosecond means always
	}).tenant("acme")
	a.append("order-1", 2)
	return late, a, a.consumer("g", object{"ackTimeout": 3600, "maxAttempts": 1})
}

// wantBack checks that what was leased is due again at once, and that its attempt does not count.
func (c consumer) wantBack() {
	c.t.Helper()
	again := c.receive(10)
	equal(c.t, "what the next one gets", of(again), list{1, 2})
	equal(c.t, "its attempt", again[0]["attempt"], 2)
}

// A client that has disconnected before its answer is written has received nothing.
func TestAClientThatIsGoneWhenItsAnswerIsThere(t *testing.T) {
	t.Parallel()
	late, a, c := lateWorld(t)
	ctx, leave := context.WithCancel(t.Context())
	late.between = func(serving context.Context) {
		leave()
		<-serving.Done()
	}
	if _, err := web.Do(a.request("POST", c.path("/receive"), nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
		t.Fatalf("the request ended with %v", err)
	}
	c.wantBack()
}

// A client that has closed its half of the connection looks disconnected. It does not get an empty answer.
func TestAClientThatHasClosedItsHalf(t *testing.T) {
	t.Parallel()
	late, a, c := lateWorld(t)
	ctx, leave := context.WithCancel(t.Context())
	late.between = func(context.Context) { leave() }
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, c.path("/receive"), nil)
	request.Header.Set("Authorization", "Bearer "+a.key)
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, request)
	equal(t, "the status", w.Code, http.StatusServiceUnavailable)
	c.wantBack()
}

// deafWriter is a connection that breaks on the first write.
type deafWriter struct{ *httptest.ResponseRecorder }

func (deafWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

// An answer that cannot be written has not reached the client.
func TestAnAnswerThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	_, a, c := lateWorld(t)
	request := httptest.NewRequest(http.MethodPost, c.path("/receive"), nil)
	request.Header.Set("Authorization", "Bearer "+a.key)
	w := deafWriter{httptest.NewRecorder()}
	a.handler.ServeHTTP(w, request)
	equal(t, "the status", w.Code, http.StatusOK)
	c.wantBack()
}

// Events leased for a key that was revoked meanwhile are available to others at once.
func TestWhatIsLeasedForARevokedKey(t *testing.T) {
	t.Parallel()
	late, a, c := lateWorld(t)
	made := a.post("/v1/keys", object{"name": "consumer", "scopes": list{"events:consume"}}).want(201)
	other := &actor{a.world, made.text("key"), a.tenantID}
	late.between = func(context.Context) { a.send("DELETE", "/v1/keys/"+made.text("id"), nil).want(http.StatusNoContent) }
	other.post(c.path("/receive"), nil).wantProblem(http.StatusUnauthorized, domain.CodeUnauthenticated, "")
	c.wantBack()
}
