package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/domain"
)

// gatewayClient is a client of the gateway. It checks every message in both directions against asyncapi.yaml.
type gatewayClient struct {
	t        testing.TB
	contract *asyncContract
	ws       *websocket.Conn

	mu   sync.Mutex
	sent map[string][]byte // by id
	seen map[string]bool   // names of messages

	incoming chan object
	backlog  []object
	closed   chan error // capacity one: why the connection ended
	next     int
}

// gateway opens a connection. The request contains the actor's key, if any.
func (a *actor) gateway() *gatewayClient {
	a.t.Helper()
	header := http.Header{}
	if a.key != "" {
		header.Set("Authorization", "Bearer "+a.key)
	}
	return a.dialGateway("/v1/ws", header)
}

// bareGateway opens a connection from which nothing reads.
func (a *actor) bareGateway(ctx context.Context) *websocket.Conn {
	a.t.Helper()
	ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(a.url, "http")+"/v1/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + a.key}}})
	must(a.t, err)
	return ws
}

func (a *actor) dialGateway(path string, header http.Header) *gatewayClient {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(a.url, "http")+path, &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		a.t.Fatalf("open %s: %v", path, err)
	}
	ws.SetReadLimit(-1)
	g := &gatewayClient{
		t: a.t, contract: loadAsyncContract(a.t), ws: ws, sent: map[string][]byte{}, seen: map[string]bool{},
		incoming: make(chan object, 100_000), closed: make(chan error, 1),
	}
	var reading sync.WaitGroup
	reading.Go(func() { g.closed <- g.read() })
	a.t.Cleanup(func() {
		_ = ws.CloseNow()
		reading.Wait()
	})
	return g
}

func (g *gatewayClient) read() error {
	defer close(g.incoming)
	for {
		_, text, err := g.ws.Read(context.Background())
		if err != nil {
			return err
		}
		var message object
		if err := json.Unmarshal(text, &message); err != nil {
			g.t.Errorf("the gateway sent %q: %v", text, err)
			return err
		}
		g.hold(message, text)
		g.incoming <- message
	}
}

// hold checks a message of the service, and the one that it answers, against the contract.
func (g *gatewayClient) hold(message object, text []byte) {
	op, _ := message["op"].(string)
	id, answers := message["id"].(string)
	g.mu.Lock()
	defer g.mu.Unlock()
	name := g.contract.sent[op]
	if op == "OK" {
		asked := g.sent[id]
		var question struct{ Op string }
		if err := json.Unmarshal(asked, &question); err != nil || !answers {
			g.t.Errorf("%s answers nothing that was asked", text)
			return
		}
		name = g.contract.answers[question.Op]
		if err := g.contract.ops[question.Op].check(asked, false); err != nil {
			g.t.Errorf("%s was accepted, but does not keep to the contract: %v", asked, err)
		}
	}
	m := g.contract.messages[name]
	if m == nil {
		g.t.Errorf("%s is not in the contract", text)
		return
	}
	if err := m.check(text, true); err != nil {
		g.t.Errorf("%s does not keep to the contract: %v", text, err)
	}
	g.seen[name] = true
}

// send sends an operation, and returns the message's id.
func (g *gatewayClient) send(op string, fields object) string {
	g.t.Helper()
	g.next++
	id := fmt.Sprint(g.next)
	message := object{"op": op, "id": id}
	for name, value := range fields {
		message[name] = value
	}
	text, err := json.Marshal(message)
	must(g.t, err)
	g.mu.Lock()
	g.sent[id] = text
	g.mu.Unlock()
	g.write(websocket.MessageText, text)
	return id
}

func (g *gatewayClient) write(kind websocket.MessageType, text []byte) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	if err := g.ws.Write(ctx, kind, text); err != nil {
		g.t.Fatalf("send %.100q: %v", text, err)
	}
}

// find returns the first matching message, among those received or arriving within patience. It keeps the others.
func (g *gatewayClient) find(what string, fits func(object) bool) object {
	g.t.Helper()
	for i, message := range g.backlog {
		if fits(message) {
			g.backlog = append(g.backlog[:i:i], g.backlog[i+1:]...)
			return message
		}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case message, ok := <-g.incoming:
			if !ok {
				err := <-g.closed
				g.closed <- err
				g.t.Fatalf("waiting for %s: the connection has ended: %v", what, err)
			}
			if fits(message) {
				return message
			}
			g.backlog = append(g.backlog, message)
		case <-timer.C:
			g.t.Fatalf("%s has not come; there are %v", what, g.backlog)
		}
	}
}

// answer returns the answer to a message.
func (g *gatewayClient) answer(id string) object {
	g.t.Helper()
	return g.find("the answer to "+id, func(m object) bool { return m["id"] == id })
}

// ask sends an operation and requires OK.
func (g *gatewayClient) ask(op string, fields object) object {
	g.t.Helper()
	got := g.answer(g.send(op, fields))
	if got["op"] != "OK" {
		g.t.Fatalf("%s %v is answered %v", op, fields, got)
	}
	return got
}

// refused sends an operation and requires ERR.
func (g *gatewayClient) refused(op string, fields object, code domain.Code, where string) object {
	g.t.Helper()
	got := g.answer(g.send(op, fields))
	g.wantERR(got, code, where)
	return got
}

func (g *gatewayClient) wantERR(got object, code domain.Code, where string) {
	g.t.Helper()
	place, _ := got["where"].(string)
	if got["op"] != "ERR" || got["code"] != string(code) || place != where {
		g.t.Fatalf("got %v, want %s at %q", got, code, where)
	}
}

// come returns the next unsolicited message of an operation for one subscription.
func (g *gatewayClient) come(op, subscription string) object {
	g.t.Helper()
	return g.find(op+" of "+subscription, func(m object) bool { return m["op"] == op && m["subscription"] == subscription })
}

// events returns the next events of a subscription.
func (g *gatewayClient) events(subscription string, count int) []object {
	g.t.Helper()
	var events []object
	for range count {
		events = append(events, g.come("EVENT", subscription))
	}
	return events
}

// none fails the test if an event of a subscription has arrived. It waits for the answer to an operation, which any
// such event would precede.
func (g *gatewayClient) none(subscription string) {
	g.t.Helper()
	g.answer(g.send("PUBLISH", object{"message": object{"topic": "-", "payload": 1}}))
	for _, message := range g.backlog {
		if message["op"] == "EVENT" && message["subscription"] == subscription {
			g.t.Fatalf("%v came", message)
		}
	}
}

// arrived returns the number of events that have arrived and were not taken. It waits for the answer to an operation,
// which any such event would precede.
func (g *gatewayClient) arrived() (events int) {
	g.t.Helper()
	g.answer(g.send("PUBLISH", object{"message": object{"topic": "-", "payload": 1}}))
	for _, message := range g.backlog {
		if message["op"] == "EVENT" {
			events++
		}
	}
	return events
}

// ended requires that the connection is closed with a code, and returns the reason.
func (g *gatewayClient) ended(code websocket.StatusCode) string {
	g.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-g.closed:
		g.closed <- err
		closed, ok := errors.AsType[websocket.CloseError](err)
		if !ok || closed.Code != code {
			g.t.Fatalf("the connection ended with %v, want %v", err, code)
		}
		for message := range g.incoming {
			g.backlog = append(g.backlog, message)
		}
		return closed.Reason
	case <-timer.C:
		g.t.Fatalf("the connection is not closed")
	}
	return ""
}

func attemptsOf(events ...object) list {
	var ids list
	for _, e := range events {
		ids = append(ids, object{"id": e["event"].(object)["id"], "attempt": e["attempt"]})
	}
	return ids
}

func outcomes(answer object) []string {
	var all []string
	for _, result := range objects(answer["results"]) {
		all = append(all, result["outcome"].(string))
	}
	return all
}
