package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// Consumers of one group use connections that break at any moment. Every event is acknowledged by one of them, and none
// is redelivered after its acknowledgement was answered.
func TestGatewayPartyOfConsumers(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	const events, consumers = 400, 4
	for i := range 20 {
		a.append(fmt.Sprintf("order-%d", i), events/20)
	}
	a.consumer("mail", object{"ordering": "stream", "maxAttempts": 1000, "ackTimeout": 60})
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var mu sync.Mutex
	acked := map[string]int{} // the attempt
	// consume uses one connection until it breaks.
	consume := func(chance *rand.Rand) error {
		ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(a.url, "http")+"/v1/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + a.key}}})
		if err != nil {
			return err
		}
		defer ws.CloseNow()
		say := func(format string, args ...any) error {
			return ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, args...))
		}
		if err := say(`{"op":"SUBSCRIBE","id":"s","subscription":"m","group":"mail","maxInFlight":%d}`, 1+chance.IntN(30)); err != nil {
			return err
		}
		for left := 1 + chance.IntN(100); left > 0; left-- {
			patient, done := context.WithTimeout(ctx, time.Second)
			_, text, err := ws.Read(patient)
			late := patient.Err() != nil
			done()
			if late {
				return nil // perhaps no event is left
			}
			if err != nil {
				return err
			}
			var m struct {
				Op, ID, Code, Message string
				Event                 struct{ ID string }
				Attempt               int
				Results               []struct {
					ID      string
					Attempt int
					Outcome string
				}
			}
			if err := json.Unmarshal(text, &m); err != nil || m.Op == "ERR" || m.Op == "ENDED" {
				return fmt.Errorf("%s: %w", text, err)
			}
			switch {
			case m.Op == "EVENT":
				mu.Lock()
				before, done := acked[m.Event.ID]
				mu.Unlock()
				if done && m.Attempt > before {
					return fmt.Errorf("event %s comes with attempt %d; its attempt %d was acknowledged", m.Event.ID, m.Attempt, before)
				}
				op := `"op":"ACK","id":"ack"`
				if chance.IntN(10) == 0 {
					op = `"op":"NACK","id":"nack","delay":0`
				}
				if err := say(`{%s,"subscription":"m","ids":[{"id":%q,"attempt":%d}]}`, op, m.Event.ID, m.Attempt); err != nil {
					return err
				}
			case m.ID == "ack":
				mu.Lock()
				for _, result := range m.Results {
					if result.Outcome == "done" {
						acked[result.ID] = result.Attempt
					}
				}
				mu.Unlock()
			}
		}
		return nil
	}
	var party sync.WaitGroup
	for n := range consumers {
		party.Go(func() {
			chance := rand.New(rand.NewPCG(uint64(n), 7))
			for ctx.Err() == nil {
				if err := consume(chance); err != nil && ctx.Err() == nil {
					t.Error(err)
					cancel()
				}
				if progress := objects(a.get("/v1/subscriptions/mail").want(200).at("progress"))[0]; progress["readTo"] == float64(events) && progress["oldest"] == nil {
					cancel() // everything is acknowledged
				}
			}
		})
	}
	party.Wait()
	if log := a.log.String(); strings.Contains(log, "ERROR") {
		t.Error(log)
	}
	// The answer to an acknowledgement may be lost with its connection.
	if len(acked) < events/2 || len(acked) > events {
		t.Errorf("%d of %d events were acknowledged", len(acked), events)
	}
}

// A consumer that loses its connection again and again has not failed. Its unanswered events are redelivered, and their
// attempts do not count. Attempts do count for events for which it had asked for more time, since it had started them.
func TestGatewayConnectionsThatEndAreNoAttempts(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 3)
	c := a.consumer("mail", object{"maxAttempts": 2, "ackTimeout": 3600})
	for attempt := 1; attempt <= 6; attempt++ {
		g := a.gateway()
		g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail"})
		for _, e := range g.events("m", 3) {
			equal(t, "the attempt", e["attempt"], attempt)
		}
		if attempt%2 == 0 {
			g.ask("UNSUBSCRIBE", object{"subscription": "m"})
		}
		must(t, g.ws.Close(websocket.StatusGoingAway, ""))
	}
	for range 2 {
		g := a.gateway()
		g.ask("SUBSCRIBE", object{"subscription": "m", "group": "mail"})
		events := g.events("m", 3)
		begun := events[slices.IndexFunc(events, func(e object) bool { return e["event"].(object)["position"] == float64(1) })]
		equal(t, "what became of it", outcomes(g.ask("MODACK", object{"subscription": "m", "ids": attemptsOf(begun), "by": 60})), []string{"done"})
		g.ask("UNSUBSCRIBE", object{"subscription": "m"})
	}
	dead := objects(a.get("/v1/subscriptions/mail/dead-letters").want(200).at("deadLetters"))
	equal(t, "what was worked on twice", len(dead), 1)
	equal(t, "its attempts", dead[0]["attempts"], 2)
	equal(t, "what the next one gets", of(c.receive(10)), []int{2, 3})
}

// An event that kills its client becomes a dead letter. Others that were in flight with it are delivered one at a time,
// and count no attempt.
func TestGatewayFindsTheEventThatKillsItsClient(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 10)
	a.append("payment-1", 10)
	a.consumer("mail", object{"source": object{"categories": list{"order"}}, "maxAttempts": 3, "ackTimeout": 3600})
	a.consumer("books", object{"source": object{"categories": list{"payment"}}, "maxAttempts": 3, "ackTimeout": 3600})
	const deadly, attempts = 4, 3
	handled := make(map[string]bool)
	subscribe := func() *gatewayClient {
		g := a.gateway()
		g.ask("SUBSCRIBE", object{"subscription": "mail", "group": "mail", "maxInFlight": 20})
		g.ask("SUBSCRIBE", object{"subscription": "books", "group": "books", "maxInFlight": 20})
		return g
	}
	// handle handles the next event, and reports whether the client survives it.
	handle := func(g *gatewayClient) bool {
		e := g.find("an event", func(m object) bool { return m["op"] == "EVENT" })
		if more := g.arrived(); more > 0 {
			t.Fatalf("%d more are in flight with %v", more, e)
		}
		position, name := e["event"].(object)["position"].(float64), e["subscription"].(string)
		if position == deadly {
			return false
		}
		handled[fmt.Sprint(position)] = true
		equal(t, "what became of it", outcomes(g.ask("ACK", object{"subscription": name, "ids": attemptsOf(e)})), []string{"done"})
		return true
	}
	g := subscribe()
	g.events("mail", 10)
	g.events("books", 10)
	must(t, g.ws.CloseNow()) // it dies while all are in flight
	for range attempts {
		g = subscribe()
		for handle(g) {
		}
		must(t, g.ws.CloseNow())
	}
	for g = subscribe(); len(handled) < 19; {
		handle(g)
	}
	dead := objects(a.get("/v1/subscriptions/mail/dead-letters").want(200).at("deadLetters"))
	equal(t, "dead letters", len(dead), 1)
	equal(t, "its position", dead[0]["event"].(object)["position"], deadly)
	equal(t, "its attempts", dead[0]["attempts"], attempts)
	equal(t, "other dead letters", a.get("/v1/subscriptions/books/dead-letters").want(200).at("deadLetters"), list{})
}
