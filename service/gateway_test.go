package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A process that stops returns what groups have in flight over its gateway, even for a client that does not answer.
// It carries out the messages that it received before. Another process delivers the rest at once.
func TestStopPutsBackWhatTheGatewayHasInFlight(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	first, second := start(t, configuration(db)), start(t, configuration(db))
	key := newTenant(t, first, "one")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	u := as(t, first, key)
	group, err := u.PutSubscriptionWithResponse(ctx, "mail", client.NewSubscription{AckTimeout: new(3600.0)})
	if err != nil || group.JSON201 == nil {
		t.Fatalf("%v, %s", err, group.Body)
	}
	ids := map[string]bool{}
	for i := range 10 {
		u.add(fmt.Sprintf("order-%d", i), "Placed", `{}`)
	}
	conn, _, err := websocket.Dial(ctx, "ws://"+first.Address()+"/v1/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	say := func(format string, args ...any) {
		t.Helper()
		if err := conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, args...)); err != nil {
			t.Fatal(err)
		}
	}
	say(`{"op":"SUBSCRIBE","id":"s","subscription":"m","group":"mail"}`)
	var last string
	for len(ids) < 10 {
		_, text, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Op    string
			Event struct{ ID string }
		}
		if err := json.Unmarshal(text, &m); err != nil || bytes.Contains(text, []byte(`"ERR"`)) {
			t.Fatalf("%s: %v", text, err)
		}
		if m.Op == "EVENT" {
			ids[m.Event.ID], last = true, m.Event.ID
		}
	}
	say(`{"op":"ACK","id":"a","subscription":"m","ids":[{"id":%q,"attempt":1}]}`, last)
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(`"id":"a"`)) {
			break
		}
	}
	stop(t, first) // the client reads nothing more

	delete(ids, last)
	consumer := as(t, second, key)
	for len(ids) > 0 {
		got, err := consumer.ReceiveWithResponse(ctx, "mail", client.Receive{Wait: 20})
		if err != nil || got.JSON200 == nil || len(got.JSON200.Deliveries) == 0 {
			t.Fatalf("%d have not come: %v, %s", len(ids), err, got.Body)
		}
		for _, d := range got.JSON200.Deliveries {
			if !ids[d.Event.Id] || d.Attempt != 2 {
				t.Errorf("event %s comes with attempt %d", d.Event.Id, d.Attempt)
			}
			delete(ids, d.Event.Id)
		}
	}
}
