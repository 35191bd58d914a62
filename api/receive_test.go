package api_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// recheck does something while a receive reads its key again: between leasing events and returning them.
type recheck struct {
	mu      sync.Mutex
	between func(serving context.Context)
	serving context.Context // of the last request; its key is read when it arrives, and again before it is answered
	reads   int             // of keys since between was set
}

func (r *recheck) set(between func(serving context.Context)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.between, r.reads = between, 0
}

func (r *recheck) read() bool {
	r.mu.Lock()
	between, serving := r.between, r.serving
	if r.reads++; r.reads < 2 {
		between = nil
	}
	if between != nil {
		r.between = nil
	}
	r.mu.Unlock()
	if between != nil {
		between(serving)
	}
	return true
}

// worldWithRecheck has a group with one attempt for each event, and two events.
func worldWithRecheck(t *testing.T) (*recheck, *actor, consumer) {
	r := &recheck{}
	a := setup{
		change: func(c *api.Config) {
			c.Recheck = 1 // a nanosecond means always
			c.Known = func(serving context.Context) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.serving = serving
			}
		},
		keys:   auth.Config{TTL: 1}, // likewise
		faults: func(network *pgtest.Network) { network.Before("from keys k join tenants t", r.read) },
	}.start(t).tenant("acme")
	a.append("order-1", 2)
	return r, a, a.consumer("g", object{"ackTimeout": 3600, "maxAttempts": 1})
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
	recheck, a, c := worldWithRecheck(t)
	ctx, leave := context.WithCancel(t.Context())
	recheck.set(func(serving context.Context) {
		leave()
		<-serving.Done()
	})
	request := a.request("POST", c.path("/receive"), object{"wait": 30}).WithContext(ctx)
	if _, err := web.Do(request); !errors.Is(err, context.Canceled) {
		t.Fatalf("the request ended with %v", err)
	}
	c.wantBack()
}

// A client that has closed its half of the connection looks disconnected. It does not get an empty answer.
func TestAClientThatHasClosedItsHalf(t *testing.T) {
	t.Parallel()
	recheck, a, c := worldWithRecheck(t)
	ctx, leave := context.WithCancel(t.Context())
	recheck.set(func(context.Context) { leave() })
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
	_, a, c := worldWithRecheck(t)
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
	recheck, a, c := worldWithRecheck(t)
	made := a.post("/v1/keys", object{"name": "consumer", "scopes": list{"events:consume"}}).want(201)
	other := &actor{a.world, made.text("key"), a.tenantID}
	recheck.set(func(context.Context) { a.send("DELETE", "/v1/keys/"+made.text("id"), nil).want(http.StatusNoContent) })
	other.post(c.path("/receive"), nil).wantProblem(http.StatusUnauthorized, domain.CodeUnauthenticated, "")
	c.wantBack()
}
