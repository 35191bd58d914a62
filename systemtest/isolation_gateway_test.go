package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// line is a side's connection of the gateway. Everything that comes over it is looked at.
type line struct {
	t     *testing.T
	ws    *websocket.Conn
	side  *side
	other *side
	asked int

	events []gatewayMessage // received, but not requested yet
}

// dial opens a connection. The first message contains the key.
func (s *side) dial(t *testing.T, other *side) *line {
	t.Helper()
	address, err := s.site.address(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	ws, _, err := websocket.Dial(t.Context(), "ws://"+address+"/v1/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	l := &line{t: t, ws: ws, side: s, other: other}
	l.ask(`{"op":"AUTH","key":%q`, s.user.key)
	return l
}

type gatewayMessage struct {
	Op, ID, Subscription, Code string
	Event                      struct {
		ID       string
		Position int64
		Data     struct{ By string }
	}
	Attempt   int
	Duplicate bool
	Position  int64
	MemberID  string `json:"memberId"`
	Results   []struct{ Outcome string }
	State     struct{ By string }
}

// next is the next message, which has nothing of the other side.
func (l *line) next() gatewayMessage {
	l.t.Helper()
	_, text, err := l.ws.Read(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, secret := range l.other.secrets() {
		if bytes.Contains(text, []byte(secret)) {
			l.t.Fatalf("%s receives %s of %s: %s", l.side.mark, secret, l.other.mark, text)
		}
	}
	var m gatewayMessage
	if err := json.Unmarshal(text, &m); err != nil {
		l.t.Fatal(err)
	}
	return m
}

// ask sends a message, given without its id and its end, and returns the answer.
func (l *line) ask(format string, args ...any) gatewayMessage {
	l.t.Helper()
	l.asked++
	text := fmt.Sprintf(format+`,"id":"%d"}`, append(args, l.asked)...)
	if err := l.ws.Write(l.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		l.t.Fatal(err)
	}
	for {
		switch m := l.next(); {
		case m.ID == fmt.Sprint(l.asked):
			if m.Op != "OK" {
				l.t.Fatalf("%s for %s: %+v", text, l.side.mark, m)
			}
			return m
		case m.Op == "EVENT":
			l.events = append(l.events, m)
		}
	}
}

// event is the next event of a subscription.
func (l *line) event(subscription string) gatewayMessage {
	l.t.Helper()
	for {
		for i, m := range l.events {
			if m.Subscription == subscription {
				l.events = append(l.events[:i:i], l.events[i+1:]...)
				return m
			}
		}
		if m := l.next(); m.Op == "EVENT" {
			l.events = append(l.events, m)
		}
	}
}

// Two tenants do the same over concurrent connections, under the same names and ids. Each must receive only its own
// events, and its answers must not affect the other.
func TestTenantsAreIsolatedOverTheGateway(t *testing.T) {
	t.Parallel()
	operator := newUser(t, inside(t, configuration(pgtest.Database(t))), operatorKey)
	sides := newSides(t, operator, "acmemark", "umbrellamark")
	lines := []*line{sides[0].dial(t, sides[1]), sides[1].dial(t, sides[0])}
	for _, s := range sides {
		for _, group := range []string{`{}`, `{"partitions":1}`} {
			a, err := s.user.call(t.Context(), 0, http.MethodPut, "/v1/subscriptions/group"+fmt.Sprint(len(group)), []byte(group))
			if err != nil || a.status != http.StatusCreated {
				t.Fatal(a, err)
			}
		}
	}
	for _, l := range lines {
		for _, of := range []string{`"source":{}`, `"group":"group2"`, `"group":"group16"`} {
			answer := l.ask(`{"op":"SUBSCRIBE","subscription":%q,`+of, of)
			if answer.MemberID != "" {
				l.side.member = answer.MemberID
			}
		}
		answer := l.ask(`{"op":"PUBLISH","message":{"topic":"order","key":"1","id":"`+sharedID+`","type":"Placed","payload":{"by":%q}}`, l.side.mark)
		if answer.Position != 1 || answer.Duplicate {
			t.Errorf("%s's first event is answered %+v", l.side.mark, answer)
		}
	}
	for _, l := range lines {
		for _, of := range []string{`"source":{}`, `"group":"group2"`, `"group":"group16"`} {
			e := l.event(of)
			if e.Event.ID != sharedID || e.Event.Position != 1 || e.Event.Data.By != l.side.mark {
				t.Errorf("%s gets %+v", l.side.mark, e)
			}
		}
	}
	// One key, stream and command: each side has its own outcome.
	for _, l := range lines {
		definition := map[string]any{"on": map[string]string{"Noted": "event.data"}, "commands": map[string]any{
			"Note": map[string]any{"emit": []any{map[string]string{"Noted": "command"}}},
		}}
		l.side.user.must(t, http.StatusOK, nil, http.MethodPut, "/v1/aggregates/note", definition)
		for _, repeated := range []bool{false, true} {
			answer := l.ask(`{"op":"COMMAND","stream":"note-1","command":"Note","idempotencyKey":"same","data":{"by":%q}`, l.side.mark)
			if answer.State.By != l.side.mark && !repeated || answer.Position != 2 || answer.Duplicate != repeated {
				t.Errorf("%s's command is answered %+v", l.side.mark, answer)
			}
		}
	}
	groups := []string{`"group":"group2"`, `"group":"group16"`}
	for turn, op := range []string{`{"op":"ACK"`, `{"op":"NACK","action":"park"`} { // what one acknowledges, the other parks
		for i, l := range lines {
			of := groups[(i+turn)%2]
			answer := l.ask(op+`,"subscription":%q,"ids":[{"id":"`+sharedID+`","attempt":1}]`, of)
			if len(answer.Results) != 1 || answer.Results[0].Outcome != "done" {
				t.Errorf("%s of %s by %s is answered %+v", op, of, l.side.mark, answer)
			}
		}
	}
	// A member of the other side does not exist for this side.
	for i, l := range lines {
		text := fmt.Sprintf(`{"op":"SUBSCRIBE","id":"x","subscription":"x","group":"group16","memberId":%q}`, lines[1-i].side.member)
		if err := l.ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		_, answer, err := l.ws.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(answer, []byte(`"op":"ERR"`)) || !bytes.Contains(answer, []byte(`"not-found"`)) {
			t.Errorf("with a member of %s: %s", lines[1-i].side.mark, answer)
		}
	}
}
