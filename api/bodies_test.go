package api_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
)

// half sends the start of a request whose body has length bytes, and only come bytes of the body.
func (a *actor) half(t testing.TB, method, target, kind string, length, come int) net.Conn {
	t.Helper()
	conn := a.tcp(t)
	t.Cleanup(func() { conn.Close() })
	_, err := io.WriteString(conn, rawRequest{method, target, []string{
		"Authorization: Bearer " + a.key, "Content-Type: " + kind, fmt.Sprintf("Content-Length: %d", length),
	}, strings.Repeat(" ", come)}.text())
	must(t, err)
	return conn
}

// Bodies count while they arrive, not only when they are complete: a tenant with unfinished requests is refused, and
// others are not.
func TestUnfinishedBodiesCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.BodyBytes, c.TenantBodyBytes = 16<<20, 4<<20 })
	greedy, modest := w.tenant("greedy"), w.tenant("modest")
	const events = "/v1/streams/order-1/events"
	event := `[{"type":"Happened","data":"` + strings.Repeat("x", 200<<10) + `"}]`
	var open []net.Conn
	answers := make(chan string, 6)
	for range cap(answers) {
		conn := greedy.half(t, "POST", events, "application/json", 8<<20, 900<<10)
		open = append(open, conn)
		go func() {
			start := make([]byte, 12)
			_, _ = io.ReadFull(conn, start) // requests that are not refused end when they are closed
			answers <- string(start[9:])
		}()
	}
	// There is not enough room for all of the bodies.
	for range 2 {
		if status := <-answers; status != "429" {
			t.Errorf("what goes beyond the tenant's part is answered %q", status)
		}
	}
	// The rest fills up request by request, since the memory that earlier requests held while growing becomes free only
	// later.
	deadline := time.Now().Add(patience)
	for {
		open = append(open, greedy.half(t, "PUT", "/v1/aggregates/order", "application/json", 200<<10, 10))
		answer := greedy.post(events, event)
		if answer.status == 201 && time.Now().Before(deadline) {
			continue
		}
		if problem := answer.wantProblem(429, domain.CodeTooManyRequests, ""); answer.header.Get("Retry-After") == "" {
			t.Errorf("the problem does not say when to retry: %v", problem)
		}
		break
	}
	modest.post(events, event).want(201)
	for _, conn := range open {
		conn.Close()
	}
	for deadline := time.Now().Add(patience); greedy.post(events, event).status != 201; {
		if time.Now().After(deadline) {
			t.Fatal("what was given up still counts")
		}
	}
}

// Definitions and similar bodies may have 256 KiB. The contract names the operations with a larger limit, and that
// limit works.
func TestLimitsOfBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.append("order-1", 1)
	spec := loadContract(t)
	larger := map[string]int{}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil || op.RequestBody.Value.Content.Get("application/json") == nil {
				continue
			}
			switch op.OperationID {
			case "append", "appendToStream", "publish":
				continue
			}
			limit := 256 << 10
			if given, ok := op.RequestBody.Value.Extensions["x-max-body"].(float64); ok {
				limit = int(given)
				larger[op.OperationID] = limit
			}
			target := path
			for _, p := range append(item.Parameters, op.Parameters...) {
				target = strings.ReplaceAll(target, "{"+p.Value.Name+"}", exampleOf(p.Value))
			}
			by := a
			if scopes, _ := op.Extensions["x-scopes"].([]any); len(scopes) == 1 && strings.HasPrefix(scopes[0].(string), "operator") {
				by = w.operator()
			}
			if got := by.send(method, target, strings.Repeat(" ", limit+1)); got.status != 413 {
				t.Errorf("%s takes more than %d bytes: %d", op.OperationID, limit, got.status)
			}
			if got := by.send(method, target, strings.Repeat(" ", limit)); got.status == 413 {
				t.Errorf("%s does not take %d bytes: %s", op.OperationID, limit, got.body)
			}
		}
	}
	docs, err := os.ReadFile("../docs/reference/api.md")
	must(t, err)
	for id, limit := range larger {
		if line := fmt.Sprintf("| `%s` | %d MiB |", id, limit>>20); !strings.Contains(string(docs), line) {
			t.Errorf("docs/reference/api.md has no line %s", line)
		}
	}
	equal(t, "how many may be larger", len(larger), 8)
	state := `{"version":1,"tag":"mine","state":"` + strings.Repeat("x", 5<<20) + `"}`
	equal(t, "a large state", a.post("/v1/snapshots/order-1", state).want(201).number("version"), 1)
	a.post("/v1/snapshots/order-1", `{"version":"1","tag":"mine","state":{}}`).wantProblem(400, domain.CodeInvalidRequest, "version")
	a.post("/v1/snapshots/order-1", `{"version":1,"tag":"mine"}`).wantProblem(400, domain.CodeInvalidRequest, "state")
	a.post("/v1/snapshots/order-1", `{"version":1,"tag":"mine","state":{},"x\"y":1}`).wantProblem(400, domain.CodeInvalidRequest, "")
}

// A receive that waits holds nothing of its tenant's room for bodies, however many events it acknowledges.
func TestWaitingReceivesHoldNoRoomForBodies(t *testing.T) {
	t.Parallel()
	const receives = 10
	w := newWorld(t, func(c *api.Config) { c.TenantBodyBytes = 1 << 20 }) // the bodies below need three times as much
	a := w.tenant("acme")
	a.append("order-1", receives)
	c := a.consumer("g", object{})
	answers := make(chan *answer, receives)
	for _, d := range c.receive(receives) {
		acked := list{object{"id": d["event"].(object)["id"], "attempt": 1}}
		for range 999 {
			acked = append(acked, object{"id": domain.NewEventID().String(), "attempt": 1})
		}
		go func() {
			for {
				got := a.post(c.path("/receive"), object{"batch": 1, "wait": 30, "ack": acked})
				if got.status != 429 { // several may be read at the same time
					answers <- got
					return
				}
			}
		}()
	}
	a.until(c.path(""), func(got *answer) bool { return fmt.Sprint(got.at("progress", 0, "inFlight")) == "0" })
	a.append("order-2", receives)
	for range receives {
		equal(t, "what each receives", len(objects((<-answers).want(200).at("deliveries"))), 1)
	}
}
