package aggregate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
)

// coldState is the newest state of a stream on which a process that has just started decides a command.
func coldState(t rapid.TB, s *watched, tenant domain.TenantID, stream string) (State, error) {
	t.Helper()
	states, err := New(Config{Store: s.Postgres, Events: s.Log})
	must(t, err)
	sent := sending{Commands: NewCommands(states, s.Log, nil), tenant: tenant, command: Command{Stream: stream}, key: streamKey{tenant, stream}}
	on, err := sent.current(context.Background(), false)
	if err != nil {
		return State{}, err
	}
	data, err := encode(on.state)
	must(t, err)
	return State{Version: on.version, Data: data}, nil
}

// While other requests hold a tenant's places, commands to new and short streams are decided all the same, and those to
// other streams are refused.
func TestCommandsToShortStreamsNeedNoPlace(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, account()))
	fill := func(stream string, events int, data string) {
		t.Helper()
		list := make([]domain.NewEvent, events)
		for i := range list {
			list[i] = domain.NewEvent{Type: "Deposited", Data: json.RawMessage(data)}
		}
		_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: list}}})
		must(t, err)
	}
	fill("account-short", briefEvents-1, `{"amount": 1}`)
	fill("account-long", briefEvents, `{"amount": 1}`)
	fill("account-large", 1, `{"amount": 1, "text": "`+strings.Repeat("x", briefBytes)+`"}`)
	_, err := send(t, c, tenant, Command{Stream: "account-0", Name: "Close"}) // compiles the definition
	must(t, err)

	c.states.requests = budget.New(budget.Limits{TenantPlaces: 1, Time: 300 * time.Millisecond})
	_, end, err := c.states.requests.Begin(t.Context(), tenant, "")
	must(t, err)
	deposit := func(stream string) (Outcome, error) {
		return send(t, c, tenant, Command{Stream: stream, Name: "Deposit", Data: json.RawMessage(`{"amounts": [1]}`)})
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			if got, err := deposit(fmt.Sprintf("account-new%d", i)); err != nil || got.Version != 1 {
				t.Errorf("a command to a new stream: %+v, %v", got, err)
			}
		})
	}
	all.Wait()
	known, _ := c.states.folds.Get(categoryKey{tenant, "account"})
	known.checked.Store(0) // an unchanged definition needs no place, either
	got, err := deposit("account-short")
	wantOutcome(t, "a short stream", got, err, Accepted, briefEvents, fmt.Sprintf(`{"balance":%d,"open":true}`, briefEvents))
	known.checked.Store(time.Now().Add(time.Hour).UnixNano())
	for _, stream := range []string{"account-long", "account-large"} {
		if _, err := deposit(stream); code(err) != domain.CodeTooManyRequests {
			t.Errorf("a command to %s without a place: %v", stream, err)
		}
		before := s.DB.App.Stat().AcquireCount()
		_, err := deposit(stream) // it is known not to be short
		if n := s.DB.App.Stat().AcquireCount() - before; code(err) != domain.CodeTooManyRequests || n > 0 {
			t.Errorf("a second command to %s: %v, with %d reads", stream, err, n)
		}
	}
	end()
	got, err = deposit("account-long")
	wantOutcome(t, "a longer stream", got, err, Accepted, briefEvents+1, fmt.Sprintf(`{"balance":%d,"open":true}`, briefEvents+1))
	_, err = deposit("account-large")
	must(t, err)
}

// A short stream whose events are costly to fold waits for a place.
func TestCostlyShortStreamsNeedAPlace(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	definition := account()
	definition.On["Deposited"] = `{"open": true, "balance": lists.range(900).all(x, lists.range(100).all(y, x + y >= 0)) ? state.balance + event.data.amount : 0}`
	must(t, c.states.Put(t.Context(), tenant, definition))
	_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "account-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Deposited", Data: json.RawMessage(`{"amount": 4}`)}}}}})
	must(t, err)
	state, err := coldState(t, s, tenant, "account-1")
	must(t, err)
	wantState(t, state, 1, `{"balance":4,"open":true}`)
	_, err = send(t, c, tenant, Command{Stream: "account-0", Name: "Close"}) // compiles the definition
	must(t, err)
	c.states.requests = budget.New(budget.Limits{TenantPlaces: 1, Time: 300 * time.Millisecond})
	_, end, err := c.states.requests.Begin(t.Context(), tenant, "")
	must(t, err)
	defer end()
	if _, err := send(t, c, tenant, Command{Stream: "account-1", Name: "Close"}); code(err) != domain.CodeTooManyRequests {
		t.Errorf("a costly state without a place: %v", err)
	}
}
